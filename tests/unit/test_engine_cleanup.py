"""What follows from the end of a run: steps are undone, the last one first; then the run's own handler is called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuety.engine.derail import derailed
from queuety.errors import InvalidStateError
from queuety.model import (
    AddJob,
    AppendHistory,
    Branch,
    Cancel,
    ChildSettled,
    CleanupStatus,
    Command,
    CompleteStep,
    DeadlinePassed,
    Definition,
    Entry,
    ErrorInfo,
    ErrorKind,
    Fork,
    HandlerRef,
    LetterKind,
    NewJob,
    PatchState,
    Pause,
    Priority,
    RetryRun,
    Rewind,
    Role,
    SaveWorkflow,
    Signalled,
    SkipStep,
    Span,
    StepSpec,
    Succeeded,
    WorkflowStatus,
)
from tests.unit.reference import BOOM, SECOND, delay, flow, then
from tests.unit.several import Several
from tests.unit.stage import Stage

BROKEN, ENDED = WorkflowStatus.FAILED, WorkflowStatus.CANCELLED


def undone(step: StepSpec, config: dict[str, Any] | None = None) -> StepSpec:
    """The step, with a handler that undoes it."""
    undo = HandlerRef(f"app:undo_{step.name}", config)
    return StepSpec(
        step.kind, step.name, step.handler, step.options, step.settings, step.branches, step.reducer, step.child, undo
    )


def doing(name: str, **options: Any) -> StepSpec:
    return undone(then(name, **options))


def saga(*steps: StepSpec, **how: Any) -> Definition:
    return flow(*steps, **{"compensates_on_failure": True, **how})


def within(child: Definition) -> StepSpec:
    return StepSpec("run_workflow", "w", child=child)


def job_of(stage: Stage) -> NewJob:
    """The only job that is open: one cleanup at a time."""
    ((new, _, _),) = stage.open.values()
    assert new.role is Role.CLEANUP
    return new


def clean(stage: Stage) -> list[tuple[str, dict[str, Any] | None]]:
    """Have all that is to be cleaned up done: each handler, and the state that it got (None: the present one)."""
    done = []
    while stage.open:
        new = job_of(stage)
        seq = (new.payload or {}).get("seq")
        snapshot = None if seq is None else state_at(stage, seq)
        done.append((new.handler.removeprefix("app:"), snapshot))
        stage.tell(stage.success(role=Role.CLEANUP))
    return done


def state_at(stage: Stage, seq: int) -> dict[str, Any]:
    state = dict(stage.payload)
    for row in stage.rows[:seq]:
        state.update(row.changed or {})
        for key in row.removed or ():
            del state[key]
    return state


def how_it_ended(stage: Stage) -> tuple[str, str]:
    return str(stage.workflow.status), str(stage.workflow.cleanup)


# order and snapshots


def test_steps_are_undone_in_reverse_order_each_with_its_own_state() -> None:
    stage = Stage(saga(doing("a"), doing("b"), then("c"), on_cancel=HandlerRef("app:never")), {"x": 0})
    stage.succeed({"a": 1})
    stage.succeed({"b": 1, "x": 1})
    stage.fail(is_final=True)
    assert how_it_ended(stage) == ("failed", "pending")
    assert clean(stage) == [("undo_b", {"x": 1, "a": 1, "b": 1}), ("undo_a", {"x": 0, "a": 1})]
    assert how_it_ended(stage) == ("failed", "completed")
    assert stage.workflow.state == {"x": 1, "a": 1, "b": 1}, "the run's own outcome stays as it was"


def test_each_is_a_job_of_its_own_with_the_runs_queue_and_budget() -> None:
    first = undone(then("a", queue="fast", max_attempts=9), {"k": 1})
    stage = Stage(saga(first, then("b"), queue="slow", max_attempts=2))
    stage.now_us = 5
    stage.succeed()
    (added,) = [effect.job for effect in stage.fail(is_final=True) if isinstance(effect, AddJob)]
    assert added == NewJob(
        Role.CLEANUP, "slow", Priority.LOW, "app:undo_a", 2, 5, {"seq": 1, "step": 0}, {"k": 1}, None, 41, 0, 2
    )


def test_a_row_says_what_was_undone() -> None:
    stage = Stage(saga(doing("a"), then("b")))
    stage.succeed()
    stage.fail(is_final=True)
    stage.tell(stage.success({"_queuety_trace": {"note": 1}, "ignored": 1}, Role.CLEANUP))
    row = stage.rows[-1]
    assert (row.entry, row.step_index, row.changed, row.is_final) == (Entry.CLEANED, 0, None, False)
    assert row.control == {"_cleanup": {"seq": 1, "step": 0}, "_queuety_trace": {"note": 1}}
    assert (row.job is not None, stage.workflow.state) == (True, {})


def test_a_step_of_a_loop_is_undone_as_often_as_it_was_done() -> None:
    again = StepSpec("repeat", "r", settings={"until": True, "target": "a", "state_key": "n", "expected": 3})
    stage = Stage(flow(doing("a"), undone(again), then("b"), on_cancel=HandlerRef("app:cancelled")))
    for n in (1, 2, 3):
        stage.succeed({"n": n})
    stage.command(Cancel())
    rounds = [(name, {"n": n}) for n in (3, 2, 1) for name in ("undo_r", "undo_a")]
    assert clean(stage) == [*rounds, ("cancelled", None)]
    assert how_it_ended(stage) == ("cancelled", "completed")


def test_snapshots_are_taken_after_pruning() -> None:
    stage = Stage(saga(doing("a"), doing("b"), then("c"), prune_after=1))
    stage.succeed({"a": 1})
    stage.succeed({"b": 1})
    stage.fail(is_final=True)
    assert clean(stage) == [("undo_b", {"b": 1}), ("undo_a", {"a": 1})]


@pytest.mark.parametrize("kind", ["parallel", "for_each", "delay", "wait", "by hand"])
def test_a_step_of_any_kind_can_be_undone_once_it_has_settled(kind: str) -> None:
    branches = (Branch(HandlerRef("app:x")), Branch(HandlerRef("app:y")))
    each = {"items_key": "items", "result_key": "out", "mode": "all"}
    specs = {
        "parallel": StepSpec("parallel", "s", branches=branches),
        "for_each": StepSpec("for_each", "s", HandlerRef("app:item"), settings=each),
        "delay": delay("s", 5),
        "wait": StepSpec("wait_for_signal", "s", settings={"names": ["go"], "mode": "all"}),
        "by hand": then("s"),
    }
    stage = Stage(saga(undone(specs[kind]), then("last")), {"items": [1, 2]})
    if kind in ("parallel", "for_each"):
        stage.tell(stage.good(0, {"x": 1}))
        stage.tell(stage.good(1, {"y": 1}))
    elif kind == "delay":
        stage.fire()
    elif kind == "wait":
        stage.signal("go", {"said": 1})
    else:
        stage.command(CompleteStep({"made": 1}))
    state = dict(stage.workflow.state)
    stage.fail(is_final=True)
    assert clean(stage) == [("undo_s", state)]


# what is not undone


def test_a_run_that_fails_is_only_cleaned_up_after_where_that_is_said() -> None:
    stage = Stage(flow(doing("a"), then("b"), on_cancel=HandlerRef("app:cancelled")))
    stage.succeed()
    stage.fail(is_final=True)
    assert (how_it_ended(stage), stage.open, stage.workflow.ledger) == (("failed", "none"), {}, None)


def test_neither_the_step_that_failed_nor_a_half_done_group_nor_one_that_was_skipped() -> None:
    branches = (Branch(HandlerRef("app:x")), Branch(HandlerRef("app:y")))
    stage = Stage(saga(doing("a"), doing("skipped"), undone(StepSpec("parallel", "p", branches=branches))))
    stage.succeed({"a": 1})
    stage.command(SkipStep())
    stage.tell(stage.good(0, {"x": 1}))
    stage.tell(stage.bad(1))
    assert clean(stage) == [("undo_a", {"a": 1})]


def test_a_run_without_anything_to_undo_is_not_compensated_and_can_be_retried() -> None:
    stage = Stage(saga(doing("a"), then("b")))
    stage.fail(is_final=True)
    assert how_it_ended(stage) == ("failed", "none")
    stage.command(RetryRun())
    stage.succeed()
    stage.fail(is_final=True)
    assert [name for name, _ in clean(stage)] == ["undo_a"]


def test_what_was_rewound_is_not_undone() -> None:
    stage = Stage(saga(doing("a"), doing("b"), doing("c"), then("d")))
    for name in "abc":
        stage.succeed({name: 1})
    stage.command(Rewind(0))
    stage.succeed({"b": 2})
    stage.fail(is_final=True)
    assert clean(stage) == [("undo_b", {"a": 1, "b": 2}), ("undo_a", {"a": 1})]


def test_a_rewind_that_was_itself_rewound_counts_no_more() -> None:
    """Back to a, then on to where c had settled: all three are done again."""
    stage = Stage(saga(doing("a"), doing("b"), doing("c"), then("d")))
    for name in "abc":
        stage.succeed({name: 1})
    stage.command(Rewind(0))
    stage.succeed({"b": 2})
    stage.command(Rewind(2))
    stage.fail(is_final=True)
    assert clean(stage) == [
        ("undo_c", {"a": 1, "b": 1, "c": 1}),
        ("undo_b", {"a": 1, "b": 1}),
        ("undo_a", {"a": 1}),
    ]


def test_a_run_that_goes_back_and_fails_at_once_does_not_undo_what_it_went_back_over() -> None:
    """All of it is one decision: its row about going back is not in the history yet."""
    settings = {"items_key": "a", "result_key": "out", "mode": "all"}
    each = StepSpec("for_each", "each", HandlerRef("app:item"), settings=settings)
    stage = Stage(saga(doing("a"), undone(delay("d", 0)), each, doing("b"), then("c")))
    stage.succeed({"a": []})
    stage.succeed({"b": 1})
    stage.command(Rewind(0, with_state={"a": 7}))
    assert how_it_ended(stage) == ("failed", "pending")
    assert stage.workflow.error_kind is ErrorKind.FOR_EACH_UNSATISFIABLE
    assert clean(stage) == [("undo_d", {"a": 7}), ("undo_a", {"a": []})]


def test_nor_where_nothing_settles_on_the_way() -> None:
    settings = {"items_key": "a", "result_key": "out", "mode": "all"}
    each = StepSpec("for_each", "each", HandlerRef("app:item"), settings=settings)
    stage = Stage(saga(doing("a"), each, doing("b"), then("c")))
    stage.succeed({"a": []})
    stage.succeed({"b": 1})
    stage.command(Rewind(0, with_state={"a": 7}))
    assert clean(stage) == [("undo_a", {"a": []})]


def test_a_step_that_is_skipped_in_the_turn_in_which_the_run_fails_is_not_undone() -> None:
    settings = {"items_key": "a", "result_key": "out", "mode": "all"}
    each = StepSpec("for_each", "each", HandlerRef("app:item"), settings=settings)
    for command, undone_then in ((SkipStep(), ["undo_a"]), (CompleteStep({}), ["undo_b", "undo_a"])):
        stage = Stage(saga(doing("a"), doing("b"), each))
        stage.succeed({"a": 7})
        stage.command(command)
        assert [name for name, _ in clean(stage)] == undone_then


def test_what_settled_in_the_very_turn_in_which_the_run_failed_is_undone() -> None:
    settings = {"items_key": "items", "result_key": "out", "mode": "all"}
    each = StepSpec("for_each", "each", HandlerRef("app:item"), settings=settings)
    stage = Stage(saga(doing("a"), undone(delay("d", 0)), then("before"), doing("b"), undone(delay("e", 0)), each))
    stage.succeed({"a": 1})
    stage.succeed()
    stage.succeed({"items": "none"})
    assert how_it_ended(stage) == ("failed", "pending")
    assert [name for name, _ in clean(stage)] == ["undo_e", "undo_b", "undo_d", "undo_a"]


def test_a_run_that_fails_as_it_starts_undoes_what_it_has_left_by_then() -> None:
    settings = {"items_key": "items", "result_key": "out", "mode": "all"}
    each = StepSpec("for_each", "each", HandlerRef("app:item"), settings=settings)
    stage = Stage(saga(undone(delay("d", 0)), each), {"items": "none"})
    assert clean(stage) == [("undo_d", {"items": "none"})]


# failures of the handlers


def test_one_that_fails_is_tried_again_and_does_not_stop_the_others() -> None:
    stage = Stage(saga(doing("a"), doing("b"), then("c"), max_attempts=2))
    stage.succeed()
    stage.succeed()
    stage.fail(is_final=True)
    stage.tell(stage.failure(role=Role.CLEANUP))
    ((new, attempts, due_us),) = stage.open.values()
    assert (new.handler, attempts, due_us, how_it_ended(stage)) == ("app:undo_b", 1, 2 * SECOND, ("failed", "pending"))
    stage.tell(stage.failure(role=Role.CLEANUP))
    assert job_of(stage).handler == "app:undo_a"
    assert clean(stage) == [("undo_a", {})]
    assert how_it_ended(stage) == ("failed", "failed")
    told = [(row.entry, row.step_index, row.is_final, row.error) for row in stage.rows[3:]]
    assert told == [
        (Entry.UNCLEANED, 1, False, BOOM),
        (Entry.UNCLEANED, 1, True, BOOM),
        (Entry.CLEANED, 0, False, None),
    ]
    assert [(row.control or {})["_cleanup"] for row in stage.rows[3:]] == [
        {"seq": 2, "step": 1},
        {"seq": 2, "step": 1},
        {"seq": 1, "step": 0},
    ]


def test_a_handler_that_says_it_is_final_is_not_tried_again() -> None:
    stage = Stage(saga(doing("a"), then("b")))
    stage.succeed()
    stage.fail(is_final=True)
    stage.tell(stage.failure(role=Role.CLEANUP, is_final=True))
    assert (stage.open, how_it_ended(stage)) == ({}, ("failed", "failed"))


def test_a_result_that_comes_once_all_is_done_changes_nothing() -> None:
    stage = Stage(saga(doing("a"), then("b")))
    stage.succeed()
    stage.fail(is_final=True)
    done = stage.success(role=Role.CLEANUP)
    stage.tell(done)
    assert stage.tell(done) == []


# a run that is compensated is over


COMMANDS: list[Command] = [
    RetryRun(),
    Rewind(0),
    Fork(new_id=9000),
    Fork(new_id=9000, at_step=0),
    SkipStep(),
    CompleteStep({}),
    PatchState({"a": 1}),
]


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
@pytest.mark.parametrize("done", [False, True])
def test_a_compensated_run_is_over(command: Command, done: bool) -> None:
    stage = Stage(saga(doing("a"), then("b")))
    stage.succeed()
    stage.fail(is_final=True)
    if done:
        clean(stage)
    before = stage.workflow
    with pytest.raises(InvalidStateError, match="already been compensated"):
        stage.command(command)
    assert stage.workflow is before


def test_one_that_is_cancelled_later_runs_its_own_handler_and_undoes_nothing_twice() -> None:
    stage = Stage(saga(doing("a"), then("b"), on_cancel=HandlerRef("app:cancelled", {"k": 1})))
    stage.succeed({"a": 1})
    stage.fail(is_final=True)
    clean(stage)
    stage.command(Cancel())
    assert (how_it_ended(stage), job_of(stage).payload) == (("cancelled", "pending"), {"handler": "on_cancel"})
    assert clean(stage) == [("cancelled", None)]
    assert how_it_ended(stage) == ("cancelled", "completed")


def test_one_that_is_cancelled_later_without_a_handler_of_its_own_is_done() -> None:
    stage = Stage(saga(doing("a"), then("b")))
    stage.succeed({"a": 1})
    stage.fail(is_final=True)
    clean(stage)
    stage.command(Cancel())
    assert (how_it_ended(stage), stage.open) == (("cancelled", "completed"), {})


def test_a_step_that_could_not_be_undone_is_not_forgotten_by_a_cancel() -> None:
    stage = Stage(saga(doing("a"), then("b"), on_cancel=HandlerRef("app:cancelled")))
    stage.succeed()
    stage.fail(is_final=True)
    stage.tell(stage.failure(role=Role.CLEANUP, is_final=True))
    stage.command(Cancel())
    clean(stage)
    assert how_it_ended(stage) == ("cancelled", "failed")


@pytest.mark.parametrize("done", [0, 1])
def test_one_that_is_cancelled_meanwhile_goes_on_and_then_runs_its_own_handler(done: int) -> None:
    stage = Stage(saga(doing("a"), doing("b"), then("c"), on_cancel=HandlerRef("app:cancelled")))
    stage.succeed({"a": 1})
    stage.succeed({"b": 1})
    stage.fail(is_final=True)
    for _ in range(done):
        stage.tell(stage.success(role=Role.CLEANUP))
    stage.command(Cancel())
    assert how_it_ended(stage) == ("cancelled", "pending")
    assert [name for name, _ in clean(stage)] == ["undo_b", "undo_a", "cancelled"][done:]
    assert how_it_ended(stage) == ("cancelled", "completed")


def test_a_failed_run_that_was_not_compensated_is_when_it_is_cancelled() -> None:
    stage = Stage(flow(doing("a"), then("b"), on_cancel=HandlerRef("app:cancelled")))
    stage.succeed({"a": 1})
    stage.fail(is_final=True)
    stage.command(Cancel())
    assert clean(stage) == [("undo_a", {"a": 1}), ("cancelled", None)]


def test_a_cancelled_run_undoes_its_steps_whether_or_not_failures_do() -> None:
    stage = Stage(flow(doing("a"), then("b")))
    stage.succeed({"a": 1})
    stage.command(Pause())
    stage.command(Cancel())
    assert clean(stage) == [("undo_a", {"a": 1})]


def test_a_cleanup_goes_on_beside_what_is_sent_to_the_run() -> None:
    stage = Stage(saga(doing("a"), doing("b"), then("c")))
    stage.succeed()
    stage.succeed()
    stage.fail(is_final=True)
    stage.tell(Signalled("late", {}, 900), stage.success(role=Role.CLEANUP))
    assert (job_of(stage).handler, [signal.name for signal in stage.signals]) == ("app:undo_a", ["late"])


# deadlines


def test_a_deadline_calls_its_own_handler_after_the_steps_were_undone() -> None:
    stage = Stage(saga(doing("a"), then("b"), deadline_s=9, on_deadline=HandlerRef("app:too_late", {"k": 1})))
    stage.succeed({"a": 1})
    stage.remind()
    assert (stage.workflow.error_kind, how_it_ended(stage)) == (ErrorKind.DEADLINE_EXCEEDED, ("failed", "pending"))
    assert clean(stage) == [("undo_a", {"a": 1}), ("too_late", None)]
    assert how_it_ended(stage) == ("failed", "completed")


def test_a_run_that_is_cancelled_before_its_deadlines_handler_was_called_has_both_called() -> None:
    first, last = HandlerRef("app:too_late"), HandlerRef("app:cancelled")
    stage = Stage(saga(doing("a"), then("b"), deadline_s=9, on_deadline=first, on_cancel=last))
    stage.succeed({"a": 1})
    stage.remind()
    stage.command(Cancel())
    assert [name for name, _ in clean(stage)] == ["undo_a", "too_late", "cancelled"]
    assert how_it_ended(stage) == ("cancelled", "completed")


def test_a_deadline_without_compensation_calls_its_handler_alone() -> None:
    stage = Stage(flow(doing("a"), then("b"), deadline_s=9, on_deadline=HandlerRef("app:too_late")))
    stage.succeed({"a": 1})
    stage.remind()
    assert clean(stage) == [("too_late", None)]
    stage.command(Cancel())
    assert clean(stage) == [("undo_a", {"a": 1})], "that is still to be done"


def test_a_run_whose_deadlines_handler_is_being_called_still_undoes_its_steps_when_it_is_cancelled() -> None:
    first, last = HandlerRef("app:too_late"), HandlerRef("app:cancelled")
    stage = Stage(flow(doing("a"), doing("b"), then("c"), deadline_s=9, on_deadline=first, on_cancel=last))
    stage.succeed({"a": 1})
    stage.succeed({"b": 1})
    stage.remind()
    stage.command(Cancel())
    assert [name for name, _ in clean(stage)] == ["too_late", "undo_b", "undo_a", "cancelled"]
    assert how_it_ended(stage) == ("cancelled", "completed")


@pytest.mark.parametrize("command", [RetryRun(), Rewind(0), SkipStep(), CompleteStep({"b": 2})])
def test_a_run_of_which_only_its_deadlines_handler_was_called_can_go_on(command: Command) -> None:
    stage = Stage(saga(then("a"), then("b"), then("c"), deadline_s=9, on_deadline=HandlerRef("app:too_late")))
    stage.succeed({"a": 1})
    stage.remind()
    with pytest.raises(InvalidStateError, match="the handler of its end has not been called yet"):
        stage.command(command)
    assert clean(stage) == [("too_late", None)]
    stage.command(Fork(77, None))
    stage.command(PatchState({"p": 1}))
    stage.command(command)
    assert (stage.workflow.status, stage.workflow.cleanup, stage.workflow.ledger) == ("running", "none", None)
    stage.remind()
    assert how_it_ended(stage) == ("failed", "pending"), "its time is still over"
    stage.tell(stage.success(role=Role.CLEANUP))
    assert how_it_ended(stage) == ("failed", "completed")


def test_one_that_could_not_call_it_can_go_on_too() -> None:
    stage = Stage(flow(doing("a"), then("b"), deadline_s=9, on_deadline=HandlerRef("app:too_late"), max_attempts=1))
    stage.succeed({"a": 1})
    stage.remind()
    stage.tell(stage.failure(role=Role.CLEANUP, is_final=True))
    assert how_it_ended(stage) == ("failed", "failed")
    stage.command(RetryRun())
    stage.succeed({})
    assert how_it_ended(stage) == ("completed", "none")


def test_a_run_that_fails_otherwise_has_no_use_for_the_deadlines_handler() -> None:
    stage = Stage(saga(doing("a"), then("b"), deadline_s=9, on_deadline=HandlerRef("app:too_late")))
    stage.succeed({"a": 1})
    stage.fail(is_final=True)
    assert clean(stage) == [("undo_a", {"a": 1})]


# children first


CHILD = Definition("child", (doing("a"), then("b")), hash="c" * 64, on_cancel=HandlerRef("app:child_cancelled"))


def family(child: Definition, **how: Any) -> Several:
    """The run 1 is parked on the run 2; each has a step behind it."""
    world = Several()
    world.start(1, saga(doing("first"), within(child), then("end"), **how))
    world.succeed(1, {"first": 1})
    world.deliver()
    world.succeed(2, {"a": 1})
    return world


def cleanups(world: Several) -> list[tuple[int, str]]:
    """Have everything cleaned up, in the order in which it is asked for."""
    done: list[tuple[int, str]] = []
    while True:
        world.deliver()
        jobs = [(run_id, job) for run_id in world.runs for job in world.runs[run_id].jobs if job.role is Role.CLEANUP]
        if not jobs:
            return done
        assert len(jobs) == 1, "parents wait for their children"
        ((run_id, job),) = jobs
        done.append((run_id, job.handler.removeprefix("app:")))
        world.clean(run_id)


def test_a_cancelled_parent_lets_its_child_clean_up_first() -> None:
    world = family(CHILD, on_cancel=HandlerRef("app:parent_cancelled"))
    world.command(1, Cancel())
    assert (world[1].cleanup, world[1].runtime, world.runs[1].jobs) == ("pending", {"child": 2, "awaits": True}, [])
    assert cleanups(world) == [(2, "undo_a"), (2, "child_cancelled"), (1, "undo_first"), (1, "parent_cancelled")]
    assert (world[1].cleanup, world[2].cleanup, world[1].runtime) == ("completed", "completed", None)


def test_so_does_one_whose_time_is_over() -> None:
    world = family(CHILD, deadline_s=9, on_deadline=HandlerRef("app:too_late"))
    world.now_us = 9 * SECOND
    world.tell(1, DeadlinePassed())
    assert (world[1].status, world[1].cleanup, world.runs[1].jobs) == ("failed", "pending", [])
    assert cleanups(world) == [(2, "undo_a"), (2, "child_cancelled"), (1, "undo_first"), (1, "too_late")]
    assert (world[1].status, world[2].status) == ("failed", "cancelled")


def test_so_does_one_whose_child_has_failed_and_is_being_compensated() -> None:
    child = Definition("child", (doing("a"), then("b")), hash="c" * 64, compensates_on_failure=True)
    world = family(child)
    world.fail(2)
    assert world[2].cleanup is CleanupStatus.PENDING
    assert cleanups(world) == [(2, "undo_a"), (1, "undo_first")]
    assert (world[1].error_kind, world[1].cleanup) == (ErrorKind.CHILD_FAILED, "completed")


def test_so_does_one_whose_child_somebody_has_cancelled() -> None:
    world = family(CHILD)
    world.command(2, Cancel())
    assert cleanups(world) == [(2, "undo_a"), (2, "child_cancelled"), (1, "undo_first")]
    assert world[1].error_kind is ErrorKind.CHILD_CANCELLED


@pytest.mark.parametrize("how", ["child failed", "deadline", "cancelled"])
def test_a_grandparent_waits_for_a_grandchild_although_the_run_between_them_has_nothing_to_undo(how: str) -> None:
    last = Definition("last", (doing("a"), then("b")), hash="e" * 64, compensates_on_failure=True, deadline_s=None)
    middle = Definition("middle", (within(last),), hash="d" * 64, deadline_s=9 if how == "deadline" else None)
    world = Several()
    world.start(1, saga(doing("first"), within(middle), then("end")))
    world.succeed(1)
    world.deliver()
    world.succeed(3)
    if how == "child failed":
        world.fail(3)
    elif how == "deadline":
        world.now_us = 9 * SECOND
    else:
        world.command(2, Cancel())
    assert cleanups(world) == [(3, "undo_a"), (1, "undo_first")]
    assert [world[run_id].cleanup for run_id in (1, 2, 3)] == ["completed", "none", "completed"]
    assert world[2].runtime in (None, {"child": 3})


def test_a_grandparent_goes_by_how_its_child_stands_and_not_by_the_letter_that_comes_first() -> None:
    """The letter that the run between goes on comes first, and finds it failed once more with nothing of its own."""
    last = Definition("last", (doing("a"), then("b")), hash="e" * 64, on_cancel=HandlerRef("app:last_cancelled"))
    middle = Definition("middle", (within(last),), hash="d" * 64, deadline_s=9)
    world = Several()
    world.start(1, saga(doing("first"), within(middle), then("end")))
    world.succeed(1)
    world.deliver()
    world.succeed(3)
    world.now_us = 9 * SECOND
    world.tell(2, DeadlinePassed())
    world.command(2, RetryRun())
    world.tell(2, DeadlinePassed())
    world.runs[1].letters.sort(key=lambda letter: letter.kind is not LetterKind.REVIVED)
    assert [letter.kind for letter in world.runs[1].letters] == ["revived", "child", "child"]
    assert cleanups(world) == [(3, "undo_a"), (3, "last_cancelled"), (1, "undo_first")]


def test_a_run_that_is_retried_while_a_child_is_still_cleaning_up_starts_another() -> None:
    child = Definition("child", (doing("a"), then("b")), hash="c" * 64, compensates_on_failure=True)
    world = Several()
    world.start(1, flow(within(child), then("end")))
    world.deliver()
    world.succeed(2)
    world.fail(2)
    world.deliver()
    assert (world[1].status, world[1].cleanup, world[1].runtime) == ("failed", "none", {"child": 2, "awaits": True})
    world.command(1, RetryRun())
    assert (world[1].status, world[1].runtime) == ("running", {"child": 3})
    assert cleanups(world) == [(2, "undo_a")]
    assert (world[1].status, world[1].runtime) == ("running", {"child": 3})


def test_a_run_that_is_retried_before_its_child_has_heard_is_parked_on_it_as_before() -> None:
    world = Several()
    world.start(1, flow(within(CHILD), then("end"), deadline_s=9))
    world.now_us = 9 * SECOND
    world.tell(1, DeadlinePassed())
    assert world[1].runtime == {"child": 2, "awaits": True}
    world.command(1, RetryRun())
    assert (world[1].status, world[1].runtime) == ("running", {"child": 2})


def test_a_cancel_while_the_child_is_still_cleaning_up_waits_for_it_too() -> None:
    child = Definition("child", (doing("a"), then("b")), hash="c" * 64, compensates_on_failure=True)
    world = Several()
    world.start(1, flow(doing("first"), within(child), then("end"), on_cancel=HandlerRef("app:parent_cancelled")))
    world.succeed(1)
    world.deliver()
    world.succeed(2)
    world.fail(2)
    world.deliver()
    assert (world[1].status, world[1].cleanup) == ("failed", "none")
    world.command(1, Cancel())
    assert cleanups(world) == [(2, "undo_a"), (1, "undo_first"), (1, "parent_cancelled")]


LEAVING: dict[str, Command] = {
    "rewound": Rewind(0),
    "skipped": SkipStep(),
    "completed by hand": CompleteStep({}),
    "retried": RetryRun(),
}


@pytest.mark.parametrize("how", LEAVING)
def test_a_child_that_was_left_behind_has_to_be_clean_before_its_parent_cleans_up(how: str) -> None:
    child = replace(CHILD, compensates_on_failure=True)
    world = Several()
    world.start(1, flow(doing("first"), within(child), then("end")))
    world.succeed(1)
    world.deliver()
    world.succeed(2, {"a": 1})
    if how == "retried":
        world.fail(2)
        world.deliver()
    world.command(1, LEAVING[how])
    assert (world[1].status, (world[1].ledger or {}).get("left")) == ("running", [2])
    world.command(1, Cancel())
    done: list[int] = []
    world.deliver()
    while at_it := [run_id for run_id in world.runs for job in world.runs[run_id].jobs if job.role is Role.CLEANUP]:
        assert at_it == [1] or 1 not in at_it, "a run cleans up beside its child"
        world.clean(at_it[0])
        done.append(at_it[0])
        world.deliver()
    assert (done[-1], done.count(1), 2 in done) == (1, 1, True)
    assert (world[1].cleanup, world[1].ledger and world[1].ledger.get("left")) == ("completed", None)


def test_a_child_that_was_left_behind_and_is_clean_is_waited_for_no_more() -> None:
    world = family(CHILD)
    world.command(1, SkipStep())
    assert cleanups(world) == [(2, "undo_a"), (2, "child_cancelled")]
    assert world[1].ledger is None
    world.command(1, Cancel())
    assert cleanups(world) == [(1, "undo_first")]


def test_a_grandparent_waits_for_what_the_run_between_them_has_left_behind() -> None:
    last = Definition("last", (doing("a"), then("b")), hash="e" * 64)
    middle = Definition("middle", (within(last), then("c")), hash="d" * 64)
    world = Several()
    world.start(1, saga(doing("first"), within(middle), then("end")))
    world.succeed(1)
    world.deliver()
    world.succeed(3)
    world.command(2, SkipStep())
    world.fail(2)
    assert cleanups(world) == [(3, "undo_a"), (1, "undo_first")]


def test_letters_of_a_child_may_overtake_each_other() -> None:
    """The letter that says it is clean comes first; the one that says it is not changes nothing then."""
    child = Definition("child", (doing("a"), then("b")), hash="c" * 64, compensates_on_failure=True)
    world = family(child)
    world.fail(2)
    world.clean(2)
    unclean, clean_now = world.runs[1].letters
    assert [letter.body["is_clean"] for letter in (unclean, clean_now) if letter.body] == [False, True]
    world.runs[1].letters = [clean_now, unclean]
    assert cleanups(world) == [(1, "undo_first")]


# runs that cannot be decided


def test_a_run_that_derails_is_cleaned_up_after_like_any_other() -> None:
    stage = Stage(saga(doing("a"), then("b")))
    stage.succeed({"a": 1})
    error = ErrorInfo("unreadable", "DefinitionError", kind=ErrorKind.DEFINITION_ERROR)
    definition, run = stage.definition, stage.workflow
    stage.write(
        stage.informed(lambda facts: derailed(run, error, now_us=0, definition=definition, facts=facts)),
    )
    assert clean(stage) == [("undo_a", {"a": 1})]
    assert how_it_ended(stage) == ("failed", "completed")


def test_without_a_definition_nothing_can_be_undone() -> None:
    stage = Stage(saga(doing("a"), then("b")))
    stage.succeed({"a": 1})
    stage.write(derailed(stage.workflow, BOOM, now_us=0))
    assert (how_it_ended(stage), stage.open) == (("failed", "none"), {})


def test_a_cleanup_that_cannot_be_decided_is_given_up_and_seen() -> None:
    """Otherwise its job would be gone and the run's cleanup pending for ever."""
    stage = Stage(saga(doing("a"), doing("b"), then("c")))
    stage.succeed()
    stage.succeed()
    stage.fail(is_final=True)
    done = stage.success(role=Role.CLEANUP)
    effects = derailed(stage.workflow, BOOM, now_us=0, events=[done])
    stage.write(effects)
    stage.check()
    assert (how_it_ended(stage), stage.open, stage.buried[done.job.id]) == (("failed", "failed"), {}, "boom")
    assert (stage.rows[-1].entry, stage.rows[-1].error, stage.rows[-1].is_final) == (Entry.UNCLEANED, BOOM, True)


