"""`rewind_workflow`: a run goes back to where a step had settled, and on from there as if nothing had come after it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuety import Queuety, StreamingStep, WorkflowState, WorkflowStatus, bind, errors, step, workflow
from queuety.define.builder import WorkflowBuilder
from queuety.model import Rewind, StepSpec
from queuety.testing import ManualClock
from tests.support.contents import contents
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.hands import House, definition, single, succeeded
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


@step(max_attempts=1)
def breaks(state: State) -> State:
    note("broke")
    raise ValueError("broken")


@step(max_attempts=1)
def breaks_unless_mended(state: State) -> State:
    if not state.get("mended"):
        raise ValueError("broken")
    return {"worked": True}


@step
def item(state: State, item: Any, index: int) -> State:
    note(("item", item))
    return {"of": item}


@step
def total(state: State, for_each: State) -> State:
    return {"total": for_each["succeeded"]}


class Writes(StreamingStep):
    def stream(self, state: Any, existing_chunks: list[Any]) -> Iterator[Any]:
        yield from "ab"

    def on_complete(self, chunks: list[Any], state: Any) -> State:
        return {"written": "".join(chunks)}


def steps(builder: WorkflowBuilder, *keys: str) -> WorkflowBuilder:
    for key in keys:
        builder.then(bind(put, key=key), name=key)
    return builder


def everything(app: Queuety) -> WorkflowBuilder:
    """A step of each kind; it needs the signals `go` and `approved`, and a minute."""
    child = steps(workflow("child"), "of child")
    builder = steps(app.workflow("w"), "single").then(Writes).parallel([bind(put, key="left"), bind(put, key="right")])
    builder.for_each("items", item, "out").for_each("items", item, "sums", reducer=total)
    builder.repeat_until("single", "single", 1).delay(minutes=1).wait_for_signal("go", result_key="signal")
    builder.wait_for_decision().run_workflow("child", child).start_workflows("items", child, "ids", group_key="all")
    return steps(builder.wait_for_workflow_group("all", result_key="found"), "last")


def carried_on(app: Queuety, clock: ManualClock, run: int) -> WorkflowState:
    """The run once nothing is due, the minute that it may wait having passed."""
    app.run_until_idle()
    clock.advance(minutes=1)
    return ended(app, run)


def without_ids(state: State) -> State:
    """The state without what differs each time: ids of runs and of jobs."""
    found = {key: value for key, value in state.items() if key != "ids"}
    for key in ("out", "sums"):
        if key in found:
            found[key] = [entry["output"] for entry in found[key]["results"]]
    if "found" in found:
        found["found"] = [without_ids(own) for own in found["found"].values()]
    return found


def test_a_completed_run_goes_back_to_a_step_of_any_kind_and_ends_as_before(app: Queuety, clock: ManualClock) -> None:
    """Signals that later steps have used are there again: nobody has to send them twice."""
    run = everything(app).dispatch({"items": [1, 2]})
    app.signal(run, "go", {"sent": 1})
    app.signal(run, "approved", {"by": "me"})
    first = carried_on(app, clock, run)
    assert first.status is WorkflowStatus.COMPLETED, first.error_message
    for index in range(first.total_steps):
        after = app.workflow_state_at(run, index)
        assert after is not None
        app.rewind_workflow(run, index)
        if index < first.total_steps - 1:
            assert status_of(app, run).status is not WorkflowStatus.COMPLETED
        rewound = app.workflow_timeline(run, 10_000)
        event = next(event for event in reversed(rewound) if event.event == "workflow_rewound")
        assert event.state_after == after, index
        assert event.output is not None
        assert event.output["to_step"] == index
        again = carried_on(app, clock, run)
        assert again.status is WorkflowStatus.COMPLETED, (index, again.error_message)
        assert without_ids(again.state) == without_ids(first.state), index
    assert notes.count("single") == 1
    assert notes.count("last") == first.total_steps


@pytest.mark.parametrize("named", [1, "b"])
def test_a_run_goes_on_after_the_step_in_the_state_that_it_had_left(app: Queuety, named: int | str) -> None:
    run = steps(app.workflow("w"), *"abcd").dispatch({"given": 1})
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    app.rewind_workflow(run, named, with_state={"b": 5, "new": True})
    back = status_of(app, run)
    assert (back.status, back.current_step, back.completed_at) == (WorkflowStatus.RUNNING, 2, None)
    assert back.state == {"given": 1, "a": 1, "b": 5, "new": True}
    (job,) = app.list_jobs(workflow_id=run, status="pending")
    assert (job.step_index, job.attempts) == (2, 0)
    done = ended(app, run)
    assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {**back.state, "c": 1, "d": 1})
    assert notes == ["a", "b", "c", "d", "c", "d"]


def test_groups_that_later_steps_have_started_are_as_before(app: Queuety) -> None:
    """As are those of a fork at an earlier step, and of a run that is played again from its export."""
    child = steps(workflow("child"), "of child")
    builder = app.workflow("w").start_workflows("items", child, "ids", group_key="crew", name="first")
    builder = steps(builder, "b").start_workflows("items", child, "ids", group_key="crew", name="again")
    run = steps(builder.start_workflows("items", child, "more"), "c").dispatch({"items": [1]})

    def groups(of: int) -> dict[str, list[int]]:
        return {group["name"]: group["ids"] for group in app.export_workflow(of)["groups"]}

    first = groups(run)
    last = ended(app, run).state
    most = {"crew": last["ids"], "_step_3": last["more"]}
    assert (first.keys(), groups(run)) == ({"crew"}, most)
    assert groups(app.fork_workflow(run, at_step="b")) == first
    assert groups(app.fork_workflow(run, at_step="c")) == most
    app.rewind_workflow(run, "first")
    assert groups(run) == first
    again = app.replay_workflow(app.export_workflow(run))
    assert groups(again) == first
    app.rewind_workflow(again, 3)
    assert groups(again) == most


def test_the_latest_settling_of_a_step_counts(app: Queuety) -> None:
    builder = steps(app.workflow("w"), "a", "b").repeat_until("a", "a", 3)
    run = steps(builder, "c").dispatch()
    app.run_until_idle()
    app.rewind_workflow(run, "a")
    assert status_of(app, run).state == {"a": 3, "b": 2}
    assert ended(app, run).state == {"a": 3, "b": 3, "c": 1}


def test_the_last_step_is_a_place_to_go_back_to_and_the_run_is_completed_at_once(
    app: Queuety, clock: ManualClock
) -> None:
    run = steps(app.workflow("w"), "a", "b").dispatch()
    app.run_until_idle()
    clock.advance(seconds=5)
    app.rewind_workflow(run, 1, with_state={"more": 1})
    done = status_of(app, run)
    assert (done.status, done.current_step, done.completed_at) == (WorkflowStatus.COMPLETED, 2, clock.now)
    assert done.state == {"a": 1, "b": 1, "more": 1}
    assert app.run_until_idle() == 0


def test_a_paused_run_is_running_again(app: Queuety) -> None:
    run = steps(app.workflow("w"), "a", "b", "c").dispatch()
    app.run_until_idle(max_jobs=2)
    app.pause_workflow(run)
    app.rewind_workflow(run, "a")
    assert status_of(app, run).status is WorkflowStatus.RUNNING
    assert ended(app, run).state == {"a": 1, "b": 1, "c": 1}
    assert notes == ["a", "b", "b", "c"]


def test_a_failed_run_goes_on_from_an_earlier_step_with_what_was_wrong_put_right(app: Queuety) -> None:
    run = steps(app.workflow("w"), "a", "b").then(breaks_unless_mended).dispatch()
    assert ended(app, run).status is WorkflowStatus.FAILED
    app.rewind_workflow(run, "a", with_state={"mended": True})
    back = status_of(app, run)
    assert (back.error_message, back.error_kind, back.failed_step, back.failed_at) == (None, None, None, None)
    assert ended(app, run).state == {"a": 1, "mended": True, "b": 1, "worked": True}


def test_a_run_that_waits_gives_up_its_wait_and_its_time_out(app: Queuety, clock: ManualClock) -> None:
    builder = steps(app.workflow("w"), "a").wait_for_signal("go", timeout=60)
    run = steps(builder, "b").dispatch()
    app.run_until_idle()
    clock.advance(seconds=30)
    app.rewind_workflow(run, "a")
    waiting = status_of(app, run)
    assert (waiting.status, waiting.waiting_for) == (WorkflowStatus.WAITING_FOR_SIGNAL, ["go"])
    clock.advance(seconds=59)
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.WAITING_FOR_SIGNAL, "the time-out begins anew"
    app.signal(run, "go")
    assert ended(app, run).status is WorkflowStatus.COMPLETED


def test_a_handler_that_runs_meanwhile_has_worked_in_vain(database: Database) -> None:
    with Queuety(database.url) as app:
        run = steps(app.workflow("w"), "a").then(holds).dispatch()
        with working(app):
            until(lambda: "began" in notes)
            app.rewind_workflow(run, "a", with_state={"again": True})
            (job,) = app.list_jobs(workflow_id=run, status="buried")
            assert job.error_message == "Superseded by workflow rewind"
            until(lambda: notes.count("began") == 2)
            gates["let go"].set()
            done = app.wait(run, 30)
        assert done.state == {"a": 1, "again": True, "held": True}
        assert [event for event in story(app, run) if "completed" in event] == ["step_completed 0", "step_completed 1"]
        check(app.door)


@pytest.mark.parametrize("kind", ["branches", "items"])
def test_a_group_that_is_half_done_is_given_up_and_done_anew(app: Queuety, kind: str) -> None:
    builder = steps(app.workflow("w"), "a")
    if kind == "branches":
        builder.parallel([bind(put, key=key) for key in "xyz"])
    else:
        builder.for_each("items", item, "out")
    run = builder.dispatch({"items": [1, 2, 3]})
    app.run_until_idle(max_jobs=3)
    app.rewind_workflow(run, "a")
    assert status_of(app, run).state == {"items": [1, 2, 3], "a": 1}
    assert len(app.list_jobs(workflow_id=run, status="pending")) == 3
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert len(notes) == 1 + 2 + 3


def test_a_child_that_goes_on_is_cancelled_and_another_one_is_run(app: Queuety) -> None:
    child = steps(workflow("child").wait_for_signal("go"), "inside")
    run = steps(steps(app.workflow("w"), "a").run_workflow("child", child), "b").dispatch()
    app.run_until_idle()
    (first,) = app.list_workflows(parent_id=run)
    app.rewind_workflow(run, "a")
    app.run_until_idle()
    second, old = app.list_workflows(parent_id=run)
    assert (old.id, old.status) == (first.id, WorkflowStatus.CANCELLED)
    assert second.status is WorkflowStatus.WAITING_FOR_SIGNAL
    app.signal(second.id, "go")
    assert ended(app, run).state == {"a": 1, "inside": 1, "b": 1}


def test_a_child_that_has_completed_stays_and_another_one_is_run(app: Queuety) -> None:
    child = steps(workflow("child"), "inside")
    run = steps(steps(app.workflow("w"), "a").run_workflow("child", child), "b").dispatch()
    app.run_until_idle()
    app.rewind_workflow(run, "a")
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert [one.status for one in app.list_workflows(parent_id=run)] == [WorkflowStatus.COMPLETED] * 2


def test_a_child_may_be_rewound_while_its_parent_waits_for_it_or_has_gone_on(app: Queuety) -> None:
    child = steps(workflow("child"), "x", "y")
    run = steps(app.workflow("w").run_workflow("child", child), "b").dispatch()
    app.run_until_idle(max_jobs=1)
    (inner,) = app.list_workflows(parent_id=run)
    app.rewind_workflow(inner.id, "x", with_state={"x": 7})
    assert ended(app, run).state == {"x": 7, "y": 1, "b": 1}
    app.rewind_workflow(inner.id, "x", with_state={"x": 8})
    app.run_until_idle()
    assert status_of(app, inner.id).state == {"x": 8, "y": 1}
    assert status_of(app, run).state == {"x": 7, "y": 1, "b": 1}
    assert notes == ["x", "y", "b", "y"]


def test_rounds_of_loops_after_the_step_begin_anew_and_those_before_it_stay_counted(app: Queuety) -> None:
    builder = steps(app.workflow("w"), "a").repeat_until("a", "a", 3, max_iterations=2)
    builder = steps(builder, "b").repeat_until("b", "b", 3, name="again", max_iterations=2)
    run = steps(builder, "c").dispatch()
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    app.rewind_workflow(run, "repeat_until_1", with_state={"b": 0})
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    app.rewind_workflow(run, "repeat_until_1", with_state={"b": -1})
    stopped = ended(app, run)
    assert stopped.error_message is not None
    assert "max_iterations=2" in stopped.error_message


def test_a_signal_that_is_free_again_goes_before_those_that_came_later(app: Queuety) -> None:
    run = steps(steps(app.workflow("w"), "a").wait_for_signal("go", result_key="got"), "b").dispatch()
    app.run_until_idle()
    for number in (1, 2):
        app.signal(run, "go", {"n": number})
    assert ended(app, run).state["got"] == {"n": 1}
    app.rewind_workflow(run, "a")
    assert status_of(app, run).state["got"] == {"n": 1}
    app.run_until_idle()
    app.rewind_workflow(run, 1)
    assert ended(app, run).state["got"] == {"n": 1}
    app.rewind_workflow(run, "a", with_state={"x": 1})
    assert ended(app, run).state["got"] == {"n": 1}


def test_a_signal_that_a_step_before_the_place_has_used_stays_used(app: Queuety) -> None:
    builder = app.workflow("w").wait_for_signal("go", result_key="one").wait_for_signal("go", result_key="two")
    run = steps(builder, "b").dispatch()
    app.signal(run, "go", {"n": 1})
    app.signal(run, "go", {"n": 2})
    app.run_until_idle()
    app.rewind_workflow(run, 0)
    assert ended(app, run).state == {"one": {"n": 1}, "two": {"n": 2}, "b": 1}


def test_a_rewind_may_be_taken_back_and_no_signal_serves_twice(app: Queuety) -> None:
    """Forwards again, to a step that had settled before the run went back."""
    builder = steps(app.workflow("w"), "a", "b").wait_for_signal("go", result_key="one").wait_for_signal("stop")
    run = steps(builder.wait_for_signal("go", result_key="two"), "c").dispatch()
    app.run_until_idle()
    app.signal(run, "go", {"n": 1})
    app.rewind_workflow(run, "a", with_state={"wrong": True})
    app.rewind_workflow(run, 2)
    back = status_of(app, run)
    assert (back.waiting_for, back.state) == (["stop"], {"a": 1, "b": 1, "one": {"n": 1}})
    app.signal(run, "stop")
    assert status_of(app, run).waiting_for == ["go"]
    app.signal(run, "go", {"n": 2})
    assert ended(app, run).state["two"] == {"n": 2}


def test_a_step_that_never_settled_is_no_place_to_go_back_to(app: Queuety) -> None:
    builder = steps(app.workflow("w"), "a").then(bind(jumps, name="d"))
    run = steps(builder, "c", "d").then(breaks).dispatch()
    app.run_until_idle()
    before = contents(app.door)
    for index in (2, "c", 4):
        with pytest.raises(errors.SnapshotMissingError, match="No recorded state found"):
            app.rewind_workflow(run, index)
    for unknown in (5, -1, 2**70, "nobody", "", "A"):
        with pytest.raises(errors.DefinitionError, match="has no step"):
            app.rewind_workflow(run, unknown)
    for bad in (None, 1.0, True, ["a"], b"a"):
        with pytest.raises(errors.DefinitionError, match="the index or the name of a step is needed"):
            app.rewind_workflow(run, bad)  # type: ignore[arg-type]
    assert contents(app.door) == before


@step
def jumps(state: State, *, name: str) -> State:
    return {"_next_step": name}


def test_a_cancelled_run_stays_where_it_is(app: Queuety) -> None:
    run = steps(app.workflow("w"), "a", "b").dispatch()
    app.run_until_idle(max_jobs=1)
    app.cancel_workflow(run)
    before = contents(app.door)
    with pytest.raises(errors.InvalidStateError, match=f"workflow {run} is cancelled; it cannot be rewound"):
        app.rewind_workflow(run, "a")
    assert contents(app.door) == before


def test_a_run_may_be_rewound_again_and_again(app: Queuety) -> None:
    run = steps(app.workflow("w"), *"abc").dispatch()
    for lap in range(5):
        app.run_until_idle()
        app.rewind_workflow(run, "a", with_state={"lap": lap})
    assert ended(app, run).state == {"a": 1, "lap": 4, "b": 1, "c": 1}
    assert [app.workflow_state_at(run, index) for index in range(2)] == [{"a": 1}, {"a": 1, "lap": 4, "b": 1}]


def waiting_house(house: House) -> tuple[int, int, int]:
    """A run that waits for two others, and those two: each has done its first step, and is to do its second."""
    one, other = (house.dispatch(definition(single("x"), single("y"), name=name)) for name in ("one", "other"))
    wait = StepSpec("wait_for_workflows", "wait", settings={"workflows": [one, other], "mode": "all", "keyed": True})
    waiter = house.dispatch(definition(wait, single("after"), name="waiter"))
    hand = house.hand()
    while house.row("workflows", id=waiter)["status"] != "waiting_for_workflows" or not house.rows("watchers"):
        hand.turn(looks_around=True)
    for job in hand.claim():
        hand.turn(succeeded(job))
    hand.turn(looks_around=True)
    return waiter, one, other


def test_a_run_that_waits_for_others_goes_on_once_however_they_are_rewound_meanwhile(
    database: Database, rounds: int
) -> None:
    """One of the two completes, is rewound and completes again; the other completes before, between or after; and

    after each of it the one that waits has heard of it, or not yet.
    """
    with House(database.url) as house:
        usual = ((False,) * 3, (True,) * 3, (True, False, True), (False, True, False))
        hearings = tuple(itertools.product((False, True), repeat=3)) if rounds > 3 else usual
        for place, heard in itertools.product(range(4), hearings):
            house.clear()
            waiter, one, other = waiting_house(house)
            hand = house.hand()
            jobs = {job.workflow_id: job for job in hand.claim()}

            def complete(run: int, jobs: dict[int | None, Any] = jobs, hand: Any = hand) -> None:
                if run not in jobs:
                    jobs.update({job.workflow_id: job for job in hand.claim()})
                hand.turn(succeeded(jobs.pop(run)))

            acts: list[Callable[[], object]] = [
                lambda one=one, complete=complete: complete(one),  # type: ignore[misc]
                lambda one=one: house.steer(one, Rewind(0)),  # type: ignore[misc]
                lambda one=one, complete=complete: complete(one),  # type: ignore[misc]
            ]
            acts.insert(place, lambda other=other, complete=complete: complete(other))  # type: ignore[misc]
            for act, hears in zip(acts, (*heard, True), strict=True):
                act()
                if hears:
                    hand.turn(looks_around=True)
            for _ in range(3):
                hand.turn(looks_around=True)
            row = house.row("workflows", id=waiter)
            assert (row["status"], row["current_step"]) == ("running", 1), (place, heard)
            settled = [row for row in house.rows("history", run_id=waiter) if row["entry"] == "resumed"]
            assert len(settled) == 1, (place, heard)
            assert len([job for job in house.rows("jobs", workflow_id=waiter) if job["phase"] != "buried"]) == 1
            check(house.door)


def test_a_failed_child_that_is_rewound_takes_its_failed_parent_along(app: Queuety) -> None:
    child = steps(workflow("child"), "x").then(breaks_unless_mended)
    run = steps(app.workflow("w").run_workflow("child", child), "b").dispatch()
    assert ended(app, run).status is WorkflowStatus.FAILED
    (inner,) = app.list_workflows(parent_id=run)
    app.rewind_workflow(inner.id, "x", with_state={"mended": True})
    assert ended(app, run).state == {"x": 1, "mended": True, "worked": True, "b": 1}
    assert [one.id for one in app.list_workflows(parent_id=run)] == [inner.id]


def test_a_failed_run_that_is_rewound_to_its_last_step_is_completed_and_who_waits_hears_of_it(app: Queuety) -> None:
    """It had settled once, in an earlier round of a loop."""
    builder = steps(app.workflow("w"), "a").then(breaks_in_the_second_round, name="last")
    run = builder.dispatch()
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    app.rewind_workflow(run, "a")
    never = app.workflow("never").wait_for_signal("never").dispatch()
    waiter = app.workflow("waiter").wait_for_workflows([run, never], mode="any", result_key="found").dispatch()
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.FAILED
    assert status_of(app, waiter).status is WorkflowStatus.WAITING_FOR_WORKFLOWS
    app.rewind_workflow(run, "last")
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    assert ended(app, waiter).state == {"found": {str(run): {"a": 1, "rounds": 1}}}


def test_a_step_whose_history_was_pruned_is_no_place_to_go_back_to(app: Queuety, clock: ManualClock) -> None:
    run = steps(app.workflow("w"), "a", "b").wait_for_signal("go").dispatch()
    app.run_until_idle()
    clock.advance(days=2)
    assert app.prune_history(1) > 0
    before = contents(app.door)
    with pytest.raises(errors.SnapshotMissingError, match="its history was pruned"):
        app.rewind_workflow(run, "a")
    with pytest.raises(errors.SnapshotMissingError, match="its history was pruned"):
        app.fork_workflow(run, "a")
    assert contents(app.door) == before
    app.signal(run, "go")
    assert ended(app, run).state == {"a": 1, "b": 1}


@step(max_attempts=1)
def breaks_in_the_second_round(state: State) -> State:
    note("round")
    if notes.count("round") == 2:
        raise ValueError("not again")
    return {"rounds": 1}
