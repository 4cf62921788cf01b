"""Ids that are known before they are written: blocks drawn from one counter for workflows, jobs and messages alike.

Where writers exclude each other anyway (SQLite), exactly what is needed is drawn inside the writing transaction, so
there are no gaps. A server's counter is raised in a transaction of its own, so that nobody waits for the end of a
longer one; a process draws twice as many each time, and what it has not used when it ends is lost.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from sqlalchemy import Engine

if TYPE_CHECKING:
    from queuety.store.door import Door, Tx
    from queuety.store.tx import Line

COUNTER: Final = "runs"
LARGEST_BLOCK: Final = 1024


class Ids:
    """One process's supply. Thread-safe."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0
        self._block = 1
        self._line: Line | None = None

    def close(self) -> None:
        """Closes the connection apart; the next draw opens another."""
        with self._lock:
            line, self._line = self._line, None
            if line is not None:
                line.close()
                line.engine.dispose()

    def reserve(self, tx: Tx, count: int) -> list[int]:
        """`count` new ids, ascending."""
        if count <= 0:
            return []
        if self._door.dialect.writer_key() is not None:
            first = _draw(tx, count)
            return list(range(first, first + count))
        with self._lock:
            taken = list(range(self._next, min(self._next + count, self._end)))
            self._next += len(taken)
            missing = count - len(taken)
            if missing:
                block = max(missing, self._block)
                self._block = min(self._block * 2, LARGEST_BLOCK)
                first = self._door.write(lambda own: _draw(own, block), on=self._apart())
                taken += range(first, first + missing)
                self._next, self._end = first + missing, first + block
            return taken

    def _apart(self) -> Line:
        if self._line is None:
            engine = self._door.engine
            options = engine.get_execution_options()
            apart = Engine(engine.pool.recreate(), engine.dialect, engine.url, execution_options=options)
            self._line = self._door.line(apart)
        return self._line


def _draw(tx: Tx, count: int) -> int:
    """The first of `count` ids, drawn from the counter; the row is written by whoever decides under its lock."""
    table, p = tx.tables.ids.name, tx.statements.parameter
    tx.cursor.execute(f"SELECT next FROM {table} WHERE name = {p}{tx.statements.bulk.for_update_waiting}", [COUNTER])
    row = tx.cursor.fetchone()
    first = 1 if row is None else int(row[0])
    if row is None:
        tx.cursor.execute(f"INSERT INTO {table} (name, next) VALUES ({p}, {p})", [COUNTER, first + count])
    else:
        tx.cursor.execute(f"UPDATE {table} SET next = {p} WHERE name = {p}", [first + count, COUNTER])
    return first
