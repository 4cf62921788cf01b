"""Reading steps that run several jobs, and what runs tell each other: their events, and their jobs."""

from __future__ import annotations

from typing import Any

import pytest

from queuety import JobStatus, Queuety, WaitMode, step, workflow
from queuety.define.builder import WorkflowBuilder
from queuety.define.marks import ForEachReducer
from queuety.inspect.timeline import TimelineEvent, job_history
from queuety.model import Entry
from queuety.testing import ManualClock


@step
def left(state: dict[str, Any]) -> dict[str, Any]:
    return {"l": 1}


@step(queue="fast", max_attempts=5)
def right(state: dict[str, Any]) -> dict[str, Any]:
    return {"r": 2}


@step
def double(state: dict[str, Any], item: int, index: int) -> dict[str, Any]:
    if item < 0:
        raise ValueError("negative")
    return {"n": item * 2}


class Sum(ForEachReducer):
    def reduce(self, state: Any, for_each: Any) -> Any:
        return {"sum": sum(result["output"]["n"] for result in for_each["results"])}


@step
def is_done(state: dict[str, Any]) -> bool:
    return True


def told(app: Queuety, workflow_id: int) -> list[tuple[str, str | None, str | None]]:
    return [(event.event, event.step_name, _name(event.handler)) for event in app.workflow_timeline(workflow_id, 1_000)]


def _name(handler: str | None) -> str | None:
    return handler and handler.partition(":")[2]


def of(app: Queuety, workflow_id: int, name: str) -> list[TimelineEvent]:
    return [event for event in app.workflow_timeline(workflow_id, 1_000) if event.event == name]


def test_branches_complete_and_then_their_step(app: Queuety) -> None:
    run = app.workflow("p").parallel([left, right], "both").dispatch()
    app.run_until_idle()
    assert sorted(told(app, run)[:4]) == [
        ("step_branch_completed", "both", "left"),
        ("step_branch_completed", "both", "right"),
        ("step_started", "both", "left"),
        ("step_started", "both", "right"),
    ]
    assert told(app, run)[4:] == [("step_completed", "both", None)]
    one, other = sorted(of(app, run, "step_branch_completed"), key=lambda event: event.handler or "")
    assert (one.output, other.output) == ({"l": 1}, {"r": 2})
    assert (one.queue, other.queue) == ("default", "fast")
    assert (one.parent_event_id, other.parent_event_id) == (one.id - 1, other.id - 1)
    (end,) = of(app, run, "step_completed")
    assert (end.job_id, end.attempt, end.queue, end.parent_event_id, end.duration_ms) == (None,) * 5


def test_items_complete_and_then_their_step(app: Queuety) -> None:
    run = app.workflow("f").for_each("xs", double, "out", name="each", reducer=Sum).dispatch({"xs": [1, 2]})
    app.run_until_idle()
    assert told(app, run) == [
        ("step_started", "each", "double"),
        ("step_item_completed", "each", "double"),
        ("step_started", "each", "double"),
        ("step_item_completed", "each", "double"),
        ("step_started", "each", "Sum"),
        ("step_completed", "each", "Sum"),
    ]
    assert [event.output for event in of(app, run, "step_item_completed")] == [{"n": 2}, {"n": 4}]
    assert [event.output for event in of(app, run, "step_completed")] == [{"sum": 6}]
    jobs = {job.handler.partition(":")[2]: job for job in app.list_jobs(workflow_id=run)}
    assert jobs.keys() == {"double", "Sum"}
    with app.door.reading() as connection:
        (attempt,) = job_history(connection, app.door.tables, jobs["double"].id)
    assert attempt.output == {"n": 2}, "jobs come newest first, so the first item's is the last"


def test_an_empty_list_is_a_step_that_completes(app: Queuety) -> None:
    run = app.workflow("f").for_each("xs", double, "out", name="each").then(left, "after").dispatch({"xs": []})
    assert told(app, run) == [("step_completed", "each", "double")]


