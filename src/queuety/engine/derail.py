"""The end of a run that cannot be decided: its definition is missing or unreadable, or the engine itself has a fault.

Left as it is, such a run would be tried for ever and take others of its batch with it. It fails instead, visibly, and
may be retried once the cause is mended.
"""

from __future__ import annotations

from collections.abc import Iterable

from queuety.engine import cleanup
from queuety.engine.course import Course
from queuety.engine.decide import keep_signal
from queuety.engine.family import answer, news
from queuety.engine.protocol import NO_FACTS, Facts, Fail
from queuety.model import (
    ChildSettled,
    CleanupStatus,
    Definition,
    Effect,
    ErrorInfo,
    Event,
    Failed,
    Role,
    SaveWorkflow,
    Signalled,
    Subscribed,
    Succeeded,
    Told,
    Workflow,
)


def derailed(
    workflow: Workflow,
    error: ErrorInfo,
    *,
    now_us: int,
    events: Iterable[Event] = (),
    definition: Definition | None = None,
    facts: Facts = NO_FACTS,
) -> list[Effect]:
    """Effects that fail the run, unless it has ended, and bury what it has open; it is cleaned up after as any other.

    Without a `definition` there is nothing that could be. A cleanup that was to go on now is given up. Of the events
    that could not be decided, signals are kept and the letters of other runs answered: whoever waits for this one or
    started it would otherwise hear nothing of it ever. Raises `Lacking` if a fact is needed that is not there.
    """
    course = Course(workflow, definition or Definition(workflow.name, ()), now_us=now_us, facts=facts)
    happened = tuple(events)
    for event in happened:
        if isinstance(event, Signalled):
            keep_signal(course, event)
    if not workflow.status.is_terminal:
        course.fail(Fail(error))
    elif workflow.cleanup is CleanupStatus.PENDING:
        _give_up(course, error, happened)
    course.effects.extend(news(workflow, course.workflow, now_us=now_us))
    for event in happened:
        if isinstance(event, (Subscribed, Told)):
            answer(course, event)
    if course.workflow is not workflow:
        course.effects.append(SaveWorkflow(course.workflow, workflow))
    return course.effects


def _give_up(course: Course, error: ErrorInfo, events: Iterable[Event]) -> None:
    """Leave the cleanup if it was to go on now: with its job, or because a child is clean."""
    for event in events:
        if isinstance(event, (Succeeded, Failed)) and event.job.role is Role.CLEANUP:
            return cleanup.give_up(course, error, event)
    if any(isinstance(event, ChildSettled) for event in events):
        cleanup.give_up(course, error)
    return None
