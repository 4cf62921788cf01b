"""The register of processes that run handlers: for people, and to know who sleeps. No lease depends on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from queuety.codec import decode, encode
from queuety.store.door import Tx

COLUMNS = ("id", "host", "pid", "queues", "concurrency", "started_us", "seen_us", "sleeping")


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One process; `id` is its incarnation, `seen_us` when it last said that it lives."""

    id: int
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    started_us: int = 0
    seen_us: int = 0

    @classmethod
    def here(cls, owner: int, queues: Sequence[str], concurrency: int) -> WorkerRow:
        """This process."""
        return cls(owner, socket.gethostname()[:255], os.getpid(), tuple(queues), concurrency)


def enter(tx: Tx, row: WorkerRow) -> None:
    """Registers the process; entering twice is entering once."""
    leave(tx, row.id)
    p = tx.statements.parameter
    now_us = tx.now_us()
    tx.cursor.execute(
        f"INSERT INTO {tx.tables.workers.name} ({', '.join(COLUMNS)}) VALUES ({', '.join([p] * len(COLUMNS))})",
        [row.id, row.host, row.pid, encode(list(row.queues)), row.concurrency, now_us, now_us, 0],
    )


def leave(tx: Tx, owner: int) -> None:
    """Takes the process out of the register."""
    tx.cursor.execute(f"DELETE FROM {tx.tables.workers.name} WHERE id = {tx.statements.parameter}", [owner])


def set_sleeping(tx: Tx, owner: int, *, sleeping: bool) -> None:
    """Notes whether the process wants to be told of new work."""
    p = tx.statements.parameter
    tx.cursor.execute(
        f"UPDATE {tx.tables.workers.name} SET sleeping = {p} WHERE id = {p}", [1 if sleeping else 0, owner]
    )


def seen(tx: Tx, owners: Collection[int]) -> None:
    """Notes that these processes live."""
    for owner in sorted(owners):
        p = tx.statements.parameter
        tx.cursor.execute(f"UPDATE {tx.tables.workers.name} SET seen_us = {p} WHERE id = {p}", [tx.now_us(), owner])


def forget_dead(tx: Tx, before_us: int) -> int:
    """Takes out processes that have not been seen since; says how many."""
    p = tx.statements.parameter
    tx.cursor.execute(f"DELETE FROM {tx.tables.workers.name} WHERE seen_us < {p}", [before_us])
    return int(tx.cursor.rowcount)


def registered(tx: Tx) -> list[WorkerRow]:
    """All processes in the register, the longest running first."""
    tx.cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM {tx.tables.workers.name} ORDER BY started_us, id")
    return [
        WorkerRow(row[0], row[1], row[2], tuple(decode(row[3])), row[4], row[5], row[6]) for row in tx.cursor.fetchall()
    ]
