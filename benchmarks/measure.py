"""One measurement: so many workflows, so many in flight, in a worker process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks.flow import PAYLOAD, STEPS, five_steps
from benchmarks.places import Place
from queuety import Queuety


@dataclass(frozen=True, slots=True)
class Result:
    """Steps per second, and the gap between two steps of a workflow in milliseconds: median and 95th percentile."""

    steps_per_second: float
    gap_p50_ms: float
    gap_p95_ms: float
    dispatched_per_second: float


def run(place: Place, *, workflows: int, concurrency: int, in_threads: bool) -> Result:
    """Dispatches the workflows, then has one worker process run them."""
    with Queuety(place.url) as app:
        builder = five_steps(in_threads=in_threads)
        began = time.perf_counter()
        app.dispatch_many(builder, [PAYLOAD] * workflows)
        dispatched = workflows / (time.perf_counter() - began)
    command = [sys.executable, "-m", "benchmarks.worker", place.url, str(workflows * STEPS), str(concurrency)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    measured = json.loads(output)
    gaps = sorted(measured["gaps_ms"]) or [0.0]
    return Result(
        measured["steps"] / measured["seconds"],
        statistics.median(gaps),
        gaps[int(len(gaps) * 0.95) - 1],
        dispatched,
    )
