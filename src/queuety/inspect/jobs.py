"""Jobs as people see them: handlers' jobs, never the engine's own timers and messages.

A step's job has a row only while it is open or buried. Once it has completed, its record is a row of the history, and
it is listed and counted from there like any other completed job. What it was added with is read from its workflow's
definition; when it was added is not recorded, so `created_at` and `available_at` say when its last attempt began.
A job whose step was skipped or completed by hand keeps its row: completed, with a message that says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from queuety.codec import decode
from queuety.errors import DefinitionError
from queuety.inspect.course import Eras
from queuety.inspect.limits import checked_count, checked_text
from queuety.inspect.outline import Outline, all_outlines
from queuety.inspect.states import JobState, moment
from queuety.model import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, JobPhase, JobStatus, Priority
from queuety.store.queries import Record, history, jobs
from queuety.store.rows import TOP_RANK
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PAGE: Final = 500
"""Completed steps that are read at a time when only some of them are wanted."""

_PHASES: Final[Mapping[JobStatus, frozenset[str]]] = {
    status: frozenset(phase.value for phase in JobPhase if phase.status is status) for status in JobStatus
}


def job_status(connection: Connection, tables: Tables, job_id: int) -> JobState | None:
    """The job as it is now, or None if there is none with this id."""
    # Its row first: a step that completes in between is then found in the history.
    row = jobs.found(connection, tables, job_id)
    if row is not None:
        return _from_row(row)
    done = history.completed_step(connection, tables, job_id)
    return None if done is None else _of_then(connection, tables, [done])[0]


def list_jobs(
    connection: Connection,
    tables: Tables,
    *,
    queue: str | None = None,
    status: JobStatus | str | Collection[JobStatus | str] | None = None,
    workflow_id: int | None = None,
    cleanup: bool = False,
    limit: int = 50,
    before_id: int | None = None,
) -> list[JobState]:
    """The jobs that meet every condition given, newest first, at most `limit`; completed steps are among them.

    Of several statuses a job has any. Jobs that clean up after a cancelled or failed run come only with `cleanup`. The
    next page begins at `before_id`, the id of the last one seen. Raises `DefinitionError` for a status that there is
    not, and for a negative `limit`.
    """
    most = checked_count(limit, what="limit")
    if before_id is not None:
        checked_count(before_id, what="before_id")
    if queue is not None:
        checked_text(queue, what="queue")
    wanted = None if status is None else _wanted(status)
    phases = None if wanted is None else frozenset().union(*(_PHASES[one] for one in wanted))
    found: dict[int, JobState] = {}
    if phases is None or phases:
        rows = jobs.newest(
            connection,
            tables,
            queue=queue,
            phases=phases,
            workflow_id=workflow_id,
            cleanup=cleanup,
            before_id=before_id,
            limit=most,
        )
        found.update((row["id"], _from_row(row)) for row in rows)
    if wanted is None or JobStatus.COMPLETED in wanted:
        steps = _completed_steps(
            connection, tables, queue=queue, workflow_id=workflow_id, before_id=before_id, limit=most
        )
        # Read second, so of a step that completes in between this is the newer word.
        found.update((step.id, step) for step in steps)
    return sorted(found.values(), key=lambda job: job.id, reverse=True)[:most]


def stats(connection: Connection, tables: Tables, queue: str | None = None) -> dict[str, int]:
    """How many jobs have each status, of one queue or of all; every status is there. Reads every job that is kept.

    Raises `DefinitionError` for what can be no queue.
    """
    if queue is not None:
        checked_text(queue, what="queue")
    total = dict.fromkeys((status.value for status in JobStatus), 0)
    for counts in _counts(connection, tables, queue).values():
        for status, count in counts.items():
            total[status.value] += count
    return total


def checked_status(status: JobStatus | str) -> JobStatus:
    """The status of this name. Raises `DefinitionError` that names those that there are."""
    try:
        return JobStatus(status)
    except ValueError:
        known = ", ".join(JobStatus)
        raise DefinitionError(f"there is no job status {status!r}; there are {known}") from None


def _wanted(given: JobStatus | str | Collection[JobStatus | str]) -> frozenset[JobStatus]:
    """The statuses that were given, one or several. Raises `DefinitionError` for an unknown one, and for none."""
    if isinstance(given, str) or not isinstance(given, Collection):
        return frozenset({checked_status(given)})
    if not given:
        raise DefinitionError("status=(): at least one is needed, or None for any")
    return frozenset(checked_status(status) for status in given)


def _counts(connection: Connection, tables: Tables, queue: str | None) -> dict[str, dict[JobStatus, int]]:
    counts: dict[str, dict[JobStatus, int]] = {}

    def count(of_queue: str, status: JobStatus, more: int) -> None:
        found = counts.setdefault(of_queue, {})
        found[status] = found.get(status, 0) + more

    for of_queue, phase, more in jobs.counts(connection, tables, queue=queue):
        count(of_queue, JobPhase(phase).status, more)
    known = all_outlines(connection, tables)
    if queue is not None and not _uses(known, queue):
        return counts
    for hash_, index, branch, more in history.completed_counts(connection, tables):
        count(_queue_of(known.get(hash_, Outline()), index, branch), JobStatus.COMPLETED, more)
    # They were counted by the definitions that their runs have now: what ran under another is put where it ran.
    moved = history.completed_before_moves(connection, tables) if queue is not None else []
    eras = _eras_of(connection, tables, moved)
    for row in moved:
        index, branch = row["step_index"], row["own_branch"]
        count(_queue_of(known.get(row["definition_hash"], Outline()), index, branch), JobStatus.COMPLETED, -1)
        count(_queue_of(eras.outline(row["run_id"], row["seq"]), index, branch), JobStatus.COMPLETED, 1)
    return counts if queue is None else {queue: counts.get(queue, {})}


def _queue_of(outline: Outline, index: int, branch: int | None) -> str:
    step = outline.step(index)
    return DEFAULT_QUEUE if step is None else (step.own if branch is None else step.job(branch)).queue


def _completed_steps(
    connection: Connection,
    tables: Tables,
    *,
    queue: str | None,
    workflow_id: int | None,
    before_id: int | None,
    limit: int,
) -> list[JobState]:
    """The newest of them, at most `limit`. Their queue stands in the definition, so other queues' are passed over."""
    if queue is not None and not _uses(all_outlines(connection, tables), queue):
        return []
    found: list[JobState] = []
    size = limit if queue is None else max(limit, _PAGE)
    while len(found) < limit:
        rows = history.completed_steps(connection, tables, workflow_id=workflow_id, before_id=before_id, limit=size)
        steps = _of_then(connection, tables, rows)
        found.extend(step for step in steps if queue is None or step.queue == queue)
        if len(rows) < size:
            break
        before_id = rows[-1]["job_id"]
    return found[:limit]


