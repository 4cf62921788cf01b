"""Delays: timers that hold no worker."""

from __future__ import annotations

from dataclasses import replace

from queuety.engine.course import STEPS_AT_ONCE
from queuety.engine.decide import start
from queuety.model import AppendHistory, Cancel, Due, Entry, Pause, Resume, RetryRun, SetTimer, WorkflowStatus
from tests.unit.reference import SECOND, World, delay, flow, then


def test_a_delay_is_due_its_duration_after_it_was_entered() -> None:
    world = World(flow(then("a"), delay("d", 90150.5), then("b")))
    world.now_us = 7 * SECOND
    world.succeed()
    run = world.workflow
    assert (run.status, run.current_step, world.open) == ("running", 1, {})
    assert world.timers == [SetTimer(41, 2, 7 * SECOND + 90_150_500_000)]


def test_a_delay_that_is_over_leaves_an_empty_row_and_counts_as_one_step() -> None:
    world = World(flow(delay("d", 2), then("b")), {"x": 1})
    world.fire()
    (row,) = world.rows
    assert (row.entry, row.changed, row.removed, row.step_index, row.visit) == (Entry.RESUMED, {}, (), 0, 1)
    assert (world.workflow.transitions, world.workflow.current_step, world.workflow.state) == (1, 1, {"x": 1})
    assert [new.handler for new, _, _ in world.open.values()] == ["app:b"]


def test_a_delay_at_the_end_completes_the_run() -> None:
    world = World(flow(delay("d", 2)))
    world.fire()
    assert (world.workflow.status, world.workflow.completed_us) == ("completed", 2 * SECOND)


def test_a_timer_of_another_visit_is_ignored() -> None:
    world = World(flow(delay("d", 2), delay("e", 2)))
    world.fire()
    assert world.tell(Due(1)) == []
    assert world.tell(Due(3)) == []


def test_a_timer_that_fires_too_early_is_set_again() -> None:
    world = World(flow(delay("d", 2)))
    world.timers.clear()
    effects = world.tell(Due(1))
    assert effects == [SetTimer(41, 1, 2 * SECOND)]
    assert world.workflow.version == 0
    world.fire()
    assert world.workflow.status is WorkflowStatus.COMPLETED


def test_a_delay_that_ends_while_paused_moves_the_run_and_keeps_it_paused() -> None:
    world = World(flow(delay("d", 2), then("b")))
    world.command(Pause())
    world.fire()
    assert (world.workflow.status, world.workflow.current_step, world.open) == ("paused", 1, {})
    world.command(Resume())
    assert len(world.open) == 1


def test_resuming_before_the_end_leaves_the_due_time_alone() -> None:
    world = World(flow(delay("d", 60)))
    timers = list(world.timers)
    world.command(Pause())
    world.now_us = 30 * SECOND
    world.command(Resume())
    assert world.timers == timers


def test_a_delay_that_became_current_while_paused_starts_when_the_run_goes_on() -> None:
    world = World(flow(then("a"), delay("d", 60)))
    world.command(Pause())
    world.succeed()
    assert world.timers == []
    world.now_us = 30 * SECOND
    world.command(Resume())
    assert [timer.due_us for timer in world.timers] == [90 * SECOND]


def test_zero_delays_are_left_at_once() -> None:
    world = World(flow(delay("d", 0), delay("e", 0), then("a"), delay("f", 0)))
    assert (world.workflow.current_step, world.workflow.version, world.workflow.visit) == (2, 2, 3)
    world.succeed()
    assert world.workflow.status is WorkflowStatus.COMPLETED


def test_resuming_at_zero_delays_goes_through_them() -> None:
    world = World(flow(then("a"), delay("d", 0), delay("e", 0), then("b")))
    world.command(Pause())
    world.succeed()
    world.command(Resume())
    assert world.workflow.current_step == 3
    assert len(world.open) == 1


def long_chain() -> World:
    return World(flow(*(delay(f"d{index}", 0) for index in range(3000)), then("end")))


def test_a_long_chain_of_zero_delays_goes_on_in_turns() -> None:
    world = long_chain()
    turns = 1
    while world.timers:
        assert len(world.rows) <= turns * (STEPS_AT_ONCE + 1)
        world.fire()
        turns += 1
    assert world.now_us == 0
    assert (world.workflow.current_step, world.workflow.transitions) == (3000, 3000)
    assert len(world.open) == 1


def test_a_chain_that_ends_with_its_turn_needs_no_other() -> None:
    world = World(flow(*(delay(f"d{index}", 0) for index in range(STEPS_AT_ONCE + 1))))
    assert (world.workflow.status, world.timers, world.workflow.runtime) == ("completed", [], None)


def test_a_turn_that_only_enters_a_step_leaves_a_row_too() -> None:
    steps = [delay(f"d{index}", 0) for index in range(STEPS_AT_ONCE + 1)]
    world = World(flow(*steps, then("end")))
    before = world.workflow
    world.fire()
    row = world.rows[-1]
    assert (row.entry, row.changed, row.step_index) == (Entry.NOTED, None, STEPS_AT_ONCE + 1)
    assert (world.workflow.version, world.workflow.transitions) == (before.version + 1, before.transitions)


def test_a_pause_between_two_turns_holds_until_resumed() -> None:
    world = long_chain()
    at = world.workflow.current_step
    world.command(Pause())
    world.timers.clear()
    assert world.tell(Due(world.workflow.visit)) == []
    world.command(Resume())
    assert at < world.workflow.current_step < 3000


def test_the_timer_of_a_turn_that_resume_forestalled_means_nothing_to_a_job() -> None:
    steps = [delay(f"d{index}", 0) for index in range(STEPS_AT_ONCE + 1)]
    world = World(flow(*steps, then("end")))
    ((timer),) = world.timers
    assert world.workflow.current_step == STEPS_AT_ONCE + 1
    world.command(Pause())
    world.timers.clear()
    world.command(Resume())
    assert world.tell(Due(timer.visit)) == []


def test_start_tells_of_the_steps_that_it_left() -> None:
    decision = start(41, flow(delay("d", 0), delay("e", 0)), {"x": 1}, now_us=3)
    assert [(row.seq, row.entry) for row in decision.effects if isinstance(row, AppendHistory)] == [
        (1, Entry.RESUMED),
        (2, Entry.RESUMED),
    ]
    assert (decision.workflow.status, decision.workflow.completed_us) == ("completed", 3)


def test_a_delay_waits_anew_when_a_loop_comes_back_to_it() -> None:
    world = World(flow(delay("d", 5), then("a")))
    world.fire()
    world.now_us = 100 * SECOND
    world.succeed({"_next_step": "d"})
    assert [timer.due_us for timer in world.timers] == [105 * SECOND]


def test_a_delay_that_is_retried_keeps_its_first_due_time() -> None:
    world = World(flow(delay("d", 60)))
    world.timers.clear()
    world.workflow = replace(world.workflow, status=WorkflowStatus.FAILED)  # as a deadline would leave it
    world.now_us = 45 * SECOND
    world.command(RetryRun())
    assert [timer.due_us for timer in world.timers] == [60 * SECOND]


def test_commands_on_a_run_that_waits() -> None:
    world = World(flow(then("a"), delay("d", 5)))
    world.fail(is_final=True)
    world.command(RetryRun())
    world.succeed()
    world.command(Cancel())
    assert (world.workflow.status, world.timers) == ("cancelled", [])
