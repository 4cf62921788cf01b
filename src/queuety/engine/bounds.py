"""What a boundary uses up and takes away: budgets, and keys that have grown old. Pure arithmetic over one step.

What is counted stands in the workflow's `ledger`, and only where the definition asks for it. The order is that of the
specification (5.4): merge, prune, count, check transitions, bytes, cost. How many items a step may have and how many
runs it may start is checked before there is any of them (`items`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from queuety.codec import encode
from queuety.engine.faults import broken
from queuety.engine.kinds import kind_of
from queuety.model import Definition, Effect, Guards, Job, Json, StartRun, State, Use, Workflow

DEFAULT_COST: Final = 1
"""What a handler's job costs that names no `cost_units`."""

_FREE: Final = frozenset({Use.REDUCER, Use.CONDITION})
"""What a step does beside the work itself costs nothing."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a boundary does beside merging: keys that go, and the ledger after it."""

    removed: tuple[str, ...] = ()
    ledger: State | None = None


def is_bounded(definition: Definition) -> bool:
    """Whether anything has to be counted or pruned."""
    return definition.guards is not None or definition.prune_after is not None


def merging(workflow: Workflow, definition: Definition, changes: State, job: Job | None) -> Boundary:
    """What merging these keys means while the step goes on; `job` is what has completed, if anything has.

    Raises `ConstraintViolation` that names the limit which it would break.
    """
    ledger = _wrote(workflow, definition, changes, _paid(workflow, definition, job))
    if definition.guards is not None:
        _check_bytes(workflow, definition.guards, {**workflow.state, **changes} if changes else None)
        _check_cost(workflow, definition.guards, ledger)
    return Boundary((), ledger or None)


def leaving(
    workflow: Workflow, definition: Definition, changes: State, job: Job | None, effects: Iterable[Effect]
) -> Boundary:
    """The same where the step settles, with all that its visit merges now; the effects may start runs."""
    ledger = _wrote(workflow, definition, changes, _paid(workflow, definition, job))
    started = sum(1 for effect in effects if isinstance(effect, StartRun) and effect.parent_id is None)
    if started:
        ledger = {**ledger, "started": ledger.get("started", 0) + started}
    after = {**workflow.state, **changes}
    removed, ledger = _pruned(workflow, definition, after, ledger)
    guards = definition.guards
    if guards is not None:
        transitions = workflow.transitions + 1
        if guards.max_transitions is not None and transitions > guards.max_transitions:
            raise broken(workflow, "max_transitions", guards.max_transitions, f"this would be transition {transitions}")
        gone = set(removed)
        _check_bytes(workflow, guards, {key: value for key, value in after.items() if key not in gone})
        _check_cost(workflow, guards, ledger)
    return Boundary(removed, ledger or None)


def check_start(workflow: Workflow, guards: Guards | None) -> None:
    """Raises `ConstraintViolation` if a run may not begin with this state."""
    if guards is not None:
        _check_bytes(workflow, guards, workflow.state)


def _paid(workflow: Workflow, definition: Definition, job: Job | None) -> dict[str, Any]:
    """The ledger with what a completed job costs, if anything is limited."""
    ledger = dict(workflow.ledger or {})
    if job is not None and definition.guards is not None:
        spec = definition.steps[workflow.current_step]
        task = kind_of(spec).task(spec, job, workflow.state)
        if task.use not in _FREE:
            units = task.options.cost_units
            ledger["cost"] = ledger.get("cost", 0) + (DEFAULT_COST if units is None else units)
    return ledger


def _wrote(workflow: Workflow, definition: Definition, changes: State, ledger: dict[str, Any]) -> dict[str, Any]:
    """The ledger with the current step as the latest writer of these keys, if keys are pruned.

    Keys that no step had written before are kept in mind as `given`: a run that goes back has them as they came.
    """
    if definition.prune_after is None or not changes:
        return ledger
    writers: Mapping[str, int] = ledger.get("writers", {})
    given: list[str] = ledger.get("given", [])
    new = [key for key in changes if key in workflow.state and key not in writers and key not in given]
    found = {**ledger, "writers": {**writers, **dict.fromkeys(changes, workflow.current_step)}}
    return {**found, "given": [*given, *new]} if new else found


def rewritten(workflow: Workflow, state: State, step: int) -> State | None:
    """The ledger of a run that goes back to this state, which it had when `step` had settled.

    Who wrote a key last by then is not known any more. So that none is pruned earlier than it would have been, `step`
    has, or a later one; what was given is given again.
    """
    ledger = workflow.ledger
    writers: Mapping[str, int] | None = (ledger or {}).get("writers")
    if ledger is None or writers is None:
        return ledger
    given: Collection[str] = ledger.get("given", ())
    kept: dict[str, int] = {}
    for key in state:
        is_given = key in given or (key in workflow.state and key not in writers)
        if not is_given:
            kept[key] = max(writers.get(key, 0), step, 0)
    return {**ledger, "writers": kept}


def _pruned(
    workflow: Workflow, definition: Definition, after: State, ledger: dict[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The keys whose latest writer lies too far back, and the ledger without them."""
    writers: Mapping[str, int] = ledger.get("writers", {})
    if definition.prune_after is None or not writers:
        return (), ledger
    oldest = workflow.current_step - definition.prune_after
    removed = tuple(key for key in after if writers.get(key, oldest + 1) <= oldest)
    kept = {key: step for key, step in writers.items() if step > oldest and key in after}
    return removed, {**{key: value for key, value in ledger.items() if key != "writers"}, "writers": kept}


def _check_bytes(workflow: Workflow, guards: Guards, state: State | None) -> None:
    most = guards.max_state_bytes
    if most is not None and state is not None and (size := size_of(state)) > most:
        raise broken(workflow, "max_state_bytes", most, f"its state would take {size} bytes")


def _check_cost(workflow: Workflow, guards: Guards, ledger: Mapping[str, Any]) -> None:
    most, cost = guards.max_cost_units, ledger.get("cost", 0)
    if most is not None and cost > most:
        raise broken(workflow, "max_cost_units", most, f"this would be cost unit {cost}")


def size_of(state: Json) -> int:
    """How many bytes a value takes as compact UTF-8 JSON.

    >>> size_of({"counter": 1})
    13
    """
    return len(encode(state).encode())
