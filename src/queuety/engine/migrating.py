"""Moving a run to another definition of its workflow: whether it can be, and what that means for where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from queuety.engine import cleanup, deadline
from queuety.engine.course import NOT_ENTERED, RUNNING, Course
from queuety.engine.glance import child_of
from queuety.engine.pairing import Pairing, StepMap, handler_form, is_alike, is_from_place, paired
from queuety.errors import InvalidStateError
from queuety.model import (
    DEFAULT_QUEUE,
    ClearChunks,
    Commanded,
    Definition,
    DropTimers,
    Effect,
    Entry,
    LetterKind,
    Migrate,
    State,
    StepSpec,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import NeedOpenJobs, OpenJobs

SUPERSEDED: Final = "Superseded: the workflow was moved to another definition"
"""What the jobs are left with of a step that starts over under another definition."""

NO_JOBS: Final = OpenJobs(0, 0, 0)

_SHOWN: Final = 5
"""How many steps a reason names."""

_FAILED: Final = WorkflowStatus.FAILED
_OVER: Final = frozenset({WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED})


class MoveVerdict(StrEnum):
    """Whether a run can be moved to another definition: as it stands (`safe`), once somebody has said which step it is
    at there (`needs_map`), or not as it stands (`blocked`)."""

    SAFE = "safe"
    NEEDS_MAP = "needs_map"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Move:
    """Whether a run can be moved, and why. `to_step` is the index of the step that it would be at, if that is known.

    With `keeps_visit` whatever that step has under way goes on; else the step starts over in a new visit.
    """

    verdict: MoveVerdict
    reason: str
    to_step: int | None = None
    keeps_visit: bool = False


def assess(
    workflow: Workflow,
    old: Definition,
    new: Definition,
    step_map: StepMap,
    *,
    open_jobs: OpenJobs = NO_JOBS,
    now_us: int | None = None,
    pairing: Pairing | None = None,
) -> Move:
    """Whether the run, which is under `old`, can be moved to `new` as it stands. Its state is not looked at.

    Without `now_us` nobody looks whether its time would be over there. `pairing` is that of the definitions, if known.
    """
    why_not = _forbidden(workflow, old, new) or _too_late(workflow, old, new, now_us)
    if why_not:
        return Move(MoveVerdict.BLOCKED, why_not)
    pairing = pairing or paired(old, new, step_map)
    at = workflow.current_step
    here, to_step = old.steps[at], pairing.places[at]
    if to_step is None:
        return Move(MoveVerdict.NEEDS_MAP, _unknown_there(pairing, at))
    there, why_not = new.steps[to_step], _out_of_order(pairing, at, to_step)
    if why_not:
        return Move(MoveVerdict.NEEDS_MAP, why_not, to_step)
    name, more = _called(here, there), _also(workflow, pairing, to_step)
    if workflow.runtime == NOT_ENTERED:
        return Move(MoveVerdict.SAFE, f"{name} has not begun{more}", to_step, keeps_visit=True)
    if here.kind != there.kind and here.name not in step_map:
        return Move(
            MoveVerdict.NEEDS_MAP,
            f"{name} is of kind {here.kind} and has begun; there it is of kind {there.kind}: map it to itself "
            f"({here.name}={here.name}) to have it start over as that, or to another step",
            to_step,
        )
    has_jobs = bool(open_jobs.leased or open_jobs.delayed or open_jobs.ready)
    is_same = is_alike(here, there, step_map)
    stays = to_step == at and _queues(here, old) == _queues(there, new)
    if is_same and (stays or not has_jobs):
        return Move(MoveVerdict.SAFE, _goes_on(workflow, name, has_jobs=has_jobs) + more, to_step, keeps_visit=True)
    change = _change(here, there, at, to_step, is_same=is_same)
    if open_jobs.leased:
        why_not = f"{name} is being run, and {change}; pause the run and try again when the step has settled"
    elif _has_parts(workflow):
        why_not = f"parts of {name} have completed, and {change}; let it settle first, or rewind to the step before it"
    if why_not:
        return Move(MoveVerdict.BLOCKED, why_not, to_step)
    child = child_of(workflow)
    left = "" if child is None or workflow.status is _FAILED else f"; workflow {child}, its child, is cancelled"
    return Move(MoveVerdict.SAFE, f"{name} starts over in a new visit: {change}{left}{more}", to_step)


def migrate(course: Course, commanded: Commanded) -> None:
    """Have the run go on under another definition. Raises `InvalidStateError` that says why it cannot, as it stands."""
    workflow, old, command = course.workflow, course.definition, commanded.command
    if not isinstance(command, Migrate):
        raise TypeError(f"migrate() obeys Migrate, not {type(command).__name__}")
    new, step_map = command.definition, command.step_map
    open_jobs: OpenJobs = course.read(NeedOpenJobs())
    pairing = paired(old, new, step_map)
    move = assess(workflow, old, new, step_map, open_jobs=open_jobs, now_us=course.now_us, pairing=pairing)
    to_step = move.to_step
    if move.verdict is not MoveVerdict.SAFE or to_step is None:
        raise InvalidStateError(
            f"workflow {workflow.id} ({workflow.name!r}) cannot be moved to definition {new.hash[:12]}, "
            f"{move.verdict}: {move.reason}"
        )
    if not move.keeps_visit:
        course.drop(SUPERSEDED)
        workflow = cleanup.leave_child(course)
        course.effects += _without_chunks(workflow, old)
    told = {
        "from": workflow.definition_hash,
        "to": new.hash,
        "from_step": workflow.current_step,
        "to_step": to_step,
        "step_map": dict(step_map),
        "keeps_visit": move.keeps_visit,
        "why": move.reason,
        "compensations": {str(index): handler_form(old.steps[index].compensation) for index in old.compensated},
    }
    control = {**(course.said(commanded) or {}), "_migrated": told}
    course.record(Entry.MIGRATED, token=commanded.operation, control=control)
    is_failed = workflow.status is _FAILED
    enters = not move.keeps_visit and not is_failed and workflow.status is not WorkflowStatus.PAUSED
    course.definition = new
    course.workflow = replace(
        workflow,
        definition_hash=new.hash,
        total_steps=len(new.steps),
        status=RUNNING if enters else workflow.status,
        current_step=to_step,
        failed_step=to_step if is_failed else workflow.failed_step,
        visit=workflow.visit if move.keeps_visit else workflow.visit + 1,
        version=workflow.version + 1,
        runtime=workflow.runtime if move.keeps_visit else NOT_ENTERED,
        loops=_loops(workflow.loops, pairing),
        ledger=_ledger(workflow, pairing, to_step),
        deadline_us=_deadline_us(workflow, old, new),
    )
    if course.workflow.deadline_us != workflow.deadline_us:
        course.effects.append(DropTimers(workflow.id, LetterKind.DEADLINE))
        deadline.remind(course)
    if enters:
        course.enter()


def _queues(spec: StepSpec, definition: Definition) -> list[str]:
    """Where the step's jobs wait for a worker."""
    options = [spec.options, *(branch.options for branch in spec.branches)]
    return [one.queue or definition.queue or DEFAULT_QUEUE for one in options]


