"""Handlers that run longer than they may: the attempt fails, and the worker has its capacity back."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from queuety import JobStatus, Queuety, Step, WorkflowStatus, current, job, step
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working

State = dict[str, Any]

release = threading.Event()
"""Lets go every handler that blocks."""


@pytest.fixture(autouse=True)
def blocked_handlers_end() -> Any:
    release.clear()
    yield
    release.set()


@pytest.fixture
def live(database: Database) -> Any:
    """By the database's own clock: time limits are of real time."""
    with Queuety(database.url) as app:
        yield app


@step(timeout=0.05, max_attempts=1)
def blocks(state: State) -> State:
    release.wait(60)
    return {"late": True}


@step(timeout=0.05, max_attempts=1)
async def awaits(state: State) -> State:
    try:
        await asyncio.sleep(60)
    finally:
        note("was cancelled")
    return {"late": True}


@step(backoff=[0])
def blocks_the_first_time(state: State) -> State:
    if current().attempt == 1:
        release.wait(60)
    return {"attempt": current().attempt}


@step(timeout=0.2, max_attempts=1)
def polls_its_flag(state: State) -> None:
    while not current().cancelled:
        release.wait(0.005)
    note("saw the flag")


class Slow(Step):
    def handle(self, state: State) -> None:
        release.wait(60)

    def config(self) -> dict[str, Any]:
        return {"timeout": 0.05, "max_attempts": 1}


@job(timeout=0.05, max_attempts=1)
def blocking_job() -> None:
    release.wait(60)


@step
def quick(state: State) -> State:
    return {"quick": True}


def test_a_blocking_step_an_awaiting_one_and_a_job_fail_at_their_time_limit(app: Queuety) -> None:
    runs = [app.workflow("w").then(handler).dispatch() for handler in (blocks, awaits, Slow)]
    plain = app.dispatch(blocking_job)
    assert app.run_until_idle() == 4
    for run in runs:
        failed = status_of(app, run)
        assert failed.status is WorkflowStatus.FAILED
        assert "longer than its time limit of 0.05 s" in (failed.error_message or "")
        assert failed.state == {}
        (_, end) = app.workflow_timeline(run)
        assert end.error is not None
        assert end.error["class"] == "queuety.errors:JobTimeout"
    assert notes == ["was cancelled"]
    state = app.job_status(plain)
    assert state is not None
    assert (state.status, "time limit" in (state.error_message or "")) == (JobStatus.BURIED, True)


def test_a_time_limit_of_the_step_wins_and_an_attempt_over_it_is_followed_by_another(app: Queuety) -> None:
    run = app.workflow("w").then(blocks_the_first_time, timeout=0.05).dispatch()
    assert app.run_until_idle() == 2
    assert status_of(app, run).state == {"attempt": 2}


def test_what_a_handler_returns_after_its_time_limit_is_not_merged(app: Queuety) -> None:
    run = app.workflow("w").then(blocks).dispatch()
    app.run_until_idle()
    release.set()
    app.run_until_idle()
    assert status_of(app, run).state == {}


def test_a_long_step_can_ask_whether_it_should_stop(app: Queuety) -> None:
    app.workflow("w").then(polls_its_flag).dispatch()
    app.run_until_idle()
    until(lambda: notes)
    assert notes == ["saw the flag"]


def test_a_worker_whose_every_thread_is_blocked_has_its_capacity_back(live: Queuety) -> None:
    blocked = [live.workflow("w").then(blocks).dispatch() for _ in range(3)]
    after = [live.workflow("w").then(quick).dispatch() for _ in range(5)]
    with working(live, concurrency=2):
        assert {live.wait(run, 30).status for run in blocked} == {WorkflowStatus.FAILED}
        assert {live.wait(run, 30).status for run in after} == {WorkflowStatus.COMPLETED}
        release.set()
