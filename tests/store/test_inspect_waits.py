"""Reading what runs wait for, and what their running steps have said of their progress."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from queuety import Queuety, WaitMode, WorkflowState, current, step
from queuety.model import WorkflowStatus
from queuety.testing import ManualClock


@step
def work(state: dict[str, Any]) -> dict[str, Any]:
    return {}


@step(max_attempts=1)
def fails(state: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no")


seen: list[WorkflowState] = []
"""What a step sees of its own run."""

watching: list[Queuety] = []


def _look() -> None:
    own = current().workflow_id
    assert own is not None
    state = watching[0].workflow_status(own)
    assert state is not None
    seen.append(state)


@step
def telling(state: dict[str, Any]) -> dict[str, Any]:
    current().heartbeat({"done": 3})
    _look()
    return {}


@step
def telling_too(state: dict[str, Any]) -> dict[str, Any]:
    current().heartbeat({"lines": 7})
    _look()
    return {}


def status_of(app: Queuety, workflow_id: int) -> WorkflowState:
    found = app.workflow_status(workflow_id)
    assert found is not None
    return found


def test_a_wait_for_signals_says_what_has_come(app: Queuety) -> None:
    run = (
        app.workflow("order")
        .wait_for_signals(
            ["paid", "packed"],
            result_key="both",
            name="hold",
            match_payload={"ok": True},
            correlation_key="order",
            timeout=90,
        )
        .dispatch({"order": 17})
    )
    app.signal(run, " packed ", {"ok": True, "order": 17})
    found = status_of(app, run)
    assert found.status is WorkflowStatus.WAITING_FOR_SIGNAL
    assert (found.wait_type, found.waiting_for, found.wait_mode) == ("signal", ["paid", "packed"], "all")
    assert found.wait_details == {
        "step_name": "hold",
        "result_key": "both",
        "human_wait": None,
        "match_payload": {"ok": True},
        "correlation_key": "order",
        "correlation_value": 17,
        "wait_mode": "all",
        "matched": ["packed"],
        "remaining": ["paid"],
        "due_at": "2026-01-01T00:01:30.000000+00:00",
    }
    app.signal(run, "paid", {"ok": True, "order": 17})
    done = status_of(app, run)
    assert done.status is WorkflowStatus.COMPLETED
    assert (done.wait_type, done.waiting_for, done.wait_mode, done.wait_details) == (None,) * 4


def test_nothing_is_waited_for_once_the_run_has_been_cancelled(app: Queuety) -> None:
    run = app.workflow("order").wait_for_approval().dispatch()
    assert status_of(app, run).wait_details["human_wait"] == "approval"  # type: ignore[index]
    app.cancel_workflow(run)
    found = status_of(app, run)
    assert (found.wait_type, found.waiting_for, found.wait_mode, found.wait_details) == (None,) * 4


def test_a_wait_for_workflows_says_how_they_stand(app: Queuety) -> None:
    done = app.workflow("one").then(work).dispatch()
    lost = app.workflow("two").then(fails).dispatch()
    app.run_until_idle()
    active = app.workflow("three").wait_for_signal("go").dispatch()
    ids = [active, done, lost, 999_999]
    run = (
        app.workflow("all").wait_for_workflows(ids, mode=WaitMode.QUORUM, quorum=2, result_key="r", name="w").dispatch()
    )
    found = status_of(app, run)
    assert found.status is WorkflowStatus.WAITING_FOR_WORKFLOWS
    assert (found.wait_type, found.wait_mode) == ("workflow", "quorum")
    assert found.waiting_for == [str(id_) for id_ in ids]
    assert found.wait_details == {
        "step_name": "w",
        "group_key": None,
        "result_key": "r",
        "quorum": 2,
        "wait_mode": "quorum",
        "matched": [str(done)],
        "remaining": [str(active)],
        "failed": [str(lost), "999999"],
    }


def test_a_group_is_named_by_its_key(app: Queuety) -> None:
    item = app.workflow("item").wait_for_signal("go")
    run = (
        app.workflow("all")
        .start_workflows("xs", item, group_key="crew")
        .wait_for_workflow_group("crew", mode=WaitMode.ANY)
        .dispatch({"xs": [1, 2]})
    )
    found = status_of(app, run)
    assert found.wait_details is not None
    assert (found.wait_details["group_key"], found.wait_mode) == ("crew", "any")
    assert found.waiting_for == [str(id_) for id_ in found.state["started_workflow_ids"]]


def test_a_list_reads_all_dependencies_in_one_statement(app: Queuety) -> None:
    hosts = [app.workflow("host").wait_for_signal("go").dispatch() for _ in range(4)]
    waiters = [app.workflow("w").wait_for_workflows([host, hosts[0]]).dispatch() for host in hosts]
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        asked.append(statement)

    event.listen(app.door.engine, "before_cursor_execute", note)
    try:
        runs = app.list_workflows(name="w")
    finally:
        event.remove(app.door.engine, "before_cursor_execute", note)
    assert [run.id for run in runs] == waiters[::-1]
    assert all(run.wait_details and run.wait_details["remaining"] == run.waiting_for for run in runs)
    reads = [statement for statement in asked if "queuety_workflows" in statement]
    assert len(reads) == 2, "the runs, and how those stand that they wait for"


@pytest.mark.parametrize(
    ("verb", "waiting", "sent"),
    [
        ("approve_workflow", "wait_for_approval", "yes"),
        ("approve_workflow", "wait_for_decision", "agreed"),
        ("reject_workflow", "wait_for_decision", "refused"),
        ("submit_workflow_input", "wait_for_input", "yes"),
        ("approve_workflow", "wait_for_input", "approval"),
        ("reject_workflow", "wait_for_approval", "rejected"),
        ("submit_workflow_input", "wait_for_approval", "input"),
    ],
)
def test_answers_take_the_name_that_the_step_has(app: Queuety, verb: str, waiting: str, sent: str) -> None:
    names = ("agreed", "refused") if waiting == "wait_for_decision" else ("yes",)
    run = getattr(app.workflow("ask"), waiting)(*names).dispatch()
    getattr(app, verb)(run, {"by": "Ada"})
    (signal,) = [event for event in app.workflow_timeline(run) if event.event == "signal_received"]
    assert signal.output == {"name": sent, "payload": {"by": "Ada"}}


def test_a_name_that_is_given_is_the_name(app: Queuety) -> None:
    run = app.workflow("ask").wait_for_decision().dispatch()
    app.approve_workflow(run, signal_name="approval")
    assert status_of(app, run).status is WorkflowStatus.WAITING_FOR_SIGNAL
    app.approve_workflow(run)
    assert status_of(app, run).state == {"decision": {"outcome": "approved", "signal": "approved", "data": {}}}


def test_an_answer_to_a_run_that_does_not_wait_is_kept_under_the_usual_name(app: Queuety) -> None:
    run = app.workflow("ask").then(work).wait_for_approval().dispatch()
    app.approve_workflow(run, {"n": 1})
    app.run_until_idle()
    assert status_of(app, run).state == {"approval": {"n": 1}}


@pytest.mark.parametrize("name", ["", "  ", "x" * 256, "a\x00b", 5, None])
def test_a_signal_needs_a_name(app: Queuety, name: Any) -> None:
    from queuety.errors import DefinitionError

    run = app.workflow("ask").wait_for_signal("go").dispatch()
    with pytest.raises(DefinitionError):
        app.signal(run, name)
    assert [event.event for event in app.workflow_timeline(run)] == ["workflow_waiting"]


@pytest.mark.parametrize("data", [[1], "x", 5, {"a": {1}}, {"a": float("nan")}, {1: 2}])
def test_a_signal_carries_a_mapping_of_json(app: Queuety, data: Any) -> None:
    from queuety.errors import PayloadError

    run = app.workflow("ask").wait_for_signal("go").dispatch()
    with pytest.raises(PayloadError):
        app.signal(run, "go", data)
    with pytest.raises(PayloadError):
        app.approve_workflow(run, data)
    assert status_of(app, run).status is WorkflowStatus.WAITING_FOR_SIGNAL


@pytest.mark.parametrize("verb", ["approve_workflow", "reject_workflow", "submit_workflow_input"])
@pytest.mark.parametrize("id_", [999_999, -1, 2**70])
def test_nobody_there_hears_a_signal(app: Queuety, verb: str, id_: int) -> None:
    from queuety.errors import NotFoundError

    with pytest.raises(NotFoundError, match=f"no workflow has the id {id_}"):
        app.signal(id_, "go")
    with pytest.raises(NotFoundError, match=f"no workflow has the id {id_}"):
        getattr(app, verb)(id_)


def test_progress_is_the_running_steps_own(app: Queuety, clock: ManualClock) -> None:
    watching[:] = [app]
    seen.clear()
    run = app.workflow("long").then(telling).parallel([telling_too, work, telling]).dispatch()
    assert status_of(app, run).progress is None
    app.run_until_idle()
    assert [state.progress for state in seen] == [{"done": 3}, {"0": {"lines": 7}}, {"2": {"done": 3}}]
    assert status_of(app, run).progress is None
    assert [state.progress for state in app.list_workflows()] == [None]
