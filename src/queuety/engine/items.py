"""What steps that work through the items of a state take for items."""

from __future__ import annotations

from collections.abc import Sequence

from queuety.engine.faults import broken
from queuety.engine.protocol import Fail, Run
from queuety.model import ErrorInfo, ErrorKind, Json, State


def items_at(state: State, key: str) -> Sequence[Json] | None:
    """The list under this key, or a mapping's values in their order; empty if missing or null, None if none of these.

    >>> items_at({"a": [1, 2]}, "a"), items_at({"a": {"x": 1, "y": 2}}, "a"), items_at({}, "a"), items_at({"a": 7}, "a")
    ([1, 2], [1, 2], (), None)
    """
    found = state.get(key)
    if found is None:
        return ()
    if isinstance(found, list):
        return found
    return list(found.values()) if isinstance(found, dict) else None


def check_items(run: Run, count: int) -> None:
    """Raises `ConstraintViolation` if the step may not be given so many items."""
    guards = run.definition.guards
    if guards is not None and guards.max_for_each_items is not None and count > guards.max_for_each_items:
        raise broken(run.workflow, "max_for_each_items", guards.max_for_each_items, f"the list has {count}")


def check_started(run: Run, count: int) -> None:
    """Raises `ConstraintViolation` if the run may not start so many more that go their own way."""
    guards = run.definition.guards
    if not count or guards is None or guards.max_started_workflows is None:
        return
    total = (run.workflow.ledger or {}).get("started", 0) + count
    if total > guards.max_started_workflows:
        found = f"with these {count} runs it would have {total}"
        raise broken(run.workflow, "max_started_workflows", guards.max_started_workflows, found)


def no_items(run: Run, key: str, kind: ErrorKind) -> Fail:
    """Why the step cannot work through what stands under this key."""
    found = type(run.workflow.state[key]).__name__
    message = (
        f"step {run.spec.name!r} of workflow {run.workflow.id} works through state[{key!r}], which is of type {found}; "
        "a list is needed, or a mapping whose values are the items"
    )
    return Fail(ErrorInfo(message, kind.value, kind=kind))
