"""The texts of definitions."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, select

from queuety.store.schema import Tables

AT_ONCE = 500
"""How many hashes are asked for in one statement."""


def bodies(connection: Connection, tables: Tables, hashes: Collection[str]) -> dict[str, str]:
    """The JSON text of each of these definitions by its hash; what is not there is left out."""
    table = tables.definitions
    wanted = sorted(set(hashes))
    found: dict[str, str] = {}
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        rows = connection.execute(select(table.c.hash, table.c.body).where(table.c.hash.in_(some)))
        found.update((row.hash, row.body) for row in rows)
    return found


def all_bodies(connection: Connection, tables: Tables) -> dict[str, str]:
    """The JSON text of every definition by its hash: one per version of a workflow that was ever dispatched."""
    table = tables.definitions
    return {row.hash: row.body for row in connection.execute(select(table.c.hash, table.c.body))}


def names(connection: Connection, tables: Tables) -> dict[str, str]:
    """The workflow's name that each definition has, by its hash."""
    table = tables.definitions
    return {row.hash: row.name for row in connection.execute(select(table.c.hash, table.c.name))}
