"""`parallel`: several handlers side by side, and what each returns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import JobStatus, Priority, Queuety, Step, StreamingStep, WorkflowStatus, bind, current, step
from queuety.model import ErrorKind
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check
from tests.support.stories import ended, jobs_of, story

State = dict[str, Any]

let_go = threading.Event()


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    let_go.clear()
    yield
    let_go.set()


@step
def put(state: State, *, key: str, value: Any = True) -> State:
    note(key)
    return {key: value, "last": key}


@step
def sees(state: State) -> State:
    return {"seen": sorted(state)}


@step
def steers(state: State) -> State:
    return {"steered": True, "_next_step": "end", "_hidden": 1}


@step
def steers_badly(state: State) -> State:
    return {"_next_step": "nowhere"}


@step
def end(state: State) -> State:
    note("end")
    return {"end": sorted(key for key in state if key != "last")}


@step(backoff=[0])
def stumbles(state: State) -> State:
    note(f"stumbles {current().attempt}")
    if current().attempt < 3:
        raise OSError("not yet")
    return {"stumbled": current().attempt}


@step(max_attempts=1)
def fails_until_mended(state: State) -> State:
    note("tried")
    if "mended" not in notes:
        raise ValueError("the branch is broken")
    return {"mended": True}


@step
def waits(state: State, *, number: int) -> State:
    note(f"began {number}")
    let_go.wait(30)
    return {f"waited {number}": True}


@step
def keyed(state: State) -> State:
    note(current().idempotency_key)
    if current().attempt == 1:
        raise OSError("once more")
    return {}


@step
def appends(state: State, *, number: int) -> State:
    return {f"key {number}": number, "list": [*state.get("list", []), number]}


@step
def count(state: State) -> State:
    return {"n": state.get("n", 0) + 1}


@step(queue="slow", priority=Priority.HIGH, max_attempts=7)
def heavy(state: State) -> State:
    return {"heavy": True}


@step
async def awaited(state: State) -> State:
    return {"awaited": current().item_index}


class AsClass(Step):
    def handle(self, state: State) -> State:
        return {"class": current().item_index}


class Streams(StreamingStep):
    def stream(self, state: State, existing_chunks: list[Any]) -> Iterator[str]:
        yield from ("a", "b")

    def on_complete(self, chunks: list[Any], state: State) -> State:
        return {"streamed": "".join(chunks)}


def test_each_branch_is_merged_as_it_ends_the_last_one_wins_and_then_the_run_goes_on(app: Queuety) -> None:
    branches = [bind(put, key=key) for key in "abc"]
    run = app.workflow("w").parallel(branches, step_name="all").then(end).dispatch({"a": None})
    assert len(jobs_of(app, run, JobStatus.PENDING)) == 3
    for number in (1, 2):
        assert app.run_until_idle(max_jobs=1) == 1
        there = status_of(app, run)
        assert (there.status, there.current_step_name) == (WorkflowStatus.RUNNING, "all")
        assert there.state["last"] == notes[-1]
        assert {key for key in "abc" if there.state.get(key)} == set(notes)
        assert len(notes) == number
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    *three, _ = notes
    assert sorted(three) == ["a", "b", "c"]
    done = status_of(app, run).state
    assert (done["last"], done["end"]) == (three[-1], ["a", "b", "c"])
    assert story(app, run) == ["step_branch_completed 0"] * 3 + ["step_completed 0", "step_completed 1"]
    outputs = [event.output for event in app.workflow_timeline(run) if event.event == "step_branch_completed"]
    assert outputs == [{key: True, "last": key} for key in three]


def test_a_branch_sees_the_state_as_it_is_when_it_starts(app: Queuety) -> None:
    run = app.workflow("w").parallel([sees, bind(put, key="x"), sees]).dispatch({"first": 1})
    app.run_until_idle(max_jobs=1)
    assert status_of(app, run).state["seen"] == ["first"]
    assert ended(app, run).state["seen"] == ["first", "last", "seen", "x"]


def test_a_branch_that_stumbles_is_tried_again_alone(app: Queuety) -> None:
    run = app.workflow("w").parallel([bind(put, key="a"), stumbles, bind(put, key="b")]).then(end).dispatch()
    done = ended(app, run)
    assert (done.status, done.state["stumbled"]) == (WorkflowStatus.COMPLETED, 3)
    assert sorted(notes) == ["a", "b", "end", "stumbles 1", "stumbles 2", "stumbles 3"]
    assert notes[-1] == "end"


def test_a_branch_that_fails_for_good_fails_the_run_and_buries_those_beside_it(app: Queuety) -> None:
    branches = [bind(put, key="a"), fails_until_mended, bind(put, key="b")]
    run = app.workflow("w").parallel(branches).then(end).dispatch()
    failed = ended(app, run)
    assert (failed.status, failed.error_kind, failed.failed_step, failed.current_step) == (
        WorkflowStatus.FAILED,
        ErrorKind.STEP_FAILED,
        0,
        0,
    )
    assert failed.error_message == "the branch is broken"
    assert notes == ["a", "tried"]
    assert failed.state == {"a": True, "last": "a"}, "what had been merged stays"
    assert [job.error_message for job in jobs_of(app, run, JobStatus.BURIED)] == ["the branch is broken"] * 2
    assert story(app, run) == ["step_branch_completed 0", "step_failed 0"]


def test_what_a_branch_returns_after_another_has_failed_is_late(app: Queuety) -> None:
    run = app.workflow("w").parallel([bind(waits, number=1), fails_until_mended]).dispatch()
    with working(app):
        assert app.wait(run, 30).status is WorkflowStatus.FAILED
        until(lambda: "began 1" in notes)
        let_go.set()
    assert status_of(app, run).state == {}
    assert story(app, run) == ["step_failed 0"]


def test_a_retry_runs_only_the_branches_that_have_not_succeeded_as_often_as_it_takes(app: Queuety) -> None:
    branches = [bind(put, key="a"), fails_until_mended, bind(put, key="b")]
    run = app.workflow("w").parallel(branches).then(end).dispatch()
    assert ended(app, run).status is WorkflowStatus.FAILED
    app.retry_workflow(run)
    again = ended(app, run)
    assert (again.status, again.error_message) == (WorkflowStatus.FAILED, "the branch is broken")
    assert "end" not in notes
    note("mended")
    app.retry_workflow(run)
    done = ended(app, run)
    assert (done.status, done.state["end"]) == (WorkflowStatus.COMPLETED, ["a", "b", "mended"])
    assert (notes.count("a"), notes.count("b"), notes.count("tried"), notes.count("end")) == (1, 1, 3, 1)


def test_a_branch_cannot_steer_the_run_nor_name_a_step_that_is_not_there(app: Queuety) -> None:
    between = bind(put, key="between")
    run = app.workflow("w").parallel([steers, steers_badly, steers]).then(between).then(end, name="end").dispatch()
    done = ended(app, run)
    assert (done.status, notes) == (WorkflowStatus.COMPLETED, ["between", "end"])
    assert done.state["end"] == ["between", "steered"]
    outputs = [event.output for event in app.workflow_timeline(run) if event.event == "step_branch_completed"]
    assert outputs == [{"steered": True, "_hidden": 1}, {}, {"steered": True, "_hidden": 1}]


def test_one_handler_several_times_is_as_many_branches_with_keys_of_their_own(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").parallel([keyed] * 3, step_name="same").then(keyed).dispatch()
    for _ in range(3):
        app.run_until_idle()
        clock.advance(seconds=60)
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    assert {key: notes.count(key) for key in notes} == dict.fromkeys(notes, 2)
    assert len(set(notes)) == 4


def test_functions_coroutines_classes_and_streams_stand_side_by_side_and_know_which_they_are(app: Queuety) -> None:
    done = ended(app, app.workflow("w").parallel([AsClass, awaited, Streams]).dispatch())
    assert done.status is WorkflowStatus.COMPLETED
    assert done.state == {"class": 0, "awaited": 1, "streamed": "ab"}


def test_a_branch_has_the_options_of_its_handler(app: Queuety) -> None:
    run = app.workflow("w").on_queue("usual").max_attempts(2).parallel([heavy, sees]).dispatch()
    branches = [(job.queue, job.priority, job.max_attempts) for job in jobs_of(app, run)]
    assert branches == [("slow", Priority.HIGH, 7), ("usual", Priority.LOW, 2)]
    assert app.run_until_idle("usual") == 1
    assert status_of(app, run).status is WorkflowStatus.RUNNING
    assert app.run_until_idle("slow") == 1
    assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_a_group_of_one_is_a_group(app: Queuety) -> None:
    run = app.workflow("w").parallel([bind(put, key="a")]).dispatch()
    assert ended(app, run).state == {"a": True, "last": "a"}
    assert story(app, run) == ["step_branch_completed 0", "step_completed 0"]


def test_fifty_branches_lose_nothing_of_each_other(database: Database) -> None:
    """Each merges a key of its own; of the list that all write, the last one's stands, as the rule says."""
    with Queuety(database.url) as app:
        run = app.workflow("w").parallel([bind(appends, number=number) for number in range(50)]).dispatch()
        with Queuety(database.url) as other, working(app, concurrency=10), working(other, concurrency=10):
            done = app.wait(run, 30)
        assert {key: value for key, value in done.state.items() if key != "list"} == {f"key {n}": n for n in range(50)}
        branches = [e.output for e in app.workflow_timeline(run, 1000) if e.event == "step_branch_completed"]
        assert len(branches) == 50
        assert done.state["list"] == (branches[-1] or {})["list"]
        check(app.door)


