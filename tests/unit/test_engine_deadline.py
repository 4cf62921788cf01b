"""The time that a run has: when it is over, who is spared, who is told again, and what becomes of the letter."""

from __future__ import annotations

from typing import Any

import pytest

from queuety.model import (
    AppendHistory,
    Cancel,
    CompleteStep,
    DeadlinePassed,
    Definition,
    DropTimers,
    Entry,
    ErrorKind,
    Fork,
    HandlerRef,
    LetterKind,
    Pause,
    Resume,
    RetryRun,
    Rewind,
    Send,
    SkipStep,
    StepSpec,
    WorkflowStatus,
)
from tests.unit.reference import SECOND, delay, flow, then
from tests.unit.several import Several
from tests.unit.stage import Stage

NINE = 9 * SECOND


def limited(*steps: StepSpec, **how: Any) -> Stage:
    """A run that began at second 1 and has eight."""
    return Stage(flow(*steps, **{"deadline_s": 8, **how}), {"items": [1, 2]}, now_us=SECOND)


def assert_too_late(stage: Stage, at_step: int = 0) -> None:
    run = stage.workflow
    assert (run.status, run.error_kind, run.error_message, run.failed_step, run.failed_us) == (
        "failed", ErrorKind.DEADLINE_EXCEEDED, "Deadline exceeded", at_step, stage.now_us,
    )  # fmt: skip
    assert (stage.timers, [new for new, _, _ in stage.open.values() if new.role == "step"]) == ([], [])
    row = stage.rows[-1]
    assert (row.entry, row.is_final, row.job, row.step_index) == (Entry.FAILED, True, None, at_step)


def test_a_run_has_its_time_from_its_start_and_a_letter_that_reminds_it() -> None:
    stage = limited(then("a"))
    assert (stage.workflow.deadline_us, stage.deadlines) == (NINE, [Send(41, LetterKind.DEADLINE, NINE)])
    assert Stage(flow(then("a"))).workflow.deadline_us is None


def test_a_run_that_has_not_ended_by_then_fails_and_its_work_is_buried() -> None:
    stage = limited(then("a"))
    late = stage.success({"a": 1})
    stage.remind()
    assert stage.now_us == NINE
    assert_too_late(stage)
    assert list(stage.buried.values()) == ["Deadline exceeded"]
    assert stage.tell(late) == []


WAITING: dict[str, tuple[StepSpec, str]] = {
    "a job": (then("a"), "running"),
    "a back-off": (then("a"), "running"),
    "a timer": (delay("d", 99), "running"),
    "items": (
        StepSpec(
            "for_each",
            "e",
            HandlerRef("app:i"),
            settings={"items_key": "items", "result_key": "out", "mode": "all"},
        ),
        "running",
    ),
    "a signal": (
        StepSpec("wait_for_signal", "s", settings={"names": ["go"], "mode": "all", "timeout": 99}),
        "waiting_for_signal",
    ),
    "a run": (StepSpec("wait_for_workflows", "w", settings={"workflows": [7], "mode": "all"}), "waiting_for_workflows"),
    "a child": (StepSpec("run_workflow", "c", child=Definition("c", (then("a"),), hash="c" * 64)), "running"),
}


@pytest.mark.parametrize("what", WAITING)
def test_whatever_the_run_waits_for(what: str) -> None:
    spec, status = WAITING[what]
    stage = limited(then("first"), spec, then("last"))
    stage.stands(7, WorkflowStatus.RUNNING)
    stage.succeed()
    if what == "a back-off":
        stage.fail()
    assert stage.workflow.status == status
    stage.remind()
    assert_too_late(stage, 1)
    told = [Send(1000, LetterKind.CANCEL, NINE, {"parent": 41})] if what == "a child" else []
    assert [letter for letter in stage.sent if letter.kind is LetterKind.CANCEL] == told


def test_a_letter_that_comes_early_is_sent_again() -> None:
    stage = limited(then("a"))
    stage.deadlines = []
    stage.now_us = NINE - 1
    assert stage.tell(DeadlinePassed()) == [Send(41, LetterKind.DEADLINE, NINE)]
    assert stage.workflow.status == "running"
    stage.remind()
    assert_too_late(stage)


