"""What a database holds, to be compared: nothing was written, or only what may be."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from queuety.store.door import Door

Contents = dict[str, list[tuple[Any, ...]]]


def contents(door: Door, *, without: tuple[str, ...] = ("ids", "definitions", "workers")) -> Contents:
    """Every row of every table, by the table's name without the prefix; ids that were only drawn are no content."""
    tables = door.tables
    with door.reading() as connection:
        found: Contents = {}
        for table in tables.metadata.sorted_tables:
            name = table.name.removeprefix(tables.prefix)
            if name not in without:
                rows = connection.execute(select(table).order_by(*table.primary_key.columns))
                found[name] = [tuple(row) for row in rows]
        return found
