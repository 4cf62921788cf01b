"""What the status, the list and the timeline tell of a run that waits, field by field."""

from __future__ import annotations

from typing import Any

from queuety import Queuety, WaitMode, WorkflowState, WorkflowStatus, step
from queuety.testing import ManualClock
from tests.support.cli import told
from tests.support.databases import Database
from tests.support.flowing import status_of

State = dict[str, Any]
WAIT_FIELDS = ("waiting_for", "wait_type", "wait_mode", "wait_details")


@step
def work(state: State) -> State:
    return {"order": 7}


@step(max_attempts=1)
def fails(state: State) -> State:
    raise ValueError("no luck")


def waits(state: WorkflowState) -> list[Any]:
    return [getattr(state, name) for name in WAIT_FIELDS]


def test_a_wait_for_one_signal(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("go").dispatch()
    details = {
        "step_name": "wait_for_go",
        "result_key": None,
        "human_wait": None,
        "match_payload": None,
        "correlation_key": None,
        "correlation_value": None,
        "wait_mode": "all",
        "matched": [],
        "remaining": ["go"],
    }
    assert waits(status_of(app, run)) == [["go"], "signal", "all", details]


def test_a_wait_for_several_signals_names_all_of_them_also_those_that_have_come(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .then(work)
        .wait_for_signals(
            ["c", "a", "b"],
            result_key="got",
            name="hold",
            match_payload={"ok": True},
            correlation_key="order",
            timeout=60,
        )
        .dispatch()
    )
    app.run_until_idle()
    app.signal(run, "a", {"ok": True, "order": 7})
    app.signal(run, "b", {"ok": True, "order": 8})
    details = {
        "step_name": "hold",
        "result_key": "got",
        "human_wait": None,
        "match_payload": {"ok": True},
        "correlation_key": "order",
        "correlation_value": 7,
        "wait_mode": "all",
        "matched": ["a"],
        "remaining": ["c", "b"],
        "due_at": "2026-01-01T00:01:00.000000+00:00",
    }
    assert waits(status_of(app, run)) == [["c", "a", "b"], "signal", "all", details]


def test_a_wait_for_workflows(app: Queuety) -> None:
    first, second, third = app.dispatch_many(app.workflow("w").wait_for_signal("go").then(fails), [{}] * 3)
    (done_,) = app.dispatch_many(app.workflow("w").then(work), [{}])
    app.run_until_idle()
    builder = app.workflow("waiter")
    builder.wait_for_workflows([third, first, 10**9, done_, second], WaitMode.QUORUM, "got", "wait", quorum=2)
    run = builder.dispatch()
    app.signal(first, "go")
    app.run_until_idle()
    details = {
        "step_name": "wait",
        "group_key": None,
        "result_key": "got",
        "quorum": 2,
        "wait_mode": "quorum",
        "matched": [str(done_)],
        "remaining": [str(third), str(second)],
        "failed": [str(first), str(10**9)],
    }
    ids = [str(id_) for id_ in (third, first, 10**9, done_, second)]
    assert waits(status_of(app, run)) == [ids, "workflow", "quorum", details]


def test_a_wait_for_a_group(app: Queuety) -> None:
    agent = app.workflow("agent").wait_for_signal("go")
    run = (
        app.workflow("w")
        .start_agents("tasks", agent, group_key="agents")
        .wait_for_agent_group(mode=WaitMode.ANY)
        .dispatch({"tasks": [1, 2]})
    )
    app.run_until_idle()
    state = status_of(app, run)
    ids = [str(id_) for id_ in state.state["agent_workflow_ids"]]
    details: Any = state.wait_details
    assert (state.waiting_for, state.wait_mode, details["group_key"], details["remaining"]) == (
        ids,
        "any",
        "agents",
        ids,
    )


def test_the_fields_are_empty_unless_the_run_waits(app: Queuety, clock: ManualClock) -> None:
    """W-36: they survived a cancellation."""
    running = app.workflow("w").then(work).wait_for_signal("go").dispatch()
    cancelled, over, late = app.dispatch_many(app.workflow("w").wait_for_signal("go", timeout=5), [{}] * 3)
    app.cancel_workflow(cancelled)
    app.signal(over, "go")
    clock.advance(seconds=5)
    app.run_until_idle(max_jobs=0)
    for run in (running, cancelled, over, late):
        assert waits(status_of(app, run)) == [None] * 4, status_of(app, run).status


def test_the_list_tells_the_same_as_the_status(app: Queuety) -> None:
    one = app.workflow("w").wait_for_decision().dispatch()
    two = app.workflow("w").wait_for_workflow(one).dispatch()
    app.run_until_idle()
    assert app.list_workflows() == [status_of(app, two), status_of(app, one)]
    assert [state.id for state in app.list_workflows(status=WorkflowStatus.WAITING_FOR_SIGNAL)] == [one]
    assert [state.id for state in app.list_workflows(status="waiting_for_workflows")] == [two]


def test_the_timeline_says_what_was_waited_for_and_what_came(app: Queuety) -> None:
    one = app.workflow("w").wait_for_signals(["a", "b"], WaitMode.ANY, "got").dispatch()
    two = app.workflow("w").wait_for_workflow(one, "got").dispatch()
    app.run_until_idle()
    app.signal(one, "b", {"n": 1})
    app.run_until_idle()
    assert [(event.event, event.step_type, event.output) for event in app.workflow_timeline(one)] == [
        ("workflow_waiting", "wait_for_signal", {"wait_type": "signal", "waiting_for": ["a", "b"], "wait_mode": "any"}),
        ("signal_received", "wait_for_signal", {"name": "b", "payload": {"n": 1}}),
        ("workflow_resumed", "wait_for_signal", {"got": {"b": {"n": 1}}}),
    ]
    waiting = {"wait_type": "workflow", "waiting_for": [str(one)], "wait_mode": "all"}
    assert [(event.event, event.step_type, event.output) for event in app.workflow_timeline(two)] == [
        ("workflow_waiting", "wait_for_workflows", waiting),
        ("workflow_resumed", "wait_for_workflows", {"got": {"got": {"b": {"n": 1}}}}),
    ]


def test_the_command_line_says_the_same(app: Queuety, database: Database) -> None:
    run = app.workflow("w").wait_for_decision().dispatch()
    waiter = app.workflow("w").wait_for_workflow(run).dispatch()
    app.run_until_idle()
    place = ("--database", database.url)
    status = told(*place, "workflow", "status", str(waiter))
    assert [status[name] for name in WAIT_FIELDS] == waits(status_of(app, waiter))
    listed = told(*place, "workflow", "list", "--status", "waiting_for_signal")
    assert [one["wait_details"]["human_wait"] for one in listed] == ["decision"]
