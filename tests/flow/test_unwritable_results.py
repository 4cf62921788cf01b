"""A result that the database does not take fails its own attempt; nobody else's, and not the worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import JobStatus, Queuety, WorkflowStatus, job, step
from tests.support.flowing import status_of, working

State = dict[str, Any]
MARK = "unwritable"


@step(backoff=[0], max_attempts=2)
def poisoned(state: State) -> State:
    return {MARK: 1}


@step
def fine(state: State) -> State:
    return {"fine": True}


@job
def fine_job(payload: State) -> None:
    pass


@pytest.fixture
def refusing(app: Queuety, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queuety]:
    """A store that cannot write a row of history which holds the mark, for a reason that nobody has foreseen."""
    from queuety.store import settle

    write = settle.write

    def refuse(tx: Any, plan: Any, *more: Any, **options: Any) -> Any:
        if any(MARK in (row.changed or {}) for row in plan.history):
            raise RuntimeError("the disk is made of cheese")
        return write(tx, plan, *more, **options)

    monkeypatch.setattr("queuety.worker.turn.write", refuse)
    logging.getLogger("queuety.worker").setLevel(logging.CRITICAL)
    yield app
    logging.getLogger("queuety.worker").setLevel(logging.NOTSET)


@pytest.mark.parametrize("how", ["run_until_idle", "worker"])
def test_a_result_that_cannot_be_written_fails_its_attempt_and_no_other(refusing: Queuety, how: str) -> None:
    app = refusing
    innocent = [app.workflow("w").then(fine).then(fine).dispatch() for _ in range(4)]
    guilty = app.workflow("w").then(poisoned).dispatch({"kept": 1})
    innocent += [app.workflow("w").then(fine).dispatch() for _ in range(4)]
    jobs = [app.dispatch(fine_job) for _ in range(3)]
    if how == "worker":
        with working(app, concurrency=8):
            failed = app.wait(guilty, 30)
            for run in innocent:
                app.wait(run, 30)
            app.run_until_idle()
    else:
        app.run_until_idle()
        failed = status_of(app, guilty)
    assert failed.status is WorkflowStatus.FAILED
    assert "could not be stored" in (failed.error_message or "")
    assert "cheese" in (failed.error_message or "")
    assert failed.state == {"kept": 1}
    assert {status_of(app, run).status for run in innocent} == {WorkflowStatus.COMPLETED}
    assert {state.status for state in map(app.job_status, jobs) if state} == {JobStatus.COMPLETED}
