"""How answers say times and lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from queuety.inspect.states import moment
from queuety.model import Json

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))

_SHOWN: Final = 5
"""How many of several things are named."""

_LONGEST: Final = 300
"""How many characters of an error's message are said."""


def span(us: int) -> str:
    """A length of time in its two largest units, rounded down to whole seconds.

    >>> span(200_000_000), span(7_200_000_000), span(90_061_000_000), span(400_000)
    ('3 min 20 s', '2 h', '1 d 1 h', '0 s')
    """
    left = us // 1_000_000
    parts: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count) or "0 s"


def when(us: int, now_us: int) -> str:
    """The moment as seen from now, and exactly.

    >>> when(1_767_225_800_000_000, 1_767_225_600_000_000), when(0, 5_000_000), when(0, 0)
    ('in 3 min 20 s (2026-01-01T00:03:20Z)', '5 s ago (1970-01-01T00:00:00Z)', 'now (1970-01-01T00:00:00Z)')
    """
    exactly = moment(us).strftime("%Y-%m-%dT%H:%M:%SZ")
    if abs(us - now_us) < 1_000_000:
        return f"now ({exactly})"
    return f"in {span(us - now_us)} ({exactly})" if us > now_us else f"{span(now_us - us)} ago ({exactly})"


def since(us: int, now_us: int) -> str:
    """For how long already, and since when exactly.

    >>> since(0, 65_000_000)
    'for 1 min 5 s (since 1970-01-01T00:00:00Z)'
    """
    return f"for {span(max(0, now_us - us))} (since {moment(us).strftime('%Y-%m-%dT%H:%M:%SZ')})"


def listed(things: Sequence[str]) -> str:
    """The first few of them.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed([str(number) for number in range(9)])
    ('a', 'a, b and c', '0, 1, 2, 3, 4 and 4 more')
    """
    if len(things) > _SHOWN:
        return f"{', '.join(things[:_SHOWN])} and {len(things) - _SHOWN} more"
    if len(things) < 2:
        return "".join(things)
    return f"{', '.join(things[:-1])} and {things[-1]}"


def count(many: int, thing: str) -> str:
    """How many of a thing.

    >>> count(1, "job"), count(1_200, "job")
    ('1 job', '1,200 jobs')
    """
    return f"{many:,} {thing}" if many == 1 else f"{many:,} {thing}s"


def quoted(message: str | None) -> str:
    """An error's message on one line, cut where it is long.

    >>> quoted("no\\n  route"), quoted(None)
    ('no route', 'no message')
    """
    line = " ".join((message or "").split())
    return (line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…") or "no message"


def by(said: Mapping[str, Json]) -> str:
    """Who has asked for it and why, after what they asked for; nothing where nobody said.

    >>> by({"actor": "Ada", "reason": "a  typo"}), by({"actor": "Ada"}), by({"reason": "a typo"}), by({})
    (' by Ada (a typo)', ' by Ada', ' (a typo)', '')
    """
    actor, reason = said.get("actor"), said.get("reason")
    return (f" by {quoted(actor)}" if actor else "") + (f" ({quoted(reason)})" if reason else "")


def iso(us: int) -> str:
    """The moment in ISO 8601, UTC.

    >>> iso(1)
    '1970-01-01T00:00:00.000001+00:00'
    """
    return moment(us).isoformat(timespec="microseconds")
