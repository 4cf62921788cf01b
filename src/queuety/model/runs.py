"""What the database holds: runs and their jobs."""

from __future__ import annotations

from dataclasses import dataclass

from queuety.model.definitions import Options
from queuety.model.words import CleanupStatus, ErrorKind, Priority, Role, State, WorkflowStatus


@dataclass(frozen=True, slots=True)
class Workflow:
    """A run as the engine sees it, its state decoded.

    `version` rises by one with every history entry. `visit` rises each time a step becomes current: what an earlier
    visit brings is stale. `runtime` is what the current step's kind keeps for this visit: JSON, not for handlers; the
    run that it has started and is parked on stands there under `child`. `loops` counts the jumps of each repeat step,
    by its index as text, until it falls through. `is_watched`: other runs have asked to be told when it ends.

    `ledger` is what only some runs keep: where something is limited `cost`, the cost units used, and `started`, how
    many runs it has started that go their own way; `writers`, where keys are pruned, by key the step that wrote it
    last; `given`, those keys that had come with the run and were written since; and `undo`, how far the cleanup after
    its end is (`engine/cleanup.py`).
    """

    id: int
    name: str
    definition_hash: str
    status: WorkflowStatus
    current_step: int
    total_steps: int
    visit: int
    version: int
    state: State
    created_us: int
    runtime: State | None = None
    transitions: int = 0
    parent_id: int | None = None
    parent_step: int | None = None
    idempotency_key: str | None = None
    error_message: str | None = None
    error_kind: ErrorKind | None = None
    failed_step: int | None = None
    cleanup: CleanupStatus = CleanupStatus.NONE
    completed_us: int | None = None
    failed_us: int | None = None
    cancelled_us: int | None = None
    loops: State | None = None
    is_watched: bool = False
    deadline_us: int | None = None
    ledger: State | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be added. `payload` and `options` are for plain jobs; a step reads its definition."""

    role: Role
    queue: str
    priority: Priority
    handler: str
    max_attempts: int
    due_us: int
    payload: State | None = None
    config: State | None = None
    options: Options | None = None
    workflow_id: int | None = None
    step_index: int | None = None
    visit: int | None = None
    branch: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was claimed. `attempt` counts from 1 and includes this one; `token` fences every write of it.

    `entries` is how many history rows the job has already written (a job without a workflow counts its own).
    """

    id: int
    role: Role
    queue: str
    priority: Priority
    handler: str
    attempt: int
    max_attempts: int
    token: int
    due_us: int
    created_us: int
    payload: State | None = None
    config: State | None = None
    options: Options | None = None
    workflow_id: int | None = None
    step_index: int | None = None
    visit: int | None = None
    branch: int | None = None
    entries: int = 0
    unknown_since_us: int | None = None
