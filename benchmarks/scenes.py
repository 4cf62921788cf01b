"""What other kinds of steps cost: each function is one measurement, made in a process of its own (`child.in_child`).

Whoever measures one waits for a handler, which says when it ran; the worker is a thread beside.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

from benchmarks.memory import rss_mb
from queuety import Queuety, Settings, WorkflowStatus, step

PATIENCE_S: Final = 120.0

LOOKS: Final = 30
"""Statements of an idle worker that are let pass, and then watched."""

ran_at: list[float] = []
"""When the measured handlers ran, by the process's own clock."""

_rang = threading.Condition()


@step
async def mark(_state: Mapping[str, Any]) -> None:
    """Says that it ran."""
    now = time.perf_counter()
    with _rang:
        ran_at.append(now)
        _rang.notify_all()


@step
async def nothing(_state: Mapping[str, Any]) -> None:
    """Does nothing."""


@step
async def count(state: Mapping[str, Any]) -> dict[str, Any]:
    """One more round; says when."""
    ran_at.append(time.perf_counter())
    return {"n": state["n"] + 1}


def signals(url: str, rounds: int) -> dict[str, Any]:
    """Milliseconds from the sending of a signal to the start of the step after the wait: median."""
    with _working(url, concurrency=4) as app:
        builder = app.workflow("signalled").wait_for_signal("go").then(mark)
        spent: list[float] = []
        for number in range(rounds):
            run_id = app.dispatch_workflow(builder)
            _until_status(app, run_id, WorkflowStatus.WAITING_FOR_SIGNAL)
            began = time.perf_counter()
            app.signal(run_id, "go")
            _until_ran(number + 1)
            spent.append((ran_at[number] - began) * 1000)
        return {"ms": statistics.median(spent)}


def children(url: str, rounds: int) -> dict[str, Any]:
    """Milliseconds from a step to the step after the child that stands between them, of one step: median."""
    with _working(url, concurrency=4) as app:
        child = app.workflow("child").then(nothing)
        builder = app.workflow("parent").then(mark).run_workflow("called", child).then(mark)
        spent: list[float] = []
        for number in range(rounds):
            app.dispatch_workflow(builder)
            _until_ran(2 * number + 2)
            spent.append((ran_at[2 * number + 1] - ran_at[2 * number]) * 1000)
        return {"ms": statistics.median(spent)}


def starts(url: str, children: int) -> dict[str, Any]:
    """Children a second: one step starts them, each has one step, the next step waits for all of them."""
    with _working(url, concurrency=100) as app:
        child = app.workflow("started").then(nothing)
        builder = app.workflow("starter").then(mark)
        builder.start_workflows("things", child, inherit_state=False, group_key="all")
        builder.wait_for_workflow_group("all", result_key="ended").then(mark)
        app.dispatch_workflow(builder, {"things": list(range(children))})
        _until_ran(2)
        return {"per_second": children / (ran_at[1] - ran_at[0])}


def branches(url: str, runs: int) -> dict[str, Any]:
    """Branches a second, of runs with a step of twenty, a hundred in flight."""
    with Queuety(url) as app:
        app.migrate()
        builder = app.workflow("wide").parallel([nothing] * 20).then(mark)
        app.dispatch_many(builder, [{}] * runs)
    began = time.perf_counter()
    with _working(url, concurrency=100):
        _until_ran(runs)
    return {"per_second": 20 * runs / (ran_at[-1] - began)}


def loops(url: str, rounds: int) -> dict[str, Any]:
    """Microseconds a round, of a loop that takes so many: of its first and of its last tenth, medians."""
    with _working(url, concurrency=4) as app:
        builder = app.workflow("loop").then(count, name="again").repeat_until("again", "n", rounds).then(mark)
        app.dispatch_workflow(builder, {"n": 0})
        _until_ran(rounds + 1)
    gaps = [(after - before) * 1e6 for before, after in pairwise(ran_at[:rounds])]
    tenth = max(len(gaps) // 10, 1)
    return {"first_us": statistics.median(gaps[:tenth]), "last_us": statistics.median(gaps[-tenth:])}


def park(url: str, runs: int) -> None:
    """Starts so many runs that wait for a signal which never comes; nobody works."""
    with Queuety(url) as app:
        app.migrate()
        builder = app.workflow("parked").wait_for_signal("go").then(nothing)
        for begin in range(0, runs, 1000):
            app.dispatch_many(builder, [{"n": n} for n in range(begin, min(begin + 1000, runs))])


def idle(url: str) -> dict[str, Any]:
    """How many different statements an idle worker repeats, and the megabytes of its process, once it has looked."""
    with Queuety(url, settings=Settings(idle_poll_seconds=0.02)) as app:
        said: list[str] = []
        prefix = app.door.tables.prefix
        app.door.on_statement = lambda text: said.append(text) if prefix in text else None
        with _beside(app, 10):
            end = time.monotonic() + PATIENCE_S
            while len(said) < 2 * LOOKS and time.monotonic() < end:
                time.sleep(0.02)
        app.door.on_statement = None
    return {"statements": len(set(said[LOOKS : 2 * LOOKS])), "mb": rss_mb()}


@contextmanager
def _working(url: str, *, concurrency: int) -> Iterator[Queuety]:
    ran_at.clear()
    with Queuety(url) as app:
        app.migrate()
        with _beside(app, concurrency):
            yield app


@contextmanager
def _beside(app: Queuety, concurrency: int) -> Iterator[None]:
    worker = app.worker(concurrency=concurrency)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def _until_ran(times: int) -> None:
    """Waits until the handlers have run so many times. Raises `TimeoutError`."""
    end = time.monotonic() + PATIENCE_S
    with _rang:
        while len(ran_at) < times:
            if time.monotonic() > end:
                raise TimeoutError(f"the measured handlers have run {len(ran_at)} times, not {times}")
            _rang.wait(1.0)


def _until_status(app: Queuety, run_id: int, status: WorkflowStatus) -> None:
    end = time.monotonic() + PATIENCE_S
    while (seen := app.workflow_status(run_id)) is None or seen.status is not status:
        if time.monotonic() > end:
            raise TimeoutError(f"workflow {run_id} is not {status}: {seen}")
        time.sleep(0.001)
