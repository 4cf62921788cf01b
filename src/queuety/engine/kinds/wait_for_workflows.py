"""`wait_for_workflows`: the run stands still until other runs have completed; no worker is held.

`settings` is `{"workflows": [ids] | <state key>` or `"group": <group key>, "mode": "all" | "any" | "quorum", "quorum"?,
"result_key"?, "keyed": bool}`. The ids are settled on when the step is entered. Not `keyed` is the wait for a single
run, whose state is the result itself; any other result is an object from ids, as strings, to states.

Each run that may complete yet is asked to tell when it has ended; one that has failed may, since it can be retried.
What it tells is only a reason to look: the wait is decided by how the runs stand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from queuety.engine import facts
from queuety.engine.jobs import no_task, nothing_held
from queuety.engine.protocol import Fail, Leave, Part, Run, Stay, Verdict
from queuety.model import (
    DependencySettled,
    Entry,
    ErrorInfo,
    ErrorKind,
    Event,
    Json,
    LetterKind,
    Send,
    State,
    WorkflowStatus,
)
from queuety.model.needs import Standing

NAME: Final = "wait_for_workflows"
task = no_task
held = nothing_held

_NUMERAL: Final = re.compile(r"[1-9][0-9]{0,18}")
_LARGEST: Final = 2**63 - 1

_WITNESSES: Final = 16
"""How many of those listed last are looked at before all are: runs that start in order end about in order."""

_SHOWN: Final = 5
"""How many of the lost runs a message names."""

_LONGEST: Final = 200
"""How many characters a message quotes of a value, or of why a run has failed."""


def enter(run: Run) -> Verdict:
    """Leave if what is waited for has come about, fail if it cannot any more, else wait and ask to be told.

    A retry goes the same way, from the start.
    """
    found = _ids(run)
    if isinstance(found, str):
        return _fail(run, found)
    verdict = _look(run, found)
    if not isinstance(verdict, Stay):
        return verdict
    waiting = {
        "wait_type": "workflow",
        "waiting_for": [str(workflow_id) for workflow_id in found],
        "wait_mode": run.spec.settings["mode"],
    }
    standing = facts.standing(run, found)
    asked = tuple(_ask(run, workflow_id) for workflow_id in found if _may_complete(standing.get(workflow_id)))
    part = Part(Entry.WAITING, control={"_waiting": waiting})
    return Stay(asked, {"ids": list(found)}, WorkflowStatus.WAITING_FOR_WORKFLOWS, part)


def resume(run: Run, event: Event) -> Verdict:
    """Look again. A run that has told of its end and goes on by now is asked once more."""
    kept = run.workflow.runtime
    if kept is None:
        return Stay()
    found = tuple(kept["ids"])
    if not isinstance(event, DependencySettled):
        return Stay(runtime=kept)
    if event.is_done and _is_early(run, found):
        return Stay(runtime=kept)
    verdict = _look(run, found)
    if not isinstance(verdict, Stay):
        return verdict
    # Also one that had completed, was told of, and was rewound since: it has forgotten who watched it.
    standing = facts.standing(run, found)
    active = tuple(workflow_id for workflow_id in found if _is_active(standing.get(workflow_id)))
    told = facts.watching(run, active)
    return Stay(tuple(_ask(run, workflow_id) for workflow_id in active if workflow_id not in told), kept)


def _is_early(run: Run, of: tuple[int, ...]) -> bool:
    """Whether one that has completed cannot be the last that all wait for: one of those listed last still goes on.

    Looking at all of them each time would read 2,000 runs 2,000 times. Who is looked at here tells of its end as well.
    """
    if run.spec.settings["mode"] != "all" or len(of) <= _WITNESSES:
        return False
    active = tuple(sorted(other for other, how in facts.standing(run, of[-_WITNESSES:]).items() if _is_active(how)))
    return bool(facts.watching(run, active))


def _look(run: Run, of: tuple[int, ...]) -> Verdict:
    """What follows from how the runs stand, as soon as it is certain: `Stay` while it is not."""
    settings, standing = run.spec.settings, facts.standing(run, of)
    mode = settings["mode"]
    needed = len(of) if mode == "all" else 1 if mode == "any" else settings["quorum"]
    while True:
        stands = {workflow_id: standing[workflow_id].status for workflow_id in of if workflow_id in standing}
        completed = [workflow_id for workflow_id, status in stands.items() if status is WorkflowStatus.COMPLETED]
        possible = len(completed) + sum(not status.is_terminal for status in stands.values())
        if possible < needed:
            return _fail(run, _why_lost(mode, needed, of, standing))
        if len(completed) < needed:
            return Stay()
        chosen = tuple(completed[:1] if mode == "any" else completed)
        states = facts.states(run, chosen)
        if len(states) == len(chosen):
            return Leave(_output(settings, {workflow_id: states[workflow_id] for workflow_id in chosen}))
        # deleted between the two readings: it is not there
        standing = {workflow_id: how for workflow_id, how in standing.items() if _is_left(workflow_id, chosen, states)}


def _is_left(workflow_id: int, chosen: Sequence[int], states: Mapping[int, State]) -> bool:
    return workflow_id in states or workflow_id not in chosen


def _output(settings: State, states: Mapping[int, State]) -> State:
    """What is merged: the states, in the order in which their runs are listed; later ones win at top level."""
    result_key = settings.get("result_key")
    if result_key is None:
        return {key: value for state in states.values() for key, value in state.items()}
    if not settings.get("keyed", True):
        return {result_key: next(iter(states.values()), {})}
    return {result_key: {str(workflow_id): state for workflow_id, state in states.items()}}


def _may_complete(how: Standing | None) -> bool:
    return how is not None and how.status not in (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED)


def _is_active(how: Standing | None) -> bool:
    return how is not None and not how.status.is_terminal


def _ask(run: Run, workflow_id: int) -> Send:
    me = run.workflow
    return Send(workflow_id, LetterKind.SUBSCRIBE, run.now_us, {"waiter": me.id}, me.visit)


def _ids(run: Run) -> tuple[int, ...] | str:
    """The runs that are waited for, each once, in the order in which they are first named; or what is wrong."""
    named, where = _named(run)
    if named is None:
        return where
    found: dict[int, None] = {}
    for entry in named:
        workflow_id = _id(entry)
        if workflow_id is None:
            return f"{where} holds {_short(repr(entry))}, which is not the id of a workflow"
        found[workflow_id] = None
    if run.workflow.id in found:
        return f"{where} names the run itself, which would wait for ever"
    if len(found) > 1 and not run.spec.settings.get("keyed", True):
        return f"{where} names {len(found)} workflows where one is waited for; use wait_for_workflows"
    return tuple(found)


def _named(run: Run) -> tuple[Sequence[Json] | None, str]:
    """What is named, as it stands there, and where that is; None if nothing is, then with the reason."""
    settings, state = run.spec.settings, run.workflow.state
    group = settings.get("group")
    if group is not None:
        where = f"group {group!r}"
        members = facts.group(run, group)
        if members is not None:
            return members, where
        return (
            None,
            f"{where} is unknown: no step of the run has started it; give one of them group_key={group!r}",
        )
    wanted = settings["workflows"]
    if not isinstance(wanted, str):
        return wanted, "the list of workflows"
    where = f"state key {wanted!r}"
    if wanted not in state:
        return None, f"{where} is missing; a step before this one must return it"
    value = state[wanted]
    return value if isinstance(value, list) else [value], where


def _id(value: Json) -> int | None:
    """The id that is meant by a number, or by a string of digits; None if none is.

    >>> _id(12), _id("12"), _id("012"), _id(True), _id(12.0), _id(0), _id(2**63)
    (12, 12, None, None, None, None, None)
    """
    if isinstance(value, str) and _NUMERAL.fullmatch(value):
        value = int(value)
    return value if type(value) is int and 1 <= value <= _LARGEST else None


def _fail(run: Run, why: str) -> Fail:
    message = f"step {run.spec.name!r} of workflow {run.workflow.id} waits in vain: {why}"
    return Fail(ErrorInfo(message, "WaitUnsatisfiable", kind=ErrorKind.WAIT_UNSATISFIABLE))


def _why_lost(mode: str, needed: int, of: tuple[int, ...], standing: Mapping[int, Standing]) -> str:
    """How many are needed, and which are lost; their number is not bounded, the length of this is."""
    asked = f"all {len(of)}" if mode == "all" else f"{needed} of {len(of)}"
    lost = [f"workflow {workflow_id} {_fate(how)}" for workflow_id in of if _is_lost(how := standing.get(workflow_id))]
    more = f" and {len(lost) - _SHOWN} more are lost" if len(lost) > _SHOWN else ""
    return f"{asked} must complete, but {', '.join(lost[:_SHOWN]) or 'there are too few'}{more}"


def _is_lost(how: Standing | None) -> bool:
    return how is None or (how.status.is_terminal and how.status is not WorkflowStatus.COMPLETED)


def _fate(how: Standing | None) -> str:
    if how is None:
        return "is not there"
    if how.status is WorkflowStatus.CANCELLED:
        return "was cancelled"
    return f"has failed ({_short(how.error_message or 'no message')})"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
