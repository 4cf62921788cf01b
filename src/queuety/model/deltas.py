"""The state of a run is a snapshot plus the deltas since it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queuety.model.words import Json, State

Delta = tuple[State, Sequence[str]]
"""The keys that a boundary set, and those that it took out."""


def fold(snapshot: State, deltas: Iterable[Delta]) -> dict[str, Json]:
    """The state after all deltas, in order; keys stand in the order of their first insertion.

    >>> fold({"a": 1}, [({"b": 2}, []), ({"a": 3}, ["b"])])
    {'a': 3}
    """
    state = dict(snapshot)
    for changed, removed in deltas:
        state.update(changed)
        for key in removed:
            state.pop(key, None)
    return state
