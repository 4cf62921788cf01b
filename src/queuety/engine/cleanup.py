"""What runs after a run has ended: steps are undone, the last one first, then the run's own handler is called.

Each is a durable job of role `cleanup`, one at a time, with a row of its own when it is done; none changes the run's
own outcome. How far it is stands in the ledger under `undo`: `before`, the history row below which the next step to be
undone is looked for (None when none is left), `then`, the run's handlers that are still to come (`_STEPS` among them
stands for all steps that can be undone), `failed`, and `compensated`, once steps have been undone: they are not undone
twice. Under `left` stand the children that the run has told to end and has gone on without (it was rewound, its step
was skipped or retried) and that are not clean yet: what they have done is undone before what the run did before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from queuety.engine.glance import child_of
from queuety.engine.jobs import cleanup_job
from queuety.engine.retry import next_due_us
from queuety.model import (
    AddJob,
    AppendHistory,
    BuryJob,
    CleanupStatus,
    Entry,
    ErrorInfo,
    FinishJob,
    HandlerRef,
    RetryJob,
    State,
    Succeeded,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import NeedUndo, Undo

if TYPE_CHECKING:
    from queuety.engine.course import Attempt, Course

_DONE: Final = frozenset({Entry.COMPLETED, Entry.RESUMED})

_STEPS: Final = "steps"
"""Among the handlers that are to come: no definition has one of this name."""


def begin(course: Course, *, compensates: bool, then: str | None, child: int | None = None) -> None:
    """See to what is to be done now that the run has ended; nothing, if there is nothing.

    `then` names the definition's handler that follows. All of it comes after what is left to clean up of the `child`,
    and so does what a parent has to do. What is under way already goes on, and what is asked for now comes after it.
    """
    workflow = course.workflow
    ledger = workflow.ledger or {}
    undo: dict[str, Any] = dict(ledger.get("undo") or {"before": None, "then": [], "failed": False})
    handler = [then] if then is not None and _handler(course, then) is not None else []
    before = workflow.version + 1 if compensates and not undo.get("compensated") else None
    if before is not None and _next(course, before) is None:
        before = None
    if workflow.cleanup is CleanupStatus.PENDING:
        asked = handler if before is None else [_STEPS, *handler]
        if asked:
            compensated = before is not None or bool(undo.get("compensated"))
            _keep(course, {**undo, "then": [*undo["then"], *asked], "compensated": compensated})
        return
    if child is not None:
        course.workflow = replace(workflow, runtime={**(workflow.runtime or {}), "child": child, "awaits": True})
    if before is None and not handler:
        return
    is_compensated = before is not None or bool(undo.get("compensated"))
    _keep(course, {**undo, "before": before, "then": handler, "compensated": is_compensated})
    course.workflow = replace(course.workflow, cleanup=CleanupStatus.PENDING)
    if not is_awaiting(course.workflow):
        go_on(course)


def is_awaiting(workflow: Workflow) -> bool:
    """Whether a run that it has told to end is not clean yet: nothing of this one is undone before."""
    return bool((workflow.runtime or {}).get("awaits") or (workflow.ledger or {}).get("left"))


def leave_child(course: Course) -> Workflow:
    """Tell the run that this one is parked on to end, and keep in mind that it has to clean up first; the run by then.

    One that has failed has told it already.
    """
    workflow = course.workflow
    if workflow.status is WorkflowStatus.FAILED:
        child = child_of(workflow) if (workflow.runtime or {}).get("awaits") else None
    else:
        child = None if workflow.status.is_terminal else course.abandon_child()
    course.workflow = workflow if child is None else leaving(workflow, child)
    return course.workflow


def leaving(workflow: Workflow, child: int) -> Workflow:
    """The run with one more that has to be clean before it cleans up."""
    ledger = workflow.ledger or {}
    return replace(workflow, ledger={**ledger, "left": sorted({*ledger.get("left", ()), child})})


def hear_of_clean(course: Course, child: int) -> None:
    """Wait for this run no more; after the run's end clean up if it was the last."""
    workflow = course.workflow
    ledger, runtime = workflow.ledger or {}, workflow.runtime or {}
    is_over = workflow.status.is_terminal
    if child in ledger.get("left", ()):
        left = [one for one in ledger["left"] if one != child]
        ledger = {**ledger, "left": left} if left else {key: own for key, own in ledger.items() if key != "left"}
        workflow = replace(workflow, ledger=ledger or None)
    if is_over and runtime.get("awaits") and runtime.get("child") == child:
        # What a failed run keeps of its visit, it keeps.
        kept = {key: value for key, value in runtime.items() if key != "awaits"}
        workflow = replace(workflow, runtime=kept if workflow.status is WorkflowStatus.FAILED else None)
    if workflow is course.workflow:
        return
    course.workflow = workflow
    if is_over and workflow.cleanup is CleanupStatus.PENDING and not is_awaiting(workflow):
        go_on(course)


def go_on(course: Course) -> None:
    """Ask for what comes next, or note that all is done. The run's cleanup is pending."""
    undo: dict[str, Any] = dict((course.workflow.ledger or {}).get("undo") or {"before": None, "then": []})
    while undo["before"] is not None or undo["then"]:
        if undo["before"] is not None:
            found = _next(course, undo["before"])
            if found is not None:
                _keep(course, {**undo, "before": found.seq})
                undone_by = found.handler or course.definition.steps[found.step].compensation
                _ask(course, undone_by, {"seq": found.seq, "step": found.step})
                return
            undo["before"] = None
            continue
        name, *rest = undo["then"]
        undo["then"] = rest
        if name == _STEPS:
            undo["before"] = course.workflow.version + 1
            continue
        handler = _handler(course, name)
        if handler is not None:
            _keep(course, undo)
            _ask(course, handler, {"handler": name})
            return
    _keep(course, undo)
    cleanup = CleanupStatus.FAILED if undo.get("failed") else CleanupStatus.COMPLETED
    course.workflow = replace(course.workflow, cleanup=cleanup)


