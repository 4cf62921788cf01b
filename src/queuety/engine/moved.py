"""A run further on in its visit, made in one go."""

from __future__ import annotations

from queuety.model import State, Workflow, WorkflowStatus


def moved(was: Workflow, version: int, state: State, status: WorkflowStatus, runtime: State | None) -> Workflow:
    """The workflow further on in its visit."""
    # written out like `_settled`: two calls of dataclasses.replace were a quarter of all that an item costs
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
    )
