"""Jobs without a workflow."""

from __future__ import annotations

from typing import Any

from queuety.engine.jobs import decide_job
from queuety.model import (
    AppendHistory,
    BuryJob,
    Entry,
    Failed,
    FinishJob,
    Job,
    Options,
    Priority,
    RetryJob,
    Role,
    Span,
    Succeeded,
)
from tests.unit.reference import BOOM, SECOND

SPAN = Span(1, 2, 3)


def a_job(**fields: Any) -> Job:
    job = {"attempt": 1, "max_attempts": 3, "token": 55, "due_us": 0, "created_us": 0, "entries": 0} | fields
    return Job(7, Role.JOB, "default", Priority.LOW, "app:mail", **job)


def test_success_closes_the_job_and_writes_its_own_history() -> None:
    job = a_job(entries=2, attempt=3)
    assert decide_job(Succeeded(job, {}, SPAN), now_us=9) == [
        FinishJob(job, 9),
        AppendHistory(7, 3, Entry.COMPLETED, 9, 55, job, SPAN),
    ]


def test_a_failure_puts_the_job_back_by_its_own_backoff() -> None:
    job = a_job(options=Options(backoff="linear"), attempt=2)
    assert decide_job(Failed(job, BOOM, SPAN, jitter=0.1), now_us=9) == [
        RetryJob(job, 9 + 11 * SECOND, BOOM, 9),
        AppendHistory(7, 1, Entry.FAILED, 9, 55, job, SPAN, error=BOOM),
    ]


def test_without_options_the_backoff_is_exponential() -> None:
    retry, _ = decide_job(Failed(a_job(), BOOM, SPAN), now_us=0)
    assert isinstance(retry, RetryJob)
    assert retry.due_us == 2 * SECOND


def test_the_last_failure_buries_the_job() -> None:
    job = a_job(attempt=3)
    assert decide_job(Failed(job, BOOM, SPAN, retry_after_us=5), now_us=9) == [
        BuryJob(job, BOOM, 9),
        AppendHistory(7, 1, Entry.FAILED, 9, 55, job, SPAN, error=BOOM, is_final=True),
    ]
    bury, _ = decide_job(Failed(a_job(), BOOM, SPAN, is_final=True), now_us=9)
    assert isinstance(bury, BuryJob)
