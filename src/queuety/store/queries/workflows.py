"""Rows of workflows, and the deltas that their snapshots lack."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from sqlalchemy import Connection, Select, and_, or_, select

from queuety.store.queries import Record
from queuety.store.schema import Tables

AT_ONCE = 200
"""Runs whose deltas are read in one statement: SQLite allows an expression to be a thousand deep."""

IDS_AT_ONCE = 1_000
"""Ids that are asked for in one statement."""


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


def statuses(connection: Connection, tables: Tables, ids: Collection[int]) -> dict[int, str]:
    """How each of these runs stands; what is not there is left out. One statement for every `IDS_AT_ONCE`."""
    table = tables.workflows
    found: dict[int, str] = {}
    for some in batched(ids):
        rows = connection.execute(select(table.c.id, table.c.status).where(table.c.id.in_(some)))
        found.update((row.id, row.status) for row in rows)
    return found


def named(connection: Connection, tables: Tables, ids: Collection[int]) -> list[Record]:
    """`id`, `name` and `status` of each of these runs that is there, in order of their ids."""
    table = tables.workflows
    found: list[Record] = []
    for some in batched(ids):
        query = select(table.c.id, table.c.name, table.c.status).where(table.c.id.in_(some)).order_by(table.c.id)
        found += connection.execute(query).mappings()
    return found


def batched(ids: Collection[int]) -> Iterator[list[int]]:
    """The ids in ascending order, `IDS_AT_ONCE` at a time."""
    pending = iter(sorted(set(ids)))
    while some := list(islice(pending, IDS_AT_ONCE)):
        yield some


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
    """What a person is told of a workflow, and what its present visit keeps; not its payload."""
    columns = tables.workflows.c
    return select(
        columns.id,
        columns.name,
        columns.definition_hash,
        columns.status,
        columns.version,
        columns.visit,
        columns.runtime,
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
