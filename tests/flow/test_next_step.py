"""`_next_step`: where a run goes on when a step says so."""

from __future__ import annotations

from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, step
from queuety.model import ErrorKind
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of

State = dict[str, Any]


@step
def route(state: State) -> State:
    note("route")
    return {"routed": True, "_next_step": state["to"]}


@step
def passed_by(state: State) -> State:
    note("passed by")
    return {"passed_by": True}


@step
def arrive(state: State) -> State:
    note("arrive")
    return {"arrived": True}


@step
def count(state: State) -> State:
    note("count")
    return {"n": state.get("n", 0) + 1}


@step
def again_until_three(state: State) -> State:
    return {"_next_step": "count"} if state["n"] < 3 else {"done": True}


@step
def itself_until_three(state: State) -> State:
    n = state.get("n", 0) + 1
    return {"n": n, "_next_step": "me" if n < 3 else None}


@step
def back_to_the_start(state: State) -> State:
    return {"_next_step": "0"} if state["n"] < 2 else {}


def test_a_step_sends_the_run_forwards_and_what_lies_between_never_runs(app: Queuety) -> None:
    run = app.workflow("w").then(route).then(passed_by).then(arrive, name="end").dispatch({"to": "end"})
    assert app.run_until_idle() == 2
    done = status_of(app, run)
    assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {"to": "end", "routed": True, "arrived": True})
    assert notes == ["route", "arrive"]
    assert [event.step_index for event in app.workflow_timeline(run)] == [0, 0, 2, 2]


def test_a_step_without_a_name_is_reached_by_its_index(app: Queuety) -> None:
    run = app.workflow("w").then(route).then(passed_by).then(arrive).dispatch({"to": "2"})
    assert app.run_until_idle() == 2
    assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_a_step_sends_the_run_backwards_until_it_is_satisfied(app: Queuety) -> None:
    run = app.workflow("loop").then(count, name="count").then(again_until_three).dispatch()
    assert app.run_until_idle() == 6
    assert notes == ["count"] * 3
    assert status_of(app, run).state == {"n": 3, "done": True}


def test_a_step_sends_the_run_to_itself(app: Queuety) -> None:
    run = app.workflow("self").then(itself_until_three, name="me").then(arrive).dispatch()
    assert app.run_until_idle() == 4
    assert status_of(app, run).state == {"n": 3, "arrived": True}


def test_the_last_step_may_send_the_run_back(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("last").then(count).delay(minutes=1).then(back_to_the_start).dispatch()
    app.run_until_idle()
    for _ in range(2):
        assert status_of(app, run).status is WorkflowStatus.RUNNING
        clock.advance(minutes=1)
        app.run_until_idle()
    assert (status_of(app, run).status, status_of(app, run).state) == (WorkflowStatus.COMPLETED, {"n": 2})


@pytest.mark.parametrize("target", ["nowhere", "", 1, True, [], {"name": "end"}], ids=str)
def test_a_target_that_is_no_step_fails_the_run_at_once_and_says_so(app: Queuety, target: object) -> None:
    run = app.workflow("w").then(route, max_attempts=5).then(arrive, name="end").dispatch({"to": target})
    assert app.run_until_idle() == 1
    failed = status_of(app, run)
    assert (failed.status, failed.error_kind, failed.failed_step) == (
        WorkflowStatus.FAILED,
        ErrorKind.DEFINITION_ERROR,
        0,
    )
    assert "_next_step" in (failed.error_message or "")
    if isinstance(target, str):
        assert repr(target) in (failed.error_message or "")
    assert failed.state == {"to": target}
    assert notes == ["route"]
    assert app.run_until_idle() == 0


def test_a_run_that_failed_on_its_target_can_be_retried(app: Queuety) -> None:
    run = app.workflow("w").then(route).then(arrive, name="end").dispatch({"to": "nowhere"})
    app.run_until_idle()
    app.retry_workflow(run)
    assert status_of(app, run).error_message is None
    app.run_until_idle()
    assert notes == ["route"] * 2
    assert status_of(app, run).status is WorkflowStatus.FAILED
