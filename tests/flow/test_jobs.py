"""Plain jobs: every way to dispatch one, and what is told of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from queuety import Job, JobState, JobStatus, Priority, Queuety, bind, current, errors, job, step
from queuety.testing import ManualClock
from tests.support.flowing import note, notes

UNKNOWN = 987_654_321


@job
def send(to: str, subject: str = "hello") -> None:
    note((to, subject))


@job(queue="mail", priority="high", max_attempts=2, backoff=[3])
def whole(payload: dict[str, Any]) -> None:
    note(payload)


@job
async def later(to: str) -> None:
    await asyncio.to_thread(note, f"async {to}")


@job(max_attempts=2, backoff=[1])
def fails(payload: dict[str, Any]) -> None:
    note(current().attempt)
    raise ValueError("no such address")


@job
def knows_itself(payload: dict[str, Any]) -> None:
    here = current()
    here.heartbeat({"done": 3, "of": 10})
    note((here.job_id, here.workflow_id, here.step_index, here.attempt, here.idempotency_key))


@job(max_attempts=1)
def beats_and_fails(payload: dict[str, Any]) -> None:
    current().heartbeat({"done": 3})
    raise ValueError("stop")


@dataclass
class SendEmail(Job):
    to: str
    copies: int = 1

    tries: ClassVar[int | None] = 5
    backoff: ClassVar[Any] = [2, 4]

    def handle(self) -> None:
        note(("email", self.to, self.copies))


@step
def a_step(state: dict[str, Any]) -> None:
    note("step")


def status_of(app: Queuety, job_id: int) -> JobState:
    state = app.job_status(job_id)
    assert state is not None
    return state


def test_a_job_is_a_function_with_keywords_or_a_payload_a_coroutine_a_class_an_instance_or_an_alias(
    app: Queuety,
) -> None:
    app.register("mail.send", send)
    app.dispatch(send, {"to": "a"})
    app.dispatch(send, {"to": "b", "subject": "news"})
    app.dispatch("mail.send", {"to": "c"})
    app.dispatch(bind(send, subject="bound"), {"to": "d"})
    app.dispatch(later, {"to": "e"})
    app.dispatch(SendEmail, {"to": "f"})
    app.dispatch(SendEmail(to="g", copies=2))
    app.dispatch(whole, {"any": [1, {"x": None}]})
    app.dispatch(whole)
    assert app.run_until_idle("mail,default") == 9
    assert notes == [
        {"any": [1, {"x": None}]},
        {},
        ("a", "hello"),
        ("b", "news"),
        ("c", "hello"),
        ("d", "bound"),
        "async e",
        ("email", "f", 1),
        ("email", "g", 2),
    ]


def test_an_instance_and_its_class_with_the_same_fields_are_the_same_job(app: Queuety) -> None:
    one, other = app.dispatch(SendEmail(to="x")), app.dispatch(SendEmail, {"to": "x"})
    first, second = status_of(app, one), status_of(app, other)
    assert first.payload == second.payload == {"to": "x", "copies": 1}
    assert (first.handler, first.max_attempts) == (second.handler, 5)
    assert first.handler == f"{__name__}:SendEmail"


def test_what_the_call_says_wins_over_what_the_handler_says(app: Queuety, clock: ManualClock) -> None:
    own = status_of(app, app.dispatch(whole))
    assert (own.queue, own.priority, own.max_attempts) == ("mail", Priority.HIGH, 2)
    said = status_of(app, app.dispatch(whole, queue="fast", priority=Priority.URGENT, max_attempts=9, delay=1.5))
    assert (said.queue, said.priority, said.max_attempts) == ("fast", Priority.URGENT, 9)
    assert said.available_at - clock.now == timedelta(seconds=1.5)
    plain = status_of(app, app.dispatch(send, {"to": "x"}))
    assert (plain.queue, plain.priority, plain.max_attempts) == ("default", Priority.LOW, 3)


def test_a_delayed_job_waits_for_its_time_exactly(app: Queuety, clock: ManualClock) -> None:
    app.dispatch(send, {"to": "x"}, delay=10)
    app.dispatch(send, {"to": "y"}, delay=0)
    assert app.run_until_idle() == 1
    clock.advance(seconds=9.999_999)
    assert app.run_until_idle() == 0
    clock.advance(seconds=0.000_001)
    assert app.run_until_idle() == 1


def test_a_job_is_told_of_from_its_dispatch_to_its_end(app: Queuety, clock: ManualClock) -> None:
    job_id = app.dispatch(send, {"to": "x"})
    waiting = status_of(app, job_id)
    assert (waiting.id, waiting.status, waiting.attempts) == (job_id, JobStatus.PENDING, 0)
    assert (waiting.created_at, waiting.available_at, waiting.started_at) == (clock.now, clock.now, None)
    assert (waiting.workflow_id, waiting.step_index, waiting.error_message) == (None, None, None)
    clock.advance(seconds=3)
    app.run_until_idle()
    done = status_of(app, job_id)
    assert (done.status, done.attempts, done.payload) == (JobStatus.COMPLETED, 1, {"to": "x"})
    assert (done.started_at, done.completed_at, done.failed_at) == (clock.now, done.completed_at, None)
    assert done.completed_at is not None
    assert app.stats() == {"pending": 0, "processing": 0, "completed": 1, "failed": 0, "buried": 0}


def test_a_job_that_keeps_failing_is_buried_with_its_last_error(app: Queuety, clock: ManualClock) -> None:
    job_id = app.dispatch(fails)
    app.run_until_idle()
    between = status_of(app, job_id)
    assert (between.status, between.attempts, between.error_message) == (JobStatus.PENDING, 1, "no such address")
    assert between.available_at - clock.now == timedelta(seconds=1)
    clock.advance(seconds=1)
    app.run_until_idle()
    buried = status_of(app, job_id)
    assert (buried.status, buried.attempts, buried.error_message) == (JobStatus.BURIED, 2, "no such address")
    assert (buried.failed_at, buried.completed_at) == (clock.now, None)
    assert notes == [1, 2]
    assert app.list_jobs(status="buried") == [buried]


def test_a_job_knows_itself_and_its_progress_is_seen(app: Queuety) -> None:
    job_id = app.dispatch(knows_itself)
    app.run_until_idle()
    assert notes == [(job_id, None, None, 1, str(job_id))]
    failing = app.dispatch(beats_and_fails)
    app.run_until_idle()
    assert status_of(app, failing).progress == {"done": 3}


def test_jobs_are_listed_newest_first_by_queue_and_status(app: Queuety) -> None:
    ids = [app.dispatch(send, {"to": str(n)}, queue="a" if n % 2 else "b") for n in range(6)]
    assert [each.id for each in app.list_jobs()] == ids[::-1]
    assert [each.id for each in app.list_jobs(limit=2)] == ids[:3:-1]
    assert [each.id for each in app.list_jobs(queue="a")] == ids[5::-2]
    app.run_until_idle("a")
    assert [each.id for each in app.list_jobs(status=JobStatus.COMPLETED)] == ids[5::-2]
    assert app.list_jobs(queue="b", status="completed") == []
    with pytest.raises(errors.DefinitionError):
        app.list_jobs(status="asleep")


@pytest.mark.parametrize(
    ("handler", "payload", "options", "kind"),
    [
        (send, {}, {}, errors.PayloadError),
        (send, {"to": "x", "body": "y"}, {}, errors.PayloadError),
        (send, ["x"], {}, errors.PayloadError),
        (send, {"to": float("nan")}, {}, errors.PayloadError),
        (SendEmail, {"copies": 1}, {}, errors.PayloadError),
        (bind(send, to="x"), {"to": "y"}, {}, errors.PayloadError),
        (a_step, {}, {}, errors.DefinitionError),
        (lambda: None, {}, {}, errors.DefinitionError),
        (print, {}, {}, errors.DefinitionError),
        ("no.such.alias", {}, {}, errors.DefinitionError),
        ("os:system", {}, {}, errors.DefinitionError),
        ("", {}, {}, errors.DefinitionError),
        (None, {}, {}, errors.DefinitionError),
        (whole, {}, {"delay": -1}, errors.DefinitionError),
        (whole, {}, {"delay": float("inf")}, errors.DefinitionError),
        (whole, {}, {"max_attempts": 0}, errors.DefinitionError),
        (whole, {}, {"max_attempts": True}, errors.DefinitionError),
        (whole, {}, {"priority": 7}, errors.DefinitionError),
        (whole, {}, {"queue": "  "}, errors.DefinitionError),
        (whole, {}, {"queue": "a" * 256}, errors.DefinitionError),
    ],
)
def test_what_is_no_job_is_refused_and_nothing_is_written(
    memory: Queuety, handler: Any, payload: Any, options: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as refusal:
        memory.dispatch(handler, payload, **options)
    assert len(str(refusal.value)) > 15
    assert memory.list_jobs() == []