def settle(course: Course, attempt: Attempt) -> None:
    """Write down what became of an attempt to clean up, and go on with what comes next. Nothing, if none is pending."""
    workflow, now_us = course.workflow, course.now_us
    if workflow.cleanup is not CleanupStatus.PENDING:
        return
    due_us = None if isinstance(attempt, Succeeded) else next_due_us(attempt, None, now_us=now_us)
    control: dict[str, Any] = {"_cleanup": attempt.job.payload} if attempt.job.payload else {}
    if isinstance(attempt, Succeeded):
        course.effects.append(FinishJob(attempt.job, now_us))
        trace = attempt.output.get("_queuety_trace")
        course.record(Entry.CLEANED, attempt, control={**control, "_queuety_trace": trace} if trace else control)
    else:
        if due_us is None:
            course.effects.append(BuryJob(attempt.job, attempt.error, now_us))
        else:
            course.effects.append(RetryJob(attempt.job, due_us, attempt.error, now_us))
        course.record(Entry.UNCLEANED, attempt, control=control, error=attempt.error, is_final=due_us is None)
    course.workflow = replace(workflow, version=workflow.version + 1)
    if due_us is not None:
        return
    if not isinstance(attempt, Succeeded):
        _keep(course, {**((workflow.ledger or {}).get("undo") or {"before": None, "then": []}), "failed": True})
    go_on(course)


def give_up(course: Course, error: ErrorInfo, attempt: Attempt | None = None) -> None:
    """Leave what is still to be cleaned up: it cannot be decided what comes next. It is seen as failed."""
    workflow = course.workflow
    if attempt is not None:
        course.effects.append(BuryJob(attempt.job, error, course.now_us))
    course.record(Entry.UNCLEANED, attempt, error=error, is_final=True)
    course.workflow = replace(workflow, version=workflow.version + 1, cleanup=CleanupStatus.FAILED)


def is_compensated(ledger: State | None) -> bool:
    """Whether steps of the run have been undone, or are about to be."""
    return bool(((ledger or {}).get("undo") or {}).get("compensated"))


def may_go_on(workflow: Workflow) -> bool:
    """Whether a run that has failed could be retried: nothing was undone, and no handler is still to be called."""
    return workflow.cleanup is not CleanupStatus.PENDING and not is_compensated(workflow.ledger)


def going_on(workflow: Workflow) -> Workflow:
    """The run without what is known of its last end, if its steps were not undone then: it may end once more."""
    if is_compensated(workflow.ledger):
        return workflow
    ledger = {key: value for key, value in (workflow.ledger or {}).items() if key != "undo"}
    return replace(workflow, cleanup=CleanupStatus.NONE, ledger=ledger or None)


def _next(course: Course, before_seq: int) -> Undo | None:
    """The step to be undone next: the last one that settled before this row.

    What this very decision has settled is not in the history yet.
    """
    steps = course.definition.compensated
    if not steps and not (course.workflow.ledger or {}).get("moved"):
        return None
    oldest = before_seq
    for effect in reversed(course.effects):
        if not isinstance(effect, AppendHistory) or effect.seq >= before_seq:
            continue
        oldest = min(oldest, effect.seq)
        if effect.entry is Entry.REWOUND and effect.control is not None:
            oldest = effect.control["_rewound"]["to_seq"] + 1
            break
        if effect.entry is Entry.MIGRATED and effect.control is not None:
            return _before_move(course, effect.seq, effect.control["_migrated"]["compensations"])
        if effect.entry in _DONE and effect.step_index is not None and effect.step_index in steps:
            return Undo(effect.seq, effect.step_index)
    if oldest <= 1:
        return None
    found: Undo | None = course.read(NeedUndo(oldest, steps))
    return found


def _before_move(course: Course, seq: int, handlers: Mapping[str, State]) -> Undo | None:
    """The same for a run that this very decision has moved to another definition; these undid the earlier one's steps.

    Its row does not say yet that it was moved.
    """
    steps = tuple(map(int, handlers))
    found: Undo | None = course.read(NeedUndo(seq, steps)) if steps else None
    if found is None or found.handler is not None:
        return found
    told: Mapping[str, Any] = handlers[str(found.step)]
    return replace(found, handler=HandlerRef(told["name"], told.get("config")))


def _handler(course: Course, name: str) -> HandlerRef | None:
    handler: HandlerRef | None = getattr(course.definition, name)
    return handler


def _ask(course: Course, handler: HandlerRef | None, payload: State) -> None:
    workflow = course.workflow
    if handler is None:
        raise LookupError(f"workflow {workflow.id} has nothing that undoes step {payload.get('step')}")
    job = cleanup_job(
        handler,
        course.definition,
        workflow_id=workflow.id,
        visit=workflow.visit,
        now_us=course.now_us,
        payload=payload,
    )
    course.effects.append(AddJob(job))


def _keep(course: Course, undo: State) -> None:
    course.workflow = replace(course.workflow, ledger={**(course.workflow.ledger or {}), "undo": undo})