@pytest.mark.parametrize("end", ["deadline", "cancelled", "completed", "failed"])
def test_a_second_letter_does_nothing(end: str) -> None:
    stage = limited(then("a"), on_deadline=HandlerRef("app:too_late"))
    if end == "deadline":
        stage.remind()
    elif end == "cancelled":
        stage.command(Cancel())
    elif end == "completed":
        stage.succeed()
    else:
        stage.fail(is_final=True)
    stage.now_us = NINE
    jobs = len(stage.open)
    assert stage.tell(DeadlinePassed()) == []
    assert len(stage.open) == jobs, "the handler is called once"


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_a_run_that_is_over_forgets_its_letter(end: str) -> None:
    stage = limited(then("a"))
    effects = stage.succeed() if end == "completed" else stage.command(Cancel())
    assert DropTimers(41, LetterKind.DEADLINE) in effects
    assert stage.deadlines == []
    assert [effect for effect in Stage(flow(then("a"))).succeed() if isinstance(effect, DropTimers)] == []


def test_so_does_one_that_completes_as_it_starts() -> None:
    assert limited(delay("d", 0)).deadlines == []


def test_one_that_has_failed_keeps_it_since_it_may_go_on() -> None:
    stage = limited(then("a"))
    stage.fail(is_final=True)
    assert stage.deadlines == [Send(41, LetterKind.DEADLINE, NINE)]
    stage.command(RetryRun())
    assert len(stage.deadlines) == 1
    stage.remind()
    assert_too_late(stage)


def test_a_failed_run_that_is_cancelled_forgets_it_too() -> None:
    stage = limited(then("a"))
    stage.fail(is_final=True)
    stage.command(Cancel())
    assert stage.deadlines == []


# paused


def test_a_paused_run_is_spared_until_it_is_resumed() -> None:
    stage = limited(then("a"), then("b"))
    stage.command(Pause())
    stage.remind()
    assert (stage.workflow.status, stage.deadlines) == ("paused", [])
    stage.now_us += SECOND
    stage.command(Resume())
    assert (stage.workflow.status, stage.deadlines) == ("running", [Send(41, LetterKind.DEADLINE, stage.now_us)])
    stage.remind()
    assert_too_late(stage)


def test_one_that_is_resumed_in_time_is_not_reminded_twice() -> None:
    stage = limited(then("a"))
    stage.command(Pause())
    stage.command(Resume())
    assert len(stage.deadlines) == 1


def test_however_often_it_is_rewound_it_has_one_letter() -> None:
    stage = limited(then("a"), then("b"))
    stage.succeed()
    for _ in range(3):
        stage.command(Rewind(0))
        assert len(stage.deadlines) == 1
    stage.fail(is_final=True)
    stage.command(SkipStep())
    assert stage.workflow.status == "completed"
    stage.command(Rewind(0))
    stage.remind()
    assert_too_late(stage, 1)


def test_one_whose_last_step_settles_while_it_is_paused_has_completed() -> None:
    stage = limited(then("a"))
    stage.command(Pause())
    stage.remind()
    stage.succeed()
    assert (stage.workflow.status, stage.deadlines) == ("completed", [])


def test_one_that_fails_while_it_is_paused_and_is_retried_late_fails_of_its_deadline() -> None:
    stage = limited(then("a"))
    stage.command(Pause())
    stage.remind()
    stage.fail(is_final=True)
    stage.command(RetryRun())
    stage.remind()
    assert_too_late(stage)


# after the deadline


def test_a_deadline_is_not_extended_by_a_retry() -> None:
    stage = limited(then("a"))
    for _ in range(2):
        stage.remind()
        assert_too_late(stage)
        stage.command(RetryRun())
        assert (stage.workflow.status, stage.deadlines) == ("running", [Send(41, LetterKind.DEADLINE, NINE)])


def test_one_that_had_failed_and_is_retried_late_is_reminded_at_once() -> None:
    stage = limited(then("a"))
    stage.fail(is_final=True)
    stage.remind()
    assert (stage.workflow.error_message, stage.deadlines) == ("boom", [])
    stage.command(RetryRun())
    stage.remind()
    assert_too_late(stage)