def test_loops_and_starts_complete_and_waits_resume(app: Queuety, clock: ManualClock) -> None:
    child = workflow("child").then(left)
    run = (
        app.workflow("all")
        .then(left, "first")
        .repeat_until("first", "l", 1, name="loop")
        .repeat_until("first", condition=is_done, name="asked")
        .start_workflows("xs", child, name="start")
        .wait_for_workflows("started_workflow_ids", name="ended")
        .run_workflow("kid", child, "kid")
        .delay(seconds=5, step_name="nap")
        .wait_for_signal("go", step_name="sig", result_key="got")
        .dispatch({"xs": [1]})
    )
    app.run_until_idle()
    clock.advance(seconds=5)
    app.run_until_idle()
    app.signal(run, "go", {"a": 1})
    assert [(event, step) for event, step, _ in told(app, run)] == [
        ("step_started", "first"),
        ("step_completed", "first"),
        ("step_completed", "loop"),
        ("step_started", "asked"),
        ("step_completed", "asked"),
        ("step_completed", "start"),
        ("workflow_waiting", "ended"),
        ("workflow_resumed", "ended"),
        ("workflow_resumed", "kid"),
        ("workflow_resumed", "nap"),
        ("workflow_waiting", "sig"),
        ("signal_received", "sig"),
        ("workflow_resumed", "sig"),
    ]
    started = of(app, run, "step_completed")[-1].output
    assert started is not None
    ended, sig = of(app, run, "workflow_waiting")
    ids = [str(id_) for id_ in started["started_workflow_ids"]]
    assert ended.output == {"wait_type": "workflow", "waiting_for": ids, "wait_mode": "all"}
    assert sig.output == {"wait_type": "signal", "waiting_for": ["go"], "wait_mode": "all"}
    assert [event.output for event in of(app, run, "signal_received")] == [{"name": "go", "payload": {"a": 1}}]
    assert of(app, run, "workflow_resumed")[-1].output == {"got": {"a": 1}}


def test_what_means_nothing_to_people_is_neither_shown_nor_counted(app: Queuety) -> None:
    """Being watched by another run leaves a row."""
    run = app.workflow("host").wait_for_signals(["a", "b"], mode=WaitMode.ALL).then(left).dispatch()
    app.workflow("waiter").wait_for_workflow(run).dispatch()
    app.run_until_idle()
    for name in ("a", "c", "b"):
        app.signal(run, name)
    app.run_until_idle()
    history = app.door.tables.history
    with app.door.reading() as connection:
        entries = [row.entry for row in connection.execute(history.select().where(history.c.run_id == run))]
    assert Entry.NOTED in entries
    whole = list(app.workflow_timeline(run))
    assert [event.event for event in whole] == [
        "workflow_waiting",
        "signal_received",
        "signal_received",
        "signal_received",
        "workflow_resumed",
        "step_started",
        "step_completed",
    ]
    for size in (1, 2, 3):
        pages = [app.workflow_timeline(run, size, offset) for offset in range(0, len(whole), size)]
        assert [event for page in pages for event in page] == whole, size
    assert app.workflow_timeline(run, 10, len(whole)) == []


def test_completed_branches_and_items_are_jobs(app: Queuety) -> None:
    run = (
        app.workflow("both")
        .parallel([left, right], "p")
        .for_each("xs", double, "out", name="each", reducer=Sum)
        .dispatch({"xs": [1, 2, 3]})
    )
    app.run_until_idle()
    jobs = app.list_jobs(workflow_id=run)
    assert sorted(_name(job.handler) or "" for job in jobs) == ["Sum", "double", "double", "double", "left", "right"]
    assert {job.status for job in jobs} == {JobStatus.COMPLETED}
    (fast,) = app.list_jobs(queue="fast")
    assert (_name(fast.handler), fast.max_attempts, fast.step_index) == ("right", 5, 0)
    assert app.job_status(fast.id) == fast
    assert app.stats()["completed"] == 6
    assert app.stats("fast") == {"pending": 0, "processing": 0, "completed": 1, "failed": 0, "buried": 0}
    assert app.stats("default")["completed"] == 5


def test_steps_count_in_the_queue_in_which_they_ran_whatever_their_run_became(app: Queuety) -> None:
    def version(queue: str) -> WorkflowBuilder:
        return app.workflow("moved").then(left, "a", queue=queue).delay(hours=1).then(left, "b", queue=queue)

    run = version("old").dispatch()
    app.run_until_idle()
    target = app.workflow_status(version("new").dispatch())
    assert target is not None
    app.migrate_workflow(run, target.definition_hash)
    app.run_now(run)
    app.run_until_idle()
    listed = [job.queue for job in app.list_jobs(status="completed")]
    assert listed.count("old") == 1
    for queue in ("old", "new"):
        assert app.stats(queue)["completed"] == listed.count(queue)
    assert app.stats()["completed"] == len(listed)


@pytest.mark.parametrize("reading", ["stats", "list_jobs"])
def test_what_was_superseded_is_not_counted_as_completed(app: Queuety, reading: str) -> None:
    from queuety import ForEachMode

    run = app.workflow("race").for_each("xs", double, "out", ForEachMode.FIRST_SUCCESS).dispatch({"xs": [-1, 1, 2]})
    app.run_until_idle()
    states = [job.status for job in app.list_jobs(workflow_id=run)]
    assert (states.count(JobStatus.COMPLETED), states.count(JobStatus.BURIED)) == (1, 2)
    assert (app.stats()["completed"], app.stats()["buried"]) == (1, 2)
