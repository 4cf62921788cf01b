"""What a handler returned, taken apart: what becomes state and what only steers; and what a row notes of effects."""

from __future__ import annotations

from collections.abc import Iterable

from queuety.model import Effect, KeepGroup, State, UseSignals


def split(output: State) -> tuple[State, State | None]:
    """The public keys, and those that start with `_` (None if there are none).

    >>> split({"a": 1, "_next_step": "b"})
    ({'a': 1}, {'_next_step': 'b'})
    >>> split({"a": 1})
    ({'a': 1}, None)
    """
    for key in output:
        if key.startswith("_"):
            break
    else:
        return output, None
    public = {key: value for key, value in output.items() if not key.startswith("_")}
    return public, {key: value for key, value in output.items() if key.startswith("_")}


def unsteered(control: State | None) -> State | None:
    """Control values without `_next_step`, for outputs that may not steer.

    >>> unsteered({"_next_step": "b", "_trace": 1}), unsteered({"_next_step": "b"}), unsteered(None)
    ({'_trace': 1}, None, None)
    """
    if control is None or "_next_step" not in control:
        return control
    return {key: value for key, value in control.items() if key != "_next_step"} or None


def noted_of(effects: Iterable[Effect]) -> State:
    """What a row keeps of these effects, for whoever goes back to before it.

    >>> noted_of([UseSignals(1, (7, 8)), KeepGroup(1, "agents", (3,))])
    {'_used': [7, 8], '_groups': {'agents': [3]}}
    """
    used: list[int] = []
    groups: dict[str, list[int]] = {}
    for effect in effects:
        if isinstance(effect, UseSignals):
            used += effect.seqs
        elif isinstance(effect, KeepGroup):
            groups[effect.name] = list(effect.ids or ())
    return {key: value for key, value in (("_used", used), ("_groups", groups)) if value}