def _of_then(connection: Connection, tables: Tables, rows: Sequence[Record]) -> list[JobState]:
    """Jobs of steps by the definitions that their runs had then."""
    eras = _eras_of(connection, tables, rows)
    return [_from_history(row, eras.outline(row["run_id"], row["seq"])) for row in rows]


def _eras_of(connection: Connection, tables: Tables, rows: Sequence[Record]) -> Eras:
    """The definitions of the runs of these rows, from the first row of each on."""
    eras = Eras(connection, tables)
    eras.know({row["run_id"]: row["definition_hash"] for row in rows})
    firsts: dict[int, int] = {}
    for row in rows:
        firsts[row["run_id"]] = min(row["seq"], firsts.get(row["run_id"], row["seq"]))
    eras.look(firsts)
    return eras


def _uses(known: Mapping[str, Outline], queue: str) -> bool:
    steps = (step for outline in known.values() for step in outline.steps)
    return any(job.queue == queue for step in steps for job in (step.own, *step.branches))


def _from_row(row: Record) -> JobState:
    phase = JobPhase(row["phase"])
    ended_at = moment(row["completed_us"])
    return JobState(
        id=row["id"],
        queue=row["queue"],
        handler=row["handler"],
        payload=decode(row["payload"]) if row["payload"] else {},
        status=phase.status,
        priority=Priority(TOP_RANK - row["priority_rank"]),
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        available_at=moment(row["due_us"]),
        created_at=moment(row["created_us"]),
        started_at=moment(row["started_us"]),
        completed_at=ended_at if phase is JobPhase.COMPLETED else None,
        error_message=row["error_message"],
        workflow_id=row["workflow_id"],
        step_index=row["step_index"],
        progress=decode(row["progress"]) if row["progress"] else None,
        failed_at=ended_at if phase is JobPhase.BURIED else None,
    )


def _from_history(row: Record, outline: Outline) -> JobState:
    step = outline.step(row["step_index"])
    job = step.job(row["branch"]) if step else None
    began_us = row["at_us"] if row["started_us"] is None else row["started_us"]
    return JobState(
        id=row["job_id"],
        queue=job.queue if job else DEFAULT_QUEUE,
        handler=(job.handler if job else None) or "",
        payload={},
        status=JobStatus.COMPLETED,
        priority=job.priority if job else Priority.LOW,
        attempts=row["attempt"],
        max_attempts=job.max_attempts if job else DEFAULT_MAX_ATTEMPTS,
        available_at=moment(began_us),
        created_at=moment(began_us),
        started_at=moment(began_us),
        completed_at=moment(row["at_us"]),
        error_message=None,
        workflow_id=row["run_id"],
        step_index=row["step_index"],
    )
