"""Rows of workflows, and the deltas that their snapshots lack."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, false, literal_column, or_, select, union_all

from queuety.model import WorkflowStatus
from queuety.store.queries import Record
from queuety.store.schema import Tables

AT_ONCE = 200
"""Runs whose deltas are read in one statement: SQLite allows an expression to be a thousand deep."""

IDS_AT_ONCE = 1_000
"""Ids that are asked for in one statement."""

LARGEST_ID = 2**63 - 1


def found(connection: Connection, tables: Tables, workflow_id: int) -> Record | None:
    """The row of this workflow, or None."""
    return connection.execute(_rows(tables).where(tables.workflows.c.id == workflow_id)).mappings().one_or_none()


def standing(connection: Connection, tables: Tables, workflow_id: int) -> Record | None:
    """`id`, `name`, `status`, `version` and `definition_hash` of this workflow, or None; no text of any length."""
    columns = tables.workflows.c
    query = select(columns.id, columns.name, columns.status, columns.version, columns.definition_hash)
    return connection.execute(query.where(columns.id == workflow_id)).mappings().one_or_none()


@dataclass(frozen=True, slots=True)
class Match:
    """Which runs are meant; every condition that is not None must be met. Times are those of their creation.

    Of `statuses`, which are not empty, a run has one.
    """

    statuses: tuple[str, ...] | None = None
    name: str | None = None
    parent_id: int | None = None
    tag: str | None = None
    error_kind: str | None = None
    since_us: int | None = None
    until_us: int | None = None


def newest(connection: Connection, tables: Tables, match: Match, *, before_id: int | None, limit: int) -> list[Record]:
    """The rows that match, newest first, at most `limit`.

    With a tag it reads the end of that tag's range, with a parent or a status that of `workflows_parent` or
    `workflows_status`, else the end of the primary key; rows are passed over for the rest.
    """
    query = _matching(_rows(tables), tables, match, before_id=before_id, limit=limit)
    return list(connection.execute(query).mappings())


def newest_ids(connection: Connection, tables: Tables, match: Match, *, before_id: int | None, limit: int) -> list[int]:
    """The same, of which only the ids are read."""
    query = _matching(select(tables.workflows.c.id), tables, match, before_id=before_id, limit=limit)
    return list(connection.execute(query).scalars())


def _matching(query: Select[Any], tables: Tables, match: Match, *, before_id: int | None, limit: int) -> Select[Any]:
    table, tags = tables.workflows, tables.tags
    order: ColumnElement[Any] = table.c.id
    if match.tag is not None:
        # Ordered by the tag's own rows, which every database reads backwards: nothing is sorted.
        order = tags.c.workflow_id
        query = query.join(tags, tags.c.workflow_id == table.c.id).where(tags.c.tag == match.tag)
    if match.statuses is not None:
        only, *others = match.statuses
        # One alone is compared: then the index gives the runs in their order, and nothing is sorted.
        query = query.where(table.c.status.in_(match.statuses) if others else table.c.status == only)
    elif match.error_kind is not None:
        query = query.where(table.c.status.in_(_WITH_ERROR))
    if match.name is not None:
        query = query.where(table.c.name == match.name)
    if match.parent_id is not None:
        is_id = 0 < match.parent_id <= LARGEST_ID  # what has more bits a driver cannot even send
        query = query.where(table.c.parent_id == match.parent_id if is_id else false())
    if match.error_kind is not None:
        query = query.where(table.c.error_kind == match.error_kind)
    if match.since_us is not None:
        query = query.where(table.c.created_us >= match.since_us)
    if match.until_us is not None:
        query = query.where(table.c.created_us <= match.until_us)
    if before_id is not None:
        query = query.where(order < min(before_id, LARGEST_ID))
    return query.order_by(order.desc()).limit(limit)


_WITH_ERROR = (WorkflowStatus.FAILED.value, WorkflowStatus.CANCELLED.value)
"""Statuses of runs that may say what they have failed with: a cancelled one keeps it."""


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


@dataclass(slots=True)
class Words:
    """The tags of a run, and the names of what it has put aside; in no particular order."""

    tags: list[str] = field(default_factory=list)
    artifacts: list[str] = field(default_factory=list)


def words(connection: Connection, tables: Tables, ids: Collection[int]) -> dict[int, Words]:
    """The words of each of these runs that has any, in one statement for every `IDS_AT_ONCE`."""
    tags, artifacts = tables.tags.c, tables.artifacts.c
    found: dict[int, Words] = {}
    for some in batched(ids):
        of_tags = select(tags.workflow_id, literal_column("1").label("is_tag"), tags.tag.label("word"))
        of_artifacts = select(artifacts.workflow_id, literal_column("0").label("is_tag"), artifacts.name.label("word"))
        both = union_all(of_tags.where(tags.workflow_id.in_(some)), of_artifacts.where(artifacts.workflow_id.in_(some)))
        for run_id, is_tag, word in connection.execute(both):
            own = found.setdefault(run_id, Words())
            (own.tags if is_tag else own.artifacts).append(word)
    return found


def batched(ids: Collection[int]) -> Iterator[list[int]]:
    """The ids in ascending order, `IDS_AT_ONCE` at a time."""
    pending = iter(sorted(set(ids)))
    while some := list(islice(pending, IDS_AT_ONCE)):
        yield some


def deltas(
    connection: Connection, tables: Tables, spans: Mapping[int, tuple[int, int]]
) -> dict[int, list[tuple[str | None, str | None]]]:
    """What each run has set and removed after the first version given, up to the second, in order; JSON texts.

    Left out are those of which the first row is gone: a history is pruned, and purged, from its start.
    """
    table = tables.history
    is_change = or_(table.c.changed.is_not(None), table.c.removed.is_not(None))
    found: dict[int, list[tuple[str | None, str | None]]] = {}
    pending = iter(sorted(spans.items()))
    while some := list(islice(pending, AT_ONCE)):
        ranges = (and_(table.c.run_id == run, table.c.seq > after, table.c.seq <= upto) for run, (after, upto) in some)
        firsts = (and_(table.c.run_id == run, table.c.seq == after + 1) for run, (after, _) in some)
        query = (
            select(table.c.run_id, table.c.seq, table.c.changed, table.c.removed)
            .where(or_(*ranges), or_(is_change, *firsts))
            .order_by(table.c.run_id, table.c.seq)
        )
        for row in connection.execute(query):
            if row.seq == spans[row.run_id][0] + 1:
                found[row.run_id] = []
            if row.run_id in found:
                found[row.run_id].append((row.changed, row.removed))
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
        columns.transitions,
        columns.ledger,
        columns.deadline_us,
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
