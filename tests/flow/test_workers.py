"""Workers beside the program that dispatches: how soon they see work, what they share, how they stop, how they idle."""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuety import JobStatus, Queuety, Settings, WorkflowStatus, current, job, step
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check
from tests.support.remote import remote_worker

State = dict[str, Any]
SOON_S = 0.1
"""Within which another process's worker begins what was dispatched here, where the database can tell of it."""

let_go = threading.Event()


@pytest.fixture
def live(database: Database) -> Iterator[Queuety]:
    """By the database's own clock."""
    let_go.clear()
    with Queuety(database.url) as app:
        yield app
        let_go.set()
        check(app.door)


@step
def note_time(state: State) -> State:
    note(time.monotonic())
    return {"begun": time.monotonic()}


@job
def note_word(word: str) -> None:
    note(word)


@step
def held(state: State) -> State:
    note(current().job_id)
    let_go.wait(30)
    return {"attempt": current().attempt}


@step
def where(state: State) -> State:
    return {"pids": [*state.get("pids", []), os.getpid()]}


@step
def meets(state: State) -> State:
    """Goes on once the other one is there too, which needs two processes of one thread each."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(state["meeting"])
        line.sendall(str(os.getpid()).encode())
        assert line.recv(2) == b"ok"
    return {"pid": os.getpid()}


@step
def tells(state: State) -> State:
    """Says that it runs, and goes on when it is told to."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(state["meeting"])
        line.sendall(str(os.getpid()).encode())
        line.recv(2)
    return {"attempt": current().attempt}


@pytest.fixture
def meeting(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "meeting"))
        listener.listen(16)
        listener.settimeout(30)
        yield listener


def test_a_worker_runs_what_is_there_and_what_comes_until_it_is_stopped(live: Queuety) -> None:
    builder = live.workflow("w").then(where).then(where).then(where)
    early = builder.dispatch()
    with working(live):
        assert live.wait(early, 30).state == {"pids": [os.getpid()] * 3}
        late = builder.dispatch()
        assert live.wait(late, 30).status is WorkflowStatus.COMPLETED
    after = builder.dispatch()
    assert status_of(live, after).current_step == 0


def test_what_is_dispatched_in_the_same_process_wakes_an_idle_worker_at_once(database: Database) -> None:
    with Queuety(database.url, settings=Settings(idle_poll_seconds=60)) as app, working(app):
        settle_down(app)
        delays = []
        for _ in range(5):
            notes.clear()
            dispatched = time.monotonic()
            app.workflow("w").then(note_time).dispatch()
            until(lambda: notes)
            delays.append(notes[0] - dispatched)
        assert sorted(delays)[2] < SOON_S, delays


def settle_down(app: Queuety, poll_s: float = 0.4) -> None:
    """Waits until the worker beside us has nothing more to do, and asks the database no more often than this."""
    until(lambda: app._listeners)
    (wakes,) = app._listeners
    until(lambda: wakes.poll_s >= poll_s and not wakes._echoes)


