"""What the kinds of steps cost beside a plain one: `make bench` shows a little of it, `make bench-all` all."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from rich.table import Table

from benchmarks import items, scenes
from benchmarks.child import in_child
from benchmarks.places import empty_place


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. `items`: how many in one for-each, and how many such runs make one figure."""

    rounds: int
    items: tuple[tuple[int, int], ...]
    in_threads: tuple[bool, ...]
    times: int
    children: int
    wide: int
    loop: int
    parked: int


TINY: Final = Sizes(1, ((10, 1), (20, 1)), (False,), times=2, children=5, wide=2, loop=20, parked=10)
SMALL: Final = Sizes(1, ((500, 4), (5_000, 1)), (False,), times=20, children=200, wide=50, loop=200, parked=0)
FULL: Final = Sizes(
    3, ((500, 20), (5_000, 3), (50_000, 1)), (False, True), times=100, children=1_000, wide=200, loop=10_000,
    parked=10_000,
)  # fmt: skip


SIZES: Final = {"tiny": TINY, "small": SMALL, "full": FULL}
"""By the name that people say."""


@dataclass(frozen=True, slots=True)
class Items:
    """For-each steps of this many items; medians. `against_least` is what an item costs, that of the least number 1."""

    items: int
    in_threads: bool
    per_second: float
    cpu_us: float
    peak_mb: float
    against_least: float


@dataclass(frozen=True, slots=True)
class Kinds:
    """What was measured on one database; medians over the rounds. `idle` holds statements and megabytes of an idle
    worker by the number of runs that are parked."""

    database: str
    items: list[Items]
    signal_ms: float
    child_ms: float
    started_per_second: float
    branches_per_second: float
    loop_first_us: float
    loop_last_us: float
    loop: int
    idle: dict[int, dict[str, float]]


def measured(kind: str, sizes: Sizes) -> Kinds:
    """All of it on one database; each measurement has an empty one."""

    def median(function: Callable[..., dict[str, Any]], **given: Any) -> dict[str, float]:
        found = []
        for _ in range(sizes.rounds):
            with empty_place(kind) as place:
                found.append(in_child(function, url=place.url, **given))
        return {name: statistics.median(one[name] for one in found) for name in found[0]}

    with empty_place(kind) as place:
        name = place.kind
    loop = median(scenes.loops, rounds=sizes.loop)
    return Kinds(
        database=name,
        items=list(_items(kind, sizes)),
        signal_ms=round(median(scenes.signals, rounds=sizes.times)["ms"], 2),
        child_ms=round(median(scenes.children, rounds=sizes.times)["ms"], 2),
        started_per_second=round(median(scenes.starts, children=sizes.children)["per_second"]),
        branches_per_second=round(median(scenes.branches, runs=sizes.wide)["per_second"]),
        loop_first_us=round(loop["first_us"]),
        loop_last_us=round(loop["last_us"]),
        loop=sizes.loop,
        idle={count: _idle(kind, count) for count in (0, sizes.parked) if sizes.parked},
    )


def _items(kind: str, sizes: Sizes) -> Iterator[Items]:
    """The sizes in turns, round after round: what disturbs the machine disturbs all of them alike."""
    found: dict[tuple[bool, int], list[items.Result]] = {}
    for _ in range(sizes.rounds):
        for in_threads in sizes.in_threads:
            for count, runs in sizes.items:
                with empty_place(kind) as place:
                    result = items.run(place, items=count, runs=runs, in_threads=in_threads)
                found.setdefault((in_threads, count), []).append(result)
    for in_threads, group in groupby(sorted(found), key=lambda key: key[0]):
        least: float | None = None
        for _, count in group:
            of = found[in_threads, count]
            speed = statistics.median(one.items_per_second for one in of)
            least = least or speed
            yield Items(
                count,
                in_threads,
                round(speed),
                round(statistics.median(one.cpu_us_per_item for one in of), 1),
                round(statistics.median(one.peak_mb for one in of), 1),
                round(least / speed, 2),
            )


def _idle(kind: str, parked: int) -> dict[str, float]:
    with empty_place(kind) as place:
        scenes.park(place.url, parked)
        found = in_child(scenes.idle, url=place.url)
    return {"statements": found["statements"], "mb": round(found["mb"], 1)}


def table(lines: list[Kinds]) -> Table:
    """One column a database. Of a repeat's rounds the first and the last tenth are shown."""
    made = Table(title="Other kinds of steps, one worker process; medians")
    made.add_column("")
    for line in lines:
        made.add_column(line.database, justify="right")
    for number, first in enumerate(lines[0].items):
        how = "in threads" if first.in_threads else "async"
        cells = [line.items[number] for line in lines]
        made.add_row(f"{first.items:,} items, {how}, items/s", *(f"{cell.per_second:,}" for cell in cells))
        made.add_row("  cost of an item, × 500's", *(f"{cell.against_least:.2f}" for cell in cells))
        made.add_row("  peak memory, MB", *(f"{cell.peak_mb:.0f}" for cell in cells))
    rows: list[tuple[str, Callable[[Kinds], str]]] = [
        ("signal to next step, p50, ms", lambda line: f"{line.signal_ms:.2f}"),
        ("child of one step, p50, ms", lambda line: f"{line.child_ms:.2f}"),
        ("start and await, children/s", lambda line: f"{line.started_per_second:,}"),
        ("parallel of 20, branches/s", lambda line: f"{line.branches_per_second:,}"),
        (f"repeat, first of {lines[0].loop:,}, µs", lambda line: f"{line.loop_first_us:,}"),
        ("  the last, µs", lambda line: f"{line.loop_last_us:,}"),
    ]
    for parked in lines[0].idle:
        label = f"idle beside {parked:,} parked, MB"
        rows.append((label, lambda line, parked=parked: f"{line.idle[parked]['mb']:.0f}"))  # type: ignore[misc]
        label = "  its different statements"
        rows.append((label, lambda line, parked=parked: f"{line.idle[parked]['statements']:.0f}"))  # type: ignore[misc]
    for label, value in rows:
        made.add_row(label, *(value(line) for line in lines))
    return made
