"""What streaming steps have yielded: rows of chunks while a step runs, its history row once it is settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from sqlalchemy import Connection, and_, func, or_, select

from queuety.store.queries import Record
from queuety.store.schema import Tables

ALONE = -1
"""The branch of a step that has only one job."""

BRANCHES_AT_ONCE = 200
"""Branches whose chunks are read in one statement."""

MOST = 2_000
"""How many chunks are read at a time."""


def position(connection: Connection, tables: Tables, workflow_id: int) -> Record | None:
    """`status`, `version` and `visit` of the run, or None."""
    columns = tables.workflows.c
    query = select(columns.status, columns.version, columns.visit).where(columns.id == workflow_id)
    return connection.execute(query).mappings().one_or_none()


def ahead(
    connection: Connection, tables: Tables, workflow_id: int, visit: int, known: Mapping[int, int]
) -> list[Record]:
    """The chunks of this visit beyond those that are known, as `branch`, `number` (from 0) and `content`.

    `known` is how many there were of a branch. They come branch by branch in the order of yielding, at most `MOST` for
    every `BRANCHES_AT_ONCE` branches. A step with one job costs the rows that are new; one with several the keys of all
    that it has yielded.
    """
    table = tables.chunks
    found: list[Record] = []
    pending = _behind(connection, tables, workflow_id, visit, known)
    while some := list(islice(pending, BRANCHES_AT_ONCE)):
        ranges = (and_(table.c.branch == branch, table.c.number >= number) for branch, number in some)
        query = (
            select(table.c.branch, table.c.number, table.c.content)
            .where(table.c.workflow_id == workflow_id, table.c.visit == visit, or_(*ranges))
            .order_by(table.c.branch, table.c.number)
            .limit(MOST)
        )
        found += connection.execute(query).mappings()
    return found


def _behind(
    connection: Connection, tables: Tables, workflow_id: int, visit: int, known: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """The branches that have something new, each with how many are known of it."""
    if ALONE in known:
        yield ALONE, known[ALONE]
        return
    table = tables.chunks
    query = (
        select(table.c.branch, func.max(table.c.number).label("latest"))
        .where(table.c.workflow_id == workflow_id, table.c.visit == visit)
        .group_by(table.c.branch)
        .order_by(table.c.branch)
    )
    for row in connection.execute(query).all():
        if row.latest >= known.get(row.branch, 0):
            yield row.branch, known.get(row.branch, 0)


def settled(connection: Connection, tables: Tables, workflow_id: int, *, after_seq: int, upto_seq: int) -> list[Record]:
    """`seq`, `visit`, `branch` and `control` of the rows in between that may keep chunks, in order; no other column."""
    table = tables.history
    query = (
        select(table.c.seq, table.c.visit, table.c.branch, table.c.control)
        .where(
            table.c.run_id == workflow_id,
            table.c.seq > after_seq,
            table.c.seq <= upto_seq,
            table.c.control.contains('"_chunks":', autoescape=True),
        )
        .order_by(table.c.seq)
    )
    return list(connection.execute(query).mappings())
