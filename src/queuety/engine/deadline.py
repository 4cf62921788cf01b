"""The time that a run has from its start to its end: a letter to itself, due when it is over.

Waiting runs fail like running ones. A paused run is spared until it goes on. A deadline is not extended: what was
retried after it fails again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queuety.engine.protocol import Fail
from queuety.model import DropTimers, Effect, ErrorInfo, ErrorKind, LetterKind, Send, Workflow, WorkflowStatus

if TYPE_CHECKING:
    from queuety.engine.course import Course

_OVER: Final = frozenset({WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED})


def expire(course: Course) -> None:
    """Fail the run, if it has not ended, is not paused, and its time is really over."""
    workflow = course.workflow
    if workflow.deadline_us is None or workflow.status.is_terminal or workflow.status is WorkflowStatus.PAUSED:
        return
    if course.now_us < workflow.deadline_us:  # clocks differ a little
        remind(course)
        return
    kind = ErrorKind.DEADLINE_EXCEEDED
    course.fail(Fail(ErrorInfo("Deadline exceeded", kind.value, kind=kind)))


def remind(course: Course) -> None:
    """Have the run hear of its deadline: it starts, or has opened the letter before its time."""
    workflow = course.workflow
    if workflow.deadline_us is not None:
        due_us = max(workflow.deadline_us, course.now_us)
        course.effects.append(Send(workflow.id, LetterKind.DEADLINE, due_us))


def remind_anew(course: Course) -> None:
    """The same for a run that may have such a letter, which is then no longer wanted: it never has two."""
    if course.workflow.deadline_us is not None:
        course.effects.append(DropTimers(course.workflow.id, LetterKind.DEADLINE))
    remind(course)


def remind_late(course: Course) -> None:
    """The same for a run that goes on, if its deadline came while it would not have listened."""
    due_us = course.workflow.deadline_us
    if due_us is not None and due_us <= course.now_us:
        remind_anew(course)


def forgotten(was: Workflow, now: Workflow) -> list[Effect]:
    """What becomes of the letter when a run has ended for good: months later it would still lie there.

    A run that was rewound may have ended once more.
    """
    if now.deadline_us is None or now.status not in _OVER or (was.status in _OVER and was.visit == now.visit):
        return []
    return [DropTimers(now.id, LetterKind.DEADLINE)]
