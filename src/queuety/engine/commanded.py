"""What people ask of a run: pause, resume, retry, cancel; each refused where the run's status forbids it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from queuety.engine import cleanup
from queuety.engine.course import Course
from queuety.errors import InvalidStateError
from queuety.model import (
    Cancel,
    CleanupStatus,
    Commanded,
    Entry,
    Pause,
    Resume,
    Workflow,
    WorkflowStatus,
)

CANCELLED_MESSAGE: Final = "Workflow cancelled"
"""What the jobs that a cancellation buries are left with."""


def obey(course: Course, commanded: Commanded) -> None:
    """Do what was asked. Raises `InvalidStateError`, naming the run, its status and the operation, if it cannot be."""
    command, operation = commanded.command, commanded.operation
    if isinstance(command, Pause):
        _pause(course, operation)
    elif isinstance(command, Resume):
        _resume(course, operation)
    elif isinstance(command, Cancel):
        _cancel(course, operation)
    else:
        _retry(course, operation)


def _pause(course: Course, operation: int) -> None:
    workflow = course.workflow
    if workflow.status is not WorkflowStatus.RUNNING:
        raise _refused(workflow, "paused", "a running workflow")
    course.record(Entry.PAUSED, token=operation)
    course.workflow = replace(workflow, status=WorkflowStatus.PAUSED, version=workflow.version + 1)


def _resume(course: Course, operation: int) -> None:
    """Go on: the step that became current meanwhile is entered; one whose work is outstanding has all it needs."""
    workflow = course.workflow
    if workflow.status is not WorkflowStatus.PAUSED:
        raise _refused(workflow, "resumed", "a paused workflow")
    course.record(Entry.CONTINUED, token=operation)
    course.workflow = replace(workflow, status=WorkflowStatus.RUNNING, version=workflow.version + 1)
    if not course.is_entered:
        course.enter()


def _retry(course: Course, operation: int) -> None:
    workflow = course.workflow
    if workflow.status is not WorkflowStatus.FAILED:
        raise _refused(workflow, "retried", "a failed workflow")
    if workflow.cleanup is not CleanupStatus.NONE:
        raise InvalidStateError(
            f"workflow {workflow.id} is failed and has already been compensated; it cannot be retried"
        )
    course.record(Entry.RETRIED, token=operation)
    course.workflow = revived(workflow)
    course.enter(is_retry=True)


def revived(workflow: Workflow) -> Workflow:
    """The failed run, running again at the step where it stands."""
    return replace(
        workflow,
        status=WorkflowStatus.RUNNING,
        version=workflow.version + 1,
        error_message=None,
        error_kind=None,
        failed_step=None,
        failed_us=None,
    )


def _cancel(course: Course, operation: int) -> None:
    """End the run. What a failed run had failed with stays readable."""
    workflow = course.workflow
    if workflow.status in (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED):
        raise InvalidStateError(
            f"workflow {workflow.id} is already {workflow.status}; it cannot be cancelled "
            "(only one that is neither completed nor cancelled can)"
        )
    end(course, operation)


def end(course: Course, operation: int) -> None:
    """Cancel a run that may be. One that is parked on a child cleans up once the child has."""
    workflow = course.workflow
    course.drop(CANCELLED_MESSAGE)
    child = None if workflow.status is WorkflowStatus.FAILED else course.abandon_child()
    course.record(Entry.CANCELLED, token=operation)
    course.workflow = replace(
        workflow,
        status=WorkflowStatus.CANCELLED,
        version=workflow.version + 1,
        runtime=None if child is None else {"child": child, "awaits": True},
        completed_us=course.now_us,
        cancelled_us=course.now_us,
    )
    if course.definition.on_cancel is None:
        return
    if child is None:
        cleanup.begin(course, course.definition.on_cancel)
    else:
        course.workflow = replace(course.workflow, cleanup=CleanupStatus.PENDING)


def _refused(workflow: Workflow, operation: str, condition: str) -> InvalidStateError:
    return InvalidStateError(
        f"workflow {workflow.id} is {workflow.status}; it cannot be {operation} (only {condition} can)"
    )
