"""`timeout` and `on_timeout` of a wait for signals: what ends it, when, and what then becomes of the run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from queuety import Queuety, WaitMode, WorkflowStatus, errors, step
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of, until, working

State = dict[str, Any]
COMPLETED, FAILED = WorkflowStatus.COMPLETED, WorkflowStatus.FAILED
WAITING = WorkflowStatus.WAITING_FOR_SIGNAL


@step
def late(state: State) -> State:
    note("late")
    return {"late": True}


@step
def usual(state: State) -> State:
    note("usual")
    return {"tries": state.get("tries", 0) + 1}


def status(app: Queuety, run: int) -> WorkflowStatus:
    return status_of(app, run).status


def timers(app: Queuety) -> int:
    from sqlalchemy import func, select

    with app.door.reading() as connection:
        return connection.execute(select(func.count()).select_from(app.door.tables.inbox)).scalar_one()


def test_a_wait_that_nobody_ends_in_time_fails_the_run(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go", timeout=90).dispatch()
    clock.advance(seconds=89.999_999)
    app.run_until_idle()
    assert status(app, run) is WAITING
    clock.advance(seconds=0.000_001)
    app.run_until_idle()
    failed = status_of(app, run)
    assert (failed.status, failed.error_kind, failed.failed_step, failed.failed_at) == (
        FAILED,
        "WaitTimeout",
        0,
        clock.now,
    )
    assert failed.error_message == f"step 'wait_for_go' of workflow {run} has waited 90 s for signal 'go', in vain"
    assert (failed.waiting_for, failed.wait_details) == (None, None)


def test_the_message_names_what_is_missing(app: Queuety, clock: ManualClock) -> None:
    all_of = app.workflow("w").wait_for_signals(["a", "b", "c"], timeout=1).dispatch()
    any_of = app.workflow("w").wait_for_signals(["a", "b"], WaitMode.ANY, timeout=1).dispatch()
    app.signal(all_of, "b")
    clock.advance(seconds=1)
    app.run_until_idle()
    assert (status_of(app, all_of).error_message or "").endswith("for the signals 'a', 'c', in vain")
    assert (status_of(app, any_of).error_message or "").endswith("for any of the signals 'a', 'b', in vain")


def test_a_wait_goes_where_it_was_told_when_its_time_is_over(app: Queuety, clock: ManualClock) -> None:
    run = (
        app.workflow("w").wait_for_signal("go", timeout=5, on_timeout="late").then(usual).then(late, "late").dispatch()
    )
    clock.advance(seconds=5)
    assert app.run_until_idle() == 1
    assert (status(app, run), notes) == (COMPLETED, ["late"])
    assert status_of(app, run).state == {"late": True}


def test_it_may_go_back_to_a_step_before_it_and_then_waits_as_long_again(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").then(usual, "ask").wait_for_signal("go", timeout=60, on_timeout="ask").dispatch()
    for number in range(1, 4):
        assert app.run_until_idle() == 1
        assert (status(app, run), status_of(app, run).state["tries"]) == (WAITING, number)
        clock.advance(seconds=60)
    app.run_until_idle()
    app.signal(run, "go")
    clock.advance(seconds=60)
    assert app.run_until_idle() == 0
    assert (status(app, run), notes) == (COMPLETED, ["usual"] * 4)


def test_a_signal_in_time_takes_the_timer_with_it(app: Queuety, clock: ManualClock) -> None:
    run = (
        app.workflow("w").wait_for_signal("go", timeout=5, on_timeout="late").then(usual).then(late, "late").dispatch()
    )
    assert timers(app) == 1
    app.signal(run, "go")
    assert timers(app) == 0
    clock.advance(seconds=5)
    app.run_until_idle()
    assert notes == ["usual", "late"]


def test_a_signal_that_has_come_when_the_time_is_over_still_wins(app: Queuety, clock: ManualClock) -> None:
    """G14: the timer is due, and nobody has looked yet."""
    run = app.workflow("w").wait_for_signal("go", "got", timeout=5).dispatch()
    clock.advance(seconds=3600)
    app.signal(run, "go", {"n": 1})
    app.run_until_idle()
    assert (status(app, run), status_of(app, run).state) == (COMPLETED, {"got": {"n": 1}})


def test_what_was_found_of_several_is_free_again_after_the_time(app: Queuety, clock: ManualClock) -> None:
    run = (
        app.workflow("w")
        .wait_for_signals(["a", "b"], timeout=5, on_timeout="rest")
        .wait_for_signal("a", "got", step_name="rest")
        .dispatch()
    )
    app.signal(run, "a", {"n": 1})
    clock.advance(seconds=5)
    app.run_until_idle()
    assert (status(app, run), status_of(app, run).state) == (COMPLETED, {"got": {"n": 1}})


def test_a_retry_waits_anew_as_long_as_the_first_time(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go", timeout=10).dispatch()
    clock.advance(seconds=10)
    app.run_until_idle()
    app.retry_workflow(run)
    assert status(app, run) is WAITING
    clock.advance(seconds=9)
    app.run_until_idle()
    assert status(app, run) is WAITING
    clock.advance(seconds=1)
    app.run_until_idle()
    assert status(app, run) is FAILED
    app.retry_workflow(run)
    app.signal(run, "go")
    assert status(app, run) is COMPLETED


def test_the_time_of_each_pass_of_a_loop_is_its_own(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go", step_name="hold", timeout=10).repeat_until("hold", "end").dispatch()
    for _ in range(5):
        clock.advance(seconds=9)
        app.signal(run, "go")
        app.run_until_idle()
        assert (status(app, run), timers(app)) == (WAITING, 1)
    clock.advance(seconds=10)
    app.run_until_idle()
    assert status(app, run) is FAILED


def test_a_cancelled_wait_has_no_timer(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go", timeout=10).dispatch()
    app.cancel_workflow(run)
    clock.advance(seconds=10)
    app.run_until_idle()
    assert (status(app, run), timers(app)) == (WorkflowStatus.CANCELLED, 0)


def test_a_wait_may_give_up_after_decades_or_microseconds(app: Queuety, clock: ManualClock) -> None:
    """G14: timers of more than six days were refused elsewhere, or never fired."""
    decades = app.workflow("w").wait_for_signal("go", timeout=36_000 * 86_400).dispatch()
    blink = app.workflow("w").wait_for_signal("go", timeout=0.000_001).dispatch()
    clock.advance(seconds=0.000_001)
    app.run_until_idle()
    assert (status(app, blink), status(app, decades)) == (FAILED, WAITING)
    details: Any = status_of(app, decades).wait_details
    assert details["due_at"].startswith("2124-07-")
    clock.advance(days=36_000)
    app.run_until_idle()
    assert status(app, decades) is FAILED


def test_the_status_says_when_it_gives_up(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go", timeout=90.5).dispatch()
    details: Any = status_of(app, run).wait_details
    assert details["due_at"] == (clock.now + timedelta(seconds=90.5)).isoformat(timespec="microseconds")


def test_a_run_that_was_paused_before_the_wait_waits_its_whole_time_once_resumed(
    app: Queuety, clock: ManualClock
) -> None:
    run = app.workflow("w").then(usual).wait_for_signal("go", timeout=10).dispatch()
    app.pause_workflow(run)
    app.run_until_idle()
    clock.advance(seconds=100)
    app.resume_workflow(run)
    clock.advance(seconds=9)
    app.run_until_idle()
    assert status(app, run) is WAITING
    clock.advance(seconds=1)
    app.run_until_idle()
    assert status(app, run) is FAILED


def test_a_waiter_of_a_run_that_timed_out_is_told(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go", timeout=10).dispatch()
    waiter = app.workflow("w").wait_for_workflow(run).dispatch()
    app.run_until_idle()
    clock.advance(seconds=10)
    app.run_until_idle()
    assert (status(app, waiter), status_of(app, waiter).error_kind) == (FAILED, "WaitUnsatisfiable")


def test_many_waits_that_end_together_all_end(app: Queuety, clock: ManualClock) -> None:
    runs = app.dispatch_many(app.workflow("w").wait_for_signal("go", timeout=10), [{"n": n} for n in range(450)])
    clock.advance(seconds=10)
    app.run_until_idle()
    assert {state.status for state in app.list_workflows(limit=450)} == {FAILED}
    assert len(runs) == 450


def test_wrong_times_are_refused_when_built(memory: Queuety) -> None:
    wrong: list[Any] = [0, -1, float("nan"), float("inf"), "5", True]
    for timeout in wrong:
        with pytest.raises(errors.DefinitionError, match="timeout"):
            memory.workflow("w").wait_for_signal("go", timeout=timeout)
    with pytest.raises(errors.DefinitionError, match="give timeout as well"):
        memory.workflow("w").wait_for_signal("go", on_timeout="late")
    with pytest.raises(errors.DefinitionError, match="nowhere"):
        memory.workflow("w").wait_for_signal("go", timeout=1, on_timeout="nowhere").definition()


def test_a_worker_ends_a_wait_by_the_databases_clock(database: Any) -> None:
    with Queuety(database.url) as app, working(app):
        run = app.workflow("w").wait_for_signal("go", timeout=0.05, on_timeout="late").then(late, "late").dispatch()
        until(lambda: status(app, run) is COMPLETED)
