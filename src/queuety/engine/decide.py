"""The one place where it is decided what an event does to a workflow.

The laws: what is not of the present visit changes nothing; the version rises by one with every history row; and no
change goes without a row, so that who knows the version knows the workflow.

Effects come in the order in which they were decided. Applied by sort they mean the same: first what closes or puts back
jobs, then `DropWork`, then what is added; nothing that a `DropWork` would have to undo stands before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from queuety.engine import bounds, cleanup, deadline, family
from queuety.engine.commanded import obey
from queuety.engine.course import RUNNING, Course
from queuety.engine.faults import broken_at_start
from queuety.engine.output import noted_of
from queuety.engine.protocol import NO_FACTS, Facts
from queuety.errors import ConstraintViolation, DefinitionError, PayloadError
from queuety.model import (
    ChildRevived,
    ChildSettled,
    Commanded,
    DeadlinePassed,
    Definition,
    DependencySettled,
    Due,
    Effect,
    Entry,
    Event,
    Failed,
    KeepGroup,
    KeepSignal,
    Role,
    SaveWorkflow,
    Seed,
    Signalled,
    State,
    Subscribed,
    Succeeded,
    Told,
    Workflow,
    WorkflowStatus,
)


@dataclass(frozen=True, slots=True)
class Decision:
    """The workflow after the event (the same object if nothing changed), and what is to be written beside it."""

    workflow: Workflow
    effects: tuple[Effect, ...]


def decide(
    workflow: Workflow, definition: Definition, event: Event, *, now_us: int, facts: Facts = NO_FACTS
) -> Decision:
    """What the event leads to. A late result (of an ended run, of another visit) leads to nothing.

    Raises `InvalidStateError` for a command that the status forbids, `Lacking` if a fact is needed that is not there.
    """
    course = Course(workflow, definition, now_us=now_us, facts=facts)
    _take(course, event)
    return Decision(course.workflow, (*course.effects, *_told(workflow, course.workflow, now_us=now_us)))


def decide_all(
    workflow: Workflow, definition: Definition, events: Iterable[Event], *, now_us: int, facts: Facts = NO_FACTS
) -> list[Effect]:
    """What several events lead to, one after the other, with a single `SaveWorkflow` at the end if anything changed.

    Raises `InvalidStateError` for a command that the status forbids, `Lacking` if a fact is needed that is not there;
    then nothing of the others is decided either.
    """
    course = Course(workflow, definition, now_us=now_us, facts=facts)
    for event in events:
        before = course.workflow
        _take(course, event)
        if course.workflow.status is not before.status or before.status is not RUNNING:
            course.effects.extend(_told(before, course.workflow, now_us=now_us))
    if course.workflow is not workflow:
        course.effects.append(SaveWorkflow(course.workflow, workflow))
    return course.effects


def start(
    workflow_id: int,
    definition: Definition,
    payload: State,
    *,
    now_us: int,
    parent_id: int | None = None,
    parent_step: int | None = None,
    idempotency_key: str | None = None,
    seed: Seed | None = None,
    facts: Facts = NO_FACTS,
) -> Decision:
    """A new run as it is to be inserted, its first step entered, or that of the seed; the effects are what is to be
    written beside it.

    The payload is folded from: history rows of steps that were left at once tell how the state came from it. Raises
    `PayloadError` for a key that starts with `_`, `DefinitionError` for a definition without steps,
    `ConstraintViolation` for a limit that it breaks at once, `Lacking` if a fact is needed that is not there.
    """
    if not definition.steps:
        raise DefinitionError(f"workflow {definition.name!r} has no steps; add one before dispatching it")
    for key in payload:
        if key.startswith("_"):
            raise PayloadError(f"payload key {key!r}: keys that start with _ are reserved; rename it")
    workflow = Workflow(
        workflow_id,
        definition.name,
        definition.hash,
        WorkflowStatus.RUNNING,
        0,
        len(definition.steps),
        1,
        0,
        dict(payload),
        now_us,
        parent_id=parent_id,
        parent_step=parent_step,
        idempotency_key=idempotency_key,
        deadline_us=None if definition.deadline_s is None else now_us + round(definition.deadline_s * 1_000_000),
    )
    course = Course(workflow, definition, now_us=now_us, facts=facts, is_new=True)
    try:
        bounds.check_start(workflow, definition.guards)
        if seed is not None:
            _sow(course, seed)
        deadline.remind(course)
        course.enter()
    except ConstraintViolation as error:
        raise broken_at_start(error, course.workflow) from None
    return Decision(course.workflow, (*course.effects, *_told(workflow, course.workflow, now_us=now_us)))


def _sow(course: Course, seed: Seed) -> None:
    """Have a new run go on where another one was forked."""
    workflow = replace(
        course.workflow,
        name=seed.name,
        current_step=seed.step,
        transitions=seed.transitions,
        ledger=seed.ledger,
        loops=seed.loops,
    )
    course.workflow = workflow
    by = {key: value for key, value in (("actor", seed.actor), ("reason", seed.reason)) if value is not None}
    groups = [KeepGroup(workflow.id, name, ids) for name, ids in seed.groups]
    told = {"_forked": {"from": seed.origin_id}, **({"_by": by} if by else {}), **noted_of(groups)}
    course.record(Entry.FORKED, control=told)
    course.workflow = replace(workflow, version=workflow.version + 1)
    for name, payload in seed.signals:
        keep_signal(course, Signalled(name, payload, 0))
    course.effects += groups


def _told(was: Workflow, now: Workflow, *, now_us: int) -> list[Effect]:
    """What follows from how the run stands now: others hear of it, and its deadline means nothing once it is over."""
    return [*family.news(was, now, now_us=now_us), *deadline.forgotten(was, now)]


def _take(course: Course, event: Event) -> None:
    if isinstance(event, (Succeeded, Failed)):
        _take_attempt(course, event)
    elif isinstance(event, Commanded):
        obey(course, event)
    elif isinstance(event, Signalled):
        _take_signal(course, event)
    elif isinstance(event, (Subscribed, ChildSettled, ChildRevived, Told)):
        family.hear(course, event)
    elif isinstance(event, DeadlinePassed):
        deadline.expire(course)
    else:
        _take_news(course, event)


def _take_attempt(course: Course, event: Succeeded | Failed) -> None:
    job = event.job
    if job.role is Role.CLEANUP:
        cleanup.settle(course, event)
        return
    workflow = course.workflow
    if _is_over(workflow) or job.visit != workflow.visit or job.step_index != workflow.current_step:
        return
    if course.has_dropped:
        return
    if isinstance(event, Failed) and course.repeat(event):
        return
    course.hear(event, event)


def _take_news(course: Course, event: Due | DependencySettled) -> None:
    """What reaches a run without a job. A step that was not entered has nobody who could listen."""
    workflow = course.workflow
    if _is_over(workflow) or event.visit != workflow.visit:
        return
    if course.is_entered:
        course.hear(event)
    elif isinstance(event, Due) and workflow.status is RUNNING:
        course.enter()
    course.note_since(workflow)


def _take_signal(course: Course, event: Signalled) -> None:
    """Keep it, and let the step that may wait for it hear of it."""
    keep_signal(course, event)
    if not _is_over(course.workflow) and course.is_entered:
        course.hear(event)


def keep_signal(course: Course, event: Signalled) -> None:
    """Keep a signal until a wait uses it, whatever the run's status."""
    workflow = course.workflow
    seq = workflow.version + 1
    course.effects.append(KeepSignal(workflow.id, seq, event.name, event.payload, course.now_us))
    told = {"_signal": {"name": event.name, "payload": event.payload}, **course.said(event)}
    course.record(Entry.SIGNALLED, token=event.operation, control=told)
    course.workflow = replace(workflow, version=seq)


def _is_over(workflow: Workflow) -> bool:
    return workflow.status is not RUNNING and workflow.status.is_terminal
