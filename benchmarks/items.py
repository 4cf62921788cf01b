"""A for-each step of many items, in a worker process of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.child import in_child
from benchmarks.places import Place
from queuety import Queuety, WorkflowStatus, step, workflow
from queuety.define.builder import WorkflowBuilder

IN_FLIGHT: Final = 100


@dataclass(slots=True)
class Watch:
    """When the step before the items of the present run ran, and who waits for the step after them."""

    began: float | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def reset(self) -> None:
        """For the next run."""
        self.began = None
        self.done.clear()


watch = Watch()


@step
async def before(_state: Mapping[str, Any]) -> None:
    """The step before all of them: what gives the items their jobs is measured too."""
    watch.began = time.perf_counter()


@step
async def item(_state: Mapping[str, Any], thing: Mapping[str, Any], _index: int) -> dict[str, Any]:
    """Does next to nothing, on the event loop."""
    return _sized(thing)


@step
def item_in_thread(_state: Mapping[str, Any], thing: Mapping[str, Any], _index: int) -> dict[str, Any]:
    """The same in a thread."""
    return _sized(thing)


@step
async def after(_state: Mapping[str, Any]) -> None:
    """The step after all of them: the for-each is settled."""
    watch.done.set()


def _sized(thing: Mapping[str, Any]) -> dict[str, Any]:
    return {"size": len(thing["name"])}


def _mind(app: Queuety, run_id: int) -> None:
    """Raises if the run has failed: nobody would wait for it in vain."""
    status = app.workflow_status(run_id)
    if status is None or status.status is WorkflowStatus.FAILED:
        raise RuntimeError(f"the measured run is not going on: {status}"[:2000])


def many_items(*, in_threads: bool) -> WorkflowBuilder:
    """The workflow."""
    each = item_in_thread if in_threads else item
    return workflow("bench_items").then(before).for_each("things", each, "sized").then(after)


def things(count: int) -> dict[str, Any]:
    """A payload of so many small items; with what 50,000 of them return it stays below `max_value_bytes`."""
    return {"things": [{"name": f"{n:08}"} for n in range(count)]}


@dataclass(frozen=True, slots=True)
class Result:
    """What one process has measured."""

    items_per_second: float
    cpu_us_per_item: float
    peak_mb: float


def run(place: Place, *, items: int, runs: int, in_threads: bool = False) -> Result:
    """Has a worker process of its own do so many runs of so many items, one run after the other."""
    found = in_child(work, url=place.url, items=items, runs=runs, in_threads=in_threads)
    done = items * runs
    return Result(done / found["seconds"], found["cpu_s"] / done * 1e6, found["peak_mb"])


def work(url: str, items: int, runs: int, *, in_threads: bool) -> dict[str, Any]:
    """Works until all runs are done; a small run before them, which is not measured, warms the process up.

    `seconds` are those from the step before the for-each to the step after it, `cpu_s` the process's own, from the
    dispatch on.
    """
    seconds = cpu_s = 0.0
    with Queuety(url) as app:
        app.migrate()
        builder = many_items(in_threads=in_threads)
        worker = app.worker(concurrency=IN_FLIGHT)
        thread = threading.Thread(target=worker.run)
        thread.start()
        for number in range(runs + 1):
            payload = things(items if number else 100)
            watch.reset()
            cpu_before = time.process_time()
            run_id = app.dispatch_workflow(builder, payload)
            while not watch.done.wait(5.0):
                _mind(app, run_id)
            if number and watch.began is not None:
                seconds += time.perf_counter() - watch.began
                cpu_s += time.process_time() - cpu_before
        worker.stop()
        thread.join()
    return {"seconds": seconds, "cpu_s": cpu_s}