def test_neither_is_one_that_waits_for_a_child() -> None:
    world = family(CHILD)
    world.command(1, Cancel())
    run = world[1]
    effects = derailed(run, BOOM, now_us=0, events=[ChildSettled(2, ENDED, is_clean=True)])
    (saved,) = [effect.workflow for effect in effects if isinstance(effect, SaveWorkflow)]
    assert saved.cleanup is CleanupStatus.FAILED
    (row,) = [effect for effect in effects if isinstance(effect, AppendHistory)]
    assert (row.entry, row.job, row.is_final) == (Entry.UNCLEANED, None, True)


def test_what_has_nothing_to_do_with_the_cleanup_does_not_end_it() -> None:
    stage = Stage(saga(doing("a"), then("b")))
    stage.succeed()
    stage.fail(is_final=True)
    stage.write(derailed(stage.workflow, BOOM, now_us=0, events=[Signalled("x", {}, 900)]))
    assert clean(stage) == [("undo_a", {})]
    assert how_it_ended(stage) == ("failed", "completed")


def test_a_parent_hears_when_all_is_clean() -> None:
    world = family(CHILD)
    world.command(2, Cancel())
    assert [body["is_clean"] for body in world.sent(LetterKind.CHILD, 1)] == [False]
    cleanups(world)
    assert [body["is_clean"] for body in world.sent(LetterKind.CHILD, 1)] == [False, True]


def test_a_late_result_of_a_step_is_no_cleanup() -> None:
    stage = Stage(saga(doing("a"), then("b")))
    stage.succeed()
    late = Succeeded(stage.claim(), {"b": 1}, Span(0, 0, 1))
    stage.command(Cancel())
    assert stage.tell(late) == []
    assert clean(stage) == [("undo_a", {})]


def test_a_run_with_a_broken_child_still_says_so() -> None:
    stage = Stage(saga(doing("a"), within(CHILD)))
    stage.succeed()
    stage.stands(1000, BROKEN, error="no way", cleanup=CleanupStatus.PENDING)
    stage.tell(ChildSettled(1000, BROKEN, is_clean=True))
    assert (stage.workflow.error_message, stage.workflow.runtime) == ("no way", {"child": 1000, "awaits": True})
    stage.tell(ChildSettled(1000, BROKEN, is_clean=True))
    assert clean(stage) == [("undo_a", {})]
