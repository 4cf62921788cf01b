"""Rows of jobs, and how many there are of each phase."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, Select, func, select

from queuety.model import JobPhase, Role
from queuety.store.queries import Record
from queuety.store.schema import Tables


def found(connection: Connection, tables: Tables, job_id: int) -> Record | None:
    """The row of this job, or None; a step that has completed has none."""
    return connection.execute(rows(tables).where(tables.jobs.c.id == job_id)).mappings().one_or_none()


def newest(
    connection: Connection,
    tables: Tables,
    *,
    queue: str | None,
    phases: Collection[str] | None,
    workflow_id: int | None,
    cleanup: bool,
    before_id: int | None,
    limit: int,
) -> list[Record]:
    """The rows that meet every condition given, newest first, at most `limit`; those that clean up only if asked for.

    With a workflow it reads that workflow's range of `jobs_workflow`, else the end of the primary key, passing over
    what does not meet the conditions.
    """
    table = tables.jobs
    query = rows(tables).order_by(table.c.id.desc()).limit(limit)
    if queue is not None:
        query = query.where(table.c.queue == queue)
    if phases is not None:
        query = query.where(table.c.phase.in_(sorted(phases)))
    if workflow_id is not None:
        query = query.where(table.c.workflow_id == workflow_id)
    if not cleanup:
        query = query.where(table.c.role != Role.CLEANUP.value)
    if before_id is not None:
        query = query.where(table.c.id < before_id)
    return list(connection.execute(query).mappings())


def progresses(
    connection: Connection, tables: Tables, workflow_id: int, visit: int, *, limit: int
) -> list[tuple[int | None, str]]:
    """What the running jobs of this visit have said of their progress, as (branch, JSON text), in order of branches."""
    table = tables.jobs
    query = (
        select(table.c.branch, table.c.progress)
        .where(
            table.c.workflow_id == workflow_id,
            table.c.visit == visit,
            table.c.phase == JobPhase.LEASED.value,
            table.c.progress.is_not(None),
        )
        .order_by(table.c.branch, table.c.id)
        .limit(limit)
    )
    return [(row.branch, row.progress) for row in connection.execute(query)]


def counts(connection: Connection, tables: Tables, *, queue: str | None) -> list[tuple[str, str, int]]:
    """How many rows there are of each queue and phase, as (queue, phase, count). Reads every row."""
    table = tables.jobs
    query = select(table.c.queue, table.c.phase, func.count().label("many")).group_by(table.c.queue, table.c.phase)
    if queue is not None:
        query = query.where(table.c.queue == queue)
    return [(row[0], row[1], int(row[2])) for row in connection.execute(query)]


def paused(connection: Connection, tables: Tables) -> dict[str, int]:
    """Since when each paused queue has been paused (microseconds since the epoch), by its name."""
    table = tables.queues
    query = select(table.c.name, table.c.paused_us).where(table.c.paused_us.is_not(None)).order_by(table.c.name)
    return {row.name: row.paused_us for row in connection.execute(query)}


def rows(tables: Tables) -> Select[tuple[object, ...]]:
    """All that readers are told of a job."""
    columns = tables.jobs.c
    return select(
        columns.id,
        columns.role,
        columns.phase,
        columns.queue,
        columns.priority_rank,
        columns.due_us,
        columns.wake_us,
        columns.owner,
        columns.handler,
        columns.attempts,
        columns.max_attempts,
        columns.workflow_id,
        columns.step_index,
        columns.visit,
        columns.branch,
        columns.payload,
        columns.progress,
        columns.error_message,
        columns.unknown_since_us,
        columns.created_us,
        columns.started_us,
        columns.completed_us,
    )
