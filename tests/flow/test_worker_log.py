"""What a worker's log says: whoever looks there first must see that something failed, why, and what follows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import Fail, Queuety, job, step
from queuety.store import claims
from queuety.store.rows import Lease
from tests.support.databases import Database
from tests.support.flowing import until, working

State = dict[str, Any]


class BankDownError(Exception):
    pass


@step(max_attempts=2, backoff=[0.01])
def pay(state: State) -> State:
    raise BankDownError("the bank\n  is down")


@step
def lost(state: State) -> State:
    return {"_next_step": "nowhere"}


@job
def send() -> None:
    raise Fail("no such address")


@job(max_attempts=1)
def look_up() -> None:
    raise KeyError("email" * 1000)


@pytest.fixture
def live(database: Database, caplog: pytest.LogCaptureFixture) -> Iterator[Queuety]:
    caplog.set_level(logging.INFO, "queuety.worker")
    with Queuety(database.url) as app:
        yield app


def test_failed_attempts_and_runs_are_logged(live: Queuety, caplog: pytest.LogCaptureFixture) -> None:
    with working(live):
        run = live.workflow("order").then(pay, "pay").dispatch()
        assert live.wait(run, timeout=30).status == "failed"
        until(lambda: f"workflow {run} (order) has failed" in caplog.text)
    first, last, end = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [one.levelname for one in (first, last, end)] == ["WARNING", "WARNING", "ERROR"]
    handler = f"{__name__}:pay"
    of_run = f"of workflow {run})"
    assert first.getMessage().startswith(f"attempt 1 of 2 of {handler} (job ")
    assert first.getMessage().endswith(f"{of_run} failed, tried again in 0.01 s: BankDownError: the bank is down")
    assert last.getMessage().endswith(f"{of_run} failed, not tried again: BankDownError: the bank is down")
    assert end.getMessage() == (
        f"workflow {run} (order) has failed in step 0: the bank is down; see `queuety workflow timeline {run}`"
    )


def test_a_run_that_fails_without_a_failed_attempt_is_logged(live: Queuety, caplog: pytest.LogCaptureFixture) -> None:
    with working(live):
        run = live.workflow("order").then(lost).dispatch()
        until(lambda: f"workflow {run} (order) has failed in step 0" in caplog.text)
    assert "'nowhere', which is the name of no step" in caplog.text


def test_a_buried_job_is_logged_with_the_command_that_shows_it(live: Queuety, caplog: pytest.LogCaptureFixture) -> None:
    with working(live):
        sent, looked_up = live.dispatch(send), live.dispatch(look_up)
        until(lambda: caplog.text.count(" failed, buried") == 2)
    lines = {record.getMessage() for record in caplog.records if "buried" in record.getMessage()}
    handler = f"{__name__}:send"
    assert (
        f"attempt 1 of 3 of {handler} (job {sent}) failed, buried; see `queuety inspect {sent}`: Fail: no such address"
    ) in lines
    long = next(line for line in lines if f"(job {looked_up})" in line)
    assert ": KeyError: 'emailemail" in long
    assert long.endswith(" …")
    assert len(long) < 700


@step
def done(state: State) -> None: ...


@step(max_attempts=1)
def cannot(state: State) -> None:
    raise BankDownError("still down")


def test_what_cleans_up_is_named_with_what_it_is_there_for(live: Queuety, caplog: pytest.LogCaptureFixture) -> None:
    builder = live.workflow("order").max_attempts(1).then(done, "book").compensate_with(cannot)
    with working(live):
        run = builder.wait_for_signal("go").on_cancel(cannot).dispatch()
        until(lambda: live.list_workflows("waiting_for_signal"))
        live.cancel_workflow(run)
        until(lambda: caplog.text.count(" failed, buried") == 2)
    first, second = [record.getMessage() for record in caplog.records]
    undoing, ending = sorted(one.id for one in live.list_jobs(status="buried", workflow_id=run, cleanup=True))
    handler = f"attempt 1 of 1 of {__name__}:cannot"
    assert first == (
        f"{handler} (job {undoing} of workflow {run}, to undo step 0) failed, buried; see `queuety inspect {undoing}`: "
        "BankDownError: still down"
    )
    assert second.startswith(f"{handler} (job {ending} of workflow {run}, its on_cancel) failed, buried; see ")


def test_an_unknown_handler_is_named_once(live: Queuety, caplog: pytest.LogCaptureFixture) -> None:
    definition = {"name": "away", "steps": [{"type": "single", "name": "a", "handler": "nowhere.at_all:step"}]}
    with working(live):
        runs = [live.dispatch_definition(definition) for _ in range(3)]
        until(lambda: all(_put_off(live, run) for run in runs))
    named = [record.getMessage() for record in caplog.records if "put off" in record.getMessage()]
    assert len(named) == 1
    assert named[0].endswith(
        "until a worker knows it: 'nowhere.at_all:step': importing nowhere.at_all raised "
        "ModuleNotFoundError: No module named 'nowhere'"
    )


def _put_off(app: Queuety, run: int) -> bool:
    return any(found.error_message for found in app.list_jobs(workflow_id=run))


def test_what_goes_well_is_not_logged(live: Queuety, caplog: pytest.LogCaptureFixture) -> None:
    with working(live):
        live.wait(live.workflow("delay").delay(seconds=0.01).dispatch(), timeout=30)
    assert caplog.records == []


def test_a_run_that_fails_because_its_worker_died_is_logged(live: Queuety, caplog: pytest.LogCaptureFixture) -> None:
    run = live.workflow("order").max_attempts(1).then(lost, "lost").dispatch()
    now_us = live.door.now_us()
    dead = Lease(token=7, owner=7, until_us=now_us - 1)
    live.door.write(lambda tx: claims.claim(tx, ["default"], 1, dead, now_us=now_us))
    assert live.recover() == 1
    assert live.wait(run, timeout=0).error_kind == "StaleWorker"
    assert f"workflow {run} (order) has failed in step 0" in caplog.text
