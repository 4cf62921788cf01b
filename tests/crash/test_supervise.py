"""Real workers whose handlers kill, block and outstay: who pays for it, who does not, and how capacity comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuety import JobStatus, Queuety, WorkflowStatus
from tests.support.databases import Database
from tests.support.working import MODULE, PATIENCE_S, Works, works_in

pytestmark = [pytest.mark.paired, pytest.mark.timeout(180)]


@pytest.fixture
def house(database: Database, tmp_path: Path) -> Iterator[tuple[Works, Queuety]]:
    with works_in(tmp_path, database.url) as made:
        yield made


def dispatch(name: str) -> int:
    module: Any = sys.modules[MODULE]
    return int(module.run_of(getattr(module, name)).dispatch())


def attempts_of(app: Queuety, workflow_id: int) -> list[tuple[str, int | None]]:
    """The ends of its attempts: what happened, and which one it was."""
    events = app.workflow_timeline(workflow_id)
    return [(one.event, one.attempt) for one in events if one.event in ("step_completed", "step_failed")]


def job_of(app: Queuety, workflow_id: int) -> Any:
    (job,) = app.list_jobs(workflow_id=workflow_id)
    return job


def stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE_S)


def test_a_child_killed_in_the_middle_of_steps_costs_them_nothing(house: tuple[Works, Queuety]) -> None:
    works, app = house
    runs = [dispatch("held") for _ in range(5)]
    process = works.work(concurrency=5)
    sightings = [works.witness.sees() for _ in range(5)]
    (pid,) = {sighting.pid for sighting in sightings}
    assert pid != process.pid
    os.kill(pid, signal.SIGKILL)
    again = [works.witness.sees() for _ in range(4)]  # suspects, each alone in a process
    assert len({sighting.pid for sighting in again}) == 4
    for sighting in again:
        sighting.answer()
    works.witness.sees().answer()
    for run in runs:
        assert app.wait(run, PATIENCE_S).status is WorkflowStatus.COMPLETED
        assert attempts_of(app, run) == [("step_completed", 1)]
    assert stop(process) == 0


def test_a_child_killed_with_one_step_in_hand_has_it_pay(house: tuple[Works, Queuety]) -> None:
    works, app = house
    run = dispatch("held")
    process = works.work()
    os.kill(works.witness.sees().pid, signal.SIGKILL)
    works.witness.sees().answer()
    assert app.wait(run, PATIENCE_S).status is WorkflowStatus.COMPLETED
    assert attempts_of(app, run) == [("step_failed", 1), ("step_completed", 2)]
    assert stop(process) == 0


def test_a_step_that_kills_its_process_buries_no_innocent(house: tuple[Works, Queuety]) -> None:
    works, app = house
    innocents = [dispatch("innocent") for _ in range(50)]
    guilty = dispatch("killer")
    innocents += [dispatch("innocent") for _ in range(50)]
    process = works.work(concurrency=20)
    assert app.wait(guilty, PATIENCE_S).status is WorkflowStatus.FAILED
    for run in innocents:
        assert app.wait(run, PATIENCE_S).status is WorkflowStatus.COMPLETED
    assert {tuple(attempts_of(app, run)) for run in innocents} == {(("step_completed", 1),)}
    job = job_of(app, guilty)
    assert (job.status, job.attempts) == (JobStatus.BURIED, 3)
    assert attempts_of(app, guilty) == [("step_failed", 1), ("step_failed", 2), ("step_failed", 3)]
    assert stop(process) == 0


def test_code_that_lets_nobody_else_in_is_ended_at_its_time_limit(house: tuple[Works, Queuety]) -> None:
    works, app = house
    beside = dispatch("held")
    process = works.work(concurrency=2)
    sighting = works.witness.sees()
    hog = dispatch("hog")
    killed = works.witness.sees()
    assert (killed.word, killed.pid) == ("hog", sighting.pid)
    killed.answer()
    works.waits_for(f"{killed.pid} is silent")
    works.witness.sees().answer()  # what ran beside it has been given back, and runs elsewhere
    state = app.wait(hog, PATIENCE_S)
    assert state.status is WorkflowStatus.FAILED
    assert "longer than its time limit of 1 s" in (state.error_message or "")
    assert app.wait(beside, PATIENCE_S).status is WorkflowStatus.COMPLETED
    assert attempts_of(app, beside) == [("step_completed", 1)]
    assert attempts_of(app, hog) == [("step_failed", 1)]
    assert stop(process) == 0


def test_blocking_steps_over_their_time_limit_give_their_capacity_back(house: tuple[Works, Queuety]) -> None:
    works, app = house
    sleepers = [dispatch("sleeper") for _ in range(2)]
    process = works.work(concurrency=2)
    for _ in sleepers:
        works.witness.sees().answer()
    innocents = [dispatch("innocent") for _ in range(5)]
    for run in innocents:
        assert app.wait(run, PATIENCE_S).status is WorkflowStatus.COMPLETED
    for run in sleepers:
        state = app.wait(run, PATIENCE_S)
        assert state.status is WorkflowStatus.FAILED
        assert "longer than its time limit" in (state.error_message or "")
    assert stop(process) == 0


def test_a_signal_lets_what_runs_finish_and_gives_back_the_rest(house: tuple[Works, Queuety]) -> None:
    works, app = house
    runs = [dispatch("held") for _ in range(3)]
    process = works.work(concurrency=1)
    sighting = works.witness.sees()
    process.send_signal(signal.SIGTERM)
    works.waits_for("takes no more jobs")
    sighting.answer()
    assert process.wait(PATIENCE_S) == 0
    states = [app.workflow_status(run) for run in runs]
    assert [state.status for state in states if state] == [WorkflowStatus.COMPLETED, *[WorkflowStatus.RUNNING] * 2]
    assert [(job.status, job.attempts) for run in runs[1:] for job in app.list_jobs(workflow_id=run)] == [
        (JobStatus.PENDING, 0)
    ] * 2


def test_what_is_not_done_within_the_grace_time_is_given_back_without_an_attempt(house: tuple[Works, Queuety]) -> None:
    works, app = house
    run = dispatch("held")
    process = works.work(grace_s=0.2)
    works.witness.sees()
    assert stop(process) == 0
    assert (job_of(app, run).status, job_of(app, run).attempts) == (JobStatus.PENDING, 0)


def test_a_second_signal_stops_at_once(house: tuple[Works, Queuety]) -> None:
    works, app = house
    run = dispatch("held")
    process = works.work(grace_s=1000.0)
    works.witness.sees()
    process.send_signal(signal.SIGTERM)
    works.waits_for("stopping the worker processes (1) within")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0
    assert (job_of(app, run).status, job_of(app, run).attempts) == (JobStatus.PENDING, 0)


def test_a_child_that_is_stopped_for_longer_than_a_lease_keeps_its_step(tmp_path: Path) -> None:
    with works_in(tmp_path, f"sqlite:///{tmp_path / 'queuety.db'}", lease_s=1.0) as (works, app):
        run = dispatch("held")
        process, other = works.work(), works.work()
        sighting = works.witness.sees()
        os.kill(sighting.pid, signal.SIGSTOP)
        several_leases = time.monotonic() + 4.0
        while time.monotonic() < several_leases:
            assert app.wait(dispatch("innocent"), PATIENCE_S).status is WorkflowStatus.COMPLETED
        os.kill(sighting.pid, signal.SIGCONT)
        sighting.answer()
        assert app.wait(run, PATIENCE_S).status is WorkflowStatus.COMPLETED
        assert attempts_of(app, run) == [("step_completed", 1)]
        assert stop(process) == stop(other) == 0


def test_without_their_supervisor_children_keep_their_leases_and_finish(database: Database, tmp_path: Path) -> None:
    with works_in(tmp_path, database.url, lease_s=1.0) as (works, app):
        run = dispatch("held")
        process = works.work()
        sighting = works.witness.sees()
        process.kill()
        process.wait(PATIENCE_S)
        other = works.work()  # it would take the step over if its lease ended
        several_leases = time.monotonic() + 4.0
        while time.monotonic() < several_leases:
            assert app.wait(dispatch("innocent"), PATIENCE_S).status is WorkflowStatus.COMPLETED
        sighting.answer()
        assert app.wait(run, PATIENCE_S).status is WorkflowStatus.COMPLETED
        assert attempts_of(app, run) == [("step_completed", 1)]
        assert stop(other) == 0
