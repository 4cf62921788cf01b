"""A `then` step: what its success and its failure do to the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuety.engine.commanded import obey
from queuety.engine.course import Course
from queuety.engine.decide import Decision, decide, decide_all, start
from queuety.errors import DefinitionError, PayloadError
from queuety.model import (
    AddJob,
    AppendHistory,
    BuryJob,
    Cancel,
    Commanded,
    DropWork,
    Entry,
    ErrorInfo,
    ErrorKind,
    FinishJob,
    HandlerRef,
    NewJob,
    Pause,
    Priority,
    RetryJob,
    Role,
    SaveWorkflow,
    SetTimer,
    StepSpec,
    WorkflowStatus,
)
from tests.unit.reference import BOOM, SECOND, World, delay, flow, then

THREE = flow(then("a"), then("b"), then("c"))


def added(effects: Any) -> list[NewJob]:
    return [effect.job for effect in effects if isinstance(effect, AddJob)]


def test_start_gives_a_running_workflow_and_the_first_job() -> None:
    decision = start(41, THREE, {"x": 1}, now_us=7, parent_id=5, parent_step=2, idempotency_key="k")
    run = decision.workflow
    assert (run.id, run.name, run.definition_hash, run.status) == (41, "flow", "f" * 64, "running")
    assert (run.current_step, run.total_steps, run.visit, run.version, run.created_us) == (0, 3, 1, 0, 7)
    assert (run.state, run.parent_id, run.parent_step, run.idempotency_key) == ({"x": 1}, 5, 2, "k")
    assert decision.effects == (
        AddJob(NewJob(Role.STEP, "default", Priority.LOW, "app:a", 3, 7, workflow_id=41, step_index=0, visit=1)),
    )


def test_start_refuses_reserved_keys_and_empty_definitions() -> None:
    with pytest.raises(PayloadError, match="'_next_step'"):
        start(41, THREE, {"_next_step": "b"}, now_us=0)
    with pytest.raises(DefinitionError, match="no steps"):
        start(41, flow(), {}, now_us=0)


def test_success_closes_the_job_records_the_delta_and_asks_for_the_next_job() -> None:
    world = World(THREE, {"x": 1, "y": 2}, now_us=5)
    success = world.success({"y": None, "z": [3], "_trace": "t"})
    finish, row, add = decide(world.workflow, THREE, success, now_us=9).effects
    assert finish == FinishJob(success.job, 9)
    assert row == AppendHistory(
        41, 1, Entry.COMPLETED, 9, success.job.token, success.job, success.span, 0, 1,
        changed={"y": None, "z": [3]}, removed=(), control={"_trace": "t"},
    )  # fmt: skip
    assert isinstance(add, AddJob)
    assert (add.job.handler, add.job.step_index, add.job.visit, add.job.due_us) == ("app:b", 1, 2, 9)
    world.tell(success)
    run = world.workflow
    assert list(run.state.items()) == [("x", 1), ("y", None), ("z", [3])]
    assert (run.current_step, run.visit, run.version, run.transitions) == (1, 2, 1, 1)


def test_nested_values_are_replaced_not_merged() -> None:
    world = World(THREE, {"deep": {"a": 1, "b": 2}})
    world.succeed({"deep": {"b": 3}})
    assert world.workflow.state == {"deep": {"b": 3}}


def test_an_output_of_control_keys_only_leaves_the_state_as_it_is() -> None:
    world = World(THREE, {"x": 1})
    world.succeed({"_workflow_groups": {"g": [1]}, "_": 2})
    assert world.workflow.state == {"x": 1}
    assert world.rows[-1].changed == {}
    assert world.rows[-1].control == {"_workflow_groups": {"g": [1]}, "_": 2}


def test_the_last_step_completes_the_run() -> None:
    world = World(flow(then("a")), now_us=3)
    effects = world.succeed({"x": 1})
    run = world.workflow
    assert added(effects) == []
    assert (run.status, run.current_step, run.completed_us, run.visit, run.runtime) == ("completed", 1, 3, 1, None)


@pytest.mark.parametrize(("target", "index"), [("c", 2), ("a", 0), ("b", 1), (None, 2)])
def test_next_step_jumps_forwards_backwards_and_to_itself(target: str | None, index: int) -> None:
    world = World(THREE)
    world.succeed()
    (job,) = added(world.succeed({"_next_step": target}))
    assert (world.workflow.current_step, job.step_index, job.visit) == (index, index, 3)
    assert (world.workflow.transitions, world.workflow.version) == (2, 2), "skipped steps leave no trace"


def test_next_step_from_the_last_step_is_honoured() -> None:
    world = World(flow(then("a"), then("b")))
    world.succeed()
    world.succeed({"_next_step": "a"})
    assert (world.workflow.status, world.workflow.current_step) == ("running", 0)


@pytest.mark.parametrize("target", ["nowhere", "", "A", 0, 7, True, ["a"], {"a": 1}, "x" * 9000])
def test_an_unknown_next_step_fails_the_run_at_once(target: Any) -> None:
    world = World(THREE, {"x": 1}, now_us=4)
    success = world.success({"x": 2, "_next_step": target})
    effects = world.tell(success)
    run = world.workflow
    assert [type(effect) for effect in effects] == [BuryJob, DropWork, AppendHistory, SaveWorkflow]
    assert (run.status, run.error_kind, run.failed_step, run.failed_us) == ("failed", "DefinitionError", 0, 4)
    assert (run.state, run.current_step, run.visit, run.transitions) == ({"x": 1}, 0, 1, 0)
    assert run.error_message is not None
    assert "_next_step" in run.error_message
    assert repr(target)[:400] in run.error_message
    assert len(run.error_message) < 2000
    assert world.buried == {success.job.id: run.error_message}
    row = world.rows[-1]
    assert (row.entry, row.is_final, row.changed) == (Entry.FAILED, True, None)
    assert row.control == {"_next_step": target}
    assert row.error is not None
    assert row.error.kind is ErrorKind.DEFINITION_ERROR


def test_a_failure_with_attempts_left_puts_the_job_back_and_moves_nothing() -> None:
    world = World(THREE, {"x": 1}, now_us=10)
    before = world.workflow
    retry, row, save = world.fail()
    assert isinstance(retry, RetryJob)
    assert (retry.due_us, retry.error) == (10 + 2 * SECOND, BOOM)
    assert isinstance(row, AppendHistory)
    assert (row.entry, row.error, row.is_final, row.changed) == (Entry.FAILED, BOOM, False, None)
    assert isinstance(save, SaveWorkflow)
    assert (world.workflow.version, world.workflow.visit) == (1, before.visit)
    assert (world.workflow.status, world.workflow.state) == ("running", {"x": 1})
    world.succeed()
    assert world.workflow.current_step == 1


def test_the_last_failure_fails_the_run_and_drops_what_is_open() -> None:
    world = World(flow(then("a"), then("b", max_attempts=2)), now_us=10)
    world.succeed()
    world.fail()
    gone = ErrorInfo("no such handler", "HandlerNotFound", kind=ErrorKind.HANDLER_NOT_FOUND)
    failure = world.failure(gone)
    bury, drop, row, _ = world.tell(failure)
    assert bury == BuryJob(failure.job, gone, 10)
    assert drop == DropWork(41, "no such handler", 10)
    assert isinstance(row, AppendHistory)
    assert (row.seq, row.entry, row.error, row.is_final, row.step_index) == (3, Entry.FAILED, gone, True, 1)
    run = world.workflow
    assert (run.status, run.failed_us, run.current_step, run.failed_step) == ("failed", 10, 1, 1)
    assert (run.error_message, run.error_kind) == ("no such handler", ErrorKind.HANDLER_NOT_FOUND)


def test_what_is_said_first_wins_for_queue_priority_and_attempts() -> None:
    bare = then("bare")
    own = then("own", queue="mine", priority=Priority.LOW, max_attempts=9)
    definition = flow(bare, own, queue="theirs", priority=Priority.URGENT, max_attempts=5)
    world = World(definition)
    jobs = [new for new, _, _ in world.open.values()] + added(world.succeed())
    assert [(job.queue, job.priority, job.max_attempts) for job in jobs] == [
        ("theirs", Priority.URGENT, 5),
        ("mine", Priority.LOW, 9),
    ]


def test_a_job_carries_its_handlers_configuration() -> None:
    step = StepSpec("single", "a", HandlerRef("app:a", {"score": 8}))
    (job,) = added(start(41, flow(step), {}, now_us=0).effects)
    assert job.config == {"score": 8}


def test_a_step_may_be_held_back() -> None:
    world = World(flow(then("a", delay_s=1.5)), now_us=10)
    assert [due_us for _, _, due_us in world.open.values()] == [10 + 1_500_000]


def test_a_step_without_handler_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"'a'.*no handler"):
        start(41, flow(StepSpec("single", "a")), {}, now_us=0)


def test_a_duplicate_of_a_settled_success_changes_nothing() -> None:
    world = World(flow(then("a"), then("a2")))
    success = world.success({"x": 1})
    world.tell(success)
    assert world.tell(success) == []
    assert world.workflow.version == 1


def test_a_result_of_another_step_changes_nothing() -> None:
    world = World(THREE)
    success = world.success()
    odd = replace(success, job=replace(success.job, step_index=1))
    assert decide(world.workflow, THREE, odd, now_us=0) == Decision(world.workflow, ())


def test_a_late_result_of_the_same_step_on_an_earlier_visit_changes_nothing() -> None:
    world = World(flow(then("a")))
    world.succeed({"_next_step": "a"})
    assert world.workflow.current_step == 0
    (early,) = world.told
    assert world.tell(early) == []


def test_a_batch_saves_the_workflow_once() -> None:
    world = World(THREE)
    was = world.workflow
    effects = decide_all(was, THREE, [world.success({"x": 1})], now_us=0)
    saves = [effect for effect in effects if isinstance(effect, SaveWorkflow)]
    assert effects[-1:] == saves
    assert (saves[0].was, saves[0].workflow.version) == (was, 1)
    assert decide_all(was, THREE, [], now_us=0) == []


def test_a_batch_never_adds_a_job_that_a_later_event_of_it_drops() -> None:
    world = World(THREE)
    success = world.success({"x": 1})
    effects = world.tell(success, Commanded(Cancel(), 77))
    assert added(effects) == []
    assert world.workflow.status is WorkflowStatus.CANCELLED
    assert world.finished == [success.job.id]


def test_a_batch_never_sets_a_timer_that_a_later_event_of_it_drops() -> None:
    world = World(flow(then("a"), delay("d", 60)))
    effects = world.tell(world.success(), Commanded(Cancel(), 77))
    assert [effect for effect in effects if isinstance(effect, SetTimer)] == []


def test_dropping_work_leaves_the_cleanup_alone() -> None:
    world = World(flow(then("a"), on_cancel=HandlerRef("app:undo")))
    course = Course(world.workflow, world.definition, now_us=0, facts={})
    obey(course, Commanded(Cancel(), 77))
    course.drop("once more")
    assert [job.role for job in added(course.effects)] == [Role.CLEANUP]


def test_a_failure_while_paused_fails_the_run() -> None:
    world = World(flow(then("a", max_attempts=2)))
    world.command(Pause())
    world.fail()
    assert world.workflow.status == "paused"
    world.fail()
    assert world.workflow.status == "failed"
