"""A state as a snapshot and the deltas since; `fold` is the model's own."""

from __future__ import annotations

from queuety.model import Json, State
from queuety.model.deltas import fold

__all__ = ["delta", "fold"]


def delta(before: State, after: State) -> tuple[dict[str, Json], tuple[str, ...]]:
    """What was set and what was taken out between two states: `fold(before, [delta(before, after)])` equals `after`.

    >>> delta({"a": 1, "b": 2, "c": 3}, {"a": True, "c": 3, "d": 4})
    ({'a': True, 'd': 4}, ('b',))
    """
    changed = {key: value for key, value in after.items() if key not in before or not _is_same(before[key], value)}
    return changed, tuple(key for key in before if key not in after)


def _is_same(one: Json, other: Json) -> bool:
    """Whether two JSON values are written alike: Python's own `==` holds 1, 1.0 and True for equal."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other) and str(one) == str(other)
