"""Handlers that a worker does not know: left for one that does, at no cost, and buried in the end."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuety import JobStatus, Queuety, Settings, WorkflowStatus, job, step
from queuety.model import ErrorKind
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working

State = dict[str, Any]
MODULE = "deployed_later"


@step
def here(state: State) -> State:
    note("here")
    return {"here": True}


@step
def cleanup(state: State) -> None:
    note("cleaned")


@job
def plain(payload: State) -> None:
    note("plain")


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Puts a module where it can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> None:
        (tmp_path / f"{MODULE}.py").write_text(text)
        sys.modules.pop(MODULE, None)
        importlib.invalidate_caches()

    yield write
    sys.modules.pop(MODULE, None)


GOOD = """
from queuety import job, step
@step
def later(state): return {"later": True}
@job
def job_later(payload): pass
"""


def definition(handler: str = f"{MODULE}:later") -> dict[str, Any]:
    return {
        "name": "rolling",
        "steps": [
            {"type": "single", "name": "a", "handler": f"{__name__}:here"},
            {"type": "single", "name": "b", "handler": handler, "max_attempts": 1},
        ],
    }


def test_a_step_that_is_not_deployed_yet_waits_at_no_cost_and_says_why(
    app: Queuety, clock: ManualClock, deploy: Any
) -> None:
    run = app.dispatch_definition(definition())
    job_id = app.dispatch(f"{MODULE}:job_later")
    assert app.run_until_idle() == 1
    for _ in range(5):
        for waiting in app.list_jobs(status="pending"):
            assert (waiting.status, waiting.attempts) == (JobStatus.PENDING, 0)
            assert MODULE in (waiting.error_message or "")
        clock.advance(minutes=1)
        assert app.run_until_idle() == 0
    assert status_of(app, run).status is WorkflowStatus.RUNNING
    assert len(app.list_jobs(status="pending")) == 2
    deploy(GOOD)
    clock.advance(minutes=1)
    assert app.run_until_idle() == 2
    done = status_of(app, run)
    assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {"here": True, "later": True})
    state = app.job_status(job_id)
    assert state is not None
    assert (state.status, state.attempts, state.error_message) == (JobStatus.COMPLETED, 1, None)


def test_one_unknown_handler_holds_nobody_else_up(app: Queuety) -> None:
    app.dispatch_definition(definition())
    for _ in range(5):
        app.dispatch(plain)
    assert app.run_until_idle() == 6
    assert notes.count("plain") == 5


@pytest.mark.parametrize(
    "text",
    [
        "raise RuntimeError('half deployed')",
        "import nothing_like_this",
        "def broken(:",
        "import sys; sys.exit(3)",
        GOOD,
    ],
    ids=["raises", "needs another", "no python", "exits", "lacks the name"],
)
def test_a_module_that_cannot_be_imported_is_no_failure_of_the_step(app: Queuety, deploy: Any, text: str) -> None:
    run = app.dispatch_definition(definition(f"{MODULE}:other"))
    deploy(text)
    assert app.run_until_idle() == 1
    (waiting,) = app.list_jobs(workflow_id=run, status="pending")
    assert (waiting.attempts, MODULE in (waiting.error_message or "")) == (0, True)


def test_what_carries_no_mark_is_never_called(app: Queuety, deploy: Any) -> None:
    run = app.dispatch_definition(definition(f"{MODULE}:danger"))
    deploy("called = []\ndef danger(state):\n    called.append(1)")
    assert app.run_until_idle() == 1
    assert importlib.import_module(MODULE).called == []
    assert status_of(app, run).status is WorkflowStatus.RUNNING


def test_after_its_grace_time_it_is_buried_and_may_be_retried(app: Queuety, clock: ManualClock, deploy: Any) -> None:
    run = app.dispatch_definition(definition())
    app.run_until_idle()
    clock.advance(seconds=3599)
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.RUNNING
    clock.advance(seconds=20)
    app.run_until_idle()
    failed = status_of(app, run)
    assert (failed.status, failed.error_kind, failed.failed_step) == (
        WorkflowStatus.FAILED,
        ErrorKind.HANDLER_NOT_FOUND,
        1,
    )
    assert MODULE in (failed.error_message or "")
    deploy(GOOD)
    app.retry_workflow(run)
    assert app.run_until_idle() == 1
    assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_without_a_grace_time_it_is_buried_at_once(database: Database, clock: ManualClock) -> None:
    with Queuety(database.url, clock=clock, settings=Settings(handler_grace_seconds=0)) as app:
        run = app.dispatch_definition(definition())
        app.run_until_idle()
        assert status_of(app, run).error_kind is ErrorKind.HANDLER_NOT_FOUND


def test_of_two_workers_the_one_that_knows_the_handler_runs_it(database: Database) -> None:
    """An alias is known only to the application that has registered it."""
    with Queuety(database.url) as old, Queuety(database.url) as new:
        new.register("billing", here)
        with working(old):
            run = new.workflow("w").then("billing", max_attempts=1).dispatch()
            until(lambda: any(state.error_message for state in old.list_jobs(workflow_id=run)))
            with working(new):
                assert new.wait(run, 30).state == {"here": True}
        (done,) = new.list_jobs(workflow_id=run)
        assert done.attempts == 1


def test_a_cleanup_handler_that_is_unknown_waits_too(app: Queuety, clock: ManualClock, deploy: Any) -> None:
    run = app.dispatch_definition({**definition(), "on_cancel": f"{MODULE}:later"})
    app.cancel_workflow(run)
    assert app.run_until_idle() == 0
    assert status_of(app, run).compensation_status == "pending"
    deploy(GOOD)
    clock.advance(minutes=1)
    assert app.run_until_idle() == 1
    assert status_of(app, run).compensation_status == "completed"
