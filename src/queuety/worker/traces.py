"""What handlers note for the history and not for the state: `current().trace(…)`, or a key of what they return.

It goes with the outcome of the attempt, under the control key `_queuety_trace` if it succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

from queuety.codec import checked_mapping, encode, size
from queuety.define import typed
from queuety.errors import PayloadError
from queuety.model import Json, State

KEY: Final = "_queuety_trace"
MAPPINGS: Final = ("input", "output", "context")
COLLECTIONS: Final = ("artifacts", "chunks")
"""What can only be returned: lists or mappings of whatever the handler wants to tell of them."""


class Trace:
    """What one attempt has noted so far; its handler may use several threads."""

    __slots__ = ("_bytes", "_lock", "_parts")

    def __init__(self) -> None:
        self._lock = Lock()
        self._parts: dict[str, Any] = {}
        self._bytes = 0

    @property
    def noted(self) -> State | None:
        """All of it; None if it is nothing."""
        with self._lock:
            return dict(self._parts) or None

    def add(self, parts: Mapping[str, Any], *, max_bytes: int) -> None:
        """Merge mappings into what is there; None stands for none. Raises `PayloadError`; then nothing was noted."""
        new = {name: _mapping(value, f"trace.{name}", max_bytes) for name, value in parts.items() if value is not None}
        grown = size(encode(new))
        with self._lock:
            merged = _merged(self._parts, new)
            found = self._bytes + grown  # never less than it takes
            if found > max_bytes:
                found = size(encode(merged))
                _check_size(found, "all that this attempt has traced", max_bytes)
            self._parts, self._bytes = merged, found


def traced(output: dict[str, Json], trace: Trace | None, *, max_bytes: int) -> dict[str, Json]:
    """The checked output with all that was noted under its key, or without the key if that is nothing.

    What was returned under it comes last. Raises `PayloadError` for a shape that it cannot have.
    """
    noted = None if trace is None else trace.noted
    returned = _returned(output.pop(KEY, None))
    whole = _merged(noted or {}, returned)
    if whole:
        output[KEY] = whole
        if noted:
            _check_size(size(encode(output)), "the result with what was traced", max_bytes)
    return output


def only_trace(value: object, *, max_bytes: int) -> dict[str, Json]:
    """Of what a handler gave back whose result counts for nothing: what it returned as its trace."""
    if type(value) is dict and KEY in value:
        return checked_mapping({KEY: value[KEY]}, what="result", max_bytes=max_bytes)
    return {}


def _returned(given: Json) -> dict[str, Any]:
    """The parts of a returned trace (checked JSON). Raises `PayloadError`."""
    if given is None:
        return {}
    where = f"result.{KEY}"
    if type(given) is not dict:
        raise PayloadError(f"{where} must be a mapping with the keys {_known()}, not of type {type(given).__name__}")
    for name, part in given.items():
        if name not in MAPPINGS and name not in COLLECTIONS:
            raise PayloadError(f"{where} has the key {name!r}; it may have {_known()}")
        if part is not None and type(part) is not dict and not (name in COLLECTIONS and type(part) is list):
            wanted = "a mapping or a list" if name in COLLECTIONS else "a mapping"
            raise PayloadError(f"{where}.{name} must be {wanted}, not of type {type(part).__name__}")
    return {name: part for name, part in given.items() if part}


def _mapping(value: Any, what: str, max_bytes: int) -> dict[str, Json]:
    if type(value) is not dict:
        value = typed.json_form(value)
    return checked_mapping(value, what=what, max_bytes=max_bytes)


def _merged(parts: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, each mapping with the new one's keys over its own; what is empty adds nothing.

    >>> _merged({"input": {"a": 1}}, {"input": {"b": 2}, "context": {}})
    {'input': {'a': 1, 'b': 2}}
    """
    merged = dict(parts)
    for name, part in new.items():
        if part:
            merged[name] = {**merged.get(name, {}), **part} if type(part) is dict else part
    return merged


def _check_size(found: int, what: str, max_bytes: int) -> None:
    if found > max_bytes:
        raise PayloadError(
            f"{what} is {found:,} bytes as JSON, more than the limit of {max_bytes:,} bytes; trace less, or keep it as "
            "an artifact (`current().put_artifact`)"
        )


def _known() -> str:
    return ", ".join((*MAPPINGS, *COLLECTIONS))
