"""What a run's state was after one of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from queuety.engine.pairing import is_from_place
from queuety.errors import DefinitionError
from queuety.inspect.course import moved, states_as_of
from queuety.inspect.outline import Outline, outlines
from queuety.model import Entry, Json
from queuety.store.queries import past, workflows
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


def workflow_state_at(
    connection: Connection, tables: Tables, workflow_id: int, step: int | str
) -> dict[str, Json] | None:
    """The public state as it was once this step had settled last; None for an unknown id, or if it never has, or if
    that was pruned.

    `step` is an index or a name of the run's present definition. What happened before the run changed its definition
    counts for the step that the present one has become of. It does so too where the run was rewound since. Raises
    `DefinitionError` for what is neither an index nor a name.
    """
    if isinstance(step, bool) or not isinstance(step, int | str):
        raise DefinitionError(f"step={step!r}: the index of a step is needed, or its name")
    run = workflows.standing(connection, tables, workflow_id)
    if run is None:
        return None
    outline = _outline(connection, tables, run["definition_hash"])
    index = _index(outline, step)
    before: int | None = None
    while index is not None:
        row = past.last_settled(connection, tables, workflow_id, index, before_seq=before)
        if row is None:
            return None
        before = row["seq"]
        if row["entry"] != Entry.MIGRATED:
            return states_as_of(connection, tables, workflow_id, [before]).get(before)
        told = moved(row["control"])
        earlier = _outline(connection, tables, told.get("from"))
        outline, index = earlier, _origin(earlier, outline, told.get("step_map") or {}, index)
    return None


def _outline(connection: Connection, tables: Tables, hash_: str | None) -> Outline:
    return Outline() if hash_ is None else outlines(connection, tables, [hash_])[hash_]


def _index(outline: Outline, step: int | str) -> int | None:
    """The index of a step; one that is too large is that of no step, if the definition can be read at all."""
    if isinstance(step, int):
        return step if 0 <= step < (len(outline.steps) or 1 << 31) else None
    return next((index for index, each in enumerate(outline.steps) if each.name == step), None)


def _origin(old: Outline, new: Outline, step_map: Mapping[str, Any], index: int) -> int | None:
    """The step of the old definition that has become this one of the new; None if there was none.

    A name that only tells a step's place means the same step only if all of it is the same.
    """
    step = new.step(index)
    if step is None:
        return None
    for place, each in enumerate(old.steps):
        if step_map.get(each.name) == step.name:
            return place
    names = {each.name for each in (*old.steps, *new.steps)}
    for place, each in enumerate(old.steps):
        if each.name == step.name and each.name not in step_map:
            return place if not is_from_place(step.name, names) or each.entry == step.entry else None
    return None