@pytest.mark.parametrize("command", [SkipStep(), CompleteStep({})])
def test_so_is_one_whose_step_is_left_by_hand(command: SkipStep | CompleteStep) -> None:
    stage = limited(then("a"), then("b"))
    stage.fail(is_final=True)
    stage.remind()
    stage.command(command)
    stage.remind()
    assert_too_late(stage, 1)


def test_so_is_one_whose_child_goes_on_after_a_failure() -> None:
    """Its letter came while it had failed because of the child, and nobody listened."""
    world = Several()
    child = Definition("child", (then("a"),), hash="c" * 64)
    world.start(1, flow(StepSpec("run_workflow", "w", child=child), then("b"), deadline_s=9))
    world.fail(2)
    world.deliver()
    assert world[1].error_kind is ErrorKind.CHILD_FAILED
    world.now_us = NINE
    world.deliver()
    world.command(2, RetryRun())
    world.deliver()
    assert (world[1].status, world[1].error_kind) == ("failed", ErrorKind.DEADLINE_EXCEEDED)
    assert world.entries(1) == ["failed", "retried", "failed", "noted"], "at last, its child is clean"


def test_so_is_one_that_is_rewound_from_any_end() -> None:
    for end in ("completed", "failed", "running"):
        stage = limited(then("a"), then("b"), then("c"))
        stage.succeed()
        stage.succeed()
        if end == "completed":
            stage.succeed()
        elif end == "failed":
            stage.fail(is_final=True)
        stage.now_us = NINE + SECOND
        stage.command(Rewind(0))
        stage.remind()
        assert_too_late(stage, 1)


def test_a_run_that_is_rewound_in_time_keeps_its_deadline() -> None:
    stage = limited(then("a"), then("b"))
    stage.succeed()
    stage.succeed()
    stage.now_us = 2 * SECOND
    stage.command(Rewind(0))
    assert (stage.workflow.deadline_us, stage.deadlines) == (NINE, [Send(41, LetterKind.DEADLINE, NINE)])


def test_one_that_is_rewound_and_over_again_at_once_keeps_no_letter() -> None:
    stage = limited(then("a"), then("b"))
    stage.succeed()
    stage.succeed()
    stage.command(Rewind(1))
    assert (stage.workflow.status, stage.deadlines) == ("completed", [])
    stage = limited(then("a"), delay("d", 0))
    stage.succeed()
    stage.command(Rewind(0))
    assert (stage.workflow.status, stage.deadlines) == ("completed", [])


def test_a_fork_has_all_its_time() -> None:
    world = Several()
    world.start(1, flow(then("a"), then("b"), deadline_s=9))
    world.succeed(1)
    world.now_us = 5 * SECOND
    world.command(1, Fork(new_id=2))
    assert (world[1].deadline_us, world[2].deadline_us) == (NINE, 14 * SECOND)
    assert world.sent(LetterKind.DEADLINE, 2) == [{}]
    world.now_us = NINE
    world.deliver()
    assert (world[1].status, world[2].status) == ("failed", "running")


# what follows


def test_the_handler_is_called_once_after_the_steps_were_undone() -> None:
    undo = HandlerRef("app:undo")
    step = StepSpec("single", "a", HandlerRef("app:a"), compensation=undo)
    stage = limited(step, then("b"), compensates_on_failure=True, on_deadline=HandlerRef("app:too_late"))
    stage.succeed()
    stage.deadlines *= 2
    stage.remind()
    stage.remind()
    called = []
    while stage.open:
        ((new, _, _),) = stage.open.values()
        called.append(new.handler)
        stage.tell(stage.success(role=new.role))
    assert called == ["app:undo", "app:too_late"]
    stage.command(Cancel())
    assert stage.open == {}


def test_a_deadline_and_a_result_in_one_turn_go_in_the_order_in_which_they_came() -> None:
    stage = limited(then("a"))
    stage.now_us = NINE
    done = stage.success()
    stage.tell(done, DeadlinePassed())
    assert stage.workflow.status == "completed"
    stage = limited(then("a"))
    stage.now_us = NINE
    done = stage.success()
    effects = stage.tell(DeadlinePassed(), done)
    assert_too_late(stage)
    assert len([effect for effect in effects if isinstance(effect, AppendHistory)]) == 1
