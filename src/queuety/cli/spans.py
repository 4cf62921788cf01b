"""Lengths of time as people type them."""

from __future__ import annotations

import re
from typing import Final

from queuety.cli.exits import Refusal

_UNITS: Final = (
    (1.0, ("s", "sec", "secs", "second", "seconds")),
    (60.0, ("m", "min", "mins", "minute", "minutes")),
    (3_600.0, ("h", "hour", "hours")),
    (86_400.0, ("d", "day", "days")),
    (604_800.0, ("w", "week", "weeks")),
)
_SECONDS: Final = {name: seconds for seconds, names in _UNITS for name in names}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def seconds_of(text: str | None, option: str) -> float | None:
    """How many seconds are meant. Raises `Refusal` for what is no span, and for a number without its unit.

    >>> seconds_of("90s", "--x"), seconds_of("1.5h", "--x"), seconds_of("2 days", "--x"), seconds_of("1h30m", "--x")
    (90.0, 5400.0, 172800.0, 5400.0)
    >>> seconds_of("0", "--x"), seconds_of(None, "--x")
    (0.0, None)
    """
    if text is None:
        return None
    given = text.strip().lower()
    if given == "0":
        return 0.0
    parts = [(float(number), _SECONDS.get(unit)) for number, unit in _PART.findall(given)]
    if not parts or _PART.sub("", given) or any(size is None for _, size in parts):
        raise Refusal(f"{option} {text!r}: a length of time is needed, such as 90s, 15min, 2h, 1d or 1w")
    return sum(number * (size or 0.0) for number, size in parts)
