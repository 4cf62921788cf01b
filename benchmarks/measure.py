"""One measurement: so many workflows, so many in flight, in a worker process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks.flow import PAYLOAD, five_steps
from benchmarks.places import Place
from queuety import Queuety


@dataclass(frozen=True, slots=True)
class Result:
    """Steps per second, and the gap between two steps of a workflow in milliseconds: median and 95th percentile."""

    steps_per_second: float
    gap_p50_ms: float
    gap_p95_ms: float
    dispatched_per_second: float
    first_p50_ms: float = 0.0


def run(place: Place, *, workflows: int, concurrency: int, in_threads: bool = False) -> Result:
    """Dispatches the workflows and has one worker process run them; one after the other with `concurrency` 1."""
    with Queuety(place.url) as app:
        builder = five_steps(in_threads=in_threads)
        began = time.perf_counter()
        if concurrency > 1:
            app.dispatch_many(builder, [PAYLOAD] * workflows)
        dispatched = workflows / (time.perf_counter() - began)
    command = [sys.executable, "-m", "benchmarks.worker", place.url, str(workflows), str(concurrency)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout
    measured = json.loads(output)
    gaps = sorted(measured["gaps_ms"]) or [0.0]
    return Result(
        measured["steps"] / measured["seconds"],
        statistics.median(gaps),
        gaps[int(len(gaps) * 0.95) - 1],
        dispatched,
        statistics.median(measured["first_ms"] or [0.0]),
    )
