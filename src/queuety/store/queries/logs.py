"""What the log of all runs is derived from: rows of the history in the order of their times, and the runs themselves.

Every function gives one page, forwards or backwards, from an edge of an index.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, case, exists, or_, select

from queuety.model import Entry, WorkflowStatus
from queuety.store.queries import Record
from queuety.store.queries.workflows import batched
from queuety.store.schema import Tables

Mark = tuple[int, int, int]
"""A place in the log: a time, a run, a row of it. In that of one run or job the row stands for the time."""


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of the log: of one run, of one job, from a time on; `forwards` or from the newest back.

    `after` is the place of the last one that was read.
    """

    run_id: int | None = None
    job_id: int | None = None
    since_us: int | None = None
    forwards: bool = False
    after: Mark | None = None

    @property
    def is_of_one(self) -> bool:
        """Whether it is the log of one run or job, which goes by its rows."""
        return self.run_id is not None or self.job_id is not None


@dataclass(frozen=True, slots=True)
class Handled:
    """Whose rows may tell of a handler: jobs that it runs, and runs of these definitions."""

    handler: str
    hashes: frozenset[str]


def rows(
    connection: Connection,
    tables: Tables,
    span: Span,
    entries: Collection[Entry],
    *,
    limit: int,
    handled: Handled | None = None,
) -> list[Record]:
    """Rows of the history that tell of these, at most `limit`, in the order of the span.

    With `handled` only of jobs and runs that may tell of the handler; others are passed over in the database.

    It reads the range of one run, of one job (`history_job`), or of the times (`history_at`). `control` is that of rows
    that no attempt at a step has written; others keep in it what may be large.
    """
    columns = tables.history.c
    is_engines = or_(columns.job_id.is_(None), columns.entry.in_([Entry.CLEANED.value, Entry.UNCLEANED.value]))
    query = select(
        columns.run_id,
        columns.seq,
        columns.entry,
        columns.at_us,
        columns.started_us,
        columns.job_id,
        columns.attempt,
        columns.step_index,
        columns.visit,
        columns.branch,
        columns.final,
        columns.error,
        case((is_engines, columns.control)).label("control"),
    ).where(columns.entry.in_(sorted(entry.value for entry in entries)))
    if span.run_id is not None:
        query = query.where(columns.run_id == span.run_id)
    if span.job_id is not None:
        query = query.where(columns.job_id == span.job_id)
    if span.since_us is not None:
        query = query.where(columns.at_us >= span.since_us)
    if handled is not None:
        jobs, runs = tables.jobs.c, tables.workflows.c
        has_job = exists().where(jobs.id == columns.run_id, jobs.handler == handled.handler)
        has_run = exists().where(runs.id == columns.run_id, runs.definition_hash.in_(sorted(handled.hashes)))
        query = query.where(or_(has_job, has_run) if handled.hashes else has_job)
    order = (columns.seq,) if span.is_of_one else (columns.at_us, columns.run_id, columns.seq)
    return _page(connection, query, span, order, limit)


def started(connection: Connection, tables: Tables, span: Span, *, limit: int) -> list[Record]:
    """The runs by the time at which they were started: `id`, `name`, `parent_id` and `created_us`."""
    columns = tables.workflows.c
    query = select(columns.id, columns.name, columns.parent_id, columns.created_us)
    if span.run_id is not None:
        query = query.where(columns.id == span.run_id)
    if span.since_us is not None:
        query = query.where(columns.created_us >= span.since_us)
    return _page(connection, query, span, (columns.created_us, columns.id), limit)


def completed(connection: Connection, tables: Tables, span: Span, *, limit: int) -> list[Record]:
    """The runs that are completed, by the time at which they were: `id`, `name`, `created_us` and `completed_us`."""
    columns = tables.workflows.c
    query = select(columns.id, columns.name, columns.created_us, columns.completed_us).where(
        columns.completed_us.is_not(None), columns.status == WorkflowStatus.COMPLETED.value
    )
    if span.run_id is not None:
        query = query.where(columns.id == span.run_id)
    if span.since_us is not None:
        query = query.where(columns.completed_us >= span.since_us)
    return _page(connection, query, span, (columns.completed_us, columns.id), limit)


def runs_of(connection: Connection, tables: Tables, run_ids: Collection[int]) -> dict[int, Record]:
    """Of each of these runs `id`, `name`, `definition_hash`, `status`, `visit`, `created_us` and `completed_us`."""
    columns = tables.workflows.c
    found: dict[int, Record] = {}
    for some in batched(run_ids):
        query = select(
            columns.id,
            columns.name,
            columns.definition_hash,
            columns.status,
            columns.visit,
            columns.created_us,
            columns.completed_us,
        ).where(columns.id.in_(some))
        found.update((row["id"], row) for row in connection.execute(query).mappings())
    return found


def jobs_of(connection: Connection, tables: Tables, job_ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """The handler and the queue of each of these jobs that is still there."""
    columns = tables.jobs.c
    found: dict[int, tuple[str, str]] = {}
    for some in batched(job_ids):
        query = select(columns.id, columns.handler, columns.queue).where(columns.id.in_(some))
        found.update((row.id, (row.handler, row.queue)) for row in connection.execute(query))
    return found


def run_of_job(connection: Connection, tables: Tables, job_id: int) -> int | None:
    """The run in whose history this job has rows, itself if it has no workflow; None if it has none."""
    columns = tables.history.c
    query = select(columns.run_id).where(columns.job_id == job_id).limit(1)
    return connection.execute(query).scalar_one_or_none()


def _page(
    connection: Connection, query: Select[Any], span: Span, order: tuple[ColumnElement[Any], ...], limit: int
) -> list[Record]:
    """What of the query comes after the place of the span, in its order."""
    if span.after is not None:
        # The first condition follows from the second; it is what an index is read by.
        first = span.after[0]
        query = query.where(order[0] >= first if span.forwards else order[0] <= first)
        query = query.where(_beyond(order, span.after, forwards=span.forwards))
    query = query.order_by(*(column.asc() if span.forwards else column.desc() for column in order))
    return list(connection.execute(query.limit(limit)).mappings())


def _beyond(order: tuple[ColumnElement[Any], ...], mark: Mark, *, forwards: bool) -> ColumnElement[bool]:
    """What comes after the mark, column by column."""
    steps: list[ColumnElement[bool]] = []
    for place, column in enumerate(order):
        same = [other == at for other, at in zip(order[:place], mark, strict=False)]
        steps.append(and_(*same, column > mark[place] if forwards else column < mark[place]))
    return or_(*steps)
