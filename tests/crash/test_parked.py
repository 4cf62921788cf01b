"""Runs that wait cost nobody anything: no job appears, however often workers begin; an idle worker never reads them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select

from queuety import Queuety, Settings, WorkflowStatus, step
from tests.support.databases import Database
from tests.support.flowing import until, working
from tests.support.invariants import check

State = dict[str, Any]
PARKED = 500
LOOKS = 20
"""How often an idle worker is watched looking for work."""


@pytest.fixture
def app(database: Database) -> Iterator[Queuety]:
    with Queuety(database.url) as made:
        yield made


@step
def quick(state: State) -> State:
    return {"quick": True}


def parked(app: Queuety, count: int) -> list[int]:
    """Runs that wait for a signal, each with a state of some size."""
    builder = app.workflow("parked").wait_for_signal("go").then(quick)
    runs: list[int] = []
    for begin in range(0, count, 1000):
        payloads = [{"n": number, "text": "x" * 200} for number in range(begin, min(begin + 1000, count))]
        runs += app.dispatch_many(builder, payloads)
    return runs


def rows(app: Queuety, table: str) -> list[tuple[Any, ...]]:
    with app.door.reading() as connection:
        return sorted(tuple(row) for row in connection.execute(select(getattr(app.door.tables, table))))


def test_no_jobs_appear_however_often_workers_begin_anew(app: Queuety, database: Database, rounds: int) -> None:
    """A32: every start put the parked runs in the queue once more. Workers begin 4 times, or 20."""
    runs = parked(app, PARKED)
    waiter = app.workflow("waiter").wait_for_workflows(runs[:50]).dispatch()
    app.run_until_idle()
    before = rows(app, "workflows"), rows(app, "watchers")
    for _ in range(min(rounds + 1, 20)):
        seen = app.workflow("seen").then(quick).dispatch()
        with Queuety(database.url) as other, working(other):
            assert app.wait(seen, timeout=30).status is WorkflowStatus.COMPLETED, "it has worked"
        assert rows(app, "jobs") == []
        assert rows(app, "inbox") == []
    kept = [row for row in rows(app, "workflows") if row[0] in {*runs, waiter}]
    assert (kept, rows(app, "watchers")) == before
    check(app.door)


def test_thousands_of_parked_runs_cost_an_idle_worker_no_statement_and_no_memory(
    app: Queuety, database: Database, rounds: int
) -> None:
    """2,000 runs, or 10,000."""
    count = 10_000 if rounds >= 200 else 2_000
    runs = parked(app, count)
    statements, grown = idle(database.url)
    tables = app.door.tables
    for table in (tables.workflows, tables.signals, tables.watchers, tables.history, tables.definitions):
        assert not [text for text in statements if table.name in text]
    assert max(map(len, statements)) < 2_000, "it names no run"
    assert grown < 300_000, f"{grown:,} bytes for {count:,} runs"
    with working(app):
        app.signal(runs[count // 2], "go")
        assert app.wait(runs[count // 2], timeout=30).status is WorkflowStatus.COMPLETED


def idle(url: str) -> tuple[set[str], int]:
    """The statements of a worker that looks for work and finds none, and how many bytes it comes to hold meanwhile."""
    said: list[str] = []

    def note(text: str) -> None:
        if "queuety_" in text:
            said.append(text)

    with Queuety(url, settings=Settings(idle_poll_seconds=0.01)) as app:
        app.door.on_statement = note
        with working(app):
            until(lambda: len(said) >= LOOKS)
            tracemalloc.start()
            try:
                until(lambda: len(said) >= 2 * LOOKS)
                grown, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        app.door.on_statement = None
    return set(said), grown
