"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from queuety.errors import DefinitionError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class ManualClock:
    """Pass it as `clock=`: delays, back-off, time-outs of leases and deadlines then read it. Thread-safe.

    >>> clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
    >>> clock.advance(hours=1)
    >>> clock.now
    datetime.datetime(2030, 1, 1, 1, 0, tzinfo=datetime.timezone.utc)
    """

    def __init__(self, start: Any = None) -> None:
        """Starts at this aware time (2030-01-01 UTC without). Raises `DefinitionError` for a naive one."""
        start = datetime(2030, 1, 1, tzinfo=UTC) if start is None else start
        if not isinstance(start, datetime) or start.tzinfo is None:
            raise DefinitionError(f"ManualClock({start!r}): a datetime with a time zone is needed, for example UTC")
        self._lock = threading.Lock()
        self._now = start.astimezone(UTC)

    @property
    def now(self) -> datetime:
        """The time, aware, in UTC."""
        return self._now

    def now_us(self) -> int:
        """The time in microseconds since the epoch, UTC."""
        return (self._now - _EPOCH) // _MICROSECOND

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Moves the time forwards by the sum. Raises `DefinitionError` if that is negative: time does not go back."""
        step = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if step < timedelta(0):
            raise DefinitionError(f"advance by {step.total_seconds():g} s: a clock goes forwards only")
        with self._lock:
            self._now += step
