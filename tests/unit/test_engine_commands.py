"""Pause, resume, retry, cancel: what each does, and where it is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from queuety.errors import InvalidStateError
from queuety.model import (
    AddJob,
    AppendHistory,
    Cancel,
    CleanupStatus,
    Command,
    Commanded,
    DropWork,
    Entry,
    HandlerRef,
    NewJob,
    Pause,
    Priority,
    Resume,
    RetryRun,
    Role,
    WorkflowStatus,
)
from tests.unit.reference import SECOND, World, delay, flow, then

TWO = flow(then("a"), then("b"))
UNDOABLE = flow(then("a"), then("b"), on_cancel=HandlerRef("app:undo", {"k": 1}), queue="q", max_attempts=2)


def running() -> World:
    return World(TWO)


def paused() -> World:
    world = World(TWO)
    world.command(Pause())
    return world


def completed() -> World:
    world = World(flow(then("a")))
    world.succeed()
    return world


def failed() -> World:
    world = World(TWO)
    world.fail(is_final=True)
    return world


def cancelled() -> World:
    world = World(TWO)
    world.command(Cancel())
    return world


def step_jobs(world: World) -> list[int]:
    return [job_id for job_id, (new, _, _) in world.open.items() if new.role is Role.STEP]


@pytest.mark.parametrize(
    ("world", "command", "message"),
    [
        (paused(), Pause(), "workflow 41 is paused; it cannot be paused (only a running workflow can)"),
        (completed(), Pause(), "workflow 41 is completed; it cannot be paused (only a running workflow can)"),
        (failed(), Pause(), "workflow 41 is failed; it cannot be paused (only a running workflow can)"),
        (cancelled(), Pause(), "workflow 41 is cancelled; it cannot be paused (only a running workflow can)"),
        (running(), Resume(), "workflow 41 is running; it cannot be resumed (only a paused workflow can)"),
        (completed(), Resume(), "workflow 41 is completed; it cannot be resumed (only a paused workflow can)"),
        (failed(), Resume(), "workflow 41 is failed; it cannot be resumed (only a paused workflow can)"),
        (cancelled(), Resume(), "workflow 41 is cancelled; it cannot be resumed (only a paused workflow can)"),
        (running(), RetryRun(), "workflow 41 is running; it cannot be retried (only a failed workflow can)"),
        (paused(), RetryRun(), "workflow 41 is paused; it cannot be retried (only a failed workflow can)"),
        (completed(), RetryRun(), "workflow 41 is completed; it cannot be retried (only a failed workflow can)"),
        (cancelled(), RetryRun(), "workflow 41 is cancelled; it cannot be retried (only a failed workflow can)"),
        (completed(), Cancel(), "workflow 41 is already completed; it cannot be cancelled"),
        (cancelled(), Cancel(), "workflow 41 is already cancelled; it cannot be cancelled"),
    ],
)
def test_a_command_that_the_status_forbids_names_run_status_and_operation(
    world: World, command: Command, message: str
) -> None:
    before = world.workflow
    with pytest.raises(InvalidStateError, match=re.escape(message)):
        world.command(command)
    assert world.workflow is before


@pytest.mark.parametrize(
    ("world", "command", "entry"),
    [
        (running(), Pause(), Entry.PAUSED),
        (paused(), Resume(), Entry.CONTINUED),
        (failed(), RetryRun(), Entry.RETRIED),
        (running(), Cancel(), Entry.CANCELLED),
    ],
)
def test_a_command_leaves_a_row_with_its_operation(world: World, command: Command, entry: Entry) -> None:
    (row,) = [
        effect for effect in world.tell(Commanded(command, 77)) if isinstance(effect, AppendHistory)
    ]  # fmt: skip
    assert (row.entry, row.token, row.job, row.changed, row.step_index) == (entry, 77, None, None, 0)


def test_a_step_that_settles_while_paused_moves_the_run_but_starts_nothing() -> None:
    world = paused()
    world.succeed({"x": 1})
    assert (world.workflow.status, world.workflow.current_step, world.workflow.state) == ("paused", 1, {"x": 1})
    assert step_jobs(world) == []


def test_resume_enters_the_step_that_became_current_exactly_once() -> None:
    world = paused()
    world.succeed()
    world.command(Resume())
    world.command(Pause())
    world.command(Resume())
    assert len(step_jobs(world)) == 1
    assert (world.workflow.status, world.workflow.runtime) == ("running", None)
    world.succeed()
    assert world.workflow.status is WorkflowStatus.COMPLETED


def test_resume_with_the_job_outstanding_adds_nothing() -> None:
    world = paused()
    (job,) = step_jobs(world)
    world.command(Resume())
    assert step_jobs(world) == [job]


def test_the_last_step_completes_a_paused_run() -> None:
    world = World(flow(then("a")))
    world.command(Pause())
    world.succeed()
    assert (world.workflow.status, world.workflow.current_step) == ("completed", 1)


def test_a_jump_while_paused_lands_on_resume() -> None:
    world = paused()
    world.succeed({"_next_step": "a"})
    world.command(Resume())
    ((new, _, _),) = world.open.values()
    assert (new.step_index, new.visit) == (0, 2)


def test_retry_asks_for_a_new_job_of_the_same_visit_with_fresh_attempts() -> None:
    world = World(flow(then("a", max_attempts=2, delay_s=60)), {"x": 1})
    (old,) = step_jobs(world)
    world.fail()
    world.fail()
    visit = world.workflow.visit
    world.now_us = 5 * SECOND
    world.command(RetryRun())
    run = world.workflow
    assert (run.status, run.visit, run.state, run.current_step) == ("running", visit, {"x": 1}, 0)
    assert (run.error_message, run.error_kind, run.failed_step, run.failed_us) == (None, None, None, None)
    ((job_id, (new, attempts, due_us)),) = world.open.items()
    assert job_id != old
    assert (attempts, new.max_attempts, new.visit) == (0, 2, visit)
    assert due_us == 5 * SECOND, "only the first job of the step is held back"


@pytest.mark.parametrize(
    ("compensated", "cleanup", "said"),
    [
        (True, CleanupStatus.COMPLETED, "has already been compensated"),
        (False, CleanupStatus.PENDING, "the handler of its end has not been called yet"),
    ],
)
def test_retry_is_refused_once_the_runs_steps_were_undone(compensated: bool, cleanup: CleanupStatus, said: str) -> None:
    world = World(UNDOABLE)
    world.fail(is_final=True)
    world.workflow = replace(world.workflow, cleanup=cleanup, ledger={"undo": {"compensated": compensated}})
    with pytest.raises(InvalidStateError, match=f"workflow 41 is failed and {said}; it cannot be retried"):
        world.command(RetryRun())


def test_cancel_drops_what_is_open_before_it_asks_for_the_cleanup() -> None:
    world = World(UNDOABLE, now_us=9)
    (job,) = step_jobs(world)
    drop, row, add, _ = world.command(Cancel())
    assert drop == DropWork(41, "Workflow cancelled", 9)
    assert isinstance(row, AppendHistory)
    undo = NewJob(Role.CLEANUP, "q", Priority.LOW, "app:undo", 2, 9, config={"k": 1}, workflow_id=41, visit=1)
    assert add == AddJob(replace(undo, payload={"handler": "on_cancel"}))
    assert world.buried == {job: "Workflow cancelled"}
    run = world.workflow
    assert (run.status, run.cancelled_us, run.completed_us, run.cleanup) == ("cancelled", 9, 9, "pending")


def test_cancel_without_handler_leaves_nothing_to_clean_up() -> None:
    world = cancelled()
    assert (world.open, world.workflow.cleanup) == ({}, CleanupStatus.NONE)


def test_cancelling_a_failed_run_keeps_what_it_had_failed_with() -> None:
    world = failed()
    world.command(Cancel())
    run = world.workflow
    assert (run.status, run.error_message, run.failed_step) == ("cancelled", "boom", 0)


def test_cancelling_a_paused_run_whose_step_was_not_entered() -> None:
    world = paused()
    world.succeed()
    world.command(Cancel())
    assert (world.workflow.status, world.workflow.runtime) == ("cancelled", None)


def test_cancel_forgets_the_timer() -> None:
    world = World(flow(delay("d", 60)))
    world.command(Cancel())
    assert world.timers == []


def test_a_result_that_comes_after_the_cancellation_changes_nothing() -> None:
    world = World(TWO)
    success = world.success({"x": 1})
    world.command(Cancel())
    assert world.tell(success) == []
    assert world.workflow.state == {}


# cleaning up after the end


def test_a_cleanup_that_succeeds_is_recorded_with_the_run() -> None:
    world = World(UNDOABLE)
    world.command(Cancel())
    world.tell(world.success({"ignored": 1}, Role.CLEANUP))
    row = world.rows[-1]
    assert (row.entry, row.seq, row.step_index, row.changed) == (Entry.CLEANED, 2, None, None)
    assert (world.workflow.cleanup, world.workflow.status, world.workflow.state) == ("completed", "cancelled", {})
    assert world.open == {}


def test_a_cleanup_is_repeated_and_then_given_up() -> None:
    world = World(UNDOABLE)
    world.command(Cancel())
    world.tell(world.failure(role=Role.CLEANUP))
    ((_, attempts, due_us),) = world.open.values()
    assert (attempts, due_us, world.workflow.cleanup) == (1, 2 * SECOND, "pending")
    world.tell(world.failure(role=Role.CLEANUP))
    assert (world.open, world.workflow.cleanup, world.workflow.status) == ({}, "failed", "cancelled")
    assert [(row.entry, row.is_final) for row in world.rows] == [
        (Entry.CANCELLED, False),
        (Entry.UNCLEANED, False),
        (Entry.UNCLEANED, True),
    ]


def test_a_cleanup_that_is_done_is_not_done_again() -> None:
    world = World(UNDOABLE)
    world.command(Cancel())
    done = world.success(role=Role.CLEANUP)
    world.tell(done)
    assert world.tell(done) == []
