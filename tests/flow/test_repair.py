"""What operators do to a run that does not go as it should: retry, skip, complete, patch, run now. Rewinds and forks

have files of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest

from queuety import (
    JobStatus,
    Queuety,
    Settings,
    StreamingStep,
    WorkflowState,
    WorkflowStatus,
    bind,
    current,
    errors,
    step,
    workflow,
)
from queuety.define.builder import WorkflowBuilder
from queuety.model import CleanupStatus
from queuety.testing import ManualClock
from tests.support.contents import contents
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check
from tests.support.stories import ended, story

State = dict[str, Any]

UNKNOWN = 987_654_321

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
def says(state: State, *, values: State) -> State:
    return values


@step
def holds(state: State) -> State:
    note("began")
    gates["let go"].wait(30)
    return {"held": True, "shared": "step"}


@step(max_attempts=1)
def breaks_unless_mended(state: State) -> State:
    note(("tried", state.get("mended")))
    if not state.get("mended"):
        raise ValueError("broken")
    return {"worked": True}


@step(max_attempts=3, backoff=[600])
def breaks_at_first(state: State) -> State:
    note(f"attempt {current().attempt}")
    if current().attempt == 1:
        raise ValueError("not yet")
    return {"worked": True}


@step(max_attempts=1)
def item(state: State, item: Any, index: int) -> State:
    note(("item", item))
    if item == "bad" and not state.get("mended"):
        raise ValueError("item")
    return {"of": item}


@step
def total(state: State, for_each: State) -> State:
    note("reduced")
    return {"total": for_each["succeeded"]}


@step
def undo(state: State, *, key: str) -> None:
    note((f"undo {key}", dict(state)))


@step
def cannot_at_first(state: State) -> None:
    note(f"cleaned {current().attempt}")
    if current().attempt == 1:
        raise OSError("not yet")


class Writes(StreamingStep):
    def stream(self, state: Any, existing_chunks: list[Any]) -> Iterator[Any]:
        yield "first"
        raise ValueError("the line is dead")

    def on_complete(self, chunks: list[Any], state: Any) -> State:
        return {"written": chunks}


def steps(builder: WorkflowBuilder, *keys: str) -> WorkflowBuilder:
    for key in keys:
        builder.then(bind(put, key=key), name=key)
    return builder


@step(backoff=[600])
def breaks_as_reducer(state: State, for_each: State) -> State:
    raise ValueError("not yet")


@step(backoff=[600])
def breaks_as_condition(state: State) -> bool:
    raise ValueError("not yet")


STUCK: dict[str, Callable[[WorkflowBuilder], WorkflowBuilder]] = {
    "a job": lambda w: w.then(bind(put, key="x")),
    "a job that failed": lambda w: w.then(breaks_unless_mended),
    "a job that is tried later": lambda w: w.then(breaks_at_first),
    "a stream": lambda w: w.then(Writes, backoff=[600]),
    "branches": lambda w: w.parallel([bind(put, key="left"), bind(put, key="right"), breaks_at_first]),
    "items": lambda w: w.for_each("items", item, "out"),
    "a reducer": lambda w: w.for_each("good", item, "out", reducer=breaks_as_reducer),
    "a condition": lambda w: w.repeat_until("a", condition=breaks_as_condition),
    "a delay": lambda w: w.delay(hours=1),
    "a signal": lambda w: w.wait_for_signal("go"),
    "a signal with a time-out": lambda w: w.wait_for_signal("go", timeout=3600),
    "a decision": lambda w: w.wait_for_decision(),
    "another run": lambda w: w.wait_for_workflow("other"),
    "a child": lambda w: w.run_workflow("child", workflow("child").wait_for_signal("never")),
    "a child that failed": lambda w: w.run_workflow("child", workflow("child").then(breaks_unless_mended)),
}


def stuck_at(app: Queuety, kind: str) -> tuple[int, WorkflowState]:
    """A run that has done step `a`, stands at a step of this kind, and has `b` and `c` after it."""
    other = app.workflow("other").wait_for_signal("never").dispatch()
    builder = STUCK[kind](steps(app.workflow("w"), "a"))
    run = steps(builder, "b", "c").dispatch({"items": [1, "bad", 3], "good": [1], "other": other})
    app.run_until_idle(max_jobs=1 if kind == "a job" else None)
    state = status_of(app, run)
    assert state.current_step == 1, state
    return run, state


@pytest.mark.parametrize("kind", STUCK)
def test_a_step_of_any_kind_may_be_skipped(app: Queuety, kind: str) -> None:
    """Its work is given up, nothing of it is merged that was not merged before, and the run goes on."""
    run, stuck = stuck_at(app, kind)
    app.skip_step(run, actor="ann")
    after = status_of(app, run)
    assert (after.status, after.current_step, after.state) == (WorkflowStatus.RUNNING, 2, stuck.state)
    assert (after.error_message, after.failed_step, after.waiting_for) == (None, None, None)
    (job,) = app.list_jobs(workflow_id=run, status="pending")
    assert (job.step_index, job.attempts) == (2, 0)
    done = ended(app, run)
    assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {**stuck.state, "b": 1, "c": 1})
    (told,) = [event for event in app.workflow_timeline(run) if event.event == "step_skipped"]
    assert (told.step_index, told.actor, told.state_after) == (1, "ann", stuck.state)
    for child in app.list_workflows(parent_id=run):
        expected = WorkflowStatus.FAILED if kind == "a child that failed" else WorkflowStatus.CANCELLED
        assert child.status is expected


@pytest.mark.parametrize("kind", STUCK)
def test_a_step_of_any_kind_may_be_completed_by_hand(app: Queuety, kind: str) -> None:
    run, stuck = stuck_at(app, kind)
    app.complete_step(run, {"by": "hand", "_next_step": "c", "_other": 1, "_by": "nobody"}, reason="it was done")
    after = status_of(app, run)
    assert (after.status, after.current_step) == (WorkflowStatus.RUNNING, 3)
    assert after.state == {**stuck.state, "by": "hand"}
    (told,) = [event for event in app.workflow_timeline(run) if event.reason is not None]
    assert (told.event, told.step_index, told.job_id, told.actor) == ("step_completed", 1, None, None)
    assert told.output == {"by": "hand", "_next_step": "c"}
    done = ended(app, run)
    assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {**stuck.state, "by": "hand", "c": 1})


@pytest.mark.parametrize("verb", ["skip", "complete"])
def test_a_paused_run_stays_paused_and_a_last_step_completes_it(app: Queuety, verb: str) -> None:
    act = app.skip_step if verb == "skip" else app.complete_step
    run = steps(app.workflow("w"), "a", "b", "c").dispatch()
    app.pause_workflow(run)
    act(run)
    paused = status_of(app, run)
    assert (paused.status, paused.current_step) == (WorkflowStatus.PAUSED, 1)
    act(run)
    assert app.run_until_idle() == 0
    app.resume_workflow(run)
    act(run)
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    assert (notes, app.run_until_idle()) == ([], 0)


@pytest.mark.parametrize("verb", ["skip", "complete"])
def test_a_step_is_named_so_that_no_other_is_hit(app: Queuety, verb: str) -> None:
    run = steps(app.workflow("w"), "a", "b", "c").dispatch()

    def act(step: Any) -> None:
        if verb == "skip":
            app.skip_step(run, step)
        else:
            app.complete_step(run, {}, step)

    before = contents(app.door)
    for other in ("b", 1, 2):
        with pytest.raises(errors.InvalidStateError, match=r"at step 0 \('a'\) by now, not at the step that was meant"):
            act(other)
    for unknown in ("d", 3, -1, ""):
        with pytest.raises(errors.DefinitionError, match="has no step"):
            act(unknown)
    for bad in (1.0, True, ["a"]):
        with pytest.raises(errors.DefinitionError, match="the index or the name of a step is needed"):
            act(bad)
    assert contents(app.door) == before
    act("a")
    act(1)
    assert status_of(app, run).current_step == 2


@pytest.mark.parametrize("verb", ["skip", "complete"])
def test_a_run_that_is_over_has_no_step_to_settle(app: Queuety, verb: str) -> None:
    completed = app.workflow("w").delay().dispatch()
    cancelled = steps(app.workflow("w"), "a").dispatch()
    app.cancel_workflow(cancelled)
    app.run_until_idle()
    before = contents(app.door)
    for run, status in ((completed, "completed"), (cancelled, "cancelled")):
        with pytest.raises(errors.InvalidStateError, match=f"workflow {run} is {status}"):
            app.skip_step(run) if verb == "skip" else app.complete_step(run)
    assert contents(app.door) == before


def test_a_handler_that_runs_while_its_step_is_skipped_has_worked_in_vain(database: Database) -> None:
    with Queuety(database.url) as app:
        run = steps(app.workflow("w").then(holds), "b").dispatch()
        with working(app):
            until(lambda: notes == ["began"])
            app.skip_step(run)
            assert app.wait(run, 30).state == {"b": 1}
            gates["let go"].set()
        assert status_of(app, run).state == {"b": 1}
        assert [job.error_message for job in app.list_jobs(status="completed")] == [None, "Step skipped"]
        check(app.door)


def test_what_a_step_is_settled_without_was_not_buried(app: Queuety, clock: ManualClock) -> None:
    run = steps(app.workflow("w"), "a", "b").dispatch()
    app.skip_step(run, actor="Ada")
    app.complete_step(run, {"b": 7}, actor="Ada")
    settled = app.list_jobs(workflow_id=run)
    assert [(job.status, job.error_message, job.attempts) for job in settled] == [
        ("completed", "Step completed by hand", 0),
        ("completed", "Step skipped", 0),
    ]
    assert settled[0].completed_at == clock.now
    assert settled[0].failed_at is None
    assert app.list_jobs(status="completed") == settled
    assert not app.list_jobs(status="buried")
    assert app.stats() == {"pending": 0, "processing": 0, "completed": 2, "failed": 0, "buried": 0}
    why = app.why(settled[1].id)
    assert why.reason == "completed"
    assert "was taken out" in why.answer
    assert f"Step skipped. Workflow {run} went on without it." in why.answer
    assert [(event.event, event.actor) for event in app.workflow_timeline(run)] == [
        ("step_skipped", "Ada"),
        ("step_completed", "Ada"),
    ]
    check(app.door)


def test_what_is_no_output_is_refused_and_nothing_changes(memory: Queuety) -> None:
    run = steps(memory.workflow("w"), "a", "b").dispatch()
    before = contents(memory.door)
    bad: list[Any] = [{"x": {1}}, {"x": float("nan")}, {1: 2}, {"x": 2**63}, {"x": "\ud800"}, [1], "text", 5]
    for output in bad:
        with pytest.raises(errors.PayloadError, match="output"):
            memory.complete_step(run, output)
    for unknown in ("nobody", "", 5, True, ["b"]):
        with pytest.raises((errors.DefinitionError, errors.PayloadError), match="_next_step"):
            memory.complete_step(run, {"_next_step": unknown})
    assert contents(memory.door) == before
    memory.complete_step(run, {"_next_step": None, "x": None})
    assert (status_of(memory, run).current_step, status_of(memory, run).state) == (1, {"x": None})


def test_what_is_too_large_is_refused_and_nothing_changes(database: Database) -> None:
    with Queuety(database.url, settings=Settings(max_value_bytes=1000)) as app:
        run = steps(app.workflow("w"), "a", "b").dispatch()
        before = contents(app.door)
        large = {"x": "x" * 2000}
        for act in (
            lambda: app.complete_step(run, large),
            lambda: app.patch_state(run, large),
            lambda: app.fork_workflow(run, with_state=large),
            lambda: app.rewind_workflow(run, 0, with_state=large),
            lambda: app.retry_workflow(run, with_state=large),
        ):
            with pytest.raises(errors.PayloadError, match="1,000 bytes"):
                act()
        assert contents(app.door) == before


def test_of_a_state_that_is_changed_what_it_comes_to_is_measured(memory_url: str) -> None:
    """Not what it was with what is added: a rewind to a state that fits was refused, a fork that does not fit was
    not, and none of its handlers could return anything."""
    with Queuety(memory_url, settings=Settings(max_value_bytes=1000)) as app:
        builder = app.workflow("w").then(bind(says, values={"x": "x" * 600}), name="a")
        builder = builder.then(bind(says, values={"x": "", "y": "y" * 600}), name="b").wait_for_signal("go")
        run = builder.dispatch()
        app.run_until_idle()
        with pytest.raises(errors.ConstraintViolation, match="the state of the fork would take"):
            app.fork_workflow(run, with_state={"z": "z" * 600})
        assert len(app.list_workflows()) == 1
        app.rewind_workflow(run, "a")
        assert status_of(app, run).state == {"x": "x" * 600}
        app.patch_state(run, {"z": "z" * 600}, remove=["x"])
        assert status_of(app, run).state == {"z": "z" * 600}
        with pytest.raises(errors.ConstraintViolation, match="the state would take"):
            app.patch_state(run, {"y": "y" * 600})


def test_a_child_that_is_completed_by_hand_lets_its_parent_go_on(app: Queuety) -> None:
    child = workflow("child").then(breaks_unless_mended)
    run = steps(app.workflow("w").run_workflow("child", child), "b").dispatch()
    assert ended(app, run).status is WorkflowStatus.FAILED
    (inner,) = app.list_workflows(parent_id=run)
    app.complete_step(inner.id, {"by": "hand"})
    assert status_of(app, inner.id).status is WorkflowStatus.COMPLETED
    assert ended(app, run).state == {"by": "hand", "b": 1}


def test_who_waits_for_a_run_hears_of_it_when_it_is_completed_by_hand(app: Queuety) -> None:
    first = app.workflow("first").wait_for_signal("never").dispatch()
    second = app.workflow("second").then(breaks_unless_mended).dispatch()
    run = app.workflow("w").wait_for_workflows([first, second], mode="any", result_key="found").dispatch()
    app.run_until_idle()
    app.complete_step(second, {"x": 1})
    app.run_until_idle()
    assert status_of(app, run).state == {"found": {str(second): {"x": 1}}}


def test_a_retry_may_put_right_what_was_wrong_first(app: Queuety) -> None:
    run = steps(steps(app.workflow("w"), "a").then(breaks_unless_mended), "b").dispatch({"given": 1})
    assert ended(app, run).status is WorkflowStatus.FAILED
    app.retry_workflow(run, with_state={"mended": True, "given": 2}, actor="ann", reason="a typo")
    assert ended(app, run).state == {"given": 2, "a": 1, "mended": True, "worked": True, "b": 1}
    assert notes == ["a", ("tried", None), ("tried", True), "b"]
    (told,) = [event for event in app.workflow_timeline(run) if event.event == "workflow_retried"]
    assert (told.actor, told.reason, told.changed) == ("ann", "a typo", {"mended": True, "given": 2})


def test_a_retry_may_not_change_the_list_of_a_step_that_is_half_done(app: Queuety) -> None:
    run = app.workflow("w").for_each("items", item, "out").dispatch({"items": [1, "bad", 3]})
    assert ended(app, run).status is WorkflowStatus.FAILED
    before = contents(app.door)
    with pytest.raises(errors.InvalidStateError, match="'items'"):
        app.retry_workflow(run, with_state={"items": [1, 2, 3]})
    with pytest.raises(errors.DefinitionError, match="_x"):
        app.retry_workflow(run, with_state={"_x": 1})
    assert contents(app.door) == before
    app.retry_workflow(run, with_state={"mended": True})
    out = ended(app, run).state["out"]
    assert isinstance(out, dict)
    assert (out["succeeded"], out["failed"]) == (3, 0)


def test_a_patch_sets_keys_and_takes_others_out_and_does_nothing_else(app: Queuety) -> None:
    run = steps(app.workflow("w"), "a", "b").dispatch({"x": 1, "y": {"deep": 1}, "z": None})
    before = app.list_jobs(workflow_id=run)
    app.patch_state(run, {"y": {"other": 2}, "new": []}, remove=["x", "z", "x"], actor="ann", reason="wrong order")
    state = status_of(app, run)
    assert (state.status, state.current_step, state.state) == ("running", 0, {"y": {"other": 2}, "new": []})
    assert app.list_jobs(workflow_id=run) == before
    (told,) = app.workflow_timeline(run)
    assert (told.event, told.actor, told.reason) == ("workflow_patched", "ann", "wrong order")
    assert (told.changed, sorted(told.removed or [])) == ({"y": {"other": 2}, "new": []}, ["x", "z"])
    assert ended(app, run).state == {"y": {"other": 2}, "new": [], "a": 1, "b": 1}


@pytest.mark.parametrize("kind", [kind for kind in STUCK if kind != "a job"])
def test_a_run_may_be_patched_wherever_it_stands(app: Queuety, kind: str) -> None:
    run, stuck = stuck_at(app, kind)
    before = app.list_jobs(workflow_id=run)
    app.patch_state(run, {"a": 7, "new": True}, remove=["other"])
    after = status_of(app, run)
    expected = {key: value for key, value in stuck.state.items() if key != "other"} | {"a": 7, "new": True}
    assert (after.status, after.waiting_for, after.state) == (stuck.status, stuck.waiting_for, expected)
    assert app.list_jobs(workflow_id=run) == before
    app.skip_step(run)
    assert ended(app, run).status is WorkflowStatus.COMPLETED


def test_a_patch_that_makes_a_signal_fit_lets_the_wait_go_on(app: Queuety) -> None:
    builder = app.workflow("w").wait_for_signal("paid", correlation_key="order", result_key="got", timeout=60)
    run = steps(builder, "b").dispatch({"order": 1})
    app.signal(run, "paid", {"order": 2, "by": "card"})
    app.patch_state(run, {"other": 1})
    assert status_of(app, run).status is WorkflowStatus.WAITING_FOR_SIGNAL
    app.patch_state(run, {"order": 2})
    assert ended(app, run).state == {"order": 2, "other": 1, "got": {"order": 2, "by": "card"}, "b": 1}


def test_what_a_handler_returns_that_ran_meanwhile_is_merged_over_the_patch(database: Database) -> None:
    with Queuety(database.url) as app:
        run = steps(app.workflow("w").then(holds), "b").dispatch({"x": 1})
        with working(app):
            until(lambda: notes == ["began"])
            app.patch_state(run, {"shared": "patch", "own": "patch"}, remove=["x"])
            gates["let go"].set()
            done = app.wait(run, 30)
        assert done.state == {"shared": "step", "own": "patch", "held": True, "b": 1}
        assert notes == ["began", "b"]
        check(app.door)


def test_the_list_that_a_for_each_works_on_stays_as_it_is(app: Queuety) -> None:
    run = app.workflow("w").for_each("items", item, "out", reducer=total).dispatch({"items": [1, 2], "x": 1})
    app.run_until_idle(max_jobs=1)
    before = contents(app.door)
    for changes, removed in (({"items": [1, 2]}, ()), ({}, ("items",)), ({"x": 2, "items": None}, ())):
        with pytest.raises(errors.InvalidStateError, match=f"workflow {run} is in the middle of step 0.*'items'"):
            app.patch_state(run, changes, remove=removed)
    assert contents(app.door) == before
    app.patch_state(run, {"x": 2})
    app.run_until_idle(max_jobs=1)
    assert "out" in status_of(app, run).state
    with pytest.raises(errors.InvalidStateError, match="'out'"):
        app.patch_state(run, {"out": {}})
    assert ended(app, run).state["total"] == 2


def test_a_paused_and_a_failed_run_may_be_patched_and_one_that_is_over_not(app: Queuety) -> None:
    paused = steps(app.workflow("w"), "a").dispatch()
    app.pause_workflow(paused)
    failed = app.workflow("w").then(breaks_unless_mended).dispatch()
    completed = app.workflow("w").delay().dispatch()
    cancelled = steps(app.workflow("w"), "a").dispatch()
    app.cancel_workflow(cancelled)
    app.run_until_idle()
    app.patch_state(failed, {"mended": True})
    assert status_of(app, failed).status is WorkflowStatus.FAILED
    app.retry_workflow(failed)
    assert ended(app, failed).state == {"mended": True, "worked": True}
    before = contents(app.door)
    for run, status in ((completed, "completed"), (cancelled, "cancelled")):
        with pytest.raises(errors.InvalidStateError, match=f"workflow {run} is {status}; it cannot be patched"):
            app.patch_state(run, {"x": 1})
    assert contents(app.door) == before


def test_what_cannot_be_patched_is_refused_and_nothing_changes(memory: Queuety) -> None:
    run = steps(memory.workflow("w"), "a").dispatch({"x": 1})
    before = contents(memory.door)
    values: list[Any] = [{"x": {1}}, {"x": float("inf")}, {1: 2}, {"x": -(2**63) - 1}, [1], "x", {"x": b""}]
    for changes in values:
        with pytest.raises(errors.PayloadError, match="changes"):
            memory.patch_state(run, changes)
    wrong: list[tuple[Any, Any, str]] = [
        ({}, (), "nothing to change"),
        (None, [], "nothing to change"),
        ({"_x": 1}, (), "reserved"),
        ({}, ["y"], "no key 'y'"),
        ({"x": 2}, ["x"], "no key 'x'"),
        ({}, "x", "a list of keys"),
        ({}, [1], "keys are texts"),
        ({}, ["_x"], "_x"),
    ]
    for changes, removed, message in wrong:
        with pytest.raises(errors.DefinitionError, match=message):
            memory.patch_state(run, changes, remove=removed)
    assert contents(memory.door) == before


def test_a_delay_is_cut_short(app: Queuety) -> None:
    run = steps(app.workflow("w").delay(days=300), "b").dispatch()
    assert app.run_until_idle() == 0
    app.run_now(run, actor="ann", reason="it is late")
    assert status_of(app, run).current_step == 1
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert story(app, run)[0].startswith("workflow_hurried")
    assert app.workflow_timeline(run)[0].actor == "ann"


def test_a_back_off_is_cut_short_and_the_attempt_counts(app: Queuety) -> None:
    run = app.workflow("w").then(breaks_at_first).dispatch()
    app.run_until_idle()
    assert app.run_until_idle() == 0
    app.run_now(run)
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert notes == ["attempt 1", "attempt 2"]


def test_the_delay_of_a_step_is_cut_short_for_each_of_its_jobs(app: Queuety) -> None:
    definition = app.workflow("w").parallel([bind(put, key="x"), bind(put, key="y")]).definition()
    definition["steps"][0]["delay"] = 3600
    run = app.dispatch_definition(definition)
    assert app.run_until_idle() == 0
    app.run_now(run)
    assert ended(app, run).state == {"x": 1, "y": 1}


def test_only_what_waits_for_its_time_is_hurried(app: Queuety) -> None:
    """Of three branches one is done, one is to be run anyway, and one is tried again later."""
    run = app.workflow("w").parallel([breaks_at_first, bind(put, key="x"), bind(put, key="y")]).dispatch()
    app.run_until_idle(max_jobs=2)
    app.run_now(run)
    assert {job.status for job in app.list_jobs(workflow_id=run, status="pending")} == {JobStatus.PENDING}
    assert ended(app, run).state == {"x": 1, "worked": True, "y": 1}


def test_the_back_off_of_what_cleans_up_is_cut_short(app: Queuety) -> None:
    run = steps(app.workflow("w"), "a").on_cancel(cannot_at_first).dispatch()
    app.cancel_workflow(run)
    app.run_until_idle()
    assert (notes, status_of(app, run).compensation_status) == (["cleaned 1"], CleanupStatus.PENDING)
    app.run_now(run)
    app.run_until_idle()
    assert notes == ["cleaned 1", "cleaned 2"]
    assert status_of(app, run).compensation_status is CleanupStatus.COMPLETED


def test_a_paused_run_that_waits_for_its_time_is_hurried_and_stays_paused(app: Queuety) -> None:
    delayed = steps(app.workflow("w").delay(hours=1), "b").dispatch()
    retried = steps(app.workflow("w").then(breaks_at_first), "b").dispatch()
    app.run_until_idle()
    for run in (delayed, retried):
        app.pause_workflow(run)
        app.run_now(run)
    app.run_until_idle()
    for run in (delayed, retried):
        state = status_of(app, run)
        assert (state.status, state.current_step) == (WorkflowStatus.PAUSED, 1)


def test_where_nothing_waits_for_its_time_there_is_nothing_to_hurry(app: Queuety) -> None:
    other = app.workflow("other").wait_for_signal("never").dispatch()
    runs = [
        steps(app.workflow("w"), "a").dispatch(),
        app.workflow("w").wait_for_signal("go", timeout=60).dispatch(),
        app.workflow("w").wait_for_workflow(other).dispatch(),
        app.workflow("w").run_workflow("c", workflow("c").delay(hours=1)).dispatch(),
        app.workflow("w").on_queue("no").then(breaks_unless_mended).dispatch(),
        app.workflow("w").delay().dispatch(),
        steps(app.workflow("w"), "a").dispatch(),
    ]
    app.run_until_idle("no")
    app.cancel_workflow(runs[-1])
    before = contents(app.door)
    for run in runs:
        with pytest.raises(errors.InvalidStateError, match=f"workflow {run} is .*nothing of it waits for a time"):
            app.run_now(run)
    assert contents(app.door) == before


VERBS: dict[str, Callable[..., object]] = {
    "pause": lambda app, run, **by: app.pause_workflow(run, **by),
    "resume": lambda app, run, **by: app.resume_workflow(run, **by),
    "retry": lambda app, run, **by: app.retry_workflow(run, **by),
    "cancel": lambda app, run, **by: app.cancel_workflow(run, **by),
    "rewind": lambda app, run, **by: app.rewind_workflow(run, 0, **by),
    "fork": lambda app, run, **by: app.fork_workflow(run, **by),
    "skip": lambda app, run, **by: app.skip_step(run, **by),
    "complete": lambda app, run, **by: app.complete_step(run, {}, **by),
    "patch": lambda app, run, **by: app.patch_state(run, {"x": 1}, **by),
    "run now": lambda app, run, **by: app.run_now(run, **by),
    "signal": lambda app, run, **by: app.signal(run, "s", **by),
    "approve": lambda app, run, **by: app.approve_workflow(run, **by),
    "reject": lambda app, run, **by: app.reject_workflow(run, **by),
    "input": lambda app, run, **by: app.submit_workflow_input(run, **by),
}


def ready_for(app: Queuety, verb: str) -> int:
    """A run of which this can be asked."""
    if verb == "retry":
        run = app.workflow("w").then(breaks_unless_mended).dispatch()
        app.run_until_idle()
        return run
    if verb == "run now":
        return app.workflow("w").delay(hours=1).dispatch()
    run = steps(app.workflow("w"), "a", "b").dispatch()
    app.complete_step(run)
    if verb == "resume":
        app.pause_workflow(run)
    return run


def of_the_verb(app: Queuety, run: int, verb: str) -> Any:
    """The event that tells of it; a delay that is over tells so after it."""
    return app.workflow_timeline(run)[-2 if verb == "run now" else -1]


def test_the_history_keeps_who_asked_and_why(app: Queuety) -> None:
    for verb, do in VERBS.items():
        run = ready_for(app, verb)
        do(app, run, actor="  ann@example.org ", reason="línea 1\nline 2 " + "x" * 3000)
        event = of_the_verb(app, run, verb)
        assert event.actor == "ann@example.org", verb
        assert (event.reason[:14], len(event.reason)) == ("línea 1\nline 2", 15 + 3000), verb
        assert "_by" not in str(event.output), verb
        again = ready_for(app, verb)
        do(app, again)
        event = of_the_verb(app, again, verb)
        assert (event.actor, event.reason) == (None, None), verb


def test_who_and_why_are_texts_that_can_be_kept(memory: Queuety) -> None:
    runs = {verb: ready_for(memory, verb) for verb in VERBS}
    before = contents(memory.door)
    for verb, run in runs.items():
        for bad in ("", "  ", 5, b"x", ["a"], "x" * 4001):
            for name in ("actor", "reason"):
                with pytest.raises(errors.DefinitionError, match=f"^{name}="):
                    VERBS[verb](memory, run, **{name: bad})
        with pytest.raises(errors.DefinitionError, match=r"^actor="):
            VERBS[verb](memory, run, actor="x" * 256)
        with pytest.raises(errors.PayloadError):
            VERBS[verb](memory, run, reason="\ud800")
    assert contents(memory.door) == before


def test_an_unknown_run_is_an_error_for_each_and_nothing_is_written(app: Queuety) -> None:
    steps(app.workflow("w"), "a").dispatch()
    before = contents(app.door)
    for act in VERBS.values():
        for unknown in (UNKNOWN, 0, -1, 2**63, 2**70):
            with pytest.raises(errors.NotFoundError, match="no workflow has the id"):
                act(app, unknown)
        for bad in ("1", None, 1.0, True):
            with pytest.raises(errors.DefinitionError, match="workflow_id="):
                act(app, bad)
    assert contents(app.door) == before


def test_what_is_done_to_a_run_by_hand_can_be_told_from_its_history_alone(app: Queuety, clock: ManualClock) -> None:
    """The states that the timeline tells are those that were seen, whoever has changed them."""
    run = steps(app.workflow("w"), "a", "b").wait_for_signal("go").then(breaks_unless_mended).dispatch({"n": 0})
    seen: list[Any] = []

    def see() -> None:
        seen.append(status_of(app, run).state)

    app.run_until_idle(max_jobs=1)
    see()
    app.patch_state(run, {"n": 1}, remove=["a"])
    see()
    app.complete_step(run, {"b": "by hand"})
    see()
    app.skip_step(run)
    see()
    app.run_until_idle()
    app.retry_workflow(run, with_state={"n": 2})
    see()
    app.rewind_workflow(run, 0, with_state={"n": 3})
    see()
    told = [event.state_after for event in app.workflow_timeline(run) if event.state_after is not None]
    assert [state for state, _ in groupby(told)] == [state for state, _ in groupby(seen)]
