"""What operators do to a run that does not go as it should: rewind, fork, skip, complete, patch, hurry.

Each is one decision with a row that says who and why; each is refused where it would break what the others rely on.
Raised: `InvalidStateError` for a status that forbids it, `SnapshotMissingError` for a past that is not recorded,
`DefinitionError` for a step that is none, `ConstraintViolation` for a budget; nothing is changed then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from queuety.engine import bounds, deadline
from queuety.engine.cleanup import going_on, is_compensated, leave_child
from queuety.engine.course import PAUSED, RUNNING, Course
from queuety.engine.kinds import kind_of
from queuety.engine.output import split
from queuety.engine.protocol import Leave
from queuety.engine.replay import delta, fold
from queuety.errors import DefinitionError, InvalidStateError, SnapshotMissingError
from queuety.model import (
    CleanupStatus,
    ClearChunks,
    Commanded,
    CompleteStep,
    Effect,
    Entry,
    Fork,
    HurryJobs,
    Json,
    KeepGroup,
    KeepSignal,
    PatchState,
    Rewind,
    Seed,
    SkipStep,
    StartRun,
    State,
    UseSignals,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import (
    Belongings,
    NeedBelongings,
    NeedOpenJobs,
    NeedPast,
    NeedUsedSignals,
    OpenJobs,
    Past,
    Signal,
)

SUPERSEDED: Final = "Superseded by workflow rewind"
"""What the jobs that a rewind buries are left with."""

_LONGEST_NAME: Final = 255
_INHERITED: Final = frozenset({"cost", "started", "writers", "given"})
"""What a fork takes over of the ledger."""

_SHOWN: Final = 20
_COMPLETED: Final = frozenset({WorkflowStatus.COMPLETED})
_CANCELLED: Final = frozenset({WorkflowStatus.CANCELLED})
_OVER: Final = _COMPLETED | _CANCELLED


def rewind(course: Course, commanded: Commanded, command: Rewind) -> None:
    """Go back to where the step had settled last. Signals that later steps have used may be used again, and the groups
    that they have started are as before."""
    workflow = course.workflow
    _allow(workflow, "rewound", _CANCELLED)
    to_step = _index(course, command.to_step)
    past = _past(course, NeedPast(to_step))
    used: tuple[Signal, ...] = course.read(NeedUsedSignals(past.seq))
    wanted = {**past.state, **_public(command.with_state)}
    bounds.check_start(replace(workflow, state=wanted), course.definition.guards)
    course.drop(SUPERSEDED)
    workflow = leave_child(course)
    course.effects += _without_chunks(course)
    changed, removed = delta(workflow.state, wanted)
    state = fold(workflow.state, [(changed, removed)])  # the keys in the order that the history gives them
    control = {**course.said(commanded), "_rewound": {"to_step": to_step, "to_seq": past.seq}}
    course.record(Entry.REWOUND, token=commanded.operation, changed=changed, removed=removed, control=control)
    course.effects += [
        KeepSignal(workflow.id, signal.seq, signal.name, signal.payload, course.now_us)
        for signal in used
        if signal.seq not in past.used
    ]
    if past.used:
        course.effects.append(UseSignals(workflow.id, past.used))
    course.effects += [KeepGroup(workflow.id, name, ids) for name, ids in past.groups]
    following = to_step + 1
    is_done = following == workflow.total_steps
    course.workflow = replace(
        going_on(workflow),
        status=WorkflowStatus.COMPLETED if is_done else RUNNING,
        current_step=following,
        visit=workflow.visit + 1,
        version=workflow.version + 1,
        state=state,
        runtime=None,
        error_message=None,
        error_kind=None,
        failed_step=None,
        failed_us=None,
        completed_us=course.now_us if is_done else None,
        loops=_before(workflow.loops, to_step),
        ledger=bounds.rewritten(going_on(workflow), past.state, to_step),
    )
    if not is_done:
        deadline.remind_anew(course)
        course.enter()


def fork(course: Course, commanded: Commanded, command: Fork) -> None:
    """Start a run of its own from here, or from where an earlier step was last entered. This one stays as it is."""
    workflow, at_step = course.workflow, command.at_step
    _allow(workflow, "forked", _CANCELLED)
    if at_step is None and workflow.status is WorkflowStatus.COMPLETED:
        raise InvalidStateError(
            f"workflow {workflow.id} is completed; it cannot be forked where it is, only at a step (at_step)"
        )
    belongings: Belongings = course.read(NeedBelongings())
    signals, groups = belongings.signals, belongings.groups
    if at_step is None:
        step, state, loops, ledger = workflow.current_step, workflow.state, workflow.loops, workflow.ledger
    else:
        step = _index(course, at_step)
        past = _past(course, NeedPast(step, is_entry=True))
        state, loops = past.state, _before(workflow.loops, step)
        ledger = bounds.rewritten(workflow, state, step - 1)
        known = {**dict(groups), **dict(past.groups)}
        groups = tuple((name, ids) for name, ids in sorted(known.items()) if ids is not None)
        signals = (*signals, *course.read(NeedUsedSignals(past.seq)))
        signals = tuple(sorted((one for one in signals if one.seq not in past.used), key=lambda signal: signal.seq))
    said = course.said(commanded)
    seed = Seed(
        workflow.id,
        _fork_name(workflow.name, course.now_us),
        step,
        workflow.transitions,
        {key: value for key, value in (ledger or {}).items() if key in _INHERITED} or None,
        loops,
        tuple((signal.name, signal.payload) for signal in signals),
        groups,
        commanded.actor,
        commanded.reason,
    )
    payload = {**state, **_public(command.with_state)}
    course.effects.append(StartRun(command.new_id, course.definition, payload, seed=seed))
    course.record(Entry.FORKED, token=commanded.operation, control={**said, "_forked": {"to": command.new_id}})
    course.workflow = replace(workflow, version=workflow.version + 1)


def skip(course: Course, commanded: Commanded, command: SkipStep) -> None:
    """Leave the step as it is and go on with the next one."""
    _check_meant(course, command)
    control = course.said(commanded) or None
    _settle(course, commanded, Leave(control=control, jumps=0), Entry.SKIPPED, "skipped")


def complete(course: Course, commanded: Commanded, command: CompleteStep) -> None:
    """Settle the step with this output and go on, where its `_next_step` says so."""
    _check_meant(course, command)
    changes, control = split(command.output)
    steering = {key: value for key, value in (control or {}).items() if key == "_next_step"}
    verdict = Leave(changes, {**steering, **course.said(commanded)} or None, jumps=0)
    _settle(course, commanded, verdict, Entry.COMPLETED, "completed by hand")


def patch(course: Course, commanded: Commanded, command: PatchState) -> None:
    """Change keys of the state; a wait looks again whether what it has been sent fits now."""
    workflow = course.workflow
    _allow(workflow, "patched", _OVER)
    if not command.changes and not command.removed:
        raise DefinitionError(f"workflow {workflow.id}: there is nothing to change in its state")
    changed = merge(course, command.changes, command.removed)
    control = course.said(commanded) or None
    removed = command.removed
    course.record(Entry.PATCHED, token=commanded.operation, changed=changed, removed=removed, control=control)
    course.workflow = replace(course.workflow, version=workflow.version + 1)
    if not workflow.status.is_terminal and course.is_entered:
        course.hear(commanded)


def hurry(course: Course, commanded: Commanded) -> None:
    """Let go what only time holds back."""
    workflow = course.workflow
    jobs: OpenJobs = course.read(NeedOpenJobs())
    course.record(Entry.HURRIED, token=commanded.operation, control=course.said(commanded) or None)
    course.workflow = hurried = replace(workflow, version=workflow.version + 1)
    if jobs.delayed:
        course.effects.append(HurryJobs(workflow.id, course.now_us))
    if not workflow.status.is_terminal and course.is_entered:
        course.hear(commanded)
    if course.workflow is hurried and not jobs.delayed:
        raise InvalidStateError(
            f"workflow {workflow.id} is {workflow.status} at step {workflow.current_step}; nothing of it waits for a "
            "time that could be cut short (a delay, a back-off)"
        )


def merge(course: Course, changes: State, removed: Collection[str] = ()) -> State:
    """Merges what somebody has said by hand into the state; gives back what was set. The version stays as it is.

    Raises `InvalidStateError` for keys that the step under way relies on, `DefinitionError` for those that cannot be.
    """
    workflow = course.workflow
    changed = _public(changes)
    missing = [key for key in removed if key not in workflow.state or key in changed]
    if missing:
        raise DefinitionError(f"workflow {workflow.id}: its state has no key {missing[0]!r} that could be removed")
    held = _held(course).intersection((*changed, *removed))
    if held:
        raise InvalidStateError(
            f"workflow {workflow.id} is in the middle of step {workflow.current_step}, which works on the key "
            f"{min(held)!r}; rewind to the step before it, with_state={{…}}, to have it begin anew"
        )
    left = replace(workflow, state={key: value for key, value in workflow.state.items() if key not in removed})
    ledger = bounds.merging(left, course.definition, changed, None).ledger
    course.workflow = replace(left, state={**left.state, **changed}, ledger=ledger)
    return changed


def _settle(course: Course, commanded: Commanded, verdict: Leave, entry: Entry, what: str) -> None:
    """Leave the step by hand; what it has open is given up. A failed run goes on."""
    workflow = course.workflow
    course.drop(f"Step {what}", is_settled=True)
    workflow = leave_child(course)
    course.effects += _without_chunks(course)
    course.workflow = replace(
        going_on(workflow),
        status=PAUSED if workflow.status is PAUSED else RUNNING,
        error_message=None,
        error_kind=None,
        failed_step=None,
        failed_us=None,
    )
    course.leave(verdict, entry=entry, token=commanded.operation)
    if workflow.status is WorkflowStatus.FAILED and course.workflow.status is not WorkflowStatus.COMPLETED:
        deadline.remind_anew(course)
    course.go_on()


def _allow(workflow: Workflow, operation: str, forbidden: Collection[WorkflowStatus]) -> None:
    """Raises `InvalidStateError` if the run stands where this cannot be done."""
    if workflow.status in forbidden:
        names = " or ".join(sorted(forbidden))
        raise InvalidStateError(
            f"workflow {workflow.id} is {workflow.status}; it cannot be {operation} (one that is {names} cannot)"
        )
    check_not_undone(workflow, operation)


def check_not_undone(workflow: Workflow, operation: str) -> None:
    """Raises `InvalidStateError` if the run's steps were undone, or a handler of its end is still to be called."""
    if is_compensated(workflow.ledger):
        raise InvalidStateError(
            f"workflow {workflow.id} is {workflow.status} and has already been compensated; it cannot be {operation}"
        )
    if workflow.cleanup is CleanupStatus.PENDING and operation != "forked":
        raise InvalidStateError(
            f"workflow {workflow.id} is {workflow.status} and the handler of its end has not been called yet; it "
            f"cannot be {operation} before"
        )


