"""What shows how a database's work is getting on. Every read is the edge or a capped range of an index.

Nothing reads finished rows, so it costs the same on a large database.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import (
    ColumnExpressionArgument,
    Connection,
    Subquery,
    Table,
    and_,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
)

from queuety.model import JobPhase, LetterKind, Role, WorkflowStatus
from queuety.store.queries import Record, Tally, tally
from queuety.store.queries.workflows import batched
from queuety.store.schema import LOOKED_FOR, Tables

OPEN = (JobPhase.READY, JobPhase.DELAYED, JobPhase.SUSPECT, JobPhase.LEASED)


def workers(connection: Connection, tables: Tables, *, limit: int) -> list[Record]:
    """The register of processes that run handlers, the last seen first."""
    table = tables.workers
    query = select(table).order_by(table.c.seen_us.desc(), table.c.id).limit(limit)
    return list(connection.execute(query).mappings())


def queues_in_phase(connection: Connection, tables: Tables, phase: JobPhase, *, limit: int) -> list[str]:
    """The names of the queues that have jobs ready, or suspects; in order, one read of the index per name."""
    table = tables.jobs
    found: list[str] = []
    while len(found) < limit:
        query = select(func.min(table.c.queue)).where(*_claimable(table, phase))
        if found:
            query = query.where(table.c.queue > found[-1])
        name = connection.execute(query).scalar_one()
        if name is None:
            break
        found.append(name)
    return found


def in_phase(connection: Connection, tables: Tables, phase: JobPhase, queue: str, *, cap: int) -> Tally:
    """How many jobs of this queue are ready, or suspects."""
    table = tables.jobs
    return tally(connection, table, *_claimable(table, phase), table.c.queue == queue, cap=cap)


def earliest_due(connection: Connection, tables: Tables, phase: JobPhase, queue: str) -> int | None:
    """Since when the longest waiting of them has been due (microseconds since the epoch); one read per priority."""
    table = tables.jobs
    edges = [
        select(func.min(table.c.due_us))
        .where(*_claimable(table, phase), table.c.queue == queue, table.c.priority_rank == rank)
        .scalar_subquery()
        for rank in range(4)
    ]
    return min((due_us for due_us in connection.execute(select(*edges)).one() if due_us is not None), default=None)


def next_delayed(connection: Connection, tables: Tables) -> int | None:
    """When the first delayed job comes due, or came due if nobody has looked since."""
    table = tables.jobs
    query = (
        select(table.c.wake_us)
        .where(table.c.wake_us.is_not(None), table.c.phase == JobPhase.DELAYED.value)
        .order_by(table.c.wake_us)
        .limit(1)
    )
    return connection.execute(query).scalar_one_or_none()


def late_queues(connection: Connection, tables: Tables, *, before_us: int, cap: int, limit: int) -> list[str]:
    """The queues of delayed jobs that had come due before then, among the first `cap` to be looked at; in order."""
    columns = _first(tables, until_us=before_us - 1, cap=cap).c
    query = (
        select(columns.queue)
        .where(columns.phase == JobPhase.DELAYED.value)
        .distinct()
        .order_by(columns.queue)
        .limit(limit)
    )
    return list(connection.execute(query).scalars())


def delayed(connection: Connection, tables: Tables, *, cap: int) -> Tally:
    """How many jobs are delayed."""
    table = tables.jobs
    return tally(connection, table, table.c.wake_us.is_not(None), table.c.phase == JobPhase.DELAYED.value, cap=cap)


def overdue_timers(connection: Connection, tables: Tables, *, before_us: int, cap: int) -> Tally:
    """How many timers and messages have been due since before then."""
    table = tables.inbox
    return tally(connection, table, table.c.due_us < before_us, cap=cap)


def next_timer(connection: Connection, tables: Tables) -> int | None:
    """When the first timer or message comes due, or came due."""
    due_us: int | None = connection.execute(select(func.min(tables.inbox.c.due_us))).scalar_one()
    return due_us


@dataclass(frozen=True, slots=True)
class Soon:
    """The first jobs that somebody must look at: leases by their end, put-off and delayed jobs by their due time.

    `overdue` are leases that had ended, `late` delayed jobs that had come due, before the moment that was asked about.
    """

    leased: Tally
    overdue: Tally
    late: Tally


def soon(connection: Connection, tables: Tables, *, until_us: int, overdue_us: int, cap: int) -> Soon:
    """How many are leased, overdue and late at `overdue_us`, of the first `cap` to be looked at by `until_us`."""
    rows = _first(tables, until_us=until_us, cap=cap)
    is_leased, is_delayed = rows.c.phase == JobPhase.LEASED.value, rows.c.phase == JobPhase.DELAYED.value
    is_over = rows.c.wake_us < overdue_us
    sums = [
        func.coalesce(func.sum(case((condition, 1), else_=0)), 0)
        for condition in (is_leased, and_(is_leased, is_over), and_(is_delayed, is_over))
    ]
    total, *counts = connection.execute(select(func.count(), *sums).select_from(rows)).one()
    leased, overdue, late = (Tally(int(count), is_exact=total < cap) for count in counts)
    return Soon(leased, overdue, late)


def unknown(connection: Connection, tables: Tables, *, until_us: int, cap: int, limit: int) -> list[Record]:
    """Handlers that no worker knew, of the first `cap` jobs that are to be looked at by `until_us`.

    As `handler`, `queue`, `jobs` (how many), `since_us`, `job_id` and `error_message` (of one of them).
    """
    jobs = tables.jobs
    columns = _first(tables, until_us=until_us, cap=cap).c
    groups = (
        select(
            columns.handler,
            columns.queue,
            func.count().label("jobs"),
            func.min(columns.unknown_since_us).label("since_us"),
            func.min(columns.id).label("job_id"),
        )
        .where(columns.unknown_since_us.is_not(None))
        .group_by(columns.handler, columns.queue)
        .subquery()
    )
    query = (
        select(groups, jobs.c.error_message)
        .join(jobs, jobs.c.id == groups.c.job_id)
        .order_by(groups.c.since_us, groups.c.job_id)
        .limit(limit)
    )
    return list(connection.execute(query).mappings())


def _first(tables: Tables, *, until_us: int, cap: int) -> Subquery:
    table = tables.jobs
    return (
        select(table.c.id, table.c.phase, table.c.handler, table.c.queue, table.c.wake_us, table.c.unknown_since_us)
        .where(table.c.wake_us.is_not(None), table.c.wake_us <= until_us)
        .order_by(table.c.wake_us)
        .limit(cap)
        .subquery()
    )


def buried(connection: Connection, tables: Tables, *, cap: int) -> Tally:
    """How many are buried among the first `cap` jobs that are; inexact if there are more.

    Not those of steps: their run tells of what has failed, and a run that did well buries items that it does not need.
    """
    table = tables.jobs
    is_told = case((or_(table.c.workflow_id.is_(None), table.c.role != Role.STEP.value), 1))
    some = select(is_told.label("told")).where(*_claimable(table, JobPhase.BURIED)).limit(cap + 1).subquery()
    seen, told = connection.execute(select(func.count(), func.count(some.c.told)).select_from(some)).one()
    return Tally(min(int(told), cap), is_exact=int(seen) <= cap)


def failed(connection: Connection, tables: Tables, *, cap: int) -> Tally:
    """How many workflows are failed."""
    table = tables.workflows
    return tally(connection, table, table.c.status == WorkflowStatus.FAILED.value, cap=cap)


def unmoved(
    connection: Connection,
    tables: Tables,
    status: WorkflowStatus,
    *,
    among: int,
    only: Collection[int] | None = None,
) -> list[Record]:
    """Runs of this status that have no open job, no timer and no letter, oldest first; with what they may wait for.

    Their deadline is none of these: it ends a run that stands still, and does not move it.

    As `id`, `version`, `definition_hash`, `current_step` and `runtime`. The oldest `among` are looked at, or `only`
    these. One statement, so a run between two steps is never mistaken for one that stands still.
    """
    table, jobs, inbox = tables.workflows, tables.jobs, tables.inbox
    some = select(table.c.id).where(table.c.status == status.value).order_by(table.c.id).limit(among)
    if only is not None:
        some = some.where(table.c.id.in_(sorted(only)))
    looked_at = some.subquery()
    has_job = exists().where(jobs.c.workflow_id == looked_at.c.id, jobs.c.phase.in_([phase.value for phase in OPEN]))
    has_letter = exists().where(inbox.c.workflow_id == looked_at.c.id, inbox.c.kind != LetterKind.DEADLINE.value)
    query = (
        select(table.c.id, table.c.version, table.c.definition_hash, table.c.current_step, table.c.runtime)
        .join(looked_at, looked_at.c.id == table.c.id)
        .where(~has_job, ~has_letter)
        .order_by(table.c.id)
    )
    return list(connection.execute(query).mappings())


def letters_to(
    connection: Connection, tables: Tables, ids: Collection[int], *, kind: LetterKind
) -> list[tuple[int, str | None]]:
    """The unopened letters of this kind to these runs, as (run, JSON text)."""
    table = tables.inbox
    found: list[tuple[int, str | None]] = []
    for some in batched(ids):
        query = select(table.c.workflow_id, table.c.body).where(
            table.c.workflow_id.in_(some), table.c.kind == kind.value
        )
        found += [(row.workflow_id, row.body) for row in connection.execute(query)]
    return found


def _claimable(table: Table, phase: JobPhase) -> tuple[ColumnExpressionArgument[bool], ColumnExpressionArgument[bool]]:
    """The condition of the claim's index; its text must stand there word for word (see `LOOKED_FOR`)."""
    return table.c.phase == literal_column(f"'{phase.value}'"), text(LOOKED_FOR)
