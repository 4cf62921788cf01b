"""Reading what has happened to a run and to a job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from queuety.errors import DefinitionError
from queuety.inspect.timeline import JobAttempt, TimelineEvent, job_history, workflow_timeline
from queuety.model import Cancel, HandlerRef, Pause, Resume, RetryRun
from tests.support.databases import Database
from tests.support.runs import Scene, step

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def scene(database: Database) -> Iterator[Scene]:
    with Scene(database.url) as made:
        yield made


def events_of(scene: Scene, workflow_id: int, limit: int = 100, offset: int = 0) -> list[TimelineEvent]:
    with scene.door.reading() as connection:
        return workflow_timeline(connection, scene.tables, workflow_id, limit, offset)


def attempts_of(scene: Scene, job_id: int) -> list[JobAttempt]:
    with scene.door.reading() as connection:
        return job_history(connection, scene.tables, job_id)


def names(events: list[TimelineEvent]) -> list[tuple[str, str | None]]:
    return [(event.event, event.step_name) for event in events]


def test_an_attempt_is_a_start_and_an_end(scene: Scene) -> None:
    run = scene.start(scene.define(step("fetch", "tests:fetch")), {"a": 1})
    (job,) = scene.claim()
    scene.succeed(job, {"b": 2, "_next_step": None, "_queuety_trace": {"input": 1}}, took_s=1.5)
    begun, ended = events_of(scene, run)
    assert begun == TimelineEvent(
        id=1,
        workflow_id=run,
        event="step_started",
        step_index=0,
        step_name="fetch",
        step_type="single",
        handler="tests:fetch",
        queue="default",
        job_id=job.id,
        parent_event_id=None,
        attempt=1,
        input=1,
        output=None,
        state_before={"a": 1},
        state_after=None,
        changed=None,
        removed=None,
        input_delta={"changed": {"a": 1}, "removed": []},
        context=None,
        artifacts=None,
        chunks=None,
        error=None,
        error_message=None,
        duration_ms=None,
        created_at=BEGIN,
        worker=7,
        actor=None,
        reason=None,
    )
    assert (ended.id, ended.event, ended.parent_event_id, ended.attempt) == (2, "step_completed", 1, 1)
    assert ended.output == {"b": 2, "_next_step": None}
    assert (ended.duration_ms, ended.created_at) == (1500, BEGIN + timedelta(seconds=1.5))
    assert (ended.error, ended.error_message) == (None, None)


def test_a_step_that_returned_nothing_has_an_empty_output(scene: Scene) -> None:
    run = scene.start(scene.define(step("a")))
    scene.run(run, {})
    assert [event.output for event in events_of(scene, run)] == [None, {}]


def test_failures_retries_and_commands_come_in_order(scene: Scene) -> None:
    run = scene.start(scene.define(step("a"), step("b"), on_cancel=HandlerRef("tests:undo")))
    (job,) = scene.claim()
    scene.fail(job, "first")
    scene.clock.advance(60)
    scene.fail(scene.claim()[0], "second", is_final=True)
    scene.command(run, RetryRun())
    scene.command(run, Pause())
    scene.succeed(scene.claim()[0])
    scene.command(run, Resume())
    scene.command(run, Cancel())
    (undo,) = [job for job in scene.claim() if job.workflow_id == run]
    scene.fail(undo, "cannot")
    scene.clock.advance(60)
    scene.succeed(scene.claim()[0])

    events = events_of(scene, run)
    assert names(events) == [
        ("step_started", "a"),
        ("step_failed", "a"),
        ("step_started", "a"),
        ("step_failed", "a"),
        ("workflow_retried", "a"),
        ("workflow_paused", "a"),
        ("step_started", "a"),
        ("step_completed", "a"),
        ("workflow_resumed", "b"),
        ("workflow_cancelled", "b"),
        ("cleanup_started", None),
        ("cleanup_failed", None),
        ("cleanup_started", None),
        ("cleanup_completed", None),
    ]
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))
    assert [event.created_at for event in events] == sorted(event.created_at for event in events)
    failed = events[1]
    assert failed.error == {"message": "first", "class": "ValueError", "trace": "Traceback …"}
    assert (failed.error_message, failed.output, failed.attempt, failed.parent_event_id) == ("first", None, 1, ids[0])
    assert (events[3].attempt, events[7].attempt) == (2, 1)
    paused = events[5]
    assert (paused.job_id, paused.attempt, paused.output, paused.duration_ms, paused.queue) == (None,) * 5


def test_a_delay_is_one_event_when_it_is_over(scene: Scene) -> None:
    run = scene.start(scene.define(step("wait", None, "delay", settings={"seconds": 60}), step("a")))
    assert events_of(scene, run) == []
    scene.clock.advance(60)
    scene.fire(run)
    (resumed,) = events_of(scene, run)
    assert (resumed.event, resumed.step_name, resumed.step_type) == ("workflow_resumed", "wait", "delay")
    assert (resumed.output, resumed.handler, resumed.created_at) == ({}, None, BEGIN + timedelta(minutes=1))


def test_pages_cut_through_an_attempt_and_lose_nothing(scene: Scene) -> None:
    run = scene.start(scene.define(*(step(str(number)) for number in range(3))))
    scene.command(run, Pause())
    scene.command(run, Resume())
    scene.run(run, {"a": 1}, {"b": 2}, {"c": 3})
    whole = events_of(scene, run)
    assert len(whole) == 8
    for size in (1, 2, 3, 5):
        pages = [events_of(scene, run, size, offset) for offset in range(0, 8, size)]
        assert [event for page in pages for event in page] == whole, size
        assert all(len(page) <= size for page in pages)
    assert events_of(scene, run, 100, 8) == []
    assert events_of(scene, run, 0) == []


def test_events_keep_their_ids_while_more_happens(scene: Scene) -> None:
    run = scene.start(scene.define(step("a"), step("b")))
    scene.run(run, {})
    before = events_of(scene, run)
    scene.run(run, {})
    assert events_of(scene, run)[: len(before)] == before


def test_an_unknown_run_has_no_events(scene: Scene) -> None:
    job_id = scene.add_job()
    scene.succeed(scene.claim()[0])
    assert events_of(scene, 999_999) == []
    assert events_of(scene, job_id) == []


def test_wrong_pages_are_refused(scene: Scene) -> None:
    for limit, offset in ((-1, 0), (10, -1)):
        with pytest.raises(DefinitionError, match="=-1"):
            events_of(scene, 1, limit, offset)


def test_a_jobs_attempts_are_told(scene: Scene) -> None:
    job_id = scene.add_job()
    scene.fail(scene.claim()[0], "first", took_s=0.125)
    scene.clock.advance(10)
    assert [(one.attempt, one.is_final) for one in attempts_of(scene, job_id)] == [(1, False)]
    scene.succeed(scene.claim()[0], took_s=2)
    first, second = attempts_of(scene, job_id)
    assert first == JobAttempt(
        job_id=job_id,
        attempt=1,
        started_at=BEGIN,
        finished_at=BEGIN + timedelta(seconds=0.125),
        duration_ms=125,
        output=None,
        error={"message": "first", "class": "ValueError", "trace": "Traceback …"},
        error_message="first",
        is_final=False,
        worker=7,
    )
    assert (second.attempt, second.duration_ms, second.error, second.is_final) == (2, 2000, None, True)
    assert attempts_of(scene, 999_999) == []


def test_a_steps_attempts_are_those_of_its_job(scene: Scene) -> None:
    run = scene.start(scene.define(step("a"), step("b")))
    (job,) = scene.claim()
    scene.fail(job)
    scene.clock.advance(60)
    scene.succeed(scene.claim()[0], {"n": 1})
    scene.run(run, {"m": 2})
    assert [(one.attempt, one.output, one.error_message) for one in attempts_of(scene, job.id)] == [
        (1, None, "no"),
        (2, {"n": 1}, None),
    ]
