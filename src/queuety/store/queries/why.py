"""What stands in the way of one run or one job."""

from __future__ import annotations

from sqlalchemy import Connection, and_, func, literal_column, or_, select, text

from queuety.model import JobPhase, LetterKind, Role
from queuety.store.queries import Record, Tally, tally
from queuety.store.queries.health import OPEN
from queuety.store.queries.jobs import rows
from queuety.store.schema import LOOKED_FOR, Tables

_OPEN = [phase.value for phase in OPEN]


def open_jobs(connection: Connection, tables: Tables, workflow_id: int, role: Role, *, limit: int) -> list[Record]:
    """The open jobs of a run in this role, by their branches; those that no worker runs at the moment stand first."""
    table = tables.jobs
    query = (
        rows(tables)
        .where(table.c.workflow_id == workflow_id, table.c.role == role.value, table.c.phase.in_(_OPEN))
        .order_by(table.c.phase == JobPhase.LEASED.value, table.c.branch, table.c.id)
        .limit(limit)
    )
    return list(connection.execute(query).mappings())


def phases(connection: Connection, tables: Tables, workflow_id: int) -> dict[str, int]:
    """How many of a run's steps' jobs are open, by phase."""
    table = tables.jobs
    query = (
        select(table.c.phase, func.count().label("many"))
        .where(table.c.workflow_id == workflow_id, table.c.role == Role.STEP.value, table.c.phase.in_(_OPEN))
        .group_by(table.c.phase)
    )
    return {row.phase: int(row.many) for row in connection.execute(query)}


def ahead(connection: Connection, tables: Tables, job: Record, *, cap: int) -> Tally:
    """How many jobs of the same queue and phase are claimed before this one."""
    table = tables.jobs
    rank, due_us, id_ = job["priority_rank"], job["due_us"], job["id"]
    is_before = or_(
        table.c.priority_rank < rank,
        and_(table.c.priority_rank == rank, table.c.due_us < due_us),
        and_(table.c.priority_rank == rank, table.c.due_us == due_us, table.c.id < id_),
    )
    phase = JobPhase(job["phase"]).value
    same = (table.c.phase == literal_column(f"'{phase}'"), text(LOOKED_FOR), table.c.queue == job["queue"])
    return tally(connection, table, *same, is_before, cap=cap)


def first_letter(connection: Connection, tables: Tables, workflow_id: int, *, moving: bool = False) -> Record | None:
    """`kind` and `due_us` of the letter or timer that comes due first for the run, or None.

    With `moving` a deadline is none: it ends a run that stands still, and does not move it.
    """
    table = tables.inbox
    query = (
        select(table.c.kind, table.c.due_us)
        .where(table.c.workflow_id == workflow_id)
        .order_by(table.c.due_us, table.c.id)
        .limit(1)
    )
    if moving:
        query = query.where(table.c.kind != LetterKind.DEADLINE.value)
    return connection.execute(query).mappings().one_or_none()


def has_letter(connection: Connection, tables: Tables, workflow_id: int, kind: LetterKind) -> bool:
    """Whether a letter of this kind lies in the run's inbox."""
    table = tables.inbox
    query = select(table.c.id).where(table.c.workflow_id == workflow_id, table.c.kind == kind.value).limit(1)
    return connection.execute(query).first() is not None


def unused_signals(connection: Connection, tables: Tables, workflow_id: int) -> dict[str, int]:
    """How many signals the run has been sent that no wait has used, by their names."""
    table = tables.signals
    query = (
        select(table.c.name, func.count().label("many"))
        .where(table.c.workflow_id == workflow_id)
        .group_by(table.c.name)
    )
    return {row.name: int(row.many) for row in connection.execute(query)}
