"""`fork_workflow`: a second run goes on from where the first one is, or was; the first one does not notice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select

from queuety import Queuety, WorkflowStatus, bind, errors, step, workflow
from queuety.define.builder import WorkflowBuilder
from queuety.testing import ManualClock
from tests.support.contents import contents
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check
from tests.support.stories import ended, story

State = dict[str, Any]

gates: dict[str, threading.Event] = {"let go": threading.Event()}


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    gates["let go"] = threading.Event()
    yield
    gates["let go"].set()


@step
def put(state: State, *, key: str) -> State:
    note(key)
    return {key: state.get(key, 0) + 1}


@step
def holds(state: State) -> State:
    note("began")
    gates["let go"].wait(30)
    return {"held": True}


@step(max_attempts=2, backoff=[0])
def breaks_unless_mended(state: State) -> State:
    note("tried")
    if not state.get("mended"):
        raise ValueError("broken")
    return {"worked": True}


@step
def item(state: State, item: Any, index: int) -> State:
    note(("item", item))
    return {"of": item}


@step
def jumps(state: State, *, name: str) -> State:
    return {"_next_step": name}


def steps(builder: WorkflowBuilder, *keys: str) -> WorkflowBuilder:
    for key in keys:
        builder.then(bind(put, key=key), name=key)
    return builder


def of_run(app: Queuety, run: int) -> dict[str, list[Any]]:
    """All that the database holds of a run, but the rows that tell of its forks and the version that counts them."""
    tables = app.door.tables
    with app.door.reading() as connection:
        row = connection.execute(select(tables.workflows).where(tables.workflows.c.id == run)).mappings().one()
        history = connection.execute(select(tables.history).where(tables.history.c.run_id == run)).mappings()
        jobs = connection.execute(select(tables.jobs).where(tables.jobs.c.workflow_id == run)).mappings()
        signals = connection.execute(select(tables.signals).where(tables.signals.c.workflow_id == run)).mappings()
        return {
            "workflow": [{key: value for key, value in row.items() if key != "version"}],
            "history": [dict(one) for one in history if one["entry"] != "forked"],
            "jobs": [dict(one) for one in jobs],
            "signals": [dict(one) for one in signals],
        }


def test_a_fork_goes_on_from_where_the_run_is_and_the_run_stays_as_it_is(app: Queuety, clock: ManualClock) -> None:
    builder = app.workflow("order").version("v2").idempotency_key("k").tag("t")
    run = steps(builder, "a", "b", "c").dispatch({"given": 1})
    app.run_until_idle(max_jobs=1)
    before = of_run(app, run)
    other = app.fork_workflow(run, with_state={"given": 2, "new": True}, actor="ann", reason="what if")
    assert of_run(app, run) == before
    old, new = status_of(app, run), status_of(app, other)
    assert (new.name, new.status) == (f"order_fork_{int(clock.now.timestamp())}", WorkflowStatus.RUNNING)
    assert new.state == {"given": 2, "a": 1, "new": True}
    assert (new.current_step, new.definition_hash, new.definition_version) == (1, old.definition_hash, "v2")
    assert (new.idempotency_key, new.parent_workflow_id, new.artifact_count) == (None, None, 0)
    assert new.created_at == clock.now
    (told,) = [event for event in app.workflow_timeline(run) if event.event == "workflow_forked"]
    assert (told.output, told.actor, told.reason) == ({"to": other}, "ann", "what if")
    (told, *_) = app.workflow_timeline(other)
    assert (told.event, told.output, told.actor, told.reason) == ("workflow_forked", {"from": run}, "ann", "what if")
    app.run_until_idle()
    assert status_of(app, run).state == {"given": 1, "a": 1, "b": 1, "c": 1}
    assert status_of(app, other).state == {"given": 2, "a": 1, "new": True, "b": 1, "c": 1}
    assert sorted(notes) == ["a", "b", "b", "c", "c"]
    assert story(app, other) == ["workflow_forked 1", "step_completed 1", "step_completed 2"]


@pytest.mark.parametrize("named", [1, "b"])
def test_a_fork_at_an_earlier_step_begins_with_it_as_it_was_entered(app: Queuety, named: int | str) -> None:
    run = steps(app.workflow("w"), *"abcd").dispatch({"given": 1})
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    other = app.fork_workflow(run, named)
    new = status_of(app, other)
    assert (new.status, new.current_step, new.state) == (WorkflowStatus.RUNNING, 1, {"given": 1, "a": 1})
    first = app.fork_workflow(run, "a", with_state={"given": 5})
    assert status_of(app, first).state == {"given": 5}
    app.run_until_idle()
    assert status_of(app, other).state == {"given": 1, "a": 1, "b": 1, "c": 1, "d": 1}
    assert status_of(app, first).state == {"given": 5, "a": 1, "b": 1, "c": 1, "d": 1}


def test_a_fork_at_a_step_of_a_loop_begins_with_its_latest_round(app: Queuety) -> None:
    builder = steps(app.workflow("w"), "a", "b").repeat_until("a", "a", 3, max_iterations=2)
    run = steps(builder, "c").dispatch()
    app.run_until_idle()
    other = app.fork_workflow(run, "b")
    assert status_of(app, other).state == {"a": 3, "b": 2}
    again = app.fork_workflow(run, "a", with_state={"a": 0})
    assert status_of(app, again).state == {"a": 0, "b": 2}
    assert ended(app, other).state == {"a": 3, "b": 3, "c": 1}
    assert status_of(app, again).status is WorkflowStatus.COMPLETED, "the rounds after the step begin anew"


def test_a_fork_of_a_run_that_waits_waits_too_and_may_be_signalled(app: Queuety) -> None:
    run = steps(app.workflow("w").wait_for_signals(["x", "y"], result_key="got", timeout=60), "b").dispatch()
    app.signal(run, "later", {"kept": 1})
    app.signal(run, "x", {"n": 1})
    before = of_run(app, run)
    other = app.fork_workflow(run)
    assert of_run(app, run) == before
    new = status_of(app, other)
    assert (new.status, new.waiting_for) == (WorkflowStatus.WAITING_FOR_SIGNAL, ["x", "y"])
    app.signal(other, "y", {"n": 2})
    assert ended(app, other).state == {"got": {"x": {"n": 1}, "y": {"n": 2}}, "b": 1}
    assert status_of(app, run).status is WorkflowStatus.WAITING_FOR_SIGNAL
    app.signal(run, "y", {"n": 3})
    assert ended(app, run).state == {"got": {"x": {"n": 1}, "y": {"n": 3}}, "b": 1}


def test_a_fork_at_an_earlier_step_has_the_signals_that_were_used_since(app: Queuety) -> None:
    """In the order in which they came, before those that nobody has used."""
    builder = steps(app.workflow("w"), "a").wait_for_signal("go", result_key="one").wait_for_signal("go", "two")
    run = steps(builder.wait_for_signal("stop"), "b").dispatch()
    for number in (1, 2, 3):
        app.signal(run, "go", {"n": number})
    app.run_until_idle()
    other, later = app.fork_workflow(run, "a"), app.fork_workflow(run, 2)
    assert ended(app, other).state == {"a": 1, "one": {"n": 1}, "two": {"n": 2}}
    assert status_of(app, later).state == {"a": 1, "one": {"n": 1}, "two": {"n": 2}}
    assert status_of(app, other).waiting_for == ["stop"]


def test_a_fork_at_a_step_that_the_run_went_back_before_has_no_signal_twice(app: Queuety) -> None:
    builder = steps(app.workflow("w"), "a", "b").wait_for_signal("go", result_key="one")
    run = steps(builder, "c").wait_for_signal("go", result_key="two").dispatch()
    app.run_until_idle()
    app.signal(run, "go", {"n": 1})
    app.run_until_idle()
    app.rewind_workflow(run, "a")
    other = app.fork_workflow(run, "c")
    waiting = ended(app, other)
    assert (waiting.waiting_for, waiting.state) == (["go"], {"a": 1, "b": 1, "one": {"n": 1}, "c": 1})


def test_a_fork_amid_a_group_does_the_whole_group_anew(app: Queuety) -> None:
    each = app.workflow("w").for_each("items", item, "out").dispatch({"items": [1, 2, 3]})
    group = app.workflow("w").on_queue("group").parallel([bind(put, key=key) for key in "xyz"]).dispatch()
    app.run_until_idle("default", max_jobs=2)
    app.run_until_idle("group", max_jobs=2)
    notes.clear()
    others = [app.fork_workflow(each), app.fork_workflow(group)]
    assert [len(app.list_jobs(workflow_id=other, status="pending")) for other in others] == [3, 3]
    assert status_of(app, others[1]).state == {"x": 1, "y": 1}
    app.run_until_idle()
    out = status_of(app, others[0]).state["out"]
    assert isinstance(out, dict)
    assert [entry["output"] for entry in out["results"]] == [{"of": 1}, {"of": 2}, {"of": 3}]
    assert status_of(app, others[1]).state == {"x": 2, "y": 2, "z": 1}
    for run in (each, group):
        assert status_of(app, run).status is WorkflowStatus.COMPLETED
    assert len(notes) == 1 + 3 + 1 + 3


def test_a_fork_of_a_run_that_is_parked_on_a_child_runs_another_one(app: Queuety) -> None:
    child = steps(workflow("child").wait_for_signal("go"), "inside")
    run = steps(app.workflow("w").run_workflow("child", child), "b").dispatch()
    other = app.fork_workflow(run)
    (first,) = app.list_workflows(parent_id=run)
    (second,) = app.list_workflows(parent_id=other)
    app.signal(second.id, "go")
    app.run_until_idle()
    assert status_of(app, other).state == {"inside": 1, "b": 1}
    assert status_of(app, first.id).status is WorkflowStatus.WAITING_FOR_SIGNAL
    assert status_of(app, run).status is WorkflowStatus.RUNNING


def test_a_fork_knows_the_groups_of_runs_that_were_started_before(app: Queuety) -> None:
    child = steps(workflow("child").wait_for_signal("go"), "inside")
    builder = app.workflow("w").start_workflows("items", child, "ids", group_key="all")
    run = steps(builder.wait_for_workflow_group("all", result_key="found"), "b").dispatch({"items": [1]})
    app.run_until_idle()
    other = app.fork_workflow(run)
    app.run_until_idle()
    assert status_of(app, other).waiting_for == status_of(app, run).waiting_for
    (started,) = app.list_workflows(name="child")
    app.signal(started.id, "go")
    app.run_until_idle()
    assert [status_of(app, each).status for each in (run, other)] == [WorkflowStatus.COMPLETED] * 2


def test_a_fork_of_a_delay_waits_as_long_as_the_first_time(app: Queuety, clock: ManualClock) -> None:
    run = steps(app.workflow("w").delay(seconds=10), "b").dispatch()
    clock.advance(seconds=6)
    other = app.fork_workflow(run)
    clock.advance(seconds=4)
    app.run_until_idle()
    assert [status_of(app, each).status for each in (run, other)] == [WorkflowStatus.COMPLETED, WorkflowStatus.RUNNING]
    clock.advance(seconds=6)
    assert ended(app, other).status is WorkflowStatus.COMPLETED


def test_a_fork_of_a_paused_run_is_running_and_of_a_failed_one_has_fresh_attempts(app: Queuety) -> None:
    paused = steps(app.workflow("w"), "a").dispatch()
    app.pause_workflow(paused)
    assert status_of(app, app.fork_workflow(paused)).status is WorkflowStatus.RUNNING
    failed = app.workflow("w").then(breaks_unless_mended).dispatch()
    app.run_until_idle()
    assert notes.count("tried") == 2
    other = app.fork_workflow(failed, with_state={"mended": True})
    assert ended(app, other).state == {"mended": True, "worked": True}
    third = app.fork_workflow(failed)
    assert ended(app, third).error_message == "broken"
    assert notes.count("tried") == 5
    assert status_of(app, failed).status is WorkflowStatus.FAILED


def test_a_fork_may_be_forked_and_each_goes_its_way(app: Queuety) -> None:
    run = steps(steps(app.workflow("w"), "a").wait_for_signal("go"), "b").dispatch()
    app.run_until_idle()
    family = [run]
    for number in range(3):
        family.append(app.fork_workflow(family[-1], with_state={"number": number}))
    app.signal(family[2], "go")
    app.run_until_idle()
    assert [status_of(app, each).status.is_terminal for each in family] == [False, False, True, False]
    assert status_of(app, family[3]).state == {"a": 1, "number": 2}


def test_a_fork_while_a_handler_runs_has_a_job_of_its_own(database: Database) -> None:
    with Queuety(database.url) as app:
        run = steps(app.workflow("w").then(holds), "b").dispatch()
        with working(app):
            until(lambda: notes == ["began"])
            other = app.fork_workflow(run)
            until(lambda: notes == ["began", "began"])
            gates["let go"].set()
            assert [app.wait(each, 30).state for each in (run, other)] == [{"held": True, "b": 1}] * 2
        check(app.door)


def test_what_cannot_be_forked_is_refused_and_nothing_is_written(app: Queuety) -> None:
    builder = steps(app.workflow("w"), "a").then(bind(jumps, name="d"), name="jumps")
    completed = steps(builder, "c", "d").dispatch()
    app.run_until_idle()
    cancelled = steps(app.workflow("w"), "a").dispatch()
    app.cancel_workflow(cancelled)
    running = steps(app.workflow("w"), "a", "b").dispatch()
    before = contents(app.door)
    with pytest.raises(errors.InvalidStateError, match=f"workflow {completed} is completed; .* only at a step"):
        app.fork_workflow(completed)
    for at_step in (None, "a", 0):
        with pytest.raises(errors.InvalidStateError, match=f"workflow {cancelled} is cancelled; it cannot be forked"):
            app.fork_workflow(cancelled, at_step)
    for run, never in ((completed, "c"), (running, "b")):
        with pytest.raises(errors.SnapshotMissingError, match="has not entered"):
            app.fork_workflow(run, never)
    for unknown in (9, -1, "z", ""):
        with pytest.raises(errors.DefinitionError, match="has no step"):
            app.fork_workflow(running, unknown)
    for bad in (1.5, True, [1]):
        with pytest.raises(errors.DefinitionError, match="the index or the name of a step"):
            app.fork_workflow(running, bad)  # type: ignore[arg-type]
    for reserved in ({"_x": 1}, {"x": {1}}, {"x": float("nan")}):
        with pytest.raises((errors.DefinitionError, errors.PayloadError)):
            app.fork_workflow(running, with_state=reserved)
    assert contents(app.door) == before
