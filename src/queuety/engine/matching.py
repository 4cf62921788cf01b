"""When two JSON values are the same, and when one asks for no more than another has.

Types are strict: a string, a number, a boolean and null are never the same, so `"1"`, `1` and `true` are three values.
Python's own `==` would take `True` for 1. Numbers are the same if they are equal in value, so 1 and 1.0 are: JSON knows
one kind of number, and whoever sends it does not choose how it is written.
"""

from __future__ import annotations

from typing import Final

from queuety.model import Json

_SORTS: Final = {bool: "boolean", int: "number", float: "number"}
"""What JSON calls a type where Python has another view; every other type is a sort of its own."""


def is_same(one: Json, other: Json) -> bool:
    """Whether two JSON values are equal: the order of an object's keys does not matter, that of a list does.

    >>> is_same({"a": 1, "b": [1, 2]}, {"b": [1.0, 2], "a": 1})
    True
    >>> is_same(1, True), is_same("1", 1), is_same([1, 2], [2, 1]), is_same(None, False)
    (False, False, False, False)
    """
    if _sort(one) != _sort(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


def is_subset(pattern: Json, value: Json) -> bool:
    """Whether every key of the pattern is in the value, at every depth; whatever is no object must be the same whole.

    >>> is_subset({"order": {"id": 7}}, {"order": {"id": 7, "sum": 3}, "by": "ann"})
    True
    >>> is_subset({"tags": ["a"]}, {"tags": ["a", "b"]}), is_subset({"id": 7}, {"id": "7"}), is_subset({"a": None}, {})
    (False, False, False)
    """
    if not isinstance(pattern, dict) or not isinstance(value, dict):
        return is_same(pattern, value)
    return all(key in value and is_subset(wanted, value[key]) for key, wanted in pattern.items())


def _sort(value: Json) -> str | type:
    return _SORTS.get(type(value), type(value))
