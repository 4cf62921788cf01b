"""Definitions as rows: one per hash, never rewritten."""

from __future__ import annotations

from queuety.store.door import Tx


def body_of(tx: Tx, definition_hash: str) -> str | None:
    """The JSON text of the definition with this hash, or None."""
    p = tx.statements.parameter
    tx.cursor.execute(f"SELECT body FROM {tx.tables.definitions.name} WHERE hash = {p}", [definition_hash])
    row = tx.cursor.fetchone()
    return None if row is None else str(row[0])


def add(tx: Tx, *, definition_hash: str, name: str, version: str | None, body: str, now_us: int) -> None:
    """Adds the definition unless it is there."""
    if body_of(tx, definition_hash) is not None:
        return
    p = tx.statements.parameter
    tx.cursor.execute(
        f"INSERT INTO {tx.tables.definitions.name} (hash, name, version, body, created_us) "
        f"VALUES ({p}, {p}, {p}, {p}, {p}){tx.statements.bulk.or_leave('hash')}",
        [definition_hash, name, version, body, now_us],
    )
