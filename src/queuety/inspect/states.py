"""What a person is told of a workflow and of a job: values, made of rows elsewhere in this room."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, overload

from queuety.model import CleanupStatus, ErrorKind, JobStatus, Json, Priority, WorkflowStatus

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """A run as it stood when it was read. Times are aware, in UTC.

    `state` holds the public keys only. `current_step` counts from 0 and equals `total_steps` once the run is completed;
    then `current_step_name` is None. `failed_step` is an index too. The wait fields are None unless the run waits.
    `cancelled_at` is set for cancelled runs, and `completed_at` with it.

    `wait_details` of signals: `step_name`, `result_key`, `human_wait` (`"approval"`, `"decision"`, `"input"` or None),
    `match_payload`, `correlation_key`, `correlation_value`, `wait_mode`, `matched` and `remaining` (names). Of
    workflows: `step_name`, `group_key`, `result_key`, `quorum`, `wait_mode`, `matched`, `remaining` and `failed` (ids
    as text; a run that is not there is among the failed). `due_at` is there too, in ISO 8601, if the wait ends by
    itself.

    `budget` is None where nothing is limited, else the limits that are set (`max_transitions`, …) and what has been
    used: `transitions`, `cost_units`, `started_workflows`, `public_state_bytes`. `artifact_keys` and `tags` are sorted.
    `deadline_at` is when the run fails unless it has ended.

    `progress` is what the running step last said by `heartbeat`: its mapping, or with several jobs each one's by its
    index as text, of the first 50. Lists leave it None, and so is it while nothing was said.
    """

    id: int
    name: str
    status: WorkflowStatus
    state: dict[str, Json]
    current_step: int
    current_step_name: str | None
    total_steps: int
    waiting_for: list[str] | None
    wait_type: str | None
    wait_mode: str | None
    wait_details: Json | None
    definition_version: str | None
    definition_hash: str
    idempotency_key: str | None
    budget: dict[str, Json] | None
    artifact_count: int
    artifact_keys: tuple[str, ...]
    parent_workflow_id: int | None
    parent_step_index: int | None
    error_message: str | None
    error_kind: ErrorKind | None
    failed_step: int | None
    compensation_status: CleanupStatus
    created_at: datetime
    started_at: datetime
    completed_at: datetime | None
    failed_at: datetime | None
    cancelled_at: datetime | None
    deadline_at: datetime | None
    progress: dict[str, Json] | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as it stood when it was read. Times are aware, in UTC.

    `payload` is a plain job's (a step reads its workflow's state and has `{}`). `attempts` includes one that is being
    made. `error_message` is the last attempt's, why no worker has run it, or that its step was settled without
    it. `failed_at` is when it was buried.
    """

    id: int
    queue: str
    handler: str
    payload: dict[str, Json]
    status: JobStatus
    priority: Priority
    attempts: int
    max_attempts: int
    available_at: datetime
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    error_message: str | None
    workflow_id: int | None
    step_index: int | None
    depends_on: int | None = None
    batch_id: int | None = None
    concurrency_group: str | None = None
    concurrency_limit: int | None = None
    cost_units: int = 1
    progress: Json | None = None
    failed_at: datetime | None = None


@overload
def moment(us: int) -> datetime: ...
@overload
def moment(us: int | None) -> datetime | None: ...
def moment(us: int | None) -> datetime | None:
    """The aware datetime of a number of microseconds since the epoch, UTC; exact.

    >>> moment(1_767_225_600_000_001).isoformat()
    '2026-01-01T00:00:00.000001+00:00'
    """
    return None if us is None else _EPOCH + timedelta(microseconds=us)


def microseconds(at: datetime) -> int:
    """The number of microseconds from the epoch to an aware datetime; exact.

    >>> microseconds(datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC))
    1767225600000001
    """
    return (at - _EPOCH) // timedelta(microseconds=1)