@pytest.mark.serial
def test_what_another_process_dispatches_wakes_an_idle_worker_within_a_tenth_of_a_second(
    database: Database,
) -> None:
    """Where nothing tells of it (MySQL), within a second."""
    with Queuety(database.url) as app, Queuety(database.url) as elsewhere, working(app):
        settle_down(app)
        delays = []
        for _ in range(1 if database.kind == "mysql" else 5):
            notes.clear()
            dispatched = time.monotonic()
            elsewhere.workflow("w").then(note_time).dispatch()
            until(lambda: notes)
            delays.append(notes[0] - dispatched)
            settle_down(app)
        limit = 1.2 if database.kind == "mysql" else SOON_S
        assert sorted(delays)[len(delays) // 2] < limit, delays


@pytest.mark.serial
def test_an_idle_worker_asks_once_a_second_at_most_and_uses_next_to_no_processor(database: Database) -> None:
    statements: list[str] = []
    with Queuety(database.url) as app, working(app):
        run = app.workflow("w").then(note_time).dispatch()
        app.wait(run, 30)
        settle_down(app, app.settings.idle_poll_seconds)
        app.door.on_statement = statements.append
        window = threading.Event()
        before = resource.getrusage(resource.RUSAGE_SELF)
        window.wait(3.0)
        after = resource.getrusage(resource.RUSAGE_SELF)
        app.door.on_statement = None
    asked = [text for text in statements if not text.startswith(("BEGIN", "SET", "COMMIT", "ROLLBACK", "PRAGMA"))]
    assert len(asked) <= 4, asked
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 0.15, f"{used:.3f} s of processor time in 3 s"


@pytest.mark.serial
def test_two_workers_in_two_processes_share_the_work(
    database: Database, meeting: socket.socket, tmp_path: Path
) -> None:
    with (
        Queuety(database.url) as app,
        remote_worker(database.url, tmp_path / "one", concurrency=1),
        remote_worker(database.url, tmp_path / "two", concurrency=1),
    ):
        runs = app.dispatch_many(app.workflow("w").then(meets).then(where), [{"meeting": meeting.getsockname()}] * 2)
        lines = [meeting.accept()[0] for _ in range(2)]
        pids = {line.recv(16) for line in lines}
        assert len(pids) == 2, "both steps run in one process"
        for line in lines:
            line.sendall(b"ok")
            line.close()
        assert {app.wait(run, 30).status for run in runs} == {WorkflowStatus.COMPLETED}
        many = app.dispatch_many(app.workflow("many").then(where).then(where).then(where), [{}] * 60)
        states = [app.wait(run, 30).state for run in many]
        check(app.door)
    assert all(len(state["pids"]) == 3 for state in states)
    assert {pid for state in states for pid in state["pids"]} == {int(pid) for pid in pids}


@pytest.mark.serial
def test_a_worker_that_is_told_to_stop_finishes_what_it_can_and_gives_back_the_rest_at_no_cost(
    database: Database, meeting: socket.socket, tmp_path: Path
) -> None:
    with Queuety(database.url) as app:
        builder = app.workflow("w").then(tells).then(where)
        with remote_worker(database.url, tmp_path / "log", concurrency=2, grace_seconds=0.3) as worker:
            runs = [builder.dispatch({"meeting": meeting.getsockname()}) for _ in range(3)]
            first, second = (meeting.accept()[0] for _ in range(2))
            os.kill(worker.pid, signal.SIGTERM)
            first.sendall(b"ok")
            assert worker.process.wait(30) == 0
            assert "ended" in worker.log
            first.close()
            second.close()
        states = [status_of(app, run) for run in runs]
        assert sorted(state.current_step for state in states) == [0, 0, 1]
        assert {state.status for state in states} == {WorkflowStatus.RUNNING}
        jobs = app.list_jobs(status="pending")
        assert [(each.status, each.attempts) for each in jobs] == [(JobStatus.PENDING, 0)] * 3
        check(app.door)


def test_a_second_worker_of_the_same_program_takes_over_when_the_first_is_stopped(live: Queuety) -> None:
    run = live.workflow("w").then(held).dispatch()
    with working(live, grace_s=0):
        until(lambda: notes)
    (waiting,) = live.list_jobs(workflow_id=run)
    assert (waiting.status, waiting.attempts) == (JobStatus.PENDING, 0)
    let_go.set()
    with working(live):
        assert live.wait(run, 30).state == {"attempt": 1}


def test_a_worker_of_several_queues_empties_the_first_one_first(live: Queuety) -> None:
    for _ in range(3):
        for queue in ("low", "high"):
            live.dispatch(note_word, {"word": queue}, queue=queue)
    with working(live, "high, low", concurrency=1):
        until(lambda: len(notes) == 6)
    assert notes == ["high"] * 3 + ["low"] * 3
