"""The versions of a workflow's definition, and where the runs stand that are under them and not over."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, Select, func, select

from queuety.model import JobPhase, Role, WorkflowStatus
from queuety.model.needs import OpenJobs
from queuety.store.queries import Record
from queuety.store.queries.workflows import batched
from queuety.store.schema import Tables

OPEN: Final = tuple(
    status.value for status in WorkflowStatus if status not in (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED)
)
"""How runs stand that may go on: one that has failed can be retried."""

_READY: Final = (JobPhase.READY.value, JobPhase.SUSPECT.value)


def versions(connection: Connection, tables: Tables, name: str) -> list[Record]:
    """Every definition of this name, the one stored last first. The table has a row per version of any workflow."""
    table = tables.definitions
    query = select(table.c.hash, table.c.version, table.c.created_us, table.c.body).where(table.c.name == name)
    return list(connection.execute(query.order_by(table.c.created_us.desc(), table.c.hash)).mappings())


def name_of(connection: Connection, tables: Tables, definition_hash: str) -> str | None:
    """The name of the workflow that this definition is one of, or None if there is no such definition."""
    table = tables.definitions
    found: str | None = connection.execute(select(table.c.name).where(table.c.hash == definition_hash)).scalar()
    return found


def open_counts(connection: Connection, tables: Tables, hashes: Collection[str], *, cap: int) -> dict[str, int]:
    """How many open runs are under each of these definitions; `cap` of them are counted in all.

    Reads the rows of `workflows_status` that are open, whatever they do.
    """
    table = tables.workflows
    some = (
        select(table.c.definition_hash)
        .where(table.c.status.in_(OPEN), table.c.definition_hash.in_(sorted(hashes)))
        .limit(cap)
        .subquery()
    )
    query = select(some.c.definition_hash, func.count()).group_by(some.c.definition_hash)
    return {str(row[0]): int(row[1]) for row in connection.execute(query)}


def open_runs(
    connection: Connection, tables: Tables, hashes: Collection[str], *, after_id: int = 0, limit: int
) -> list[Record]:
    """The open runs under these definitions with higher ids, the oldest first, at most `limit`: where they stand.

    Each status is read by itself, in the order of `workflows_status`.
    """
    table = tables.workflows
    found: list[Record] = []
    for status in OPEN:
        query = (
            _rows(tables)
            .where(table.c.status == status, table.c.id > after_id, table.c.definition_hash.in_(sorted(hashes)))
            .order_by(table.c.id)
            .limit(limit)
        )
        found += connection.execute(query).mappings()
    return sorted(found, key=lambda row: int(row["id"]))[:limit]


def runs(connection: Connection, tables: Tables, ids: Collection[int]) -> list[Record]:
    """Where these runs stand, over or not, in order of their ids; what is not there is left out."""
    table = tables.workflows
    found: list[Record] = []
    for some in batched(ids):
        found += connection.execute(_rows(tables).where(table.c.id.in_(some)).order_by(table.c.id)).mappings()
    return found


def open_jobs(connection: Connection, tables: Tables, ids: Collection[int]) -> dict[int, OpenJobs]:
    """How many jobs of their steps these runs have open; those that have none are left out."""
    table = tables.jobs
    counts: dict[int, dict[str, int]] = {}
    phases = (JobPhase.LEASED.value, JobPhase.DELAYED.value, *_READY)
    for some in batched(ids):
        query = (
            select(table.c.workflow_id, table.c.phase, func.count())
            .where(table.c.workflow_id.in_(some), table.c.role == Role.STEP.value, table.c.phase.in_(phases))
            .group_by(table.c.workflow_id, table.c.phase)
        )
        for workflow_id, phase, count in connection.execute(query):
            counts.setdefault(workflow_id, {})[phase] = int(count)
    return {
        workflow_id: OpenJobs(
            leased=own.get(JobPhase.LEASED.value, 0),
            delayed=own.get(JobPhase.DELAYED.value, 0),
            ready=sum(own.get(phase, 0) for phase in _READY),
        )
        for workflow_id, own in counts.items()
    }


def control_of(connection: Connection, tables: Tables, run_id: int, token: int) -> str | None:
    """The JSON text of `control` in the row that this operation has written; None if there is no such row."""
    table = tables.history
    query = select(table.c.control).where(table.c.run_id == run_id, table.c.token == token).limit(1)
    found: str | None = connection.execute(query).scalar()
    return found


def _rows(tables: Tables) -> Select[tuple[object, ...]]:
    """Where a run stands, without what it has in its state."""
    columns = tables.workflows.c
    return select(
        columns.id,
        columns.name,
        columns.definition_hash,
        columns.status,
        columns.version,
        columns.visit,
        columns.current_step,
        columns.total_steps,
        columns.runtime,
        columns.loops,
        columns.ledger,
        columns.cleanup,
        columns.created_us,
        columns.deadline_us,
    )
