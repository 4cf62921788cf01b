"""`delay`: a run waits by the clock, and nobody waits with it."""

from __future__ import annotations

from typing import Any

from queuety import Queuety, WorkflowStatus, step
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of

State = dict[str, Any]
DAY_S = 86_400


@step
def before(state: State) -> State:
    note("before")
    return {"before": True}


@step
def after(state: State) -> State:
    note("after")
    return {"after": True}


def test_a_delay_in_the_middle_holds_the_run_for_exactly_its_sum(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").then(before).delay(seconds=30, minutes=2, hours=1, days=1).then(after).dispatch()
    assert app.run_until_idle() == 1
    waiting = status_of(app, run)
    assert (waiting.status, waiting.current_step, waiting.current_step_name) == (WorkflowStatus.RUNNING, 1, "delay_0")
    assert app.list_jobs(workflow_id=run, status="pending") == []
    clock.advance(seconds=90_149.999)
    assert app.run_until_idle() == 0
    clock.advance(seconds=0.001)
    assert app.run_until_idle() == 1
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    assert notes == ["before", "after"]


def test_delays_first_last_and_in_a_row_have_names_of_their_own(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").delay(seconds=1).then(before).delay(seconds=2).delay(hours=3, step_name="long").dispatch()
    names = []
    for seconds in (1, 2, 3 * 3600):
        app.run_until_idle()
        names.append(status_of(app, run).current_step_name)
        clock.advance(seconds=seconds)
    app.run_until_idle()
    assert names == ["delay_0", "delay_1", "long"]
    done = status_of(app, run)
    assert (done.status, done.current_step, done.completed_at) == (WorkflowStatus.COMPLETED, 4, clock.now)


def test_a_delay_of_zero_is_no_delay(app: Queuety) -> None:
    run = app.workflow("w").delay().then(before).delay(seconds=0).dispatch()
    assert app.run_until_idle() == 1
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    only = app.workflow("nothing else").delay(seconds=0).dispatch()
    app.run_until_idle()
    assert status_of(app, only).status is WorkflowStatus.COMPLETED


def test_a_delay_may_last_for_decades_and_for_microseconds(app: Queuety, clock: ManualClock) -> None:
    decades = app.workflow("w").delay(days=36_000).then(before).dispatch()
    blink = app.workflow("w").delay(seconds=0.000_001).then(before).dispatch()
    app.run_until_idle()
    clock.advance(seconds=0.000_001)
    assert app.run_until_idle() == 1
    assert status_of(app, blink).status is WorkflowStatus.COMPLETED
    clock.advance(days=35_999)
    assert app.run_until_idle() == 0
    clock.advance(days=1)
    assert app.run_until_idle() == 1
    assert status_of(app, decades).status is WorkflowStatus.COMPLETED


def test_a_delay_that_ends_in_a_pause_moves_the_run_on_and_leaves_it_paused(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").delay(minutes=1).then(after).dispatch()
    app.pause_workflow(run)
    clock.advance(minutes=1)
    assert app.run_until_idle() == 0
    paused = status_of(app, run)
    assert (paused.status, paused.current_step) == (WorkflowStatus.PAUSED, 1)
    assert app.list_jobs(workflow_id=run, status="pending") == []
    app.resume_workflow(run)
    assert app.run_until_idle() == 1
    assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_a_delay_that_is_the_last_step_completes_a_paused_run(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").delay(minutes=1).dispatch()
    app.pause_workflow(run)
    clock.advance(minutes=2)
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_a_pause_does_not_stop_the_clock_and_a_resume_does_not_start_it_anew(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").delay(minutes=10).then(after).dispatch()
    clock.advance(minutes=4)
    app.pause_workflow(run)
    clock.advance(minutes=4)
    app.resume_workflow(run)
    app.run_until_idle()
    clock.advance(seconds=119)
    assert app.run_until_idle() == 0
    clock.advance(seconds=1)
    assert app.run_until_idle() == 1
    assert notes == ["after"]


def test_a_cancelled_delay_never_fires(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").delay(minutes=10).then(after).dispatch()
    app.cancel_workflow(run)
    clock.advance(minutes=10)
    assert app.run_until_idle() == 0
    assert (status_of(app, run).status, notes) == (WorkflowStatus.CANCELLED, [])


def test_many_delays_that_end_together_are_all_passed(app: Queuety, clock: ManualClock) -> None:
    runs = app.dispatch_many(app.workflow("w").delay(seconds=10).then(after), [{"n": n} for n in range(450)])
    assert app.run_until_idle() == 0
    clock.advance(seconds=10)
    assert app.run_until_idle(max_jobs=5) == 5
    states = app.list_workflows(limit=450)
    assert [state.id for state in states] == runs[::-1]
    assert sorted(state.current_step for state in states) == [1] * 445 + [2] * 5
