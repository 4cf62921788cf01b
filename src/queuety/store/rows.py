"""Rows into values and values into rows. No SQL, no rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queuety.codec import decode, encode
from queuety.model import (
    AppendHistory,
    CleanupStatus,
    ErrorKind,
    Job,
    Json,
    NewJob,
    Options,
    Priority,
    Role,
    State,
    Workflow,
    WorkflowStatus,
)

TOP_RANK = int(Priority.URGENT)


@dataclass(frozen=True, slots=True)
class Lease:
    """Who holds the jobs of one claim: a fresh random token, the process's incarnation, and until when."""

    token: int
    owner: int
    until_us: int


def options_text(options: Options | None) -> str | None:
    """The JSON of what is set, or None."""
    if options is None:
        return None
    fields = {
        "queue": options.queue,
        "priority": None if options.priority is None else int(options.priority),
        "max_attempts": options.max_attempts,
        "backoff": list(options.backoff) if isinstance(options.backoff, tuple) else options.backoff,
        "timeout": options.timeout_s,
        "retry_on": None if options.retry_on is None else list(options.retry_on),
        "give_up_on": None if options.give_up_on is None else list(options.give_up_on),
        "delay": options.delay_s,
        "cost_units": options.cost_units,
    }
    known = {key: value for key, value in fields.items() if value is not None}
    return encode(known) if known else None


def options_from_text(text: str | None) -> Options | None:
    """What `options_text` wrote."""
    if text is None:
        return None
    known: Mapping[str, Any] = decode(text)
    backoff = known.get("backoff")
    retry_on, give_up_on = known.get("retry_on"), known.get("give_up_on")
    return Options(
        queue=known.get("queue"),
        priority=None if known.get("priority") is None else Priority(known["priority"]),
        max_attempts=known.get("max_attempts"),
        backoff=tuple(backoff) if isinstance(backoff, list) else backoff,
        timeout_s=known.get("timeout"),
        retry_on=None if retry_on is None else tuple(retry_on),
        give_up_on=None if give_up_on is None else tuple(give_up_on),
        delay_s=known.get("delay"),
        cost_units=known.get("cost_units"),
    )


def _text(value: Json | None) -> str | None:
    return None if value is None else encode(value)


def _value(text: str | None) -> Any:
    return None if text is None else decode(text)


def job_row(job_id: int, job: NewJob, now_us: int, lease: Lease | None = None) -> tuple[Any, ...]:
    """A row of `JOB_COLUMNS`: leased if a lease is given, else ready or delayed by its due time."""
    if lease is not None:
        phase, wake_us, attempts = "leased", lease.until_us, 1
    elif job.due_us > now_us:
        phase, wake_us, attempts = "delayed", job.due_us, 0
    else:
        phase, wake_us, attempts = "ready", None, 0
    return (
        job_id,
        job.role.value,
        phase,
        job.queue,
        TOP_RANK - job.priority,
        job.due_us,
        wake_us,
        job.handler,
        attempts,
        job.max_attempts,
        lease.token if lease else None,
        lease.owner if lease else None,
        0,
        job.workflow_id,
        job.step_index,
        job.visit,
        job.branch,
        0,
        _text(job.payload),
        _text(job.config),
        options_text(job.options),
        now_us,
        now_us if lease else None,
    )


def claimed_from_new(job_id: int, job: NewJob, now_us: int, lease: Lease) -> Job:
    """The job as it stands after being added and leased in one transaction."""
    return Job(
        id=job_id,
        role=job.role,
        queue=job.queue,
        priority=job.priority,
        handler=job.handler,
        attempt=1,
        max_attempts=job.max_attempts,
        token=lease.token,
        due_us=job.due_us,
        created_us=now_us,
        payload=job.payload,
        config=job.config,
        options=job.options,
        workflow_id=job.workflow_id,
        step_index=job.step_index,
        visit=job.visit,
        branch=job.branch,
    )


def claimed_from_row(row: Sequence[Any], token: int) -> Job:
    """A job from a row of `CLAIM_COLUMNS`, as it stands once leased with this token."""
    return Job(
        id=row[0],
        role=Role(row[1]),
        queue=row[2],
        priority=Priority(TOP_RANK - row[3]),
        handler=row[4],
        attempt=row[5] + 1,
        max_attempts=row[6],
        token=token,
        due_us=row[7],
        created_us=row[8],
        payload=_value(row[9]),
        config=_value(row[10]),
        options=options_from_text(row[11]),
        workflow_id=row[12],
        step_index=row[13],
        visit=row[14],
        branch=row[15],
        entries=row[16],
        unknown_since_us=row[17],
    )


