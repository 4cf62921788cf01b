"""A run further on, made in one go: dataclasses.replace takes 5.8 us instead of 2.7, a fifth of a whole decision."""

from __future__ import annotations

from queuety.model import State, Workflow, WorkflowStatus


def moved(
    was: Workflow, version: int, state: State, status: WorkflowStatus, runtime: State | None, ledger: State | None
) -> Workflow:
    """The workflow further on in its visit."""
    # two calls of dataclasses.replace were a quarter of all that an item costs
    return Workflow(
        was.id,
        was.name,
        was.definition_hash,
        status,
        was.current_step,
        was.total_steps,
        was.visit,
        version,
        state,
        was.created_us,
        runtime,
        was.transitions,
        was.parent_id,
        was.parent_step,
        was.idempotency_key,
        was.error_message,
        was.error_kind,
        was.failed_step,
        was.cleanup,
        was.completed_us,
        was.failed_us,
        was.cancelled_us,
        was.loops,
        was.is_watched,
        was.deadline_us,
        ledger,
    )


def settled(
    was: Workflow, following: int, state: State, ledger: State | None, *, now_us: int, paused_runtime: State
) -> Workflow:
    """The workflow past its current step, with this state; paused, it keeps `paused_runtime` for the next one."""
    is_done = following == was.total_steps
    is_paused = was.status is WorkflowStatus.PAUSED
    return Workflow(
        was.id,
        was.name,
        was.definition_hash,
        WorkflowStatus.COMPLETED if is_done else was.status if is_paused else WorkflowStatus.RUNNING,
        following,
        was.total_steps,
        was.visit if is_done else was.visit + 1,
        was.version + 1,
        state,
        was.created_us,
        paused_runtime if is_paused and not is_done else None,
        was.transitions + 1,
        was.parent_id,
        was.parent_step,
        was.idempotency_key,
        was.error_message,
        was.error_kind,
        was.failed_step,
        was.cleanup,
        now_us if is_done else was.completed_us,
        was.failed_us,
        was.cancelled_us,
        was.loops,
        was.is_watched,
        was.deadline_us,
        ledger,
    )
