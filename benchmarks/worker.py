"""One worker process under measurement: `python -m benchmarks.worker URL STEPS CONCURRENCY [--threads]`.

It prints one JSON object: seconds from the first handler's start until the last result was committed, and the gaps
between a handler's end and the start of the next one of the same workflow, in milliseconds.
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

    def run(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """What the measured step does."""
        now = time.perf_counter()
        workflow_id = current().workflow_id or 0
        if self.began is None:
            self.began = now
        before = self.ended.pop(workflow_id, None)
        if before is not None:
            self.gaps.append(now - before)
        self.count += 1
        if self.count >= self.wanted:
            self.done.set()
        self.ended[workflow_id] = time.perf_counter()
        return {"done": state["amount"]}


def main(url: str, steps: int, concurrency: int) -> None:
    """Runs until so many handlers have run and all of it is settled."""
    watch = Watch(steps)
    flow.watching = watch.run
    with Queuety(url) as app:
        worker = app.worker(concurrency=concurrency)
        thread = threading.Thread(target=worker.run)
        thread.start()
        watch.done.wait()
        worker.stop()
        thread.join()
        seconds = time.perf_counter() - (watch.began or 0.0)
    json.dump({"seconds": seconds, "steps": watch.count, "gaps_ms": [gap * 1000 for gap in watch.gaps]}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
