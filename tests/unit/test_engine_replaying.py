"""What becomes of a run that is made again: how it stands, what is written beside it. No database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuety.define.wire import hashed
from queuety.engine.course import NOT_ENTERED
from queuety.engine.decide import Decision
from queuety.engine.replaying import copy_of, replayed
from queuety.model import (
    AddJob,
    AppendHistory,
    CleanupStatus,
    Definition,
    Entry,
    HandlerRef,
    SetTimer,
    StartRun,
    StepSpec,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import Lacking, NeedIds, NeedSignals, Signal

NOW_US = 1_767_225_600_123_456
WAIT = StepSpec("wait_for_signal", "hear", settings={"names": ["go"], "mode": "all", "result_key": "got"})
SINGLE = StepSpec("single", "work", HandlerRef("tests:work"))
DELAY = StepSpec("delay", "rest", settings={"seconds": 60})
NESTED = StepSpec("run_workflow", "inner", child=hashed(Definition("inner", (SINGLE,))))


def run_at(
    *steps: StepSpec, status: WorkflowStatus = WorkflowStatus.RUNNING, **more: Any
) -> tuple[Workflow, Definition]:
    """A run at the first of these steps, in its third visit."""
    definition = hashed(Definition("w", steps, version="v1"))
    given = {"parent_id": 7, "parent_step": 1, "idempotency_key": "key", "is_watched": True, "deadline_us": 5} | more
    return Workflow(
        17, "w", definition.hash, status, 0, len(steps), 3, 9, {"n": 1}, 1, transitions=2, **given
    ), definition


def again(
    source: Workflow, definition: Definition, facts: dict[Any, Any] | None = None, **more: Any
) -> tuple[Decision, list[AppendHistory]]:
    copy = copy_of(source, new_id=40, now_us=NOW_US)
    decision = replayed(source, copy, definition, operation=5, now_us=NOW_US, facts=facts or {}, **more)
    return decision, [effect for effect in decision.effects if isinstance(effect, AppendHistory)]


def test_the_copy_belongs_to_nobody() -> None:
    copy = copy_of(run_at(SINGLE)[0], new_id=40, now_us=NOW_US)
    assert (copy.id, copy.name) == (40, "w_replay_1767225600")
    assert (copy.parent_id, copy.parent_step, copy.idempotency_key) == (None, None, None)
    assert (copy.is_watched, copy.deadline_us) == (False, None)
    assert (copy.state, copy.version, copy.visit, copy.transitions, copy.created_us) == ({"n": 1}, 9, 3, 2, 1)


def test_a_job_is_asked_for_in_a_new_visit() -> None:
    decision, (row,) = again(*run_at(SINGLE), actor="Ann", reason="look")
    (job,) = [effect.job for effect in decision.effects if isinstance(effect, AddJob)]
    assert (job.workflow_id, job.visit, job.step_index) == (40, 4, 0)
    assert (decision.workflow.visit, decision.workflow.version, decision.workflow.transitions) == (4, 10, 2)
    assert (row.run_id, row.seq, row.entry, row.token, row.visit) == (40, 10, Entry.REPLAYED, 5, 3)
    told = {"source_workflow_id": 17, "source_status": "running", "definition_version": "v1", "idempotency_key": "key"}
    assert row.control == {
        "_by": {"actor": "Ann", "reason": "look"},
        "_replayed": {**told, "definition_hash": decision.workflow.definition_hash},
    }


def test_a_delay_begins_from_its_start() -> None:
    decision, _ = again(*run_at(DELAY, SINGLE, runtime={"due_us": 5}))
    assert SetTimer(40, 4, NOW_US + 60_000_000) in decision.effects
    assert decision.workflow.runtime == {"due_us": NOW_US + 60_000_000}


def test_a_wait_asks_for_what_came_along() -> None:
    source, definition = run_at(WAIT, SINGLE, status=WorkflowStatus.WAITING_FOR_SIGNAL, runtime={"matched": []})
    need = NeedSignals("go", 0, 1)
    with pytest.raises(Lacking) as lacking:
        again(source, definition)
    assert lacking.value.needs == (need,)
    decision, rows = again(source, definition, {need: ()})
    assert (decision.workflow.status, [row.entry for row in rows]) == (
        WorkflowStatus.WAITING_FOR_SIGNAL,
        [Entry.REPLAYED, Entry.WAITING],
    )
    decision, rows = again(source, definition, {need: (Signal(9, "go", {"n": 2}),)})
    assert decision.workflow.status is WorkflowStatus.RUNNING
    assert decision.workflow.state == {"n": 1, "got": {"n": 2}}
    assert (decision.workflow.visit, decision.workflow.transitions) == (5, 3)


def test_a_parked_run_starts_another_child() -> None:
    decision, _ = again(*run_at(NESTED, runtime={"child": 18}), {NeedIds(4, 1): (41,)})
    (started,) = [effect for effect in decision.effects if isinstance(effect, StartRun)]
    assert (started.workflow_id, started.parent_id) == (41, 40)
    assert decision.workflow.runtime == {"child": 41}


def test_a_paused_run_stays_paused_and_is_not_entered() -> None:
    decision, rows = again(*run_at(SINGLE, status=WorkflowStatus.PAUSED))
    assert list(decision.effects) == rows
    assert (decision.workflow.status, decision.workflow.runtime) == (WorkflowStatus.PAUSED, NOT_ENTERED)
    assert decision.workflow.visit == 4


@pytest.mark.parametrize(
    ("status", "runtime", "kept"),
    [
        (WorkflowStatus.FAILED, {"total": 3, "since": 4}, {"total": 3, "since": 4}),
        (WorkflowStatus.FAILED, {"child": 18}, None),
        (WorkflowStatus.FAILED, {"child": 18, "awaits": True}, None),
        (WorkflowStatus.CANCELLED, {"child": 18, "awaits": True}, None),
        (WorkflowStatus.FAILED, None, None),
    ],
)
def test_what_has_ended_stays_as_it_had_without_the_other_ones_child(
    status: WorkflowStatus, runtime: dict[str, Any] | None, kept: dict[str, Any] | None
) -> None:
    source, definition = run_at(SINGLE, status=status, runtime=runtime, failed_us=3, completed_us=4, cancelled_us=2)
    decision, rows = again(source, definition)
    assert list(decision.effects) == rows
    expected = replace(copy_of(source, new_id=40, now_us=NOW_US), version=10)
    assert decision.workflow == expected
    assert (expected.status, expected.visit, expected.runtime) == (status, 3, kept)
    assert (expected.failed_us, expected.cancelled_us, expected.completed_us) == (3, 2, NOW_US)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (CleanupStatus.NONE, CleanupStatus.NONE),
        (CleanupStatus.PENDING, CleanupStatus.FAILED),
        (CleanupStatus.COMPLETED, CleanupStatus.COMPLETED),
        (CleanupStatus.FAILED, CleanupStatus.FAILED),
    ],
)
def test_what_was_to_be_cleaned_up_is_not_done_here(was: CleanupStatus, now: CleanupStatus) -> None:
    decision, (row,) = again(*run_at(SINGLE, status=WorkflowStatus.CANCELLED, cleanup=was))
    assert decision.workflow.cleanup is now
    told = (row.control or {})["_replayed"].get("compensation_status")
    assert told == ("pending" if was is CleanupStatus.PENDING else None)


def test_a_name_ends_with_when_it_was_replayed() -> None:
    source, _ = run_at(SINGLE)
    name = copy_of(replace(source, name="ä" * 255), new_id=40, now_us=NOW_US).name
    assert (len(name), name[-19:]) == (255, "ä" + "_replay_1767225600")
