"""What runs say to each other: parents and children, and runs that wait for others. Each is told by a letter.

A run tells of its end in the transaction that ends it. What arrives is only a reason to look again: the letters of
several processes may overtake each other, so a kind decides by how the other run stands, not by what a letter says.
"""

from __future__ import annotations

from dataclasses import replace

from queuety.engine import cleanup, deadline
from queuety.engine.commanded import end, obey, revived
from queuety.engine.course import Course
from queuety.engine.glance import child_of
from queuety.model import (
    Cancel,
    ChildRevived,
    ChildSettled,
    CleanupStatus,
    Commanded,
    Effect,
    Entry,
    ErrorKind,
    LetterKind,
    Send,
    Subscribed,
    TellWatchers,
    Told,
    Watch,
    Workflow,
    WorkflowStatus,
)

FROM_PARENT = 0
"""The token of rows that a parent's wish has led to."""


def news(was: Workflow, now: Workflow, *, now_us: int) -> list[Effect]:
    """What others are to be told of a change by one event: that the run has ended, is clean now, or goes on again.

    A run that is retried may complete at once; then it has gone on and ended. One that has failed keeps its watchers,
    and is cancelled for good.
    """
    told: list[Effect] = []
    was_over, is_over = was.status.is_terminal, now.status.is_terminal
    goes_on = was_over and (not is_over or now.status is WorkflowStatus.COMPLETED is not was.status)
    has_ended = is_over and (not was_over or goes_on)
    is_given_up = was.status is WorkflowStatus.FAILED and now.status is WorkflowStatus.CANCELLED
    if now.is_watched and (has_ended or is_given_up):
        is_done = now.status is WorkflowStatus.COMPLETED
        told.append(TellWatchers(now.id, now_us, forgets=now.status is not WorkflowStatus.FAILED, is_done=is_done))
    if now.parent_id is None:
        return told
    if goes_on:
        told.append(Send(now.parent_id, LetterKind.REVIVED, now_us, {"id": now.id}))
    if has_ended or (is_over and is_clean(now) and not is_clean(was)):
        told.append(_standing(now, now.parent_id, now_us))
    return told


def is_clean(workflow: Workflow) -> bool:
    """True if nothing is left to clean up of the run, nor of the children that it has told to end."""
    return workflow.cleanup is not CleanupStatus.PENDING and not cleanup.is_awaiting(workflow)


def hear(course: Course, event: Subscribed | ChildSettled | ChildRevived | Told) -> None:
    """Do what another run's letter asks for."""
    was = course.workflow
    if isinstance(event, Subscribed):
        _note_watcher(course, event)
    elif isinstance(event, ChildSettled):
        _mind_child(course, event)
    elif isinstance(event, ChildRevived):
        _follow_child(course, event)
    else:
        _do_as_told(course, event)
    course.note_since(was)


def answer(course: Course, event: Subscribed | Told) -> None:
    """Tell the run that has written how this one stands, which has ended; nothing else is done."""
    was = course.workflow
    if isinstance(event, Subscribed):
        _note_watcher(course, event)
    else:
        course.effects.append(_standing(was, event.parent_id, course.now_us))
    course.note_since(was)


def _standing(workflow: Workflow, parent_id: int, now_us: int) -> Send:
    body = {"id": workflow.id, "status": workflow.status.value, "is_clean": is_clean(workflow)}
    return Send(parent_id, LetterKind.CHILD, now_us, body)


def _note_watcher(course: Course, event: Subscribed) -> None:
    """Keep the run in mind if there is something left to wait for, and tell it at once if this run has ended."""
    workflow = course.workflow
    if workflow.status.is_terminal:
        body = {"id": workflow.id}
        course.effects.append(Send(event.waiter_id, LetterKind.SETTLED, course.now_us, body, event.visit))
        if workflow.status is not WorkflowStatus.FAILED:
            return
    course.effects.append(Watch(workflow.id, event.waiter_id, event.visit))
    # The row is written even if it says so already: on Galera a lock holds on one node only, and what ends the run on
    # another one at this moment must collide with this, or nobody would be told.
    course.workflow = replace(workflow, is_watched=True)


def _mind_child(course: Course, event: ChildSettled) -> None:
    """Let the step that is parked on the child go on; after the end, clean up once all that were left are clean."""
    if event.is_clean:
        cleanup.hear_of_clean(course, event.id)
    if child_of(course.workflow) == event.id and not course.workflow.status.is_terminal:
        course.hear(event)


def _follow_child(course: Course, event: ChildRevived) -> None:
    """Go on if it was this child's end that had ended the run."""
    workflow = course.workflow
    because_of_it = workflow.error_kind in (ErrorKind.CHILD_FAILED, ErrorKind.CHILD_CANCELLED)
    if workflow.status is not WorkflowStatus.FAILED or not because_of_it or child_of(workflow) != event.id:
        return
    if not cleanup.may_go_on(workflow):
        return
    course.record(Entry.RETRIED, token=FROM_PARENT)
    course.workflow = revived(workflow)
    deadline.remind_late(course)
    course.hear(event)


def _do_as_told(course: Course, event: Told) -> None:
    """Do what the parent wants; where it cannot be, or leads to the same failure at once, the parent hears of it."""
    workflow = course.workflow
    if isinstance(event.command, Cancel):
        if not workflow.status.is_terminal:
            end(course, FROM_PARENT)
            return
    elif workflow.status is WorkflowStatus.FAILED and cleanup.may_go_on(workflow):
        obey(course, Commanded(event.command, FROM_PARENT))
        if course.workflow.status is not WorkflowStatus.FAILED:
            return
    if workflow.status.is_terminal:
        course.effects.append(_standing(course.workflow, event.parent_id, course.now_us))