def _check_meant(course: Course, command: SkipStep | CompleteStep) -> None:
    """Raises `InvalidStateError` if the run has ended, or moved on from the step that was meant."""
    workflow, steps = course.workflow, course.definition.steps
    _allow(workflow, "moved past a step", _OVER)
    is_other = command.step is not None and _index(course, command.step) != workflow.current_step
    if is_other or (command.visit is not None and command.visit != workflow.visit):
        at = workflow.current_step
        where = f"at step {at} ({steps[at].name!r})" if at < len(steps) else "past its last step"
        raise InvalidStateError(
            f"workflow {workflow.id} is {workflow.status} and {where} by now, not at the step that was meant; nothing "
            "was changed: look at it again"
        )


def _index(course: Course, step: int | str) -> int:
    """The index of a step that was named, or given by its index. Raises `DefinitionError` if there is none."""
    workflow, found = course.workflow, course.definition.step_index(step) if isinstance(step, str) else step
    if found is None or not 0 <= found < workflow.total_steps:
        known = ", ".join(f"{index} ({spec.name!r})" for index, spec in enumerate(course.definition.steps[:_SHOWN]))
        more = ", …" if workflow.total_steps > _SHOWN else ""
        raise DefinitionError(f"workflow {workflow.id} has no step {step!r}; it has {known}{more}")
    return found