def _has_parts(workflow: Workflow) -> bool:
    """Whether some of the step's several jobs have completed: what they brought would be brought once more."""
    kept = workflow.runtime or {}
    return bool(kept.get("done") or kept.get("reducing"))


def _forbidden(workflow: Workflow, old: Definition, new: Definition) -> str | None:
    """Why a run that stands so cannot be moved at all."""
    if workflow.definition_hash == new.hash:
        return "it is under this definition already"
    if old.name != new.name:
        return f"it is a run of workflow {old.name!r}, and that is a definition of {new.name!r}"
    if workflow.status in _OVER:
        return f"it is {workflow.status}"
    if not cleanup.may_go_on(workflow):
        return f"it is {workflow.status}, and what follows from that has begun (compensation_status {workflow.cleanup})"
    if workflow.current_step >= len(old.steps):
        return f"its definition has no step {workflow.current_step}"
    return None


def _too_late(workflow: Workflow, old: Definition, new: Definition, now_us: int | None) -> str | None:
    due_us = _deadline_us(workflow, old, new)
    if now_us is None or due_us is None or due_us == workflow.deadline_us or due_us > now_us:
        return None
    return f"there a run has {new.deadline_s:g} s from its start, and those are over"


def _unknown_there(pairing: Pairing, at: int) -> str:
    """Why nobody can tell what step the run would be at, and which ones may be meant."""
    old, new, step_map = pairing.old, pairing.new, pairing.step_map
    here = old.steps[at]
    if here.name in step_map:
        return f"the step map says that step {here.name!r} is {step_map[here.name]!r} there, and there is none"
    known = {spec.name for spec in old.steps}
    same = [spec.name for spec in new.steps if is_alike(here, spec, step_map)]
    meant = [name for name in same if name not in known or is_from_place(name, {*known, *same})]
    if new.step_index(here.name) is None:
        why = f"there is no step {here.name!r}"
    else:
        why = f"step {here.name!r} is named by its place, where another step is now"
    hint = f" (step {meant[0]!r} does the same)" if len(meant) == 1 else ""
    return f"{why}{hint}; say in the step map which one it is, or at which one to go on"


