"""All that is kept of one run, table by table. Several statements: the caller's transaction makes them one moment."""

from __future__ import annotations

from typing import Any, TypeAlias

from sqlalchemy import Connection, Select, Table, select

from queuety.model import LetterKind
from queuety.store.schema import Tables

Row: TypeAlias = dict[str, Any]
"""A whole row by the names of its columns."""

_OWN = (LetterKind.TIMER.value, LetterKind.DEADLINE.value)
"""Letters that a run writes to itself; others' say what is read from those runs."""


def run(connection: Connection, tables: Tables, workflow_id: int) -> Row | None:
    """The whole row of the run, or None."""
    table = tables.workflows
    return next(iter(_rows(connection, select(table).where(table.c.id == workflow_id))), None)


def history(connection: Connection, tables: Tables, workflow_id: int) -> list[Row]:
    """The rows of its history, oldest first."""
    return _of(connection, tables.history, "run_id", workflow_id)


def checkpoints(connection: Connection, tables: Tables, workflow_id: int, *, from_seq: int) -> list[Row]:
    """Its states as of history rows from this one on, oldest first."""
    table = tables.checkpoints
    query = select(table).where(table.c.run_id == workflow_id, table.c.seq >= from_seq).order_by(table.c.seq)
    return _rows(connection, query)


def jobs(connection: Connection, tables: Tables, workflow_id: int) -> list[Row]:
    """Its jobs that are open, or closed and kept; those of steps that have completed stand in the history."""
    return _of(connection, tables.jobs, "workflow_id", workflow_id)


def signals(connection: Connection, tables: Tables, workflow_id: int) -> list[Row]:
    """The signals that no wait has used, in order of arrival."""
    return _of(connection, tables.signals, "workflow_id", workflow_id)


def groups(connection: Connection, tables: Tables, workflow_id: int) -> list[Row]:
    """The runs that it has started under a name."""
    return _of(connection, tables.groups, "workflow_id", workflow_id)


def chunks(connection: Connection, tables: Tables, workflow_id: int) -> list[Row]:
    """What its streaming steps have yielded that are not settled."""
    return _of(connection, tables.chunks, "workflow_id", workflow_id)


def artifacts(connection: Connection, tables: Tables, workflow_id: int) -> list[Row]:
    """What it has put aside, with the content."""
    return _of(connection, tables.artifacts, "workflow_id", workflow_id)


def tags(connection: Connection, tables: Tables, workflow_id: int) -> list[str]:
    """Its tags, sorted."""
    return [row["tag"] for row in _of(connection, tables.tags, "workflow_id", workflow_id)]


def timers(connection: Connection, tables: Tables, workflow_id: int) -> list[Row]:
    """What it has asked to hear of at some time, the earliest first."""
    table = tables.inbox
    query = select(table).where(table.c.workflow_id == workflow_id, table.c.kind.in_(_OWN))
    return _rows(connection, query.order_by(table.c.due_us, table.c.id))


def _of(connection: Connection, table: Table, column: str, workflow_id: int) -> list[Row]:
    """The rows of one run, in the order of the key."""
    return _rows(connection, select(table).where(table.c[column] == workflow_id).order_by(*table.primary_key.columns))


def _rows(connection: Connection, query: Select[Any]) -> list[Row]:
    return [row._asdict() for row in connection.execute(query)]