def _past(course: Course, need: NeedPast) -> Past:
    past: Past | None = course.read(need)
    if past is None:
        name, done = course.definition.steps[need.step].name, "entered" if need.is_entry else "settled"
        raise SnapshotMissingError(
            f"No recorded state found: workflow {course.workflow.id} has not {done} step {need.step} ({name!r}) under "
            "its present definition, or its history was pruned"
        )
    return past


def _held(course: Course) -> frozenset[str]:
    """The keys of the state that the step under way, or kept for a retry, relies on."""
    workflow = course.workflow
    if workflow.runtime is None or not course.is_entered or workflow.current_step >= len(course.definition.steps):
        return frozenset()
    run = course.run()
    return kind_of(run.spec).held(run)


def _without_chunks(course: Course) -> list[Effect]:
    """Forget what streaming steps have yielded in the visit that is given up."""
    workflow = course.workflow
    if workflow.current_step >= len(course.definition.steps):
        return []
    branches = course.definition.steps[workflow.current_step].branches
    numbers: list[int | None] = [None, *range(len(branches))]
    return [ClearChunks(workflow.id, workflow.visit, branch) for branch in numbers]


def _before(loops: State | None, step: int) -> State | None:
    """The counts of the repeat steps before this one: it and those after it begin anew."""
    return {index: count for index, count in (loops or {}).items() if int(index) < step} or None


def _public(given: State | None) -> dict[str, Json]:
    """The keys that somebody sets by hand. Raises `DefinitionError` for one that is reserved."""
    changes: dict[str, Any] = dict(given or {})
    for key in changes:
        if key.startswith("_"):
            raise DefinitionError(f"key {key!r}: keys that start with _ are reserved; rename it")
    return changes


def _fork_name(name: str, now_us: int) -> str:
    ending = f"_fork_{now_us // 1_000_000}"
    return name[: _LONGEST_NAME - len(ending)] + ending
