"""Attempts that fail: when they are repeated, how often, and how they end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from queuety import Fail, JobStatus, Queuety, Retry, Settings, Step, WorkflowStatus, bind, current, step
from queuety.model import ErrorKind
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of

State = dict[str, Any]


class OutOfStock(Exception):
    pass


class SoldOut(OutOfStock):
    pass


@step
def fails(state: State) -> None:
    note(current().attempt)
    raise OutOfStock(f"attempt {current().attempt} failed")


@step(backoff=[0])
def fails_at_once(state: State) -> None:
    note(current().attempt)
    raise OutOfStock("none left")


@step(backoff=[0])
def works_the_third_time(state: State) -> State:
    note(current().idempotency_key)
    if current().attempt < 3:
        raise OSError("not yet")
    return {"attempt": current().attempt}


@step(backoff=[0], max_attempts=9)
def raises(state: State, *, what: str) -> None:
    note(what)
    raise {"sold out": SoldOut, "value": ValueError, "fail": Fail, "type": TypeError}[what](what)


@step
def asks_for_another_try(state: State, *, after: float) -> State:
    note(current().attempt)
    if current().attempt == 1:
        raise Retry(after=after)
    return {"ok": True}


@step(max_attempts=2)
def always_asks(state: State) -> None:
    raise Retry(after=0, message="the file is not there yet")


class Configured(Step):
    def handle(self, state: State) -> None:
        note("configured")
        raise ValueError("no")

    def config(self) -> Mapping[str, Any]:
        return {"max_attempts": 2, "backoff": [7]}


@pytest.fixture
def exact(database: Database, clock: ManualClock) -> Queuety:
    return Queuety(database.url, clock=clock, settings=Settings(jitter=0))


def waits_of(app: Queuety, clock: ManualClock, run: int) -> list[float]:
    """Runs it to its end; the seconds between each failure and the next attempt."""
    waits: list[float] = []
    while True:
        app.run_until_idle()
        (job,) = app.list_jobs(workflow_id=run)
        if job.status is not JobStatus.PENDING:
            return waits
        waits.append((job.available_at - clock.now).total_seconds())
        clock.advance(seconds=waits[-1] - 0.000_001)
        assert app.run_until_idle() == 0
        clock.advance(seconds=0.000_001)


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        (None, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]),
        ("exponential", [2, 4, 8, 16]),
        ("linear", [5, 10, 15, 20]),
        ("fixed", [5, 5, 5, 5]),
        ([1, 30, 2.5], [1, 30, 2.5, 2.5]),
        ([0.25], [0.25] * 4),
    ],
    ids=str,
)
def test_without_jitter_every_backoff_waits_exactly(
    exact: Queuety, clock: ManualClock, backoff: Any, waits: list[float]
) -> None:
    options = {} if backoff is None else {"backoff": backoff}
    with exact as app:
        run = app.workflow("w").then(fails, max_attempts=len(waits) + 1, **options).dispatch()
        assert waits_of(app, clock, run) == waits
        assert notes == list(range(1, len(waits) + 2))
        failed = status_of(app, run)
    assert (failed.status, failed.error_kind, failed.failed_step) == (WorkflowStatus.FAILED, ErrorKind.STEP_FAILED, 0)
    assert failed.error_message == f"attempt {len(waits) + 1} failed"
    assert failed.failed_at == clock.now


def test_jitter_lengthens_a_backoff_by_a_tenth_at_most_and_leaves_lists_and_fixed_alone(
    app: Queuety, clock: ManualClock
) -> None:
    builder = app.workflow("w").then(fails, max_attempts=2, backoff="linear")
    runs = app.dispatch_many(builder, [{}] * 40)
    exact = [
        app.workflow("w").then(fails, backoff=[10]).dispatch(),
        app.workflow("w").then(fails, backoff="fixed").dispatch(),
    ]
    app.run_until_idle()
    waits = [
        (job.available_at - clock.now).total_seconds() for job in app.list_jobs(limit=100) if job.workflow_id in runs
    ]
    assert len(waits) == 40
    assert all(5 <= wait <= 5.5 for wait in waits), sorted(waits)
    assert len(set(waits)) > 20
    assert [app.list_jobs(workflow_id=run)[0].available_at for run in exact] == [after(clock, 10), after(clock, 5)]


def after(clock: ManualClock, seconds: float) -> datetime:
    later = ManualClock(clock.now)
    later.advance(seconds=seconds)
    return later.now


def test_a_step_that_works_in_the_end_leaves_nothing_of_its_failures_in_the_state(app: Queuety) -> None:
    run = app.workflow("w").then(works_the_third_time).dispatch()
    assert app.run_until_idle() == 3
    done = status_of(app, run)
    assert (done.status, done.state, done.error_message) == (WorkflowStatus.COMPLETED, {"attempt": 3}, None)
    assert len(set(notes)) == 1, "the idempotency key differs between attempts of one visit"
    ends = [event for event in app.workflow_timeline(run) if event.event != "step_started"]
    assert [(event.event, event.attempt, event.error_message) for event in ends] == [
        ("step_failed", 1, "not yet"),
        ("step_failed", 2, "not yet"),
        ("step_completed", 3, None),
    ]
    assert ends[0].error is not None
    assert ends[0].error["class"] == "builtins:OSError"
    assert "works_the_third_time" in ends[0].error["trace"]


def test_between_two_attempts_the_run_is_running_and_its_state_untouched(app: Queuety) -> None:
    run = app.workflow("w").then(fails).dispatch({"kept": 1})
    app.run_until_idle()
    between = status_of(app, run)
    assert (between.status, between.state, between.error_message) == (WorkflowStatus.RUNNING, {"kept": 1}, None)
    (job,) = app.list_jobs(workflow_id=run)
    assert (job.status, job.attempts, job.max_attempts) == (JobStatus.PENDING, 1, 3)
    assert job.error_message == "attempt 1 failed"


@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        ({}, 3),
        ({"step": 4}, 4),
        ({"workflow": 5}, 5),
        ({"step": 2, "workflow": 5}, 2),
        ({"handler": 2, "workflow": 5}, 2),
        ({"handler": 2, "step": 4, "workflow": 5}, 4),
        ({"step": 1}, 1),
    ],
    ids=str,
)
def test_the_number_of_attempts_is_the_steps_then_the_handlers_then_the_workflows(
    app: Queuety, clock: ManualClock, options: Mapping[str, int], attempts: int
) -> None:
    own: dict[str, Any] = {"max_attempts": options["step"]} if "step" in options else {}
    builder = app.workflow("w").then(Configured if "handler" in options else fails_at_once, **own)
    if "workflow" in options:
        builder.max_attempts(options["workflow"])
    run = builder.dispatch()
    for _ in range(attempts):
        app.run_until_idle()
        clock.advance(seconds=7)
    assert len(notes) == attempts
    (job,) = app.list_jobs(workflow_id=run)
    assert (job.status, job.attempts, job.max_attempts) == (JobStatus.BURIED, attempts, attempts)
    assert status_of(app, run).status is WorkflowStatus.FAILED


def test_a_step_that_raises_fail_is_not_tried_again(app: Queuety) -> None:
    run = app.workflow("w").then(bind(raises, what="fail")).dispatch()
    assert app.run_until_idle() == 1
    failed = status_of(app, run)
    assert (failed.status, failed.error_message, failed.error_kind) == (
        WorkflowStatus.FAILED,
        "fail",
        ErrorKind.STEP_FAILED,
    )


@pytest.mark.parametrize(
    ("options", "what", "attempts"),
    [
        ({"retry_on": OutOfStock}, "sold out", 9),
        ({"retry_on": (OSError, OutOfStock)}, "value", 1),
        ({"give_up_on": OutOfStock}, "sold out", 1),
        ({"give_up_on": (OutOfStock, TypeError)}, "value", 9),
        ({"retry_on": OutOfStock, "give_up_on": SoldOut}, "sold out", 1),
        ({"retry_on": Exception}, "fail", 1),
    ],
    ids=str,
)
def test_only_chosen_errors_are_worth_another_attempt(
    app: Queuety, options: dict[str, Any], what: str, attempts: int
) -> None:
    run = app.workflow("w").then(bind(raises, what=what), **options).dispatch()
    assert app.run_until_idle() == attempts
    assert status_of(app, run).status is WorkflowStatus.FAILED


@pytest.mark.parametrize("seconds", [0, 0.5, 90])
def test_a_step_chooses_when_it_is_tried_again(app: Queuety, clock: ManualClock, seconds: float) -> None:
    run = app.workflow("w").then(bind(asks_for_another_try, after=seconds), backoff=[1000]).dispatch()
    app.run_until_idle()
    if seconds:
        assert notes == [1]
        clock.advance(seconds=seconds)
        app.run_until_idle()
    assert notes == [1, 2]
    assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_asking_for_another_try_uses_up_attempts(app: Queuety) -> None:
    run = app.workflow("w").then(always_asks).dispatch()
    assert app.run_until_idle() == 2
    failed = status_of(app, run)
    assert (failed.status, failed.error_message) == (WorkflowStatus.FAILED, "the file is not there yet")


def test_asking_for_another_try_is_heard_whatever_errors_are_chosen(app: Queuety) -> None:
    run = app.workflow("w").then(bind(asks_for_another_try, after=0), retry_on=ValueError).dispatch()
    assert app.run_until_idle() == 2
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
