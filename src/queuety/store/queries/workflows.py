"""Rows of workflows, and the deltas that their snapshots lack."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from sqlalchemy import Connection, Select, and_, or_, select

from queuety.store.queries import Record
from queuety.store.schema import Tables

AT_ONCE = 200
"""Runs whose deltas are read in one statement: SQLite allows an expression to be a thousand deep."""


def found(connection: Connection, tables: Tables, workflow_id: int) -> Record | None:
    """The row of this workflow, or None."""
    return connection.execute(_rows(tables).where(tables.workflows.c.id == workflow_id)).mappings().one_or_none()


def newest(
    connection: Connection,
    tables: Tables,
    *,
    status: str | None,
    name: str | None,
    parent_id: int | None,
    before_id: int | None,
    limit: int,
) -> list[Record]:
    """The rows that meet every condition given, newest first, at most `limit`.

    With a status it reads the end of that status's range in `workflows_status`, else the end of the primary key; rows
    are passed over for their name or parent.
    """
    table = tables.workflows
    query = _rows(tables).order_by(table.c.id.desc()).limit(limit)
    if status is not None:
        query = query.where(table.c.status == status)
    if name is not None:
        query = query.where(table.c.name == name)
    if parent_id is not None:
        query = query.where(table.c.parent_id == parent_id)
    if before_id is not None:
        query = query.where(table.c.id < before_id)
    return list(connection.execute(query).mappings())


def deltas(
    connection: Connection, tables: Tables, spans: Mapping[int, tuple[int, int]]
) -> dict[int, list[tuple[str | None, str | None]]]:
    """What each run has set and removed after the first version given, up to the second, in order; JSON texts."""
    table = tables.history
    found: dict[int, list[tuple[str | None, str | None]]] = {}
    pending = iter(sorted(spans.items()))
    while some := list(islice(pending, AT_ONCE)):
        ranges = (and_(table.c.run_id == run, table.c.seq > after, table.c.seq <= upto) for run, (after, upto) in some)
        query = (
            select(table.c.run_id, table.c.changed, table.c.removed)
            .where(or_(*ranges), or_(table.c.changed.is_not(None), table.c.removed.is_not(None)))
            .order_by(table.c.run_id, table.c.seq)
        )
        for row in connection.execute(query):
            found.setdefault(row.run_id, []).append((row.changed, row.removed))
    return found


def _rows(tables: Tables) -> Select[tuple[object, ...]]:
    """All that a person is told of a workflow; not its payload, nor what the engine keeps for itself."""
    columns = tables.workflows.c
    return select(
        columns.id,
        columns.name,
        columns.definition_hash,
        columns.status,
        columns.version,
        columns.current_step,
        columns.total_steps,
        columns.state,
        columns.state_version,
        columns.parent_id,
        columns.parent_step,
        columns.idempotency_key,
        columns.error_message,
        columns.error_kind,
        columns.failed_step,
        columns.cleanup,
        columns.created_us,
        columns.completed_us,
        columns.failed_us,
        columns.cancelled_us,
    )