def test_every_lap_of_a_loop_runs_all_branches_anew(app: Queuety) -> None:
    """Branches of an earlier lap count for nothing: the group is not done before those of this one are."""
    run = (
        app.workflow("w")
        .parallel([bind(put, key="a"), bind(put, key="b"), stumbles], step_name="group")
        .then(count)
        .repeat_until("group", "n", 3)
        .dispatch()
    )
    assert ended(app, run).state["n"] == 3
    assert (notes.count("a"), notes.count("b"), notes.count("stumbles 3")) == (3, 3, 3)
    assert story(app, run).count("step_branch_completed 0") == 9


def test_a_paused_run_finishes_its_group_and_waits_before_the_next_step(app: Queuety) -> None:
    run = app.workflow("w").parallel([bind(put, key=key) for key in "abc"]).then(end).dispatch()
    app.run_until_idle(max_jobs=1)
    app.pause_workflow(run)
    assert app.run_until_idle() == 2
    held = status_of(app, run)
    assert (held.status, held.current_step, "end" in notes) == (WorkflowStatus.PAUSED, 1, False)
    app.resume_workflow(run)
    assert ended(app, run).state["end"] == ["a", "b", "c"]
    assert notes.count("end") == 1


def test_a_run_paused_and_resumed_within_its_group_runs_no_branch_twice(app: Queuety) -> None:
    run = app.workflow("w").parallel([bind(put, key=key) for key in "abc"]).then(end).dispatch()
    app.run_until_idle(max_jobs=1)
    app.pause_workflow(run)
    app.resume_workflow(run)
    assert app.run_until_idle() == 3
    assert sorted(notes) == ["a", "b", "c", "end"]


def test_a_run_cancelled_within_its_group_keeps_what_was_merged_and_takes_nothing_more(app: Queuety) -> None:
    branches = [bind(put, key="a"), *(bind(waits, number=number) for number in range(3))]
    run = app.workflow("w").parallel(branches).then(end).dispatch()
    app.run_until_idle(max_jobs=1)
    with working(app, concurrency=2):
        until(lambda: len(notes) == 3)
        app.cancel_workflow(run)
        let_go.set()
    done = status_of(app, run)
    assert (done.status, done.state) == (WorkflowStatus.CANCELLED, {"a": True, "last": "a"})
    assert [job.error_message for job in jobs_of(app, run, JobStatus.BURIED)] == ["Workflow cancelled"] * 3
    assert app.run_until_idle() == 0
