"""What runs were like at a row of their history: states that are kept, deltas between, definitions that they had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import Connection, and_, func, or_, select

from queuety.model import Entry
from queuety.store.queries import Record
from queuety.store.queries.workflows import AT_ONCE
from queuety.store.schema import Tables

_SETTLING = [entry.value for entry in Entry if entry.settles]


@dataclass(frozen=True, slots=True)
class Kept:
    """A state as JSON text, and the row that it is as of; 0 is the start."""

    seq: int
    text: str


def kept_below(connection: Connection, tables: Tables, run_id: int, seq: int) -> Kept | None:
    """The state that is kept nearest to this row, at or below it; None if rows in between were pruned.

    With a checkpoint after every 256 settled steps there are few deltas between.
    """
    table, history = tables.checkpoints, tables.history
    nearest = (
        select(table.c.seq, table.c.state)
        .where(table.c.run_id == run_id, table.c.seq <= seq)
        .order_by(table.c.seq.desc())
        .limit(1)
    )
    found = connection.execute(nearest).one_or_none()
    if found is not None:
        return Kept(found.seq, found.state)
    if seq > 0:
        first = connection.execute(select(func.min(history.c.seq)).where(history.c.run_id == run_id)).scalar_one()
        if first is None or first > 1:
            return None
    payload = select(tables.workflows.c.payload).where(tables.workflows.c.id == run_id)
    text = connection.execute(payload).scalar_one_or_none()
    return None if text is None else Kept(0, text)


def deltas(connection: Connection, tables: Tables, run_id: int, *, after_seq: int, upto_seq: int) -> list[Record]:
    """The rows in between that have changed the state, in order.

    As `seq`, `entry`, `visit`, `at_us`, `changed` and `removed`.
    """
    columns = tables.history.c
    changes = or_(and_(columns.changed.is_not(None), columns.changed != "{}"), columns.removed.is_not(None))
    query = (
        select(columns.seq, columns.entry, columns.visit, columns.at_us, columns.changed, columns.removed)
        .where(columns.run_id == run_id, columns.seq > after_seq, columns.seq <= upto_seq, changes)
        .order_by(columns.seq)
    )
    return list(connection.execute(query).mappings())


def before_visit(connection: Connection, tables: Tables, run_id: int, *, seq: int, visit: int) -> int:
    """The last row before this one that belongs to an earlier visit; where none is left, the one before the first.

    It reads the visit's rows backwards.
    """
    columns = tables.history.c
    earlier = (
        select(columns.seq)
        .where(columns.run_id == run_id, columns.seq < seq, columns.visit < visit)
        .order_by(columns.seq.desc())
        .limit(1)
    )
    found: int | None = connection.execute(earlier).scalar_one_or_none()
    if found is not None:
        return found
    first: int | None = connection.execute(select(func.min(columns.seq)).where(columns.run_id == run_id)).scalar_one()
    return 0 if first is None else min(first, seq) - 1


def last_attempt(connection: Connection, tables: Tables, run_id: int, *, before_seq: int) -> Record | None:
    """`seq`, `visit` and `started_us` of the last attempt at a step whose row stands before this one."""
    columns = tables.history.c
    query = (
        select(columns.seq, columns.visit, columns.started_us)
        .where(
            columns.run_id == run_id,
            columns.seq < before_seq,
            columns.started_us.is_not(None),
            columns.step_index.is_not(None),
            columns.entry.not_in(_NO_ATTEMPT),
        )
        .order_by(columns.seq.desc())
        .limit(1)
    )
    return connection.execute(query).mappings().one_or_none()


_NO_ATTEMPT = [Entry.NOTED.value, Entry.CLEANED.value, Entry.UNCLEANED.value]
"""Entries that tell of no attempt at a step, or that nobody is told of."""


def migrations(connection: Connection, tables: Tables, firsts: Mapping[int, int]) -> list[Record]:
    """Where these runs have changed their definition, each from the row given for it on: `run_id`, `seq`, `control`.

    It reads their rows from there to their ends.
    """
    columns = tables.history.c
    found: list[Record] = []
    pending = iter(sorted(firsts.items()))
    while some := list(islice(pending, AT_ONCE)):
        ranges = (and_(columns.run_id == run_id, columns.seq >= seq) for run_id, seq in some)
        query = select(columns.run_id, columns.seq, columns.control).where(
            columns.entry == Entry.MIGRATED.value, or_(*ranges)
        )
        found += connection.execute(query).mappings()
    return found


def last_settled(
    connection: Connection, tables: Tables, run_id: int, step_index: int | None, *, before_seq: int | None
) -> Record | None:
    """The last row before this one that left the step, or where the run changed its definition if that was later.

    As `seq`, `entry` and `control`; without an index only such changes are looked for. It reads the run's rows from
    there backwards.
    """
    columns = tables.history.c
    looked_for = columns.entry == Entry.MIGRATED.value
    if step_index is not None:
        looked_for = or_(looked_for, and_(columns.step_index == step_index, columns.entry.in_(_SETTLING)))
    query = (
        select(columns.seq, columns.entry, columns.control)
        .where(columns.run_id == run_id, looked_for)
        .order_by(columns.seq.desc())
        .limit(1)
    )
    if before_seq is not None:
        query = query.where(columns.seq < before_seq)
    return connection.execute(query).mappings().one_or_none()
