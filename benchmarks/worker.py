"""One worker process under measurement: `python -m benchmarks.worker URL WORKFLOWS CONCURRENCY`.

It prints one JSON object: seconds from the first handler's start until the last result was committed, the gaps between
a handler's end and the start of the next one of the same workflow, and, where it dispatches itself, the time from then
to the first step's start, in milliseconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from benchmarks import flow
from queuety import Queuety, current


class Watch:
    """Counts handlers, and notes when each workflow's last one ended."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.count = 0
        self.began: float | None = None
        self.ended: dict[int, float] = {}
        self.gaps: list[float] = []
        self.done = threading.Event()
        self.ran = threading.Event()
        self.dispatched: float | None = None
        self.firsts: list[float] = []

    def run(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """What the measured step does."""
        now = time.perf_counter()
        workflow_id = current().workflow_id or 0
        if self.began is None:
            self.began = now
        if self.dispatched is not None:
            self.firsts.append(now - self.dispatched)
            self.dispatched = None
        before = self.ended.pop(workflow_id, None)
        if before is not None:
            self.gaps.append(now - before)
        self.count += 1
        if self.count >= self.wanted:
            self.done.set()
        self.ran.set()
        self.ended[workflow_id] = time.perf_counter()
        return {"done": state["amount"]}


def main(url: str, workflows: int, concurrency: int) -> None:
    """Runs until all of it is settled; with `concurrency` 1, one workflow is dispatched after another."""
    watch = Watch(workflows * flow.STEPS)
    flow.watching = watch.run
    with Queuety(url) as app:
        worker = app.worker(concurrency=concurrency)
        thread = threading.Thread(target=worker.run)
        thread.start()
        if concurrency == 1:
            _one_by_one(app, watch, workflows)
        watch.done.wait()
        worker.stop()
        thread.join()
        seconds = time.perf_counter() - (watch.began or 0.0)
    result = {
        "seconds": seconds,
        "steps": watch.count,
        "gaps_ms": [gap * 1000 for gap in watch.gaps],
        "first_ms": [first * 1000 for first in watch.firsts],
    }
    json.dump(result, sys.stdout)


def _one_by_one(app: Queuety, watch: Watch, workflows: int) -> None:
    builder = flow.five_steps()
    for number in range(1, workflows + 1):
        watch.dispatched = time.perf_counter()
        app.dispatch_workflow(builder, flow.PAYLOAD)
        while watch.count < number * flow.STEPS:
            watch.ran.wait(0.01)
            watch.ran.clear()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
