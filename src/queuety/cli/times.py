"""Moments and spans as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0))


def exact(moment: datetime | None) -> str:
    """The moment in UTC, to the second; nothing for None.

    >>> exact(datetime(2026, 1, 1, 12, 30, tzinfo=UTC))
    '2026-01-01 12:30:00'
    """
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """A length of time in its largest unit, rounded down.

    >>> span(0.0421), span(3.96), span(59.9), span(61), span(7_300), span(200_000)
    ('42 ms', '3.9 s', '59 s', '1 min', '2 h', '2 d')
    """
    if seconds < 1:
        return f"{int(seconds * 1000)} ms"
    if seconds < 10:
        return f"{int(seconds * 10) / 10:g} s"
    name, size = next(unit for unit in _UNITS if seconds >= unit[1])
    return f"{int(seconds // size)} {name}"


def ago(moment: datetime | None, now: datetime) -> str:
    """How long ago the moment was, or in how long it will be; nothing for None.

    >>> now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> ago(datetime(2026, 1, 1, 11, tzinfo=UTC), now), ago(datetime(2026, 1, 1, 12, 5, tzinfo=UTC), now), ago(now, now)
    ('1 h ago', 'in 5 min', 'now')
    """
    if moment is None:
        return ""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def both(moment: datetime | None, now: datetime) -> str:
    """The moment exactly, and how long ago it was.

    >>> both(datetime(2026, 1, 1, 11, tzinfo=UTC), datetime(2026, 1, 1, 12, tzinfo=UTC))
    '2026-01-01 11:00:00 UTC (1 h ago)'
    """
    return "" if moment is None else f"{exact(moment)} UTC ({ago(moment, now)})"
