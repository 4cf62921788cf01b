"""What is kept beside a run, for a look at all of it: artifacts, chunks, signals."""

from __future__ import annotations

from sqlalchemy import Connection, select

from queuety.model import Entry
from queuety.store.queries import Record
from queuety.store.schema import Tables


def artifacts(connection: Connection, tables: Tables, workflow_id: int) -> list[Record]:
    """What the run has put aside, by name, without the content."""
    columns = tables.artifacts.c
    query = (
        select(
            columns.name,
            columns.kind,
            columns.metadata,
            columns.step_index,
            columns.created_us,
            columns.updated_us,
        )
        .where(columns.workflow_id == workflow_id)
        .order_by(columns.name)
    )
    return list(connection.execute(query).mappings())


def chunks(connection: Connection, tables: Tables, workflow_id: int) -> list[Record]:
    """What streaming steps of the run have yielded that are not settled, in order."""
    table = tables.chunks
    query = (
        select(table.c.visit, table.c.branch, table.c.number, table.c.content, table.c.at_us)
        .where(table.c.workflow_id == workflow_id)
        .order_by(table.c.visit, table.c.branch, table.c.number)
    )
    return list(connection.execute(query).mappings())


def arrivals(connection: Connection, tables: Tables, workflow_id: int) -> list[Record]:
    """The rows of the history that tell of a signal, in order: `seq`, `at_us` and `control`."""
    columns = tables.history.c
    query = (
        select(columns.seq, columns.at_us, columns.control)
        .where(columns.run_id == workflow_id, columns.entry == Entry.SIGNALLED.value)
        .order_by(columns.seq)
    )
    return list(connection.execute(query).mappings())


def unused_signals(connection: Connection, tables: Tables, workflow_id: int) -> list[Record]:
    """The signals that no wait has used, in order: `seq`, `name`, `payload` and `at_us`."""
    columns = tables.signals.c
    query = (
        select(columns.seq, columns.name, columns.payload, columns.at_us)
        .where(columns.workflow_id == workflow_id)
        .order_by(columns.seq)
    )
    return list(connection.execute(query).mappings())
