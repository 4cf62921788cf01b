"""Real workers killed with SIGKILL at random, many times: every run ends as if nobody had been killed."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuety import JobStatus, Queuety, Settings, WorkflowStatus, errors
from queuety.model import CleanupStatus
from tests.support import killing
from tests.support.databases import Database
from tests.support.flowing import until
from tests.support.invariants import check

pytestmark = [pytest.mark.paired, pytest.mark.slow, pytest.mark.timeout(3600)]

RUNS = 8
WHOLES = 3
"""Runs of a definition that has a step of each kind."""
KILLS = 3
STREAM = 30
"""Chunks of the stream whose workers are all killed in the middle,"""
HELD = 5
"""once it has yielded so many."""
ROUND_S = 120.0


@pytest.fixture
def app(database: Database) -> Iterator[Queuety]:
    """The application whose workers are killed, as this process dispatches with it."""
    with Queuety(database.url, settings=Settings(lease_seconds=killing.LEASE_S)) as made:
        yield made


def test_however_often_workers_are_killed_every_run_ends_right_and_every_step_is_merged_once(
    app: Queuety, database: Database, tmp_path: Path, rounds: int
) -> None:
    workers = killing.Workers(database.url, tmp_path / "log")
    in_hand = 0
    try:
        for _ in range(rounds):
            in_hand += one_round(app, workers)
            check(app.door)
    except BaseException:
        print((tmp_path / "log").read_text()[-20_000:])
        raise
    finally:
        codes = workers.stop()
    # One that has just begun does not know the signal yet; one whose only child was killed before it had worked says
    # that nothing ever worked.
    assert set(codes) <= {0, 1, -signal.SIGTERM}
    assert workers.killed == rounds * KILLS
    assert in_hand >= rounds, "hardly anybody was killed with a job in hand"
    assert app.stats()["pending"] == app.stats()["processing"] == 0


def one_round(app: Queuety, workers: killing.Workers) -> int:
    """Many runs, and kills at random until all have ended; how often jobs were in hand just before a kill."""
    until(lambda: any_work_is_done(app))
    courses = app.dispatch_many(killing.course(), [{}] * RUNS)
    wholes = app.dispatch_many(killing.everything(), [killing.GIVEN] * WHOLES)
    runs = [*courses, *wholes]
    jobs = [app.dispatch(killing.errand) for _ in range(RUNS)]
    pause = threading.Event()
    cancelled: set[int] = set()
    in_hand = 0
    for number in range(KILLS):
        for run in wholes[number::KILLS]:
            app.signal(run, "go", {"said": "once"})
        if number == 0:
            until(lambda: app.stats()["processing"] > 0)
            in_hand += 1
        else:
            pause.wait(random.random() * 0.3)
            in_hand += app.stats()["processing"] > 0
        workers.kill_one()
        cancelled |= cancel_one(app, random.choice(runs))
        steer_one(app, random.choice(runs))
    until(lambda: all_ended(app, runs, jobs), within_s=ROUND_S)
    for run in courses:
        ends_right(app, run, was_cancelled=run in cancelled)
    for run in wholes:
        whole_ends_right(app, run, was_cancelled=run in cancelled)
    return in_hand


def any_work_is_done(app: Queuety) -> bool:
    """Whether a worker is there: processes need a moment to begin."""
    first = app.dispatch(killing.errand)
    state = until(lambda: (found := app.job_status(first)) and found.status is JobStatus.COMPLETED and found)
    return bool(state)


def cancel_one(app: Queuety, run: int) -> set[int]:
    try:
        app.cancel_workflow(run)
    except errors.InvalidStateError:
        return set()
    return {run}


def steer_one(app: Queuety, run: int) -> None:
    """Pauses a run for a moment."""
    try:
        app.pause_workflow(run)
        app.resume_workflow(run)
    except errors.InvalidStateError:
        return  # it has ended


def all_ended(app: Queuety, runs: list[int], jobs: list[int]) -> bool:
    for run in runs:
        state: Any = app.workflow_status(run)
        if not state.status.is_terminal or state.compensation_status is CleanupStatus.PENDING:
            return False
    if any(app.list_workflows(status, limit=1) for status in WorkflowStatus if not status.is_terminal):
        return False  # those that they have started
    return all(job is not None and job.status is JobStatus.COMPLETED for job in map(app.job_status, jobs))


def ends_right(app: Queuety, run: int, *, was_cancelled: bool) -> None:
    state: Any = app.workflow_status(run)
    if was_cancelled:
        assert (state.status, state.compensation_status) == (WorkflowStatus.CANCELLED, CleanupStatus.COMPLETED)
        return
    assert (state.status, state.state) == (WorkflowStatus.COMPLETED, killing.OUTCOME), state
    events = app.workflow_timeline(run, limit=10_000)
    merged = [event.step_index for event in events if event.event == "step_completed"]
    assert merged == [0, 1] * killing.LAPS + [3]


def whole_ends_right(app: Queuety, run: int, *, was_cancelled: bool) -> None:
    """What it has started ends right too; of its streams no chunk is lost or doubled, whoever was killed."""
    state: Any = app.workflow_status(run)
    if was_cancelled:
        assert (state.status, state.compensation_status) == (WorkflowStatus.CANCELLED, CleanupStatus.COMPLETED)
        for child in app.list_workflows(parent_id=run):
            assert child.status.is_terminal
        return
    assert state.status is WorkflowStatus.COMPLETED, state
    started = state.state["started_workflow_ids"]
    done = {
        str(other): {**order, "start_item_index": index, "ends": 1}
        for index, (other, order) in enumerate(zip(started, killing.GIVEN["orders"], strict=True))
    }
    assert state.state == {**killing.WHOLE, "started_workflow_ids": started, "done": done}
    assert len(app.list_workflows(parent_id=run)) == 1
    events = app.workflow_timeline(run, limit=10_000)
    merged = [event.step_index for event in events if event.event == "step_completed"]
    assert merged == [0, 1, 2, 3, 2, 3, 5, 9]
    assert [event.event for event in events].count("step_branch_completed") == 3
    chunks = [number for number, _ in app.workflow_stream(run)]
    assert chunks == [*range(killing.CHUNKS)] * 3


def test_a_stream_goes_on_where_it_was_when_all_workers_were_killed(
    app: Queuety, database: Database, tmp_path: Path
) -> None:
    workers = killing.Workers(database.url, tmp_path / "log", supervisors=1)
    try:
        flow = app.workflow("stream").then(killing.Writing).parallel([killing.WritingAsync])
        run = flow.dispatch({"chunks": STREAM, "holds_at": HELD})
        stream = app.workflow_stream(run, timeout=ROUND_S)
        found = [next(stream) for _ in range(HELD)]
        workers.kill_all()
        found += [next(stream) for _ in range(STREAM)]  # the rest, and the second one's as far as it comes
        workers.kill_all()
        found += stream
    except BaseException:
        print((tmp_path / "log").read_text()[-20_000:])
        raise
    finally:
        workers.stop()
    assert [number for number, _ in found] == [*range(STREAM)] * 2
    for attempts in ([attempt for _, attempt in found[:STREAM]], [attempt for _, attempt in found[STREAM:]]):
        assert attempts == sorted(attempts)
        assert attempts[HELD - 1] < attempts[HELD]
    state: Any = app.workflow_status(run)
    assert state.state == {"chunks": STREAM, "holds_at": HELD, "written": 1, "beside": 1}
    assert list(app.workflow_stream(run)) == found
    check(app.door)