def _out_of_order(pairing: Pairing, at: int, to_step: int) -> str | None:
    """What a run that goes on there would do twice, or never, because the steps have another order there."""
    here = pairing.old.steps[at].name
    if again := pairing.again(at, to_step):
        return (
            f"the run would do {_listed(again)} again: before step {here!r} here, after it there; map it to itself "
            f"({again[0]}={again[0]}) if it is to"
        )
    if left_out := pairing.left_out(at, to_step):
        return (
            f"the run would leave out {_listed(left_out)}: after step {here!r} here, before it there; map it to itself "
            f"({left_out[0]}={left_out[0]}) if it is to"
        )
    return None


def _also(workflow: Workflow, pairing: Pairing, to_step: int) -> str:
    """What else is to be known of a run that goes on there."""
    told = ""
    if skipped := pairing.new_before(to_step):
        told += f"; it is past {_listed(skipped)}, new there"
    steps = pairing.old.steps
    lost = [index for index in map(int, workflow.loops or {}) if _loop(pairing, index) is None]
    if lost:
        told += f"; rounds are counted anew of {_listed([steps[index].name for index in lost if index < len(steps)])}"
    return told


def _listed(names: list[str]) -> str:
    shown = " and ".join(f"step {name!r}" for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _called(here: StepSpec, there: StepSpec) -> str:
    return f"step {here.name!r}" + (f" (there {there.name!r})" if there.name != here.name else "")


def _goes_on(workflow: Workflow, name: str, *, has_jobs: bool) -> str:
    if workflow.status is _FAILED:
        return f"{name} has failed; a retry goes on with it there"
    return f"{name} is the same there, and {'its jobs go on as they were' if has_jobs else 'it goes on as it was'}"


def _change(here: StepSpec, there: StepSpec, at: int, to_step: int, *, is_same: bool) -> str:
    """What is not as it was, so that what the step has begun cannot go on."""
    if here.kind != there.kind:
        return f"it is of kind {here.kind} here and {there.kind} there"
    if not is_same:
        return "what it does has changed"
    return f"it has moved from {at} to {to_step}" if at != to_step else "its jobs wait in another queue there"


def _loops(loops: State | None, pairing: Pairing) -> State | None:
    """The jumps of the repeat steps that are still there, by their new places."""
    found = {_loop(pairing, int(index)): count for index, count in (loops or {}).items()}
    return {str(place): count for place, count in found.items() if place is not None} or None


def _loop(pairing: Pairing, index: int) -> int | None:
    """Where the repeat step with this index is there; None if it is none there."""
    old, new = pairing.old, pairing.new
    place = pairing.places[index] if index < len(pairing.places) else None
    return place if place is not None and new.steps[place].kind == old.steps[index].kind else None


def _ledger(workflow: Workflow, pairing: Pairing, to_step: int) -> State | None:
    """The ledger by the new places of steps. What a step has written that is gone stays as old as it is.

    `moved`: some steps were settled under a definition that could undo them.
    """
    ledger: dict[str, Any] = dict(workflow.ledger or {})
    if pairing.old.compensated:
        ledger["moved"] = True
    writers: Mapping[str, int] | None = ledger.get("writers")
    if writers is not None:
        shift = to_step - workflow.current_step
        known = dict(enumerate(pairing.places))
        ledger["writers"] = {
            key: index + shift if (place := known.get(index)) is None else place for key, index in writers.items()
        }
    return ledger or None


def _deadline_us(workflow: Workflow, old: Definition, new: Definition) -> int | None:
    """When the run has to have ended: as it was, unless the new definition gives it another time from its start."""
    if old.deadline_s == new.deadline_s:
        return workflow.deadline_us
    return None if new.deadline_s is None else workflow.created_us + round(new.deadline_s * 1_000_000)


def _without_chunks(workflow: Workflow, old: Definition) -> list[Effect]:
    """Forget what a streaming step has yielded in the visit that is given up."""
    numbers: list[int | None] = [None, *range(len(old.steps[workflow.current_step].branches))]
    return [ClearChunks(workflow.id, workflow.visit, branch) for branch in numbers]
