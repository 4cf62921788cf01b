"""`for_each` over more items than are given a job at once: the rest follow in transactions of their own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import JobStatus, Queuety, WorkflowStatus, step
from queuety.engine.kinds.for_each import ITEMS_AT_ONCE
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check
from tests.support.stories import EVERYTHING, ended, jobs_of

State = dict[str, Any]

FEW = ITEMS_AT_ONCE + 3
"""Just more than are given a job at once."""

let_go = threading.Event()


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    let_go.clear()
    yield
    let_go.set()


@step
async def square(state: State, item: int, index: int) -> State:
    return {"square": item * item, "known": len(state["items"])}


@step(max_attempts=1)
async def work_on(state: State, item: int, index: int) -> State:
    note(item)
    if item in state["bad"] and "mended" not in notes:
        raise ValueError(f"item {index} is bad")
    return {"did": item}


@step
def waits(state: State, item: int, index: int) -> State:
    note(item)
    let_go.wait(30)
    return {}


@step
def spoils(state: State, item: int, index: int) -> None:
    note(type(state["items"][index]).__name__)
    state["items"].append(1)


@step
def end(state: State) -> State:
    note("end")
    return {"end": True}


def finished(app: Queuety, run: int) -> State:
    """The aggregate, worked out by a worker beside the test."""
    with working(app, concurrency=64):
        done = app.wait(run, 600)
    assert done.status is WorkflowStatus.COMPLETED, done.error_message
    out = done.state["out"]
    assert isinstance(out, dict)
    return out


def test_thousands_of_items_are_all_worked_on_once(database: Database, rounds: int) -> None:
    number = 50_000 if rounds > 3 and database.kind == "sqlite" else 2_500
    with Queuety(database.url) as app:
        builder = app.workflow("w").for_each("items", square, result_key="out").then(end)
        run = builder.dispatch({"items": list(range(number))})
        out = finished(app, run)
        assert (out["total"], out["succeeded"], out["failed"]) == (number, number, 0)
        assert [entry["index"] for entry in out["results"]] == list(range(number))
        outputs = [entry["output"] for entry in out["results"]]
        assert outputs == [{"square": n * n, "known": number} for n in range(number)]
        assert len({entry["job_id"] for entry in out["results"]}) == number
        events = Counter(event.event for event in app.workflow_timeline(run, EVERYTHING))
        assert (events["step_item_completed"], events["step_completed"], notes) == (number, 2, ["end"])
        check(app.door)


def test_a_run_cancelled_before_all_items_have_a_job_gives_no_more(app: Queuety) -> None:
    run = app.workflow("w").for_each("items", square).then(end).dispatch({"items": list(range(FEW))})
    assert len(jobs_of(app, run, JobStatus.PENDING)) == ITEMS_AT_ONCE
    app.cancel_workflow(run)
    assert app.run_until_idle() == 0
    assert Counter(job.status for job in jobs_of(app, run)) == {JobStatus.BURIED: ITEMS_AT_ONCE}


def test_a_run_paused_before_all_items_have_a_job_works_on_all_of_them_and_no_further(database: Database) -> None:
    with Queuety(database.url) as app:
        run = app.workflow("w").for_each("items", square, result_key="out").then(end).dispatch({"items": [*range(FEW)]})
        app.pause_workflow(run)
        with working(app, concurrency=64):
            held = until(lambda: one if (one := status_of(app, run)).current_step == 1 else None)
        assert held is not None
        assert (held.status, notes) == (WorkflowStatus.PAUSED, [])
        app.resume_workflow(run)
        assert ended(app, run).status is WorkflowStatus.COMPLETED
        out = status_of(app, run).state["out"]
        assert isinstance(out, dict)
        assert (out["succeeded"], notes) == (FEW, ["end"])
        check(app.door)


def test_a_step_that_is_settled_before_all_items_have_a_job_gives_no_more(app: Queuety) -> None:
    builder = app.workflow("w").for_each("items", work_on, result_key="out", mode="first_success").then(end)
    run = builder.dispatch({"items": list(range(FEW)), "bad": [0]})
    done = ended(app, run)
    out = done.state["out"]
    assert isinstance(out, dict)
    assert (done.status, out["total"], out["succeeded"], out["failed"]) == (WorkflowStatus.COMPLETED, FEW, 1, 1)
    assert notes == [0, 1, "end"]
    assert jobs_of(app, run, JobStatus.PENDING) == []


def test_a_step_that_fails_before_all_items_have_a_job_is_retried_with_all_that_are_missing(
    database: Database,
) -> None:
    """An item of each batch is bad: the others that succeeded are not run again."""
    bad = [5, ITEMS_AT_ONCE + 1]
    with Queuety(database.url) as app:
        builder = app.workflow("w").for_each("items", work_on, result_key="out").then(end)
        run = builder.dispatch({"items": list(range(FEW)), "bad": bad})
        app.run_until_idle(max_jobs=6)
        assert (status_of(app, run).status, notes) == (WorkflowStatus.FAILED, [0, 1, 2, 3, 4, 5])
        note("mended")
        app.retry_workflow(run)
        app.run_until_idle(max_jobs=3)
        notes.remove("mended")
        with working(app, concurrency=64):
            assert app.wait(run, 60).error_message == f"item {bad[1]} is bad"
        note("mended")
        app.retry_workflow(run)
        out = finished(app, run)
        assert (out["succeeded"], out["failed"], out["failures"]) == (FEW, 0, [])
        ran = Counter(word for word in notes if isinstance(word, int))
        assert [ran[n] for n in (0, 5, bad[1])] == [1, 2, 2]
        assert set(ran) == set(range(FEW))
        check(app.door)


def test_a_retry_over_several_batches_gives_no_job_to_what_has_succeeded_in_a_later_one(memory: Queuety) -> None:
    good = range(ITEMS_AT_ONCE + 1, ITEMS_AT_ONCE + 8)
    items = list(range(ITEMS_AT_ONCE + 10))
    builder = memory.workflow("w").for_each("items", work_on, result_key="out", mode="quorum", quorum=8)
    run = builder.dispatch({"items": items, "bad": [one for one in items if one not in good]})
    assert ended(memory, run).status is WorkflowStatus.FAILED
    note("mended")
    memory.retry_workflow(run)
    assert len(jobs_of(memory, run, JobStatus.PENDING)) == ITEMS_AT_ONCE
    memory.run_until_idle(max_jobs=0)
    assert len(jobs_of(memory, run, JobStatus.PENDING)) == len(items) - len(good)
    out = ended(memory, run).state["out"]
    assert isinstance(out, dict)
    assert [entry["index"] for entry in out["results"]] == [0, *good]


def test_a_long_list_is_shared_by_all_items_and_refuses_to_be_changed(memory: Queuety) -> None:
    run = memory.workflow("w").max_attempts(1).for_each("items", spoils).dispatch({"items": list(range(FEW))})
    memory.run_until_idle(max_jobs=1)
    failed = status_of(memory, run)
    assert (failed.status, notes) == (WorkflowStatus.FAILED, ["int"])
    assert failed.state["items"] == list(range(FEW))


def test_others_are_worked_on_while_many_items_are_given_jobs(database: Database) -> None:
    """A long list does not make a run of another queue wait until all its items are done."""
    with Queuety(database.url) as app:
        app.workflow("w").for_each("items", waits).dispatch({"items": list(range(FEW))})
        beside = app.workflow("beside").on_queue("urgent").then(end).dispatch()
        with working(app, "urgent,default", concurrency=2, grace_s=0.1):
            assert app.wait(beside, 30).status is WorkflowStatus.COMPLETED
            until(lambda: len(notes) >= 3)
            let_go.set()
        check(app.door)
