"""What has happened to a run, event by event, and what became of a job's attempts; both read from the history.

The history holds one row per attempt, written when the attempt has ended: its start is read from the same row. So an
attempt appears once it has ended; that one is under way, the job says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from queuety.codec import decode
from queuety.inspect.limits import checked_count
from queuety.inspect.outline import Outline, outlines
from queuety.inspect.states import moment
from queuety.model import Entry, Json
from queuety.store.queries import Record, history, workflows
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

_HIDDEN: Final = "_queuety_trace"
"""The control key that is stored with an attempt and shown in its trace, not in its output."""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One thing that happened to a run.

    `id` rises with every event of the run and never changes; with `workflow_id` it names the event. `event` is
    `step_started`, `step_completed`, `step_failed`, `workflow_resumed` (a delay is over, or somebody resumed a paused
    run: then there is no output), `workflow_paused`, `workflow_retried`, `workflow_cancelled`, or `cleanup_started`,
    `cleanup_completed`, `cleanup_failed` of a handler that ran after the end. `parent_event_id` of an attempt's end is
    its start. `attempt` counts from 1. `output` is what was returned; `error` is `{"message", "class", "trace"}`.
    `worker` names the process that ran it, for display only. `created_at` is aware, in UTC.
    """

    id: int
    workflow_id: int
    event: str
    step_index: int | None
    step_name: str | None
    step_type: str | None
    handler: str | None
    queue: str | None
    job_id: int | None
    parent_event_id: int | None
    attempt: int | None
    output: dict[str, Json] | None
    error: dict[str, Json] | None
    error_message: str | None
    duration_ms: int | None
    created_at: datetime
    worker: int | None


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """One attempt of a job that has ended, well if `error` is None. `is_final`: none followed, whatever was left."""

    job_id: int
    attempt: int
    started_at: datetime
    finished_at: datetime
    duration_ms: int
    output: dict[str, Json] | None
    error: dict[str, Json] | None
    error_message: str | None
    is_final: bool
    worker: int | None


def workflow_timeline(
    connection: Connection, tables: Tables, workflow_id: int, limit: int = 100, offset: int = 0
) -> list[TimelineEvent]:
    """The events `offset` … `offset + limit` of a workflow, oldest first; none if there is no such workflow.

    Raises `DefinitionError` if `limit` or `offset` is negative.
    """
    most, skipped = checked_count(limit, what="limit"), checked_count(offset, what="offset")
    run = workflows.found(connection, tables, workflow_id)
    if run is None or not most:
        return []
    outline = outlines(connection, tables, [run["definition_hash"]])[run["definition_hash"]]
    rows = history.page(connection, tables, workflow_id, limit=most, offset=skipped)
    events: list[TimelineEvent] = []
    for row in rows:
        told = _events(row, outline)
        # The first row may tell of one event before the page and one in it.
        events += told[max(0, len(told) - (int(row["upto"]) - skipped)) :]
    return events[:most]


def job_history(connection: Connection, tables: Tables, job_id: int) -> list[JobAttempt]:
    """The attempts of a job that have ended, oldest first; none if there is no such job."""
    return [_attempt(row) for row in history.attempts(connection, tables, job_id)]


def _events(row: Record, outline: Outline) -> Sequence[TimelineEvent]:
    """The start and the end of an attempt, or the one thing that any other row tells of."""
    end = _event(row, outline, _END_OF[_kind_of(row)])
    if row["started_us"] is None:
        return [end]
    begin = _event(row, outline, _START_OF[_kind_of(row)], is_start=True)
    return [begin, end]


def _kind_of(row: Record) -> tuple[Entry, bool]:
    """What the row tells of, and whether of a step or the run as it went on, rather than of cleaning up after it."""
    entry = Entry(row["entry"])
    return entry, not (entry is Entry.CLEANED or (row["job_id"] is not None and row["step_index"] is None))


_END_OF: Final = {
    (Entry.COMPLETED, True): "step_completed",
    (Entry.FAILED, True): "step_failed",
    (Entry.RESUMED, True): "workflow_resumed",
    (Entry.PAUSED, True): "workflow_paused",
    (Entry.CONTINUED, True): "workflow_resumed",
    (Entry.RETRIED, True): "workflow_retried",
    (Entry.CANCELLED, True): "workflow_cancelled",
    (Entry.CLEANED, False): "cleanup_completed",
    (Entry.FAILED, False): "cleanup_failed",
}
_START_OF: Final = {
    (Entry.COMPLETED, True): "step_started",
    (Entry.FAILED, True): "step_started",
    (Entry.CLEANED, False): "cleanup_started",
    (Entry.FAILED, False): "cleanup_started",
}


def _event(row: Record, outline: Outline, event: str, *, is_start: bool = False) -> TimelineEvent:
    step = outline.step(row["step_index"])
    is_attempt = row["started_us"] is not None
    number = 2 * row["seq"]
    error = None if is_start else _error(row)
    return TimelineEvent(
        id=number - 1 if is_start else number,
        workflow_id=row["run_id"],
        event=event,
        step_index=row["step_index"],
        step_name=step.name if step else None,
        step_type=step.kind if step else None,
        handler=step.handler if step else None,
        queue=step.queue if step and is_attempt else None,
        job_id=row["job_id"],
        parent_event_id=number - 1 if is_attempt and not is_start else None,
        attempt=row["attempt"],
        output=None if is_start else _output(row),
        error=error,
        error_message=error["message"] if error else None,
        duration_ms=None if is_start else _duration_ms(row),
        created_at=moment(row["started_us"] if is_start else row["at_us"]),
        worker=row["owner"],
    )


def _attempt(row: Record) -> JobAttempt:
    began_us = row["at_us"] if row["started_us"] is None else row["started_us"]
    error = _error(row)
    return JobAttempt(
        job_id=row["job_id"],
        attempt=row["attempt"],
        started_at=moment(began_us),
        finished_at=moment(row["at_us"]),
        duration_ms=_duration_ms(row) or 0,
        output=_output(row) if row["step_index"] is not None else None,
        error=error,
        error_message=error["message"] if error else None,
        is_final=bool(row["final"]) or error is None,
        worker=row["owner"],
    )


def _output(row: Record) -> dict[str, Json] | None:
    """What a handler returned, or a timer merged; None where nothing is merged."""
    if row["changed"] is None:
        return None
    output: dict[str, Any] = decode(row["changed"])
    control: dict[str, Any] = decode(row["control"]) if row["control"] else {}
    return output | {key: value for key, value in control.items() if key != _HIDDEN}


def _error(row: Record) -> dict[str, Json] | None:
    if row["error"] is None:
        return None
    stored: dict[str, Any] = decode(row["error"])
    return {"message": stored["message"], "class": stored["type"], "trace": stored["traceback"]}


def _duration_ms(row: Record) -> int | None:
    return None if row["started_us"] is None else round((row["at_us"] - row["started_us"]) / 1000)
