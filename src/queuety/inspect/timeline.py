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
from queuety.inspect.outline import HELD, Outline, StepOutline, outlines
from queuety.inspect.states import moment
from queuety.model import Entry, Json
from queuety.store.queries import Record, history, workflows
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

_HIDDEN: Final = frozenset({"_queuety_trace", "_chunks", "_output", "_waiting", "_signal"})
"""Control keys that are no part of what was returned: what a trace shows, and what the engine keeps in a row."""

_OWN_OUTPUT: Final = {Entry.ITEM: "_output", Entry.WAITING: "_waiting", Entry.SIGNALLED: "_signal"}
"""Under which control key a row's output stands that is not merged into the state."""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One thing that happened to a run.

    `id` rises with every event of the run and never changes; with `workflow_id` it names the event. `event` is
    `step_started`, `step_completed`, `step_failed`, `step_branch_completed`, `step_item_completed` (then the step's own
    `step_completed` follows, without a start), `workflow_waiting` (its output says for what), `signal_received` (name
    and payload), `workflow_resumed` (a wait, a delay or a child run is over, or somebody resumed a paused run: then
    there is no output), `workflow_paused`, `workflow_retried`, `workflow_cancelled`, or `cleanup_started`,
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
    step = outline.step(row["step_index"])
    end = _event(row, step, _end_of(row, step))
    if row["started_us"] is None:
        return [end]
    begin = _event(row, step, "step_started" if _is_of_step(row) else "cleanup_started", is_start=True)
    return [begin, end]


def _is_of_step(row: Record) -> bool:
    """Whether it tells of a step or of the run as it went on, rather than of cleaning up after it."""
    return row["entry"] != Entry.CLEANED and (row["job_id"] is None or row["step_index"] is not None)


def _end_of(row: Record, step: StepOutline | None) -> str:
    entry = Entry(row["entry"])
    if not _is_of_step(row):
        return "cleanup_completed" if entry is Entry.CLEANED else "cleanup_failed"
    if entry is Entry.RESUMED and step is not None and step.kind not in HELD:
        return "step_completed"
    return _END_OF[entry]


_END_OF: Final = {
    Entry.COMPLETED: "step_completed",
    Entry.BRANCH: "step_branch_completed",
    Entry.ITEM: "step_item_completed",
    Entry.FAILED: "step_failed",
    Entry.WAITING: "workflow_waiting",
    Entry.SIGNALLED: "signal_received",
    Entry.RESUMED: "workflow_resumed",
    Entry.PAUSED: "workflow_paused",
    Entry.CONTINUED: "workflow_resumed",
    Entry.RETRIED: "workflow_retried",
    Entry.CANCELLED: "workflow_cancelled",
}


def _event(row: Record, step: StepOutline | None, event: str, *, is_start: bool = False) -> TimelineEvent:
    is_attempt = row["started_us"] is not None
    job = None if step is None else step.job(row["branch"]) if is_attempt else step.own
    number = 2 * row["seq"]
    error = None if is_start else _error(row)
    return TimelineEvent(
        id=number - 1 if is_start else number,
        workflow_id=row["run_id"],
        event=event,
        step_index=row["step_index"],
        step_name=step.name if step else None,
        step_type=step.kind if step else None,
        handler=job.handler if job else None,
        queue=job.queue if job and is_attempt else None,
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
    """What a handler returned, a timer merged, or the row itself tells; None where there is nothing of the kind."""
    own = _OWN_OUTPUT.get(Entry(row["entry"]))
    if own is None and row["changed"] is None:
        return None
    control: dict[str, Any] = decode(row["control"]) if row["control"] else {}
    if own is not None:
        told: dict[str, Any] | None = control.get(own)
        return told
    output: dict[str, Any] = decode(row["changed"])
    return output | {key: value for key, value in control.items() if key not in _HIDDEN}


def _error(row: Record) -> dict[str, Json] | None:
    if row["error"] is None:
        return None
    stored: dict[str, Any] = decode(row["error"])
    return {"message": stored["message"], "class": stored["type"], "trace": stored["traceback"]}


def _duration_ms(row: Record) -> int | None:
    return None if row["started_us"] is None else round((row["at_us"] - row["started_us"]) / 1000)