def history_row(entry: AppendHistory) -> tuple[tuple[Any, ...], int]:
    """A row of `HISTORY_COLUMNS`, and how many characters its delta takes."""
    changed = None if entry.changed is None else encode(entry.changed)
    removed = encode(list(entry.removed)) if entry.removed else None
    error = entry.error
    job, span = entry.job, entry.span
    row = (
        entry.run_id,
        entry.seq,
        entry.entry.value,
        span.finished_us if span else entry.at_us,
        span.started_us if span else None,
        job.id if job else None,
        entry.token,
        span.owner if span else None,
        job.attempt if job else None,
        entry.step_index,
        entry.visit,
        job.branch if job else None,
        1 if entry.is_final else 0,
        changed,
        removed,
        _text(entry.control) if entry.control else None,
        None
        if error is None
        else encode(
            {
                "message": error.message,
                "type": error.type_name,
                "traceback": error.traceback,
                "kind": error.kind.value,
            }
        ),
    )
    return row, len(changed or "") + len(removed or "")


def workflow_row(workflow: Workflow, state_text: str) -> tuple[Any, ...]:
    """A row of `WORKFLOW_COLUMNS` whose snapshot is the present state."""
    return (
        workflow.id,
        workflow.name,
        workflow.definition_hash,
        workflow.status.value,
        workflow.version,
        workflow.visit,
        workflow.current_step,
        workflow.total_steps,
        state_text,
        workflow.version,
        len(state_text),
        0,
        _text(workflow.runtime),
        workflow.transitions,
        workflow.parent_id,
        workflow.parent_step,
        workflow.idempotency_key,
        workflow.error_message,
        workflow.error_kind.value if workflow.error_kind else None,
        workflow.failed_step,
        workflow.cleanup.value,
        workflow.created_us,
        workflow.completed_us,
        workflow.failed_us,
        workflow.cancelled_us,
        _text(workflow.loops),
        1 if workflow.is_watched else 0,
        workflow.deadline_us,
        _text(workflow.ledger),
    )


def progress_row(workflow: Workflow, delta_bytes: int) -> tuple[Any, ...]:
    """A key and `PROGRESS_COLUMNS`."""
    return (
        workflow.id,
        workflow.status.value,
        workflow.version,
        workflow.visit,
        workflow.current_step,
        workflow.transitions,
        _text(workflow.runtime),
        workflow.completed_us,
        _text(workflow.loops),
        delta_bytes,
    )


def ending_row(workflow: Workflow) -> tuple[Any, ...]:
    """A key and `ENDING_COLUMNS`."""
    return (
        workflow.id,
        workflow.error_message,
        workflow.error_kind.value if workflow.error_kind else None,
        workflow.failed_step,
        workflow.cleanup.value,
        workflow.failed_us,
        workflow.cancelled_us,
        1 if workflow.is_watched else 0,
        _text(workflow.ledger),
        workflow.definition_hash,
        workflow.total_steps,
        workflow.deadline_us,
    )


def workflow_from_row(row: Sequence[Any], state: State) -> Workflow:
    """A workflow from a row of `WORKFLOW_COLUMNS` and its folded state."""
    return Workflow(
        id=row[0],
        name=row[1],
        definition_hash=row[2],
        status=WorkflowStatus(row[3]),
        version=row[4],
        visit=row[5],
        current_step=row[6],
        total_steps=row[7],
        state=state,
        created_us=row[21],
        runtime=_value(row[12]),
        transitions=row[13],
        parent_id=row[14],
        parent_step=row[15],
        idempotency_key=row[16],
        error_message=row[17],
        error_kind=ErrorKind(row[18]) if row[18] else None,
        failed_step=row[19],
        cleanup=CleanupStatus(row[20]),
        completed_us=row[22],
        failed_us=row[23],
        cancelled_us=row[24],
        loops=_value(row[25]),
        is_watched=bool(row[26]),
        deadline_us=row[27],
        ledger=_value(row[28]),
    )
