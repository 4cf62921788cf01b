"""What runs after a run has ended: durable jobs of role `cleanup`, whose outcome never changes the run's own."""

from __future__ import annotations

from dataclasses import replace

from queuety.engine.course import Attempt, Course
from queuety.engine.jobs import cleanup_job
from queuety.engine.retry import next_due_us
from queuety.model import (
    AddJob,
    BuryJob,
    CleanupStatus,
    Entry,
    FinishJob,
    HandlerRef,
    RetryJob,
    Succeeded,
)


def begin(course: Course, handler: HandlerRef) -> None:
    """Ask for the handler of a run that has just ended."""
    workflow = course.workflow
    job = cleanup_job(handler, course.definition, workflow_id=workflow.id, visit=workflow.visit, now_us=course.now_us)
    course.effects.append(AddJob(job))
    course.workflow = replace(workflow, cleanup=CleanupStatus.PENDING)


def settle(course: Course, attempt: Attempt) -> None:
    """Write down what became of an attempt to clean up. Nothing, if no cleanup is pending."""
    workflow, now_us = course.workflow, course.now_us
    if workflow.cleanup is not CleanupStatus.PENDING:
        return
    cleanup: CleanupStatus = workflow.cleanup
    if isinstance(attempt, Succeeded):
        cleanup = CleanupStatus.COMPLETED
        course.effects.append(FinishJob(attempt.job, now_us))
        course.record(Entry.CLEANED, attempt)
    else:
        due_us = next_due_us(attempt, None, now_us=now_us)
        if due_us is None:
            cleanup = CleanupStatus.FAILED
            course.effects.append(BuryJob(attempt.job, attempt.error, now_us))
        else:
            course.effects.append(RetryJob(attempt.job, due_us, attempt.error, now_us))
        course.record(Entry.FAILED, attempt, error=attempt.error, is_final=due_us is None)
    course.workflow = replace(workflow, version=workflow.version + 1, cleanup=cleanup)
