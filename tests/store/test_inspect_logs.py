"""Reading the log: what is told, how often, in which order, and for how many rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import case

from queuety import ForEachMode, Queuety, job, step
from queuety.errors import DefinitionError
from queuety.inspect import logs
from queuety.inspect.logged import EVENTS, LogRow
from queuety.inspect.logs import Wanted, read_log
from queuety.model import Entry
from queuety.store.tx import Tx
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.plans import analyze, planned
from tests.support.runs import BEGIN_US, Scene
from tests.support.runs import step as spec

State = dict[str, Any]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@step
def fine(state: State) -> State:
    return {}


@step(max_attempts=3, backoff=[1], queue="slow")
def third_time(state: State) -> State:
    tries.append(1)
    if len(tries) < 3:
        raise ValueError("not yet")
    return {}


@step(max_attempts=1)
def picky(state: State, item: int, index: int) -> State:
    if item < 0:
        raise ValueError("negative")
    return {"n": item}


@job(max_attempts=2, backoff=[1])
def mail(to: str) -> None:
    if to == "nobody":
        raise LookupError("no address")


tries: list[int] = []


@pytest.fixture
def scene(database: Database) -> Iterator[Scene]:
    with Scene(database.url) as made:
        yield made


def counts(lines: list[LogRow]) -> dict[str, int]:
    return dict(Counter(line.event for line in lines))


def drained(app: Queuety, clock: ManualClock, rounds: int = 4) -> None:
    for _ in range(rounds):
        app.run_until_idle(["default", "slow"])
        clock.advance(seconds=2)


def test_a_run_of_three_steps(app: Queuety) -> None:
    run = app.workflow("w").then(fine, "a").then(fine, "b").then(fine, "c").dispatch()
    app.run_until_idle()
    lines = app.logs(run)
    assert counts(lines) == {"workflow_started": 1, "started": 3, "completed": 3, "workflow_completed": 1}
    assert [line.event for line in lines] == [
        "workflow_started",
        *["started", "completed"] * 3,
        "workflow_completed",
    ]
    assert [line.step_index for line in lines] == [None, 0, 0, 1, 1, 2, 2, None]
    assert lines[0] == LogRow(
        id=f"{run}.1767225600000000.workflow_started",
        event="workflow_started",
        handler=None,
        queue=None,
        job_id=None,
        workflow_id=run,
        step_index=None,
        attempt=None,
        duration_ms=None,
        error_message=None,
        error_class=None,
        context={"name": "w"},
        created_at=BEGIN,
    )
    completed = lines[2]
    assert (completed.id, completed.handler, completed.queue, completed.attempt) == (
        f"{run}.1.completed",
        f"{__name__}:fine",
        "default",
        1,
    )
    assert completed.duration_ms is not None
    assert lines[-1].duration_ms == 0


def test_a_step_that_fails_twice(app: Queuety, clock: ManualClock) -> None:
    tries.clear()
    run = app.workflow("w").then(third_time, "a").dispatch()
    drained(app, clock)
    lines = app.logs(run)
    assert counts(lines) == {
        "workflow_started": 1,
        "started": 3,
        "failed": 2,
        "retried": 2,
        "completed": 1,
        "workflow_completed": 1,
    }
    failed = next(line for line in lines if line.event == "failed")
    assert (failed.error_message, failed.error_class, failed.attempt, failed.queue) == (
        "not yet",
        "builtins:ValueError",
        1,
        "slow",
    )
    assert len({line.id for line in lines}) == len(lines)
    assert [line.created_at for line in lines if line.event == "started"] == [
        BEGIN + timedelta(seconds=seconds) for seconds in (0, 2, 4)
    ]


def test_a_last_failure_buries_and_ends_its_run_unless_that_can_do_without(app: Queuety) -> None:
    doing = app.workflow("race").for_each("xs", picky, "out", ForEachMode.FIRST_SUCCESS).dispatch({"xs": [-1, 1]})
    app.run_until_idle()
    assert counts(app.logs(doing)) == {
        "workflow_started": 1,
        "started": 2,
        "buried": 1,
        "completed": 1,
        "workflow_completed": 1,
    }
    failing = app.workflow("all").for_each("xs", picky, "out").dispatch({"xs": [-1]})
    app.run_until_idle()
    *_, buried, failed = app.logs(failing)
    assert (buried.event, buried.context, failed.event, failed.context) == (
        "buried",
        {"branch": 0},
        "workflow_failed",
        {"error_kind": "StepFailed"},
    )
    assert (failed.error_message, failed.job_id, failed.workflow_id) == ("negative", None, failing)


def test_jobs_without_a_workflow(app: Queuety, clock: ManualClock) -> None:
    good, lost = app.dispatch(mail, {"to": "a"}), app.dispatch(mail, {"to": "nobody"}, queue="slow")
    drained(app, clock)
    assert [(line.event, line.job_id, line.workflow_id) for line in app.logs(job_id=good)] == [
        ("started", good, None),
        ("completed", good, None),
    ]
    lines = app.logs(job_id=lost)
    assert [line.event for line in lines] == ["started", "failed", "retried", "started", "buried"]
    assert {(line.handler, line.queue) for line in lines} == {(f"{__name__}:mail", "slow")}
    assert app.logs(workflow_id=good) == []
    jobs = app.door.tables.jobs
    app.door.write(lambda tx: tx.connection.execute(jobs.delete()))
    assert {(line.event, line.handler) for line in app.logs(job_id=good)} == {("started", None), ("completed", None)}


def test_the_newest_come_first_unless_a_part_is_asked_for(
    app: Queuety, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = app.workflow("w").then(fine, "a").dispatch()
    app.run_until_idle()
    clock.advance(minutes=1)
    plain = app.dispatch(mail, {"to": "a"})
    second = app.workflow("w").then(fine, "a").wait_for_signal("go").dispatch()
    app.run_until_idle()
    clock.advance(minutes=1)
    app.cancel_workflow(second)

    whole = app.logs()
    assert [line.event for line in whole][:1] == ["workflow_cancelled"]
    assert [line.workflow_id for line in whole][-4:] == [first] * 4
    assert app.logs(limit=3) == whole[:3]
    assert app.logs(limit=0) == []
    since = app.logs(since=BEGIN + timedelta(minutes=1))
    assert since == whole[: len(since)][::-1]
    assert {line.workflow_id for line in since} == {second, None}
    assert app.logs(since=timedelta(minutes=1, seconds=30)) == app.logs(since=90) == since
    assert app.logs(handler=f"{__name__}:mail") == [line for line in whole if line.job_id == plain]
    for event in ("workflow_started", "workflow_completed", "completed", "workflow_cancelled"):
        assert app.logs(event=event) == [line for line in whole if line.event == event]
        assert app.logs(second, event=event) == [
            line for line in whole[::-1] if line.event == event and line.workflow_id == second
        ]
    monkeypatch.setattr(logs, "PAGE", 1)
    monkeypatch.setattr(logs, "LARGEST_PAGE", 2)
    assert app.logs() == whole
    assert app.logs(since=BEGIN) == app.logs(since=3_600) == whole[::-1]
    assert app.logs(first) == [line for line in whole[::-1] if line.workflow_id == first]


def test_a_completion_is_told_while_it_lasts(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").then(fine, "a").then(fine, "b").dispatch()
    app.run_until_idle()
    ended = app.logs(run, event="workflow_completed")
    assert app.logs(event="workflow_completed") == ended
    clock.advance(seconds=5)
    app.rewind_workflow(run, "a")
    assert counts(app.logs(run)).get("workflow_completed") is None
    app.rewind_workflow(run, "b")
    lines = app.logs(run)
    assert [line.event for line in lines][-2:] == ["workflow_rewound", "workflow_completed"]
    assert (lines[-1].created_at, lines[-1].duration_ms) == (BEGIN + timedelta(seconds=5), 5_000)
    assert app.logs(event="workflow_completed") == lines[-1:]


def test_wrong_conditions_are_refused(app: Queuety) -> None:
    with pytest.raises(DefinitionError, match=r"no log event 'gone'; there are started, completed"):
        app.logs(event="gone")
    with pytest.raises(DefinitionError, match="a datetime with a time zone is needed"):
        app.logs(since=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(DefinitionError, match="since=-1"):
        app.logs(since=-1)
    with pytest.raises(DefinitionError, match="limit=-1"):
        app.logs(limit=-1)
    assert app.logs(987_654_321) == app.logs(job_id=1 << 70) == []
    assert len(EVENTS) == 20


def test_the_edge_of_an_index_is_read(scene: Scene) -> None:
    """Among thousands of runs the newest lines cost what a few do."""
    runs = scene.start_many(scene.define(spec("a")), [{}] * 1_500)
    workflows, history = scene.tables.workflows, scene.tables.history
    created_us = workflows.c.created_us + (workflows.c.id - runs[0]) * 1_000
    is_done = workflows.c.id % 3 == 0
    ended: dict[str, Any] = {
        "completed_us": case((is_done, created_us + 500)),
        "status": case((is_done, "completed"), else_="running"),
    }
    rows = [
        {
            "run_id": run,
            "seq": seq,
            "entry": Entry.COMPLETED.value,
            "at_us": BEGIN_US + run * 1_000 + seq,
            "started_us": BEGIN_US,
            "job_id": 1_000_000 + run * 10 + seq,
            "token": 0,
            "attempt": 1,
            "step_index": 0,
            "visit": seq,
            "final": 0,
        }
        for run in runs
        for seq in range(1, 5)
    ]

    def unit(tx: Tx) -> None:
        tx.connection.execute(workflows.update().values(created_us=created_us, **ended))
        tx.connection.execute(history.insert(), rows)

    scene.door.write(unit)
    analyze(scene, workflows, history)
    for wanted, index in (
        (Wanted(), "history_at"),
        (Wanted(), "workflows_created"),
        (Wanted(since_us=BEGIN_US + 2), "history_at"),
        (Wanted(event="completed"), "history_at"),
        (Wanted(event="workflow_started"), "workflows_created"),
        (Wanted(event="workflow_completed"), "workflows_done"),
    ):
        with scene.door.reading() as connection:
            lines, plans = planned(
                scene, connection, lambda wanted=wanted: read_log(connection, scene.tables, wanted, limit=5)
            )
        assert len(lines) == 5
        assert any(f"ix_queuety_{index}" in plan for _, plan in plans), (wanted, plans)
