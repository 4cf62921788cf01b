"""Pausing queues. A paused queue's jobs stay where they are; `changes` tells workers that something is different."""

from __future__ import annotations

from queuety.store.door import Tx


def pause(tx: Tx, name: str) -> None:
    """Marks the queue as paused; pausing twice is pausing once."""
    _set(tx, name, tx.now_us())


def resume(tx: Tx, name: str) -> None:
    """Takes the mark away; resuming what is not paused changes nothing."""
    _set(tx, name, None)


def _set(tx: Tx, name: str, paused_us: int | None) -> None:
    p = tx.statements.parameter
    table = tx.tables.queues.name
    tx.cursor.execute(
        f"INSERT INTO {table} (name, paused_us, changes) VALUES ({p}, NULL, 0){tx.statements.bulk.or_leave('name')}",
        [name],
    )
    differs = "IS NOT NULL" if paused_us is None else "IS NULL"
    tx.cursor.execute(
        f"UPDATE {table} SET paused_us = {p}, changes = changes + 1 WHERE name = {p} AND paused_us {differs}",
        [paused_us, name],
    )
