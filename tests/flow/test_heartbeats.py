"""Heartbeats as users see them: progress is there while the step runs, and who has lost its lease is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import JobStatus, Queuety, StreamingStep, WorkflowStatus, current, errors, job, step
from queuety.testing import ManualClock
from tests.support.cli import done, told
from tests.support.databases import Database
from tests.support.flowing import PATIENCE_S, note, notes, status_of, until, working

State = dict[str, Any]

let_go = threading.Event()
turns = threading.Semaphore(0)


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    let_go.clear()
    while turns.acquire(blocking=False):
        pass
    yield
    let_go.set()
    turns.release(100)


def hold() -> None:
    """Stays in the handler until the test lets it go."""
    note("told")
    assert let_go.wait(PATIENCE_S)


async def hold_async() -> None:
    await asyncio.to_thread(hold)


@step
def says(state: State) -> State:
    current().heartbeat({"done": 1, "of": state["of"]})
    hold()
    current().heartbeat()  # keeps what was said
    return {"said": True}


@step
async def says_async(state: State) -> State:
    await current().heartbeat_async({"done": 2, "of": state["of"]})
    await hold_async()
    return {"said": True}


@step
def says_item(state: State, item: Any, index: int) -> State:
    current().heartbeat({"item": item})
    hold()
    return {}


@step
def quiet(state: State) -> None:
    hold()


@job
def says_job(of: int) -> None:
    current().heartbeat({"of": of})
    hold()


@step(backoff=[0])
def lags(state: State) -> State:
    attempt = current().attempt
    if attempt == 1:
        current().heartbeat({"attempt": 1})
        hold()
        try:
            current().heartbeat({"attempt": "late"})
        except errors.LeaseLost as lost:
            note(str(lost))
            note(current().cancelled)
    return {"attempt": attempt}


@step(backoff=[0])
async def lags_async(state: State) -> State:
    attempt = current().attempt
    if attempt == 1:
        await hold_async()
        try:
            await current().heartbeat_async({"attempt": "late"})
        except errors.LeaseLost as lost:
            note(str(lost))
            note(current().cancelled)
    return {"attempt": attempt}


@step(backoff=[0])
def beats(state: State) -> State:
    for number in range(4):
        note(number)
        assert turns.acquire(timeout=PATIENCE_S)
        current().heartbeat()
    return {"attempt": current().attempt}


@step(backoff=[0])
async def beats_async(state: State) -> State:
    for number in range(4):
        note(number)
        assert await asyncio.to_thread(turns.acquire, timeout=PATIENCE_S)
        await current().heartbeat_async({"at": number})
    return {"attempt": current().attempt}


@step(backoff=[0], max_attempts=2)
def says_what_is_no_json(state: State) -> None:
    try:
        current().heartbeat({"at": {1, 2}})
    except errors.PayloadError as error:
        note(str(error))
        current().heartbeat({"at": "least this"})
        raise


class SaysAndStreams(StreamingStep):
    def stream(self, state: State, existing_chunks: list[Any]) -> Iterator[Any]:
        current().heartbeat({"chunks": 0})
        yield "a"
        current().heartbeat({"chunks": 1})
        hold()

    def on_complete(self, chunks: list[Any], state: State) -> None: ...


both = pytest.mark.parametrize(("handler", "number"), [(says, 1), (says_async, 2)])


@both
def test_progress_is_seen_while_the_step_runs_and_not_afterwards(
    app: Queuety, database: Database, clock: ManualClock, handler: Any, number: int
) -> None:
    run = app.workflow("w").then(handler).then(says_what_is_no_json).dispatch({"of": 9})
    assert status_of(app, run).progress is None
    with working(app, concurrency=1), Queuety(database.url, clock=clock) as elsewhere:
        until(lambda: "told" in notes)
        assert status_of(elsewhere, run).progress == {"done": number, "of": 9}
        (running,) = elsewhere.list_jobs(workflow_id=run)
        assert (running.status, running.progress) == (JobStatus.PROCESSING, {"done": number, "of": 9})
        assert "done" in elsewhere.why(run).answer
        let_go.set()
        until(lambda: status_of(elsewhere, run).status is WorkflowStatus.FAILED)
        assert status_of(elsewhere, run).progress is None


def test_several_jobs_of_a_step_tell_of_their_progress_each(app: Queuety) -> None:
    run = app.workflow("w").parallel([says, quiet, says_async]).then(quiet).dispatch({"of": 3})
    with working(app):
        until(lambda: len(notes) == 3)
        assert status_of(app, run).progress == {"0": {"done": 1, "of": 3}, "2": {"done": 2, "of": 3}}
        let_go.set()
        until(lambda: status_of(app, run).status is WorkflowStatus.COMPLETED)
    assert status_of(app, run).progress is None


def test_items_tell_of_their_progress_by_their_numbers(app: Queuety) -> None:
    run = app.workflow("w").for_each("items", says_item).dispatch({"items": ["x", "y"]})
    with working(app):
        until(lambda: len(notes) == 2)
        assert status_of(app, run).progress == {"0": {"item": "x"}, "1": {"item": "y"}}
        let_go.set()
        until(lambda: status_of(app, run).status is WorkflowStatus.COMPLETED)


def test_a_plain_job_and_a_stream_tell_of_theirs(app: Queuety) -> None:
    single = app.dispatch(says_job, {"of": 4})
    run = app.workflow("w").then(SaysAndStreams).dispatch()
    with working(app):
        until(lambda: len(notes) == 2)
        state = app.job_status(single)
        assert state is not None
        assert state.progress == {"of": 4}
        assert status_of(app, run).progress == {"chunks": 1}
        let_go.set()
        until(lambda: status_of(app, run).status is WorkflowStatus.COMPLETED)


@pytest.mark.parametrize("handler", [lags, lags_async])
def test_who_has_lost_the_lease_is_told_and_leaves_no_trace(
    app: Queuety, database: Database, clock: ManualClock, handler: Any
) -> None:
    run = app.workflow("w").then(handler).dispatch()
    with working(app), Queuety(database.url, clock=clock) as elsewhere:
        until(lambda: "told" in notes)
        clock.advance(seconds=31)
        assert elsewhere.recover() == 1
        until(lambda: status_of(elsewhere, run).status is WorkflowStatus.COMPLETED)
        let_go.set()
        until(lambda: len(notes) == 3)
    assert notes[1].startswith("attempt 1 of job")
    assert "has lost its lease" in notes[1]
    assert notes[2] is True
    assert status_of(app, run).state == {"attempt": 2}
    assert [event.attempt for event in app.workflow_timeline(run) if event.event == "step_completed"] == [2]


@pytest.mark.parametrize("handler", [beats, beats_async])
def test_a_heartbeat_keeps_the_lease_of_a_long_step(
    app: Queuety, database: Database, clock: ManualClock, handler: Any
) -> None:
    """The clock is moved by hand, much faster than anybody renews; only the step itself does in time."""
    run = app.workflow("w").then(handler).dispatch()
    with working(app), Queuety(database.url, clock=clock) as elsewhere:
        for number in range(4):
            until(lambda number=number: notes == list(range(number + 1)))  # type: ignore[misc]
            clock.advance(seconds=20)
            assert elsewhere.recover() == 0
            turns.release()
        until(lambda: status_of(elsewhere, run).status is WorkflowStatus.COMPLETED)
    assert status_of(app, run).state == {"attempt": 1}


def test_the_command_line_shows_progress(app: Queuety, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUETY_DATABASE_URL", database.url)
    monkeypatch.delenv("QUEUETY_APP", raising=False)
    run = app.workflow("w").parallel([says, says_async]).dispatch({"of": 5})
    with working(app):
        until(lambda: len(notes) == 2)
        shown = told("workflow", "status", str(run))
        assert shown["progress"] == {"0": {"done": 1, "of": 5}, "1": {"done": 2, "of": 5}}
        assert 'progress    {"0": {"done": 1, "of": 5}, "1": {"done": 2, "of": 5}}\n' in done(
            "workflow", "status", str(run)
        )
        let_go.set()
        until(lambda: status_of(app, run).status is WorkflowStatus.COMPLETED)
    assert told("workflow", "status", str(run))["progress"] is None


def test_progress_that_is_no_json_is_refused_and_what_was_said_before_stays(app: Queuety) -> None:
    run = app.workflow("w").then(says_what_is_no_json).dispatch()
    app.run_until_idle()
    assert len(notes) == 2
    assert all(said.startswith("progress.at") for said in notes)
    assert status_of(app, run).status is WorkflowStatus.FAILED
