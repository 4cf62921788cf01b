"""What time it is by the database, in microseconds since the epoch, UTC.

The rule: the time is a steady clock plus an offset. The steady clock never jumps and, where the system has one, goes
on while the machine sleeps. The offset is measured with a round trip, never per call. A new measurement replaces the
offset only if the two differ by more than the round trip can explain; so the time goes backwards in a process only if
the database's clock was set back, and then once, by what was measured. On a server database the host's wall clock has
no part in it. SQLite has no clock but the host's: it is looked at again once a second, and a jump shows within that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

if hasattr(time, "CLOCK_BOOTTIME"):

    def steady_ns() -> int:
        """Nanoseconds since some moment; goes on while the machine sleeps."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

else:
    steady_ns = time.monotonic_ns

HOST_EVERY_NS: Final = 1_000_000_000
"""How often the host's wall clock is looked at where it is the database's."""

SERVER_EVERY_NS: Final = 30_000_000_000
"""How old a measurement may grow before the next writing transaction takes a new one."""


class Clock(Protocol):
    """Tells the time: microseconds since the epoch, UTC."""

    def now_us(self) -> int: ...


class DatabaseClock:
    """The database's clock as this process knows it. Thread-safe."""

    def __init__(self, now_sql: str | None, ask: Callable[[Callable[[Any], None]], None]) -> None:
        """`now_sql` is the dialect's; `ask` runs a function with a cursor, the first time, when there is no offset."""
        self._now_sql = now_sql
        self._ask = ask
        self._lock = threading.Lock()
        self._offset_ns: int | None = None
        self._due_ns = 0

    def now_us(self) -> int:
        """Now. The first call makes a round trip on a server (raises `StoreUnavailable`); others take under 1 µs."""
        offset = self._offset_ns
        if offset is None or (self._now_sql is None and steady_ns() >= self._due_ns):
            offset = self._look_again()
        return (steady_ns() + offset) // 1000

    @property
    def is_due(self) -> bool:
        """True if the clock is in use and a transaction that happens to be open should measure it again."""
        return self._now_sql is not None and self._offset_ns is not None and steady_ns() >= self._due_ns

    def measure(self, cursor: Any) -> None:
        """Measures anew on an open transaction: one round trip, on SQLite none."""
        before = steady_ns()
        if self._now_sql is None:
            told = time.time_ns()
        else:
            cursor.execute(self._now_sql)
            told = int(cursor.fetchone()[0]) * 1000
        after = steady_ns()
        # One microsecond more: the server's answer is cut off there.
        self._take(told - (before + after) // 2, (after - before) // 2 + 1000)

    def _measure_twice(self, cursor: Any) -> None:
        """The first statement of a transaction may be two round trips; the second one knows better."""
        self.measure(cursor)
        self.measure(cursor)

    def _take(self, offset: int, doubt: int) -> None:
        with self._lock:
            if self._offset_ns is None or abs(offset - self._offset_ns) > doubt:
                self._offset_ns = offset
            self._due_ns = steady_ns() + (HOST_EVERY_NS if self._now_sql is None else SERVER_EVERY_NS)

    def _look_again(self) -> int:
        if self._now_sql is None:
            self.measure(None)
        else:
            self._ask(self._measure_twice)
        offset = self._offset_ns
        assert offset is not None
        return offset
