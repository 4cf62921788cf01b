"""What a handler returned, taken apart: what becomes state and what only steers."""

from __future__ import annotations

from queuety.model import State


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
