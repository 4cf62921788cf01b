"""Lengths of time as people type them."""

from __future__ import annotations

import re
from typing import Final

from queuety.cli.exits import Refusal

_UNITS: Final = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def seconds_of(text: str | None, option: str) -> float | None:
    """How many seconds are meant; a bare number is seconds. Raises `Refusal` for what is no span.

    >>> seconds_of("90", "--x"), seconds_of("1.5h", "--x"), seconds_of("2 d", "--x"), seconds_of(None, "--x")
    (90.0, 5400.0, 172800.0, None)
    """
    if text is None:
        return None
    found = _SPAN.fullmatch(text.strip().lower())
    unit = _UNITS.get(found[2] or "s") if found else None
    if found is None or unit is None:
        raise Refusal(f"{option} {text!r}: a length of time is needed, such as 90s, 15min, 2h, 1d or 1w")
    return float(found[1]) * unit
