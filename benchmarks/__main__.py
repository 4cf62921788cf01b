"""`python -m benchmarks [--only sqlite,postgresql,mysql] [--rounds 3] [--json FILE]`: the tables of `make bench`.

With `--sizes full` those of `make bench-all`: the other kinds of steps at their full sizes, 50,000 items among them.

Every figure of a database is measured in the same run as its floor, in turns, and the medians are shown: on a noisy
machine only the ratio means something.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import backlog, floor, kinds, measure
from benchmarks.places import empty_place, kinds_that_answer
from queuety import Queuety


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured on one database; medians over the rounds."""

    database: str
    floor_steps_per_second: float
    async_steps_per_second: float
    thread_steps_per_second: float
    share_of_floor: float
    one_at_a_time_steps_per_second: float
    step_gap_p50_ms: float
    step_gap_p95_ms: float
    first_step_p50_ms: float
    dispatched_per_second: float
    claim_ms: float
    claim_ms_with_backlog: float
    backlog: int


def measured(kind: str, *, rounds: int, workflows: int, pending: int, floor_s: float) -> Line:
    """One line of the table."""
    floors, many, threads, ones = [], [], [], []
    with empty_place(kind) as place:
        with Queuety(place.url) as app:
            app.migrate()
        for number in range(rounds):
            with Queuety(place.url) as app:
                floors.append(floor.steps_per_second(app, number=number, seconds=floor_s))
            many.append(measure.run(place, workflows=workflows, concurrency=100, in_threads=False))
            threads.append(measure.run(place, workflows=workflows, concurrency=100, in_threads=True))
            ones.append(measure.run(place, workflows=max(workflows // 20, 1), concurrency=1))
        name = place.kind
    with empty_place(kind) as place, Queuety(place.url) as app:
        small, large = backlog.claim_ms(app, few=100, many=pending)
    floor_median = statistics.median(floors)
    sustained = statistics.median(result.steps_per_second for result in many)
    return Line(
        database=name,
        floor_steps_per_second=round(floor_median),
        async_steps_per_second=round(sustained),
        thread_steps_per_second=round(statistics.median(result.steps_per_second for result in threads)),
        share_of_floor=round(sustained / floor_median, 2),
        one_at_a_time_steps_per_second=round(statistics.median(result.steps_per_second for result in ones)),
        step_gap_p50_ms=round(statistics.median(result.gap_p50_ms for result in ones), 2),
        step_gap_p95_ms=round(statistics.median(result.gap_p95_ms for result in ones), 2),
        first_step_p50_ms=round(statistics.median(result.first_p50_ms for result in ones), 2),
        dispatched_per_second=round(statistics.median(result.dispatched_per_second for result in many)),
        claim_ms=round(small, 3),
        claim_ms_with_backlog=round(large, 3),
        backlog=pending,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--only", default="sqlite,postgresql,mysql", help="databases, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workflows", type=int, default=2000)
    parser.add_argument("--floor-seconds", type=float, default=2.0, help="how long the floor is measured each time")
    parser.add_argument("--pending", type=int, default=1_000_000, help="how large the backlog of the claim's test is")
    parser.add_argument("--sizes", choices=kinds.SIZES, default="small", help="how much of the other kinds of steps")
    parser.add_argument("--json", type=Path, default=Path("bench-results/bench.json"))
    asked = parser.parse_args()
    console = Console()
    found, absent = kinds_that_answer(asked.only.split(","))
    lines: list[Line] = []
    others: list[kinds.Kinds] = []
    for kind in found:
        console.print(f"measuring {kind} …")
        lines.append(
            measured(
                kind,
                rounds=asked.rounds,
                workflows=asked.workflows,
                pending=asked.pending,
                floor_s=asked.floor_seconds,
            )
        )
        others.append(kinds.measured(kind, kinds.SIZES[asked.sizes]))
    if lines:
        console.print(_table(lines))
        console.print(kinds.table(others))
    for kind, reason in absent.items():
        console.print(f"{kind}: not measured ({reason})", markup=False)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "python": platform.python_version(),
        "lines": [asdict(line) for line in lines],
        "kinds": [asdict(line) for line in others],
        "absent": absent,
    }
    asked.json.write_text(json.dumps(result, indent=2) + "\n")
    console.print(f"written to {asked.json}", markup=False)
    return 0 if lines else 1


def _table(lines: list[Line]) -> Table:
    """One column a database: it stays readable in 80 columns."""
    table = Table(title="Workflows of five empty steps, one worker process; medians")
    table.add_column("")
    for line in lines:
        table.add_column(line.database, justify="right")
    rows: list[tuple[str, Callable[[Line], str]]] = [
        ("floor (bare driver, batches of ten), steps/s", lambda line: f"{line.floor_steps_per_second:,}"),
        ("100 in flight, async steps, steps/s", lambda line: f"{line.async_steps_per_second:,}"),
        ("  as a share of the floor", lambda line: f"{line.share_of_floor:.0%}"),
        ("100 in flight, steps in threads, steps/s", lambda line: f"{line.thread_steps_per_second:,}"),
        ("one workflow at a time, steps/s", lambda line: f"{line.one_at_a_time_steps_per_second:,}"),
        ("  from step to step, p50 / p95, ms", lambda line: f"{line.step_gap_p50_ms:.2f} / {line.step_gap_p95_ms:.2f}"),
        ("  from dispatch to first step, p50, ms", lambda line: f"{line.first_step_p50_ms:.2f}"),
        ("dispatch_many, workflows/s", lambda line: f"{line.dispatched_per_second:,}"),
        ("claim of ten among 100 pending, ms", lambda line: f"{line.claim_ms:.2f}"),
        ("  among a backlog", lambda line: f"{line.claim_ms_with_backlog:.2f} of {line.backlog:,}"),
    ]
    for label, value in rows:
        table.add_row(label, *(value(line) for line in lines))
    return table


if __name__ == "__main__":
    sys.exit(main())
