"""Reading all of a run at once: JSON, of one moment, with everything that is told elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuety import Queuety, step, workflow
from queuety.errors import NotFoundError
from queuety.testing import ManualClock

State = dict[str, Any]
PARTS = [
    "workflow",
    "steps",
    "events",
    "jobs",
    "logs",
    "artifacts",
    "chunks",
    "signals",
    "wait_dependencies",
]


@step
def fine(state: State) -> State:
    return {"a": 1}


@step(max_attempts=1)
def bad(state: State) -> State:
    raise ValueError("no")


def test_a_bundle_holds_what_is_told_elsewhere(app: Queuety, clock: ManualClock) -> None:
    run = (
        app.workflow("w")
        .tag("x")
        .then(fine, "a")
        .wait_for_signal("go", step_name="wait", result_key="got")
        .then(bad, "b")
        .on_cancel(fine)
        .dispatch({"p": 1})
    )
    app.run_until_idle()
    app.signal(run, "stray", {"s": 1})
    app.signal(run, "go", {"g": 2})
    app.put_artifact(run, "report", {"large": True}, metadata={"m": 1})
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()

    bundle = app.workflow_trace(run)
    assert list(bundle) == PARTS
    assert json.loads(json.dumps(bundle)) == bundle
    state = app.workflow_status(run)
    assert state is not None
    assert (bundle["workflow"]["status"], bundle["workflow"]["tags"]) == ("cancelled", ["x"])
    assert bundle["workflow"]["created_at"] == "2026-01-01T00:00:00.000000+00:00"
    events = app.workflow_timeline(run, 1_000)
    assert [event["id"] for event in bundle["events"]] == [event.id for event in events]
    assert [event["state_after"] for event in bundle["events"]] == [event.state_after for event in events]
    assert [line["id"] for line in bundle["logs"]] == [line.id for line in app.logs(run, limit=1_000)]
    jobs = app.list_jobs(workflow_id=run, cleanup=True)
    assert [job["id"] for job in bundle["jobs"]] == sorted(job.id for job in jobs)
    assert [(job["status"], job["priority"]) for job in bundle["jobs"]] == [
        ("completed", 0),
        ("buried", 0),
        ("completed", 0),
    ]
    assert [(each["step_index"], each["step_name"], each["latest"]["event"]) for each in bundle["steps"]] == [
        (0, "a", "step_completed"),
        (1, "wait", "workflow_resumed"),
        (2, "b", "workflow_cancelled"),
    ]
    assert [len(each["events"]) for each in bundle["steps"]] == [2, 4, 3]
    assert (bundle["steps"][0]["handler"], bundle["steps"][0]["step_type"]) == (f"{__name__}:fine", "single")
    assert [(each["name"], each["payload"], each["used"]) for each in bundle["signals"]] == [
        ("stray", {"s": 1}, False),
        ("go", {"g": 2}, True),
    ]
    (artifact,) = bundle["artifacts"]
    assert (artifact["key"], artifact["kind"], artifact["metadata"]) == ("report", "json", {"m": 1})
    assert "content" not in artifact
    assert (bundle["chunks"], bundle["wait_dependencies"]) == ([], [])


def test_a_run_that_waits_names_what_for(app: Queuety) -> None:
    kid = workflow("kid").wait_for_signal("go")
    waiting = app.dispatch_workflow(kid)
    run = app.workflow("w").wait_for_workflows([waiting, 987_654], mode="any").dispatch()
    assert app.workflow_trace(run)["wait_dependencies"] == [
        {"workflow_id": waiting, "name": "kid", "status": "waiting_for_signal"},
        {"workflow_id": 987_654, "name": None, "status": None},
    ]
    parent = app.workflow("mum").run_workflow("kid", kid).dispatch()
    (child,) = app.list_workflows(parent_id=parent)
    assert [each["workflow_id"] for each in app.workflow_trace(parent)["wait_dependencies"]] == [child.id]


def test_states_may_be_left_out(app: Queuety) -> None:
    run = app.workflow("w").then(fine).dispatch()
    app.run_until_idle()
    whole, lean = app.workflow_trace(run), app.workflow_trace(run, states=False)
    left_out = {"input", "state_before", "state_after"}
    assert [{key: value for key, value in event.items() if key not in left_out} for event in whole["events"]] == (
        lean["events"]
    )


def test_an_unknown_run_is_refused(app: Queuety) -> None:
    for unknown in (987_654_321, 1 << 70):
        with pytest.raises(NotFoundError, match=f"no workflow has the id {unknown}"):
            app.workflow_trace(unknown)
