"""Reading what people did to a run and what cleaned up after it: events, log and earlier states of the time."""

from __future__ import annotations

from typing import Any

from queuety import Queuety, step
from queuety.inspect.events import TimelineEvent
from queuety.testing import ManualClock

State = dict[str, Any]


@step
def first(state: State) -> State:
    return {"a": state.get("a", 0) + 1}


@step
def second(state: State) -> State:
    return {"b": 1}


@step(max_attempts=1)
def bad(state: State) -> State:
    raise ValueError("no")


@step
def undo(state: State) -> None:
    """Undoes a step, or cleans up after a run."""


@step
def undo_first(state: State) -> None:
    """Undoes the first step."""


def of(app: Queuety, run: int, *names: str) -> list[TimelineEvent]:
    return [event for event in app.workflow_timeline(run, 1_000) if event.event in names]


def name(handler: str | None) -> str | None:
    return handler and handler.partition(":")[2]


def test_what_people_did_is_told_with_who_and_why(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").then(first, "a").delay(hours=1, step_name="nap").then(bad, "b").then(second, "c").dispatch()
    app.run_until_idle()
    by = {"actor": "Ada", "reason": "typo"}
    app.run_now(run, **by)
    app.run_until_idle()
    app.patch_state(run, {"x": 1}, remove=["a"], **by)
    app.retry_workflow(run, with_state={"y": 2}, **by)
    app.run_until_idle()
    app.skip_step(run, "b", **by)
    app.pause_workflow(run, actor="Bob")
    app.complete_step(run, {"done": True}, **by)
    app.rewind_workflow(run, "a", with_state={"z": 3}, **by)
    other = app.fork_workflow(run, **by)
    app.cancel_workflow(other, reason="enough")

    told = of(
        app,
        run,
        "workflow_hurried",
        "workflow_patched",
        "workflow_retried",
        "step_skipped",
        "workflow_paused",
        "workflow_rewound",
        "workflow_forked",
    )
    assert [(event.event, event.actor, event.reason) for event in told] == [
        ("workflow_hurried", "Ada", "typo"),
        ("workflow_patched", "Ada", "typo"),
        ("workflow_retried", "Ada", "typo"),
        ("step_skipped", "Ada", "typo"),
        ("workflow_paused", "Bob", None),
        ("workflow_rewound", "Ada", "typo"),
        ("workflow_forked", "Ada", "typo"),
    ]
    _, patched, retried, skipped, _, rewound, forked = told
    assert (patched.changed, patched.removed, patched.state_before, patched.state_after) == (
        {"x": 1},
        ["a"],
        {"a": 1},
        {"x": 1},
    )
    assert (retried.changed, retried.state_after) == ({"y": 2}, {"x": 1, "y": 2})
    assert (skipped.step_name, skipped.output, skipped.state_after) == ("b", {}, {"x": 1, "y": 2})
    (completed,) = (event for event in of(app, run, "step_completed") if event.job_id is None)
    assert (completed.step_name, completed.output, completed.actor, completed.attempt) == (
        "c",
        {"done": True},
        "Ada",
        None,
    )
    assert rewound.output is not None
    assert (rewound.output["to_step"], rewound.state_after) == (0, {"a": 1, "z": 3})
    assert (rewound.changed, rewound.removed) == ({"a": 1, "z": 3}, ["x", "y", "done"])
    assert forked.output == {"to": other}
    assert [(event.event, event.output, event.actor) for event in app.workflow_timeline(other)][:1] == [
        ("workflow_forked", {"from": run}, "Ada")
    ]

    lines = {line.event: line for line in app.logs(run, limit=1_000)}
    assert (lines["workflow_rewound"].context, lines["workflow_forked"].context) == (
        {"actor": "Ada", "reason": "typo", "rewound_to_step": 0},
        {"actor": "Ada", "reason": "typo", "forked_workflow_id": other},
    )
    assert lines["step_completed"].context == lines["step_skipped"].context == by
    assert lines["workflow_resumed"].context == by, "a retry"
    forks = {line.event: line.context for line in app.logs(other, limit=1_000)}
    assert forks["workflow_forked"] == {"actor": "Ada", "reason": "typo", "forked_from_workflow_id": run}
    assert forks["workflow_cancelled"] == {"reason": "enough"}


def test_what_cleans_up_is_told_by_the_step_that_it_undoes(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .then(first, "a")
        .compensate_with(undo_first)
        .then(second, "b")
        .compensate_with(bad)
        .wait_for_signal("go")
        .on_cancel(undo)
        .max_attempts(1)
        .dispatch()
    )
    app.run_until_idle()
    app.patch_state(run, {"late": True})
    app.cancel_workflow(run)
    app.run_until_idle()
    events = of(app, run, "cleanup_started", "cleanup_completed", "cleanup_failed")
    assert [(event.event, event.step_name, event.step_index, name(event.handler)) for event in events] == [
        ("cleanup_started", "b", 1, "bad"),
        ("cleanup_failed", "b", 1, "bad"),
        ("cleanup_started", "a", 0, "undo_first"),
        ("cleanup_completed", "a", 0, "undo_first"),
        ("cleanup_started", None, None, "undo"),
        ("cleanup_completed", None, None, "undo"),
    ]
    assert [event.state_before for event in events[::2]] == [
        {"a": 1, "b": 1},
        {"a": 1},
        {"a": 1, "b": 1, "late": True},
    ]
    assert {event.input_delta is None and event.state_after is None for event in events} == {True}
    assert (events[1].error_message, events[0].queue, events[0].input) == ("no", "default", {"a": 1, "b": 1})
    lines = [(line.event, name(line.handler), line.step_index) for line in app.logs(run, limit=1_000)][-6:]
    assert lines == [
        ("started", "bad", 1),
        ("buried", "bad", 1),
        ("started", "undo_first", 0),
        ("completed", "undo_first", 0),
        ("started", "undo", None),
        ("completed", "undo", None),
    ]


def test_a_deadline_is_told_with_its_handler(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go").must_complete_within(minutes=1).on_deadline(undo).dispatch()
    clock.advance(minutes=2)
    app.run_until_idle()
    assert [(event.event, name(event.handler)) for event in app.workflow_timeline(run)][-2:] == [
        ("cleanup_started", "undo"),
        ("cleanup_completed", "undo"),
    ]
    lines = app.logs(run)
    assert [line.event for line in lines] == [
        "workflow_started",
        "workflow_deadline_exceeded",
        "workflow_failed",
        "started",
        "completed",
    ]
    assert (lines[2].error_message, lines[2].context) == ("Deadline exceeded", {"error_kind": "DeadlineExceeded"})


def test_a_run_that_was_moved_is_told_by_the_definition_of_the_time(app: Queuety) -> None:
    old = app.workflow("w").then(first, "a").compensate_with(undo_first).then(second, "b").version("1")
    new = (
        app.workflow("w").then(second, "new").then(first, "was_a").wait_for_signal("go").then(second, "b").version("2")
    )
    run = old.dispatch()
    app.run_until_idle(max_jobs=1)
    assert app.workflow_state_at(run, "b") is None
    app.pause_workflow(run)
    app.migrate_workflow(run, new, {"a": "was_a", "b": "wait_for_go"}, actor="Ada")
    app.resume_workflow(run)
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    events = list(app.workflow_timeline(run))
    for size in (1, 4):
        pages = [app.workflow_timeline(run, size, offset) for offset in range(0, len(events), size)]
        assert [event for page in pages for event in page] == events
    assert [(event.event, event.step_name, name(event.handler)) for event in events] == [
        ("step_started", "a", "first"),
        ("step_completed", "a", "first"),
        ("workflow_paused", "b", "second"),
        ("workflow_migrated", "b", "second"),
        ("workflow_resumed", "wait_for_go", None),
        ("workflow_waiting", "wait_for_go", None),
        ("workflow_cancelled", "wait_for_go", None),
        ("cleanup_started", "a", "undo_first"),
        ("cleanup_completed", "a", "undo_first"),
    ]
    migrated = events[3]
    assert migrated.output is not None
    assert (migrated.actor, migrated.output["to_step"], migrated.output["step_map"]["a"]) == ("Ada", 2, "was_a")
    assert app.workflow_state_at(run, "was_a") == app.workflow_state_at(run, 1) == {"a": 1}
    assert app.workflow_state_at(run, "new") is app.workflow_state_at(run, 0) is None
    jobs = app.list_jobs(workflow_id=run, status="completed", cleanup=True)
    assert [name(job.handler) for job in jobs] == ["undo_first", "first"]
    assert [app.job_status(job.id) for job in jobs] == jobs
    undone = app.logs(handler=f"{__name__}:undo_first")
    assert [(line.event, line.step_index) for line in undone] == [("completed", 0), ("started", 0)]
    assert app.logs(handler="nobody:knows") == []
    lines = app.logs(event="completed")
    assert sorted(name(line.handler) or "" for line in lines) == ["first", "undo_first"]
    assert app.logs(since=3_600, event="completed") == lines[::-1]
