"""Reading jobs: plain ones, steps open and completed, lists and counts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuety.errors import DefinitionError
from queuety.inspect.jobs import job_status, list_jobs, stats
from queuety.inspect.states import JobState
from queuety.model import Cancel, HandlerRef, JobStatus, Options, Priority
from queuety.store import claims
from tests.support.databases import Database
from tests.support.runs import SECOND, Scene, step

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def scene(database: Database) -> Iterator[Scene]:
    with Scene(database.url) as made:
        yield made


def status_of(scene: Scene, job_id: int) -> JobState:
    with scene.door.reading() as connection:
        found = job_status(connection, scene.tables, job_id)
    assert found is not None
    return found


def listed(scene: Scene, **conditions: Any) -> list[int]:
    with scene.door.reading() as connection:
        return [job.id for job in list_jobs(connection, scene.tables, **conditions)]


def counted(scene: Scene, queue: str | None = None) -> dict[str, int]:
    with scene.door.reading() as connection:
        return stats(connection, scene.tables, queue)


def test_a_plain_job_is_told_at_every_stage(scene: Scene) -> None:
    job_id = scene.add_job("tests:mail", {"to": "ä"}, queue="mail", priority=Priority.HIGH, max_attempts=2)
    pending = status_of(scene, job_id)
    assert (pending.id, pending.queue, pending.handler, pending.payload) == (job_id, "mail", "tests:mail", {"to": "ä"})
    assert (pending.status, pending.priority) == (JobStatus.PENDING, Priority.HIGH)
    assert (pending.attempts, pending.max_attempts) == (0, 2)
    assert pending.created_at == pending.available_at == BEGIN
    assert (pending.started_at, pending.completed_at, pending.failed_at) == (None, None, None)
    assert (pending.workflow_id, pending.step_index, pending.error_message) == (None, None, None)
    assert (pending.depends_on, pending.batch_id, pending.concurrency_group) == (None, None, None)
    assert (pending.concurrency_limit, pending.cost_units, pending.progress) == (None, 1, None)

    scene.clock.advance(5)
    (job,) = scene.claim("mail")
    running = status_of(scene, job_id)
    assert (running.status, running.attempts) == (JobStatus.PROCESSING, 1)
    assert running.started_at == BEGIN + timedelta(seconds=5)

    scene.fail(job, "no route", took_s=1)
    waiting = status_of(scene, job_id)
    assert (waiting.status, waiting.attempts, waiting.error_message) == (JobStatus.PENDING, 1, "no route")
    assert waiting.available_at == BEGIN + timedelta(seconds=16)

    scene.clock.advance(10)
    scene.succeed(scene.claim("mail")[0], took_s=1)
    done = status_of(scene, job_id)
    assert (done.status, done.attempts, done.error_message) == (JobStatus.COMPLETED, 2, None)
    assert (done.completed_at, done.failed_at) == (BEGIN + timedelta(seconds=17), None)


def test_a_buried_job_says_why_and_when(scene: Scene) -> None:
    job_id = scene.add_job()
    scene.fail(scene.claim()[0], "bad address", is_final=True)
    buried = status_of(scene, job_id)
    assert (buried.status, buried.error_message, buried.completed_at) == (JobStatus.BURIED, "bad address", None)
    assert buried.failed_at == BEGIN + timedelta(seconds=0.25)


def test_a_delayed_job_is_pending(scene: Scene) -> None:
    job_id = scene.add_job(due_us=scene.clock.us + 60 * SECOND)
    assert status_of(scene, job_id).status is JobStatus.PENDING
    assert status_of(scene, job_id).available_at == BEGIN + timedelta(minutes=1)


def test_a_completed_step_is_read_from_the_history(scene: Scene) -> None:
    own = Options(queue="slow", priority=Priority.URGENT, max_attempts=7)
    definition = scene.define(
        step("a", "tests:first", options=own),
        step("b", "tests:second"),
        queue="runs",
        priority=Priority.NORMAL,
        max_attempts=2,
    )
    run = scene.start(definition)
    (first,) = scene.claim("slow")
    opened = status_of(scene, first.id)
    assert (opened.status, opened.workflow_id, opened.step_index) == (JobStatus.PROCESSING, run, 0)

    scene.fail(first)
    scene.clock.advance(60)
    scene.succeed(scene.claim("slow")[0], {"n": 1}, took_s=2)
    with scene.door.reading() as connection:
        assert connection.execute(scene.tables.jobs.select().where(scene.tables.jobs.c.id == first.id)).first() is None
    done = status_of(scene, first.id)
    assert (done.id, done.handler, done.payload, done.status) == (first.id, "tests:first", {}, JobStatus.COMPLETED)
    assert (done.queue, done.priority, done.attempts, done.max_attempts) == ("slow", Priority.URGENT, 2, 7)
    assert (done.workflow_id, done.step_index, done.error_message) == (run, 0, None)
    assert done.started_at == BEGIN + timedelta(seconds=60.25)
    assert done.completed_at == BEGIN + timedelta(seconds=62.25)

    (second,) = scene.claim("runs")
    scene.succeed(second)
    done = status_of(scene, second.id)
    assert (done.queue, done.priority, done.max_attempts) == ("runs", Priority.NORMAL, 2)


def test_an_unknown_id_is_none(scene: Scene) -> None:
    run = scene.start(scene.define(step("a")))
    with scene.door.reading() as connection:
        assert job_status(connection, scene.tables, 999_999) is None
        assert job_status(connection, scene.tables, run) is None


def test_a_plain_job_whose_row_was_deleted_is_gone(scene: Scene) -> None:
    """Its attempts stay in the history; they are no record of a job that somebody has deleted."""
    job_id = scene.add_job()
    scene.succeed(scene.claim()[0])
    scene.door.write(lambda tx: tx.connection.execute(scene.tables.jobs.delete()))
    with scene.door.reading() as connection:
        assert job_status(connection, scene.tables, job_id) is None
    assert listed(scene) == []


def test_lists_hold_completed_steps_among_the_rest(scene: Scene) -> None:
    run = scene.start(scene.define(step("a"), step("b"), step("c")))
    (a,) = scene.claim()
    scene.succeed(a)
    (b,) = scene.claim()
    scene.succeed(b)
    plain = scene.add_job(queue="mail")
    delayed = scene.add_job(queue="mail", due_us=scene.clock.us + SECOND)
    scene.succeed(scene.claim("mail")[0])
    (c,) = scene.claim()

    assert listed(scene) == [delayed, plain, c.id, b.id, a.id]
    assert listed(scene, limit=2) == [delayed, plain]
    assert listed(scene, limit=2, before_id=plain) == [c.id, b.id]
    assert listed(scene, limit=2, before_id=b.id) == [a.id]
    assert listed(scene, limit=0) == []
    assert listed(scene, status="completed") == [plain, b.id, a.id]
    assert listed(scene, status="completed", limit=2) == [plain, b.id]
    assert listed(scene, status=JobStatus.PROCESSING) == [c.id]
    assert listed(scene, status="pending") == [delayed]
    assert listed(scene, status="failed") == []
    assert listed(scene, workflow_id=run) == [c.id, b.id, a.id]
    assert listed(scene, workflow_id=run, status="completed") == [b.id, a.id]
    assert listed(scene, queue="mail") == [delayed, plain]
    assert listed(scene, queue="default") == [c.id, b.id, a.id]
    assert listed(scene, queue="nobody's") == []


def test_completed_steps_of_one_queue_are_found_behind_those_of_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuety.inspect.jobs._PAGE", 2)
    rare = scene.start(scene.define(step("a"), queue="rare"))
    (job,) = scene.claim("rare")
    scene.succeed(job)
    usual = scene.define(step("a"), name="usual")
    scene.start_many(usual, [{}] * 7)
    for one in scene.claim():
        scene.succeed(one)
    assert listed(scene, queue="rare", limit=1) == [job.id]
    assert listed(scene, queue="rare", workflow_id=rare) == [job.id]
    assert len(listed(scene, queue="default", limit=6)) == 6


def test_timers_are_no_jobs_and_cleaning_up_is_shown_on_demand(scene: Scene) -> None:
    definition = scene.define(
        step("wait", None, "delay", settings={"seconds": 60}), step("a"), on_cancel=HandlerRef("tests:undo")
    )
    run = scene.start(definition)
    assert listed(scene, workflow_id=run) == []
    scene.command(run, Cancel())
    assert listed(scene, workflow_id=run) == []
    (cleanup,) = listed(scene, workflow_id=run, cleanup=True)
    assert status_of(scene, cleanup).handler == "tests:undo"
    scene.succeed(scene.claim()[0])
    assert listed(scene, cleanup=True, status="completed") == [cleanup]
    assert listed(scene, status="completed") == []


def test_wrong_conditions_are_refused(scene: Scene) -> None:
    with pytest.raises(DefinitionError, match=r"'done'.*pending, processing, completed, failed, buried"):
        listed(scene, status="done")
    with pytest.raises(DefinitionError, match="limit"):
        listed(scene, limit=-1)


def test_counts_are_zero_where_there_is_nothing(scene: Scene) -> None:
    nothing = {"pending": 0, "processing": 0, "completed": 0, "failed": 0, "buried": 0}
    assert counted(scene) == nothing
    assert counted(scene, "default") == nothing


def test_counts_go_by_queue(scene: Scene) -> None:
    scene.start_many(scene.define(step("a"), step("b", options=Options(queue="late"))), [{}] * 3)
    one, two, three = scene.claim()
    scene.succeed(one)
    scene.succeed(two)
    scene.fail(three, is_final=True)
    scene.succeed(scene.claim("late")[0])
    scene.add_job(queue="mail")
    scene.add_job(queue="mail", due_us=scene.clock.us + SECOND)
    scene.add_job(queue="mail")
    scene.claim("mail", limit=1)

    assert counted(scene) == {"pending": 2, "processing": 2, "completed": 3, "failed": 0, "buried": 1}
    assert counted(scene, "default") == {"pending": 0, "processing": 0, "completed": 2, "failed": 0, "buried": 1}
    assert counted(scene, "late") == {"pending": 0, "processing": 1, "completed": 1, "failed": 0, "buried": 0}


def test_a_job_that_nobody_knows_says_so(scene: Scene) -> None:
    job_id = scene.add_job()
    (job,) = scene.claim()
    now_us = scene.clock.us
    scene.door.write(
        lambda tx: claims.put_off(tx, job, until_us=now_us + SECOND, now_us=now_us, message="no module named tests.new")
    )
    found = status_of(scene, job_id)
    assert (found.status, found.attempts, found.error_message) == (JobStatus.PENDING, 0, "no module named tests.new")
