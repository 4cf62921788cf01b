"""What has been done is undone: the last step first, each with the state as it was when the step had completed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuety import (
    Compensation,
    JobStatus,
    Queuety,
    StreamingStep,
    WorkflowStatus,
    bind,
    current,
    errors,
    step,
    workflow,
)
from queuety.define.builder import WorkflowBuilder
from queuety.inspect.states import JobState
from queuety.model import CleanupStatus
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
    return {key: state.get(key, 0) + 1}


@step
def undo(state: State, *, key: str) -> None:
    note((key, dict(state)))


@step
def undo_slowly(state: State, *, key: str) -> None:
    note(key)
    gates["let go"].wait(30)


class Undo(Compensation):
    def __init__(self, word: str) -> None:
        self.word = word

    async def handle(self, state: Any) -> object:
        context = current()
        note((self.word, context.step_index, context.step_name, context.attempt, context.workflow_id))
        return {"ignored": {1, 2}}


@step
def cannot(state: State) -> None:
    note("cannot")
    raise OSError("the money is gone")


@step
def cannot_at_first(state: State) -> None:
    note(f"attempt {current().attempt}")
    if current().attempt == 1:
        raise OSError("the bank sleeps")


@step(max_attempts=1)
def breaks(state: State) -> None:
    raise ValueError("broken")


@step(max_attempts=1)
def breaks_unless_mended(state: State) -> None:
    if "mended" not in notes:
        raise ValueError("broken")


@step(max_attempts=1)
def breaks_for(state: State, item: Any, index: int) -> State:
    if item == "bad":
        raise ValueError("item")
    return {"did": item}


@step(max_attempts=1, timeout=0.05)
def too_slow(state: State) -> State:
    gates["let go"].wait(30)
    return {"slow": True}


@step
def says(state: State, *, word: str) -> None:
    note((word, dict(state)))


class Writes(StreamingStep):
    def stream(self, state: Any, existing_chunks: list[Any]) -> Iterator[Any]:
        yield from "ab"

    def on_complete(self, chunks: list[Any], state: Any) -> State:
        return {"written": "".join(chunks)}


def undone(builder: WorkflowBuilder, *keys: str) -> WorkflowBuilder:
    """Steps that each count under their key, and can be undone."""
    for key in keys:
        builder.then(bind(put, key=key), name=key).compensate_with(bind(undo, key=key))
    return builder


def words() -> list[Any]:
    """What was noted, without the states."""
    return [word[0] if isinstance(word, tuple) else word for word in notes]


def cleanup_jobs(app: Queuety, run: int, status: JobStatus | None = None) -> list[JobState]:
    """The jobs that clean up after the run, oldest first."""
    own = {job.id for job in app.list_jobs(workflow_id=run, limit=1000)}
    jobs = app.list_jobs(workflow_id=run, cleanup=True, status=status, limit=1000)
    return sorted((job for job in jobs if job.id not in own), key=lambda job: job.id)


def test_steps_are_undone_in_reverse_each_with_the_state_as_of_its_completion_and_pruned(app: Queuety) -> None:
    builder = undone(app.workflow("w"), "a", "b", "c").prune_state_after(2).delay(hours=1)
    run = undone(builder, "d").on_cancel(bind(says, word="cancelled")).dispatch({"order": 7})
    app.run_until_idle()
    assert status_of(app, run).state == {"order": 7, "b": 1, "c": 1}
    app.cancel_workflow(run)
    assert notes == [], "a step was undone inside cancel_workflow"
    assert status_of(app, run).compensation_status is CleanupStatus.PENDING
    assert app.run_until_idle() == 4
    assert notes == [
        ("c", {"order": 7, "b": 1, "c": 1}),
        ("b", {"order": 7, "a": 1, "b": 1}),
        ("a", {"order": 7, "a": 1}),
        ("cancelled", {"order": 7, "b": 1, "c": 1}),
    ]
    after = status_of(app, run)
    assert (after.status, after.compensation_status) == (WorkflowStatus.CANCELLED, CleanupStatus.COMPLETED)
    assert after.state == {"order": 7, "b": 1, "c": 1}
    assert app.run_until_idle() == 0


def test_a_step_that_completed_several_times_is_undone_as_often(app: Queuety) -> None:
    builder = undone(app.workflow("w"), "lap", "other").repeat_until("lap", "lap", 3)
    run = builder.wait_for_signal("go").dispatch()
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    expected = [("other", 3, 3), ("lap", 3, 2), ("other", 2, 2), ("lap", 2, 1), ("other", 1, 1), ("lap", 1, 0)]
    assert [(key, state["lap"], state.get("other", 0)) for key, state in notes] == expected


def test_a_step_that_went_to_itself_is_undone_with_each_of_its_states(app: Queuety) -> None:
    builder = app.workflow("w").then(counts_to_three, name="again").compensate_with(bind(undo, key="again"))
    run = builder.wait_for_signal("go").dispatch()
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    assert [state for _, state in notes] == [{"n": 3}, {"n": 2}, {"n": 1}]


@step
def counts_to_three(state: State) -> State:
    number = state.get("n", 0) + 1
    return {"n": number} | ({} if number == 3 else {"_next_step": "again"})


def test_steps_that_did_not_complete_are_not_undone(app: Queuety) -> None:
    """Neither the one that failed, nor a group of which one branch is done, nor what was jumped over."""
    builder = undone(app.workflow("w"), "a").then(jumps, name="jumps")
    undone(builder, "jumped").parallel([bind(put, key="x"), breaks], step_name="group")
    builder.compensate_with(bind(undo, key="group")).compensate_on_failure()
    run = builder.dispatch()
    assert ended(app, run).status is WorkflowStatus.FAILED
    assert status_of(app, run).state == {"a": 1, "x": 1}
    assert words() == ["a"]


@step
def jumps(state: State) -> State:
    return {"_next_step": "group"}


def test_a_for_each_that_fails_half_done_is_not_undone(app: Queuety) -> None:
    builder = undone(app.workflow("w"), "a").for_each("items", breaks_for).compensate_with(bind(undo, key="each"))
    run = builder.compensate_on_failure().dispatch({"items": ["good", "bad"]})
    assert ended(app, run).status is WorkflowStatus.FAILED
    assert words() == ["a"]


def test_a_step_that_timed_out_is_not_undone_whatever_it_did(database: Database) -> None:
    with Queuety(database.url) as app:
        builder = undone(app.workflow("w"), "a").then(too_slow).compensate_with(bind(undo, key="slow"))
        run = builder.compensate_on_failure().dispatch()
        with working(app):
            until(lambda: status_of(app, run).compensation_status is CleanupStatus.COMPLETED)
            gates["let go"].set()
        assert (status_of(app, run).status, words()) == (WorkflowStatus.FAILED, ["a"])
        check(app.door)


def test_a_step_that_settles_in_the_transaction_in_which_the_run_fails_is_undone(app: Queuety) -> None:
    """The next step cannot even be entered: there is no list to work through."""
    builder = undone(app.workflow("w"), "a", "b").delay(step_name="at once").compensate_with(bind(undo, key="delay"))
    run = builder.for_each("a", breaks_for).compensate_on_failure().dispatch({"order": 1})
    assert ended(app, run).status is WorkflowStatus.FAILED
    assert notes == [
        ("delay", {"order": 1, "a": 1, "b": 1}),
        ("b", {"order": 1, "a": 1, "b": 1}),
        ("a", {"order": 1, "a": 1}),
    ]


def test_a_run_that_fails_before_anything_was_done_has_nothing_to_undo(app: Queuety) -> None:
    run = app.workflow("w").then(breaks).compensate_with(bind(undo, key="it")).compensate_on_failure().dispatch()
    failed = ended(app, run)
    assert (failed.status, failed.compensation_status) == (WorkflowStatus.FAILED, CleanupStatus.NONE)
    app.retry_workflow(run)


def test_every_kind_of_step_is_undone_once_it_has_settled(app: Queuety, clock: ManualClock) -> None:
    child = workflow("child").then(bind(put, key="child"))

    def can(builder: WorkflowBuilder, key: str) -> WorkflowBuilder:
        return builder.compensate_with(bind(undo, key=key))

    builder = app.workflow("w")
    can(builder.then(bind(put, key="single")), "single")
    can(builder.then(Writes), "streaming")
    can(builder.parallel([bind(put, key="left"), bind(put, key="right")]), "parallel")
    can(builder.for_each("items", breaks_for, result_key="each"), "for_each")
    can(builder.for_each("items", breaks_for, result_key="sum", reducer=add_up), "reduced")
    can(builder.repeat_until("0", "single", 1), "repeat")
    can(builder.delay(seconds=5), "delay")
    can(builder.wait_for_signal("go", result_key="signal"), "signal")
    can(builder.wait_for_decision(), "decision")
    can(builder.run_workflow("child", child), "child")
    can(builder.start_workflows("items", child, "ids"), "start")
    can(builder.wait_for_workflows("ids", result_key="all"), "workflows")
    run = builder.wait_for_signal("never").dispatch({"items": [1, 2]})
    app.signal(run, "go")
    app.signal(run, "approved", {"by": "me"})
    app.run_until_idle()
    clock.advance(seconds=6)
    app.run_until_idle()
    state = status_of(app, run)
    assert (state.waiting_for, notes) == (["never"], [])
    app.cancel_workflow(run)
    app.run_until_idle()
    kinds = ["single", "streaming", "parallel", "for_each", "reduced", "repeat", "delay", "signal", "decision"]
    kinds += ["child", "start", "workflows"]
    assert words() == kinds[::-1]
    states = dict(notes)
    assert states["workflows"] == state.state
    assert "all" not in states["start"]
    assert "ids" not in states["child"]
    assert states["decision"]["decision"] == {"outcome": "approved", "signal": "approved", "data": {"by": "me"}}
    assert "decision" not in states["signal"]
    assert (states["parallel"]["left"], states["parallel"]["right"]) == (1, 1)
    assert "left" not in states["streaming"]
    assert states["reduced"]["total"] == 2


@step
def add_up(state: State, for_each: State) -> State:
    return {"total": sum(entry["output"]["did"] - entry["index"] for entry in for_each["results"])}


def test_on_failure_steps_are_undone_only_where_that_is_said(app: Queuety) -> None:
    usual = undone(app.workflow("w"), "a").then(breaks).on_cancel(bind(says, word="cancelled")).dispatch()
    failed = ended(app, usual)
    assert (failed.status, failed.compensation_status) == (WorkflowStatus.FAILED, CleanupStatus.NONE)
    assert notes == []
    app.cancel_workflow(usual)
    app.run_until_idle()
    assert words() == ["a", "cancelled"]


def test_a_run_that_was_compensated_and_is_cancelled_then_runs_only_its_handler(app: Queuety) -> None:
    builder = undone(app.workflow("w"), "a", "b").then(breaks).on_cancel(bind(says, word="cancelled"))
    run = builder.compensate_on_failure().dispatch()
    failed = ended(app, run)
    assert (failed.status, failed.compensation_status) == (WorkflowStatus.FAILED, CleanupStatus.COMPLETED)
    assert words() == ["b", "a"], "on_cancel is not called where a run fails"
    app.cancel_workflow(run)
    cancelled = status_of(app, run)
    assert (cancelled.status, cancelled.compensation_status) == (WorkflowStatus.CANCELLED, CleanupStatus.PENDING)
    app.run_until_idle()
    assert words() == ["b", "a", "cancelled"]
    assert status_of(app, run).compensation_status is CleanupStatus.COMPLETED
    assert status_of(app, run).error_message == "broken"


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_run_that_is_cancelled_while_it_compensates_undoes_nothing_twice(app: Queuety, done: int) -> None:
    builder = undone(app.workflow("w"), "a", "b").then(breaks).on_cancel(bind(says, word="cancelled"))
    run = builder.compensate_on_failure().dispatch()
    app.run_until_idle(max_jobs=3 + done)
    assert words() == ["b", "a"][:done]
    app.cancel_workflow(run)
    app.run_until_idle()
    assert words() == ["b", "a", "cancelled"]
    assert status_of(app, run).compensation_status is CleanupStatus.COMPLETED


def test_a_compensation_that_runs_while_its_run_is_cancelled_is_not_run_again(database: Database) -> None:
    with Queuety(database.url) as app:
        builder = app.workflow("w").then(bind(put, key="a")).compensate_with(bind(undo_slowly, key="a")).then(breaks)
        run = builder.on_cancel(bind(says, word="cancelled")).compensate_on_failure().dispatch()
        with working(app):
            until(lambda: notes == ["a"])
            app.cancel_workflow(run)
            gates["let go"].set()
            until(lambda: status_of(app, run).compensation_status is CleanupStatus.COMPLETED)
        assert words() == ["a", "cancelled"]
        check(app.door)


def test_a_compensation_that_fails_for_good_does_not_keep_the_others_from_running(
    app: Queuety, clock: ManualClock
) -> None:
    builder = undone(app.workflow("w"), "a").then(bind(put, key="b")).compensate_with(cannot)
    run = undone(builder, "c").max_attempts(2).delay(hours=1).on_cancel(bind(says, word="cancelled")).dispatch()
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    assert words() == ["c", "cannot"]
    (waiting,) = cleanup_jobs(app, run, JobStatus.PENDING)
    assert (waiting.step_index, waiting.attempts, waiting.max_attempts) == (1, 1, 2)
    assert 2 <= (waiting.available_at - clock.now).total_seconds() <= 2.5, "the usual back-off"
    assert status_of(app, run).compensation_status is CleanupStatus.PENDING
    clock.advance(seconds=3)
    app.run_until_idle()
    assert words() == ["c", "cannot", "cannot", "a", "cancelled"]
    after = status_of(app, run)
    assert (after.status, after.compensation_status) == (WorkflowStatus.CANCELLED, CleanupStatus.FAILED)
    (buried,) = cleanup_jobs(app, run, JobStatus.BURIED)
    assert (buried.step_index, buried.error_message) == (1, "the money is gone")
    assert [job.step_index for job in cleanup_jobs(app, run, JobStatus.COMPLETED)] == [2, 0, None]


def test_a_compensation_that_fails_once_is_tried_again_before_the_next_one(app: Queuety, clock: ManualClock) -> None:
    run = undone(app.workflow("w"), "a").then(bind(put, key="b")).compensate_with(cannot_at_first).delay(hours=1)
    started = run.dispatch()
    app.run_until_idle()
    app.cancel_workflow(started)
    app.run_until_idle()
    assert words() == ["attempt 1"]
    clock.advance(seconds=3)
    app.run_until_idle()
    assert words() == ["attempt 1", "attempt 2", "a"]
    assert status_of(app, started).compensation_status is CleanupStatus.COMPLETED
    assert story(app, started)[-4:] == [
        "workflow_cancelled 2",
        "cleanup_failed 1",
        "cleanup_completed 1",
        "cleanup_completed 0",
    ]


def test_jobs_that_clean_up_are_listed_only_when_asked_for_and_know_their_step(app: Queuety) -> None:
    run = undone(app.workflow("w").on_queue("slow"), "a").delay(hours=1).on_cancel(bind(says, word="x")).dispatch()
    app.run_until_idle()
    app.cancel_workflow(run)
    assert app.list_jobs(workflow_id=run, status="pending") == []
    (job,) = cleanup_jobs(app, run)
    assert (job.queue, job.step_index, job.status) == ("slow", 0, JobStatus.PENDING)
    assert job.handler.endswith(":undo")
    app.run_until_idle()
    assert [job.handler.rpartition(":")[2] for job in cleanup_jobs(app, run)] == ["undo", "says"]
    assert {job.status for job in cleanup_jobs(app, run)} == {JobStatus.COMPLETED}


def test_a_compensation_knows_what_it_undoes(app: Queuety) -> None:
    builder = app.workflow("w").then(bind(put, key="a"), name="charge").compensate_with(bind(Undo, word="refund"))
    run = builder.delay(hours=1).dispatch()
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    assert notes == [("refund", 0, "charge", 1, run)]
    assert status_of(app, run).state == {"a": 1}


def test_a_run_that_was_cancelled_with_no_worker_up_is_cleaned_up_by_the_next_one(database: Database) -> None:
    with Queuety(database.url) as app:
        run = undone(app.workflow("w"), "a", "b").delay(hours=1).on_cancel(bind(says, word="cancelled")).dispatch()
        app.run_until_idle()
        app.cancel_workflow(run)
    with Queuety(database.url) as app:
        with working(app):
            until(lambda: status_of(app, run).compensation_status is CleanupStatus.COMPLETED)
        assert words() == ["b", "a", "cancelled"]
        check(app.door)


def test_many_runs_that_end_at_once_undo_each_of_their_steps_once_and_in_order(database: Database) -> None:
    """Three workers share the work of twenty runs; nothing dies, so nothing runs twice."""
    with Queuety(database.url) as app, Queuety(database.url) as one, Queuety(database.url) as other:
        builder = undone(app.workflow("w"), "a", "b", "c").then(breaks).compensate_on_failure()
        with working(app), working(one), working(other):
            runs = app.dispatch_many(builder, [{"run": number} for number in range(20)])
            until(lambda: all(status_of(app, run).compensation_status is CleanupStatus.COMPLETED for run in runs))
        for number in range(20):
            assert [key for key, state in notes if state["run"] == number] == ["c", "b", "a"]
        check(app.door)


REFUSED: dict[str, Callable[[Queuety, int], object]] = {
    "retried": lambda app, run: app.retry_workflow(run),
    "rewound": lambda app, run: app.rewind_workflow(run, 0),
    "forked": lambda app, run: app.fork_workflow(run),
    "forked at a step": lambda app, run: app.fork_workflow(run, 1),
    "skipped": lambda app, run: app.skip_step(run),
    "completed": lambda app, run: app.complete_step(run, {"x": 1}),
    "patched": lambda app, run: app.patch_state(run, {"x": 1}),
}


@pytest.mark.parametrize("after", ["pending", "completed"])
def test_a_compensated_run_cannot_be_brought_back(app: Queuety, after: str) -> None:
    run = undone(app.workflow("w"), "a").then(breaks).compensate_on_failure().dispatch()
    app.run_until_idle(max_jobs=2 if after == "pending" else None)
    assert status_of(app, run).compensation_status == after
    before = contents(app.door)
    for operation, do in REFUSED.items():
        with pytest.raises(errors.InvalidStateError, match="already been compensated") as refusal:
            do(app, run)
        assert f"workflow {run} is failed" in str(refusal.value), operation
    assert contents(app.door) == before


def test_a_child_that_is_told_to_end_cleans_up_before_its_parent(app: Queuety) -> None:
    inner = undone(workflow("inner"), "i1", "i2").delay(hours=1).on_cancel(bind(says, word="inner"))
    middle = undone(workflow("middle"), "m1").run_workflow("inner", inner).on_cancel(bind(says, word="middle"))
    builder = undone(app.workflow("outer"), "o1").run_workflow("middle", middle).on_cancel(bind(says, word="outer"))
    run = builder.dispatch()
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    assert words() == ["i2", "i1", "inner", "m1", "middle", "o1", "outer"]
    assert status_of(app, run).compensation_status is CleanupStatus.COMPLETED


@pytest.mark.parametrize("leaves", ["rewind_workflow", "skip_step"])
def test_a_child_that_was_left_behind_cleans_up_before_its_parent_too(app: Queuety, leaves: str) -> None:
    child = undone(workflow("child"), "c1").wait_for_signal("never")
    builder = undone(undone(app.workflow("w"), "a"), "b").run_workflow("child", child).then(bind(put, key="end"))
    run = builder.dispatch()
    app.run_until_idle()
    app.rewind_workflow(run, 0) if leaves == "rewind_workflow" else app.skip_step(run)
    app.cancel_workflow(run)
    assert (app.why(run).reason, app.why(run).details["child"]) == (
        "awaits_child",
        app.list_workflows(parent_id=run)[0].id,
    )
    app.run_until_idle()
    assert words() == (["c1", "a"] if leaves == "rewind_workflow" else ["c1", "b", "a"])
    assert status_of(app, run).compensation_status is CleanupStatus.COMPLETED


def test_a_child_that_completed_is_undone_by_its_parent_and_not_by_itself(app: Queuety) -> None:
    child = undone(workflow("child"), "c1")
    builder = undone(app.workflow("w"), "a").run_workflow("child", child).compensate_with(bind(undo, key="child"))
    run = builder.then(breaks).compensate_on_failure().dispatch()
    assert ended(app, run).status is WorkflowStatus.FAILED
    assert notes == [("child", {"a": 1, "c1": 1}), ("a", {"a": 1})]


def test_a_child_that_fails_undoes_its_steps_before_its_parent_does(app: Queuety) -> None:
    """Nested sagas: what was done last is undone first, also across runs."""
    inner = undone(workflow("inner"), "i1", "i2").then(breaks).compensate_on_failure()
    middle = undone(workflow("middle"), "m1").run_workflow("inner", inner).compensate_on_failure()
    run = undone(app.workflow("outer"), "o1", "o2").run_workflow("middle", middle).compensate_on_failure().dispatch()
    outer = ended(app, run)
    assert (outer.status, outer.error_message) == (WorkflowStatus.FAILED, "broken")
    assert words() == ["i2", "i1", "m1", "o2", "o1"]
    assert outer.compensation_status is CleanupStatus.COMPLETED


def test_a_child_that_ran_out_of_time_is_cleaned_up_before_its_parent(app: Queuety, clock: ManualClock) -> None:
    child = undone(workflow("child"), "c1").wait_for_signal("never").on_cancel(bind(says, word="child cancelled"))
    builder = undone(app.workflow("w"), "a").run_workflow("child", child).compensate_on_failure()
    run = builder.must_complete_within(seconds=10).on_deadline(bind(says, word="too late")).dispatch()
    app.run_until_idle()
    clock.advance(seconds=10)
    app.run_until_idle()
    assert words() == ["c1", "child cancelled", "a", "too late"]
    assert status_of(app, run).status is WorkflowStatus.FAILED


def test_a_step_that_was_completed_by_hand_is_undone_and_a_skipped_one_is_not(app: Queuety) -> None:
    builder = undone(app.workflow("w"), "a", "b", "c").delay(hours=1)
    run = builder.dispatch()
    app.complete_step(run, {"a": "by hand"})
    app.skip_step(run)
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    assert notes == [("c", {"a": "by hand", "c": 1}), ("a", {"a": "by hand"})]


def test_a_run_that_was_retried_undoes_also_what_it_did_before_it_failed(app: Queuety) -> None:
    builder = undone(app.workflow("w"), "a").then(breaks_unless_mended)
    run = undone(builder, "b").delay(hours=1).dispatch()
    app.run_until_idle()
    note("mended")
    app.retry_workflow(run)
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    assert words() == ["mended", "b", "a"]


def test_what_was_rewound_is_not_undone_and_what_is_done_again_is_undone_once(app: Queuety) -> None:
    run = undone(app.workflow("w"), "a", "b", "c").delay(hours=1).dispatch()
    app.run_until_idle()
    app.rewind_workflow(run, "a", with_state={"again": True})
    app.run_until_idle(max_jobs=1)
    app.cancel_workflow(run)
    app.run_until_idle()
    assert notes == [("b", {"a": 1, "again": True, "b": 1}), ("a", {"a": 1})]


def test_what_was_rewound_is_not_undone_where_the_run_fails_in_the_same_transaction(app: Queuety) -> None:
    builder = undone(app.workflow("w"), "a").for_each("items", breaks_for).compensate_with(bind(undo, key="each"))
    run = undone(builder, "b").wait_for_signal("go").compensate_on_failure().dispatch({"items": [1]})
    app.run_until_idle()
    app.rewind_workflow(run, "a", with_state={"items": "none"})
    assert status_of(app, run).status is WorkflowStatus.FAILED
    app.run_until_idle()
    assert words() == ["a"]


def test_a_fork_undoes_only_what_it_does_itself(app: Queuety) -> None:
    run = undone(app.workflow("w"), "a").wait_for_signal("go")
    started = undone(run, "b").delay(hours=1).dispatch()
    app.run_until_idle()
    other = app.fork_workflow(started)
    app.signal(other, "go")
    app.run_until_idle()
    app.cancel_workflow(other)
    app.run_until_idle()
    assert notes == [("b", {"a": 1, "b": 1})]
    app.cancel_workflow(started)
    app.run_until_idle()
    assert notes[1:] == [("a", {"a": 1})]


def test_a_run_that_fails_as_it_is_moved_is_undone_as_its_first_definition_says(app: Queuety) -> None:
    """The step that it comes to under the new one cannot be entered."""
    first = app.workflow("w").then(bind(put, key="a"), name="a").compensate_with(bind(undo, key="first"))
    run = first.wait_for_signal("go", step_name="here").dispatch()
    app.run_until_idle()
    second = app.workflow("w").then(bind(put, key="a"), name="a").compensate_with(bind(undo, key="second"))
    second.for_each("a", breaks_for, name="here").compensate_on_failure()
    app.migrate_workflow(run, second, {"here": "here"})
    assert status_of(app, run).status is WorkflowStatus.FAILED
    app.run_until_idle()
    assert words() == ["first"]


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_parent_that_is_cancelled_while_its_failed_child_cleans_up_waits_for_it(app: Queuety, done: int) -> None:
    inner = undone(workflow("inner"), "i1", "i2").then(breaks).compensate_on_failure()
    builder = undone(app.workflow("outer"), "o1").run_workflow("inner", inner).compensate_on_failure()
    run = builder.on_cancel(bind(says, word="cancelled")).dispatch()
    app.run_until_idle(max_jobs=4 + done)
    assert words() == ["i2", "i1"][:done]
    if done:  # else it has not heard of its child's failure yet
        assert status_of(app, run).compensation_status is CleanupStatus.PENDING
    app.cancel_workflow(run)
    app.run_until_idle()
    assert words() == ["i2", "i1", "o1", "cancelled"]
    assert status_of(app, run).compensation_status is CleanupStatus.COMPLETED


def test_a_parent_cleans_up_though_its_child_could_not(app: Queuety) -> None:
    inner = workflow("inner").max_attempts(1).then(bind(put, key="i1")).compensate_with(cannot)
    inner.then(breaks).compensate_on_failure()
    run = undone(app.workflow("outer"), "o1").run_workflow("inner", inner).compensate_on_failure().dispatch()
    assert ended(app, run).compensation_status is CleanupStatus.COMPLETED
    assert words() == ["cannot", "o1"]
    (child,) = app.list_workflows(parent_id=run)
    assert child.compensation_status is CleanupStatus.FAILED


def test_a_child_that_somebody_cancels_cleans_up_before_its_parent_which_fails(app: Queuety) -> None:
    inner = undone(workflow("inner"), "i1", "i2").wait_for_signal("never").on_cancel(bind(says, word="inner cancelled"))
    run = undone(app.workflow("outer"), "o1").run_workflow("inner", inner).compensate_on_failure().dispatch()
    app.run_until_idle()
    (child,) = app.list_workflows(parent_id=run)
    app.cancel_workflow(child.id)
    assert ended(app, run).status is WorkflowStatus.FAILED
    assert words() == ["i2", "i1", "inner cancelled", "o1"]
