"""What a picture of a run is drawn from: counts over its history, made by the database, however long it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, and_, case, func, not_, select

from queuety.model import Entry
from queuety.store.queries import Record
from queuety.store.schema import Tables

Span = tuple[int, int]
"""Rows of a run's history after the first `seq` and up to the second."""

SETTLING = tuple(entry.value for entry in Entry if entry.settles)
_PARTS = (Entry.BRANCH.value, Entry.ITEM.value)
_COUNTED = (*SETTLING, *_PARTS, Entry.FAILED.value, Entry.CLEANED.value, Entry.UNCLEANED.value)
_TURNS = (Entry.REWOUND.value, Entry.MIGRATED.value)


def run(connection: Connection, tables: Tables, run_id: int) -> Record | None:
    """Where the run stands, without its state; None if there is none."""
    columns = tables.workflows.c
    query = select(
        columns.id,
        columns.name,
        columns.definition_hash,
        columns.status,
        columns.visit,
        columns.current_step,
        columns.runtime,
        columns.loops,
        columns.failed_step,
        columns.cleanup,
        columns.error_message,
    ).where(columns.id == run_id)
    return connection.execute(query).mappings().one_or_none()


def turns(connection: Connection, tables: Tables, run_id: int) -> list[Record]:
    """`seq`, `entry` and `control` of the first row that is left, and of those that went back or to another definition,
    oldest first. It reads the run's rows."""
    columns = tables.history.c
    first = select(func.min(columns.seq)).where(columns.run_id == run_id).scalar_subquery()
    query = (
        select(columns.seq, columns.entry, columns.step_index, columns.control)
        .where(columns.run_id == run_id, (columns.seq == first) | columns.entry.in_(_TURNS))
        .order_by(columns.seq)
    )
    return list(connection.execute(query).mappings())


def counts(
    connection: Connection, tables: Tables, run_id: int, *, visit: int, within: Span, without: Sequence[Span]
) -> list[Record]:
    """How many rows there are of each step and entry: `step_index`, `entry`, `many`, the first and last `seq`, the
    highest `attempt` of this visit, and how many are final. Rows in `without` are left out."""
    columns = tables.history.c
    query = (
        select(
            columns.step_index,
            columns.entry,
            func.count().label("many"),
            func.min(columns.seq).label("first"),
            func.max(columns.seq).label("last"),
            func.max(case((columns.visit == visit, columns.attempt))).label("attempt"),
            func.sum(columns.final).label("final"),
        )
        .where(
            columns.run_id == run_id,
            columns.step_index.is_not(None),
            columns.entry.in_(_COUNTED),
            *_among(columns.seq, within, without),
        )
        .group_by(columns.step_index, columns.entry)
    )
    return list(connection.execute(query).mappings())


def moves(
    connection: Connection, tables: Tables, run_id: int, *, within: Span, without: Sequence[Span]
) -> list[tuple[int, int, int]]:
    """How often one step was settled right after another: (step, the step settled next, count)."""
    columns = tables.history.c
    following = func.lead(columns.step_index).over(order_by=columns.seq).label("following")
    settled = (
        select(columns.step_index, following)
        .where(
            columns.run_id == run_id,
            columns.step_index.is_not(None),
            columns.entry.in_(SETTLING),
            *_among(columns.seq, within, without),
        )
        .subquery()
    )
    query = (
        select(settled.c.step_index, settled.c.following, func.count())
        .where(settled.c.following.is_not(None))
        .group_by(settled.c.step_index, settled.c.following)
    )
    return [(int(row[0]), int(row[1]), int(row[2])) for row in connection.execute(query)]


def cleaned(connection: Connection, tables: Tables, run_id: int, *, limit: int) -> list[Record]:
    """`entry`, `control` and `final` of the attempts to run the run's own handlers after its end, newest first."""
    columns = tables.history.c
    query = (
        select(columns.entry, columns.control, columns.final)
        .where(
            columns.run_id == run_id,
            columns.step_index.is_(None),
            columns.entry.in_((Entry.CLEANED.value, Entry.UNCLEANED.value)),
        )
        .order_by(columns.seq.desc())
        .limit(limit)
    )
    return list(connection.execute(query).mappings())


def children(connection: Connection, tables: Tables, run_id: int) -> list[Record]:
    """`id`, `status` and `parent_step` of the latest child that each step of the run has run."""
    columns = tables.workflows.c
    latest = (
        select(func.max(columns.id).label("id"))
        .where(columns.parent_id == run_id)
        .group_by(columns.parent_step)
        .subquery()
    )
    query = select(columns.id, columns.status, columns.parent_step).join(latest, latest.c.id == columns.id)
    return list(connection.execute(query.order_by(columns.parent_step)).mappings())


def _among(seq: ColumnElement[int], within: Span, without: Iterable[Span]) -> list[ColumnElement[bool]]:
    after, upto = within
    return [seq > after, seq <= upto, *(not_(and_(seq > low, seq <= high)) for low, high in without)]
