"""A server that cannot be reached for several leases, under running workers: nothing is lost, and nothing run again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from queuety import JobStatus, Queuety, Settings, WorkflowStatus, current, errors, job, step
from queuety.store import claims
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check
from tests.support.network import network_to

pytestmark = pytest.mark.paired

LEASE_S: Final = 0.6
SETTINGS: Final = Settings(
    lease_seconds=LEASE_S, idle_poll_seconds=0.05, patience_seconds=0.2, connect_timeout_seconds=2
)

State = dict[str, Any]

gate = threading.Event()


@pytest.fixture(params=["postgresql", "mysql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Those that a network leads to."""
    kind: str = request.param
    return kind


@pytest.fixture
def near(database: Database) -> Iterator[Queuety]:
    """The caller, and whoever else reaches the server the whole time."""
    notes.clear()
    gate.clear()
    with Queuety(database.url, settings=SETTINGS) as app:
        yield app
        gate.set()
        check(app.door)


@step
def held(state: State) -> State:
    note(("held", current().workflow_id, current().attempt))
    gate.wait(60)
    return {"held": current().attempt}


@step
async def quick(state: State) -> State:
    note(("quick", current().workflow_id, current().attempt))
    return {"quick": current().attempt}


@step
def held_the_first_time(state: State) -> State:
    note(current().attempt)
    if current().attempt == 1:
        gate.wait(60)
    return {"by": current().attempt}


@job
def errand(payload: State) -> None:
    note("errand")


def leases_have_ended(app: Queuety) -> bool:
    """Whether some jobs are held whose leases ended at least a lease ago."""
    now_us = app.door.now_us()
    probe = app.door.read(lambda tx: claims.probe(tx, ["default"]))
    return probe.next_us is not None and probe.next_us + LEASE_S * 1_000_000 < now_us


@pytest.mark.parametrize("how", ["cut", "swallow"])
def test_when_everybody_loses_the_database_for_several_leases_nothing_is_run_again(
    near: Queuety, database: Database, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Both workers go through the network that breaks; what they hold is theirs all the time."""
    caplog.set_level(logging.WARNING, "queuety.worker")
    with ExitStack() as stack:
        network, url = stack.enter_context(network_to(database.url))
        for _ in range(2):
            app = stack.enter_context(Queuety(url, settings=SETTINGS))
            assert app.door is not None
            stack.enter_context(working(app, concurrency=4))
        runs = near.dispatch_many(near.workflow("w").then(held).then(quick).then(quick), [{}] * 6)
        until(lambda: len(notes) == 6)
        getattr(network, how)()
        after = near.dispatch(errand)
        gate.set()  # their results come while nobody can store them
        until(lambda: leases_have_ended(near))
        network.heal()
        for run in runs:
            done = near.wait(run, 60)
            assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {"held": 1, "quick": 1})
        until(lambda: (state := near.job_status(after)) and state.status is JobStatus.COMPLETED)
    assert sorted(word for word in notes if word != "errand") == sorted(
        [("held", run, 1) for run in runs] + [("quick", run, 1) for run in runs] * 2
    )
    for run in runs:
        assert [event.event for event in near.workflow_timeline(run)] == ["step_started", "step_completed"] * 3
    if how == "cut":
        assert "the database is lost" in caplog.text
        assert "are kept until it is back" in caplog.text
        assert "the database is back after" in caplog.text


@pytest.mark.parametrize("how", ["cut", "swallow"])
def test_a_worker_cut_off_alone_has_its_step_run_by_another_and_its_late_result_refused(
    near: Queuety, database: Database, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "queuety.worker")
    with ExitStack() as stack:
        network, url = stack.enter_context(network_to(database.url))
        far = stack.enter_context(Queuety(url, settings=SETTINGS))
        assert far.door is not None
        stack.enter_context(working(far))
        run = near.workflow("w").then(held_the_first_time, backoff=[0]).then(quick).dispatch()
        until(lambda: notes == [1])
        getattr(network, how)()
        with working(near):
            done = near.wait(run, 60)
            assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {"by": 2, "quick": 1})
            gate.set()
            network.heal()
            until(lambda: "is no longer ours" in caplog.text)
            again = near.workflow("w").then(quick).dispatch()
            near.wait(again, 60)
    assert notes[:2] == [1, 2]
    assert status_of(near, run) == done
    ends = [event for event in near.workflow_timeline(run) if event.event != "step_started"]
    assert [(event.event, event.attempt) for event in ends] == [
        ("step_failed", 1),
        ("step_completed", 2),
        ("step_completed", 1),
    ]
    assert "died or was cut off" in (ends[0].error_message or "")


def test_a_program_that_dispatches_meanwhile_is_told_and_has_started_nothing(near: Queuety, database: Database) -> None:
    with network_to(database.url) as (network, url), Queuety(url, settings=SETTINGS) as far:
        first = far.workflow("w").then(quick).dispatch()
        network.cut()
        for call in (
            lambda: far.workflow("w").then(quick).dispatch(),
            lambda: far.dispatch(errand),
            lambda: far.cancel_workflow(first),
            lambda: far.workflow_status(first),
        ):
            with pytest.raises(errors.StoreUnavailable):
                call()
        network.heal()
        assert [state.id for state in far.list_workflows()] == [first]
        assert far.run_until_idle() == 1
        assert status_of(near, first).status is WorkflowStatus.COMPLETED
