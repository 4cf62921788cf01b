"""What people ask of a run; each refused where the run's status forbids it. Repairs stand in `mending`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from queuety.engine import cleanup, deadline, mending, migrating
from queuety.engine.course import Course
from queuety.engine.glance import child_of
from queuety.errors import InvalidStateError
from queuety.model import (
    Cancel,
    Commanded,
    CompleteStep,
    Entry,
    Fork,
    Migrate,
    PatchState,
    Pause,
    Resume,
    RetryRun,
    Rewind,
    RunNow,
    SkipStep,
    State,
    Workflow,
    WorkflowStatus,
)

CANCELLED_MESSAGE: Final = "Workflow cancelled"
"""What the jobs that a cancellation buries are left with."""


def obey(course: Course, commanded: Commanded) -> None:
    """Do what was asked. Raises `InvalidStateError`, naming the run, its status and the operation, if it cannot be;

    what else each may raise stands in `mending` and `migrating`.
    """
    command = commanded.command
    match command:
        case Pause():
            _pause(course, commanded)
        case Resume():
            _resume(course, commanded)
        case Cancel():
            _cancel(course, commanded)
        case RetryRun():
            _retry(course, commanded, command.with_state)
        case Rewind():
            mending.rewind(course, commanded, command)
        case Fork():
            mending.fork(course, commanded, command)
        case SkipStep():
            mending.skip(course, commanded, command)
        case CompleteStep():
            mending.complete(course, commanded, command)
        case PatchState():
            mending.patch(course, commanded, command)
        case RunNow():
            mending.hurry(course, commanded)
        case Migrate():
            migrating.migrate(course, commanded)


def _pause(course: Course, commanded: Commanded) -> None:
    workflow = course.workflow
    if workflow.status is not WorkflowStatus.RUNNING:
        raise _refused(workflow, "paused", "a running workflow")
    course.record(Entry.PAUSED, token=commanded.operation, control=course.said(commanded))
    course.workflow = replace(workflow, status=WorkflowStatus.PAUSED, version=workflow.version + 1)


def _resume(course: Course, commanded: Commanded) -> None:
    """Go on: the step that became current meanwhile is entered; one whose work is outstanding has all it needs."""
    workflow = course.workflow
    if workflow.status is not WorkflowStatus.PAUSED:
        raise _refused(workflow, "resumed", "a paused workflow")
    course.record(Entry.CONTINUED, token=commanded.operation, control=course.said(commanded))
    course.workflow = replace(workflow, status=WorkflowStatus.RUNNING, version=workflow.version + 1)
    deadline.remind_late(course)
    if not course.is_entered:
        course.enter()


def _retry(course: Course, commanded: Commanded, with_state: State | None) -> None:
    workflow = course.workflow
    if workflow.status is not WorkflowStatus.FAILED:
        raise _refused(workflow, "retried", "a failed workflow")
    mending.check_not_undone(workflow, "retried")
    changed = mending.merge(course, with_state) if with_state else None
    course.record(Entry.RETRIED, token=commanded.operation, changed=changed, control=course.said(commanded))
    course.workflow = revived(course.workflow)
    deadline.remind_late(course)
    course.enter(is_retry=True)


def revived(workflow: Workflow) -> Workflow:
    """The failed run, running again at the step where it stands."""
    child = child_of(workflow)
    kept = {key: value for key, value in (workflow.runtime or {}).items() if key != "awaits"}
    if child is not None and "awaits" in (workflow.runtime or {}):
        workflow = cleanup.leaving(workflow, child)  # the step may start another one beside it
    return replace(
        cleanup.going_on(workflow),
        status=WorkflowStatus.RUNNING,
        version=workflow.version + 1,
        runtime=kept or None,
        error_message=None,
        error_kind=None,
        failed_step=None,
        failed_us=None,
    )


def _cancel(course: Course, commanded: Commanded) -> None:
    """End the run. What a failed run had failed with stays readable."""
    workflow = course.workflow
    if workflow.status in (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED):
        raise InvalidStateError(
            f"workflow {workflow.id} is already {workflow.status}; it cannot be cancelled "
            "(only one that is neither completed nor cancelled can)"
        )
    end(course, commanded.operation, course.said(commanded))


def end(course: Course, operation: int, said: State | None = None) -> None:
    """Cancel a run that may be. One that is parked on a child cleans up once the child has.

    Steps are undone, unless they have been when the run failed, then `on_cancel` is called.
    """
    workflow = course.workflow
    course.drop(CANCELLED_MESSAGE)
    if workflow.status is not WorkflowStatus.FAILED:
        child = course.abandon_child()
    else:
        child = child_of(workflow) if (workflow.runtime or {}).get("awaits") else None
    course.record(Entry.CANCELLED, token=operation, control=said)
    course.workflow = replace(
        workflow,
        status=WorkflowStatus.CANCELLED,
        version=workflow.version + 1,
        runtime=None if child is None else {"child": child, "awaits": True},
        completed_us=course.now_us,
        cancelled_us=course.now_us,
    )
    cleanup.begin(course, compensates=True, then="on_cancel", child=child)


def _refused(workflow: Workflow, operation: str, condition: str) -> InvalidStateError:
    return InvalidStateError(
        f"workflow {workflow.id} is {workflow.status}; it cannot be {operation} (only {condition} can)"
    )
