"""What rows of a history say in `control` beside what handlers have returned: its form, as far as readers go by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from queuety.model import Entry

Check = Callable[[Any], bool]


def fault_of(entry: Entry, control: Mapping[str, Any] | None, *, is_attempt: bool) -> str | None:
    """The key of what does not have the form that such a row gives it, or is missing; None if all is well.

    Of rows that tell of an attempt little is looked at: handlers may return any key.
    """
    said = control or {}
    if is_attempt:
        own = _OF_ATTEMPTS.get(entry)
        return own if own is not None and own in said and not _FORMS[own](said[own]) else None
    needed = _NEEDED.get(entry)
    if needed is not None and needed not in said:
        return needed
    return next((key for key, value in said.items() if key in _FORMS and not _FORMS[key](value)), None)


def is_count(value: Any) -> bool:
    """Whether it is a whole number that is not negative."""
    return type(value) is int and value >= 0


def is_text(value: Any) -> bool:
    return type(value) is str


def _is_object(value: Any) -> bool:
    return type(value) is dict


def _is_config(value: Any) -> bool:
    return value is None or type(value) is dict


def is_index(value: Any) -> bool:
    """Whether it is the index of a step as text."""
    return type(value) is str and value.isascii() and value.isdigit()


def list_of(check: Check) -> Check:
    """A check for lists of what passes this one."""
    return lambda value: type(value) is list and all(map(check, value))


def map_of(key: Check, item: Check) -> Check:
    """A check for objects whose keys and values pass these."""
    return lambda value: type(value) is dict and all(map(key, value)) and all(map(item, value.values()))


def _with(**checks: Check) -> Check:
    """A check for objects that have these keys."""
    return lambda value: (
        type(value) is dict and all(key in value and is_so(value[key]) for key, is_so in checks.items())
    )


def _with_some(**checks: Check) -> Check:
    """A check for objects that may have these keys."""
    return lambda value: type(value) is dict and all(is_so(value[key]) for key, is_so in checks.items() if key in value)


_FORMS: Final[Mapping[str, Check]] = {
    "_by": _with_some(actor=is_text, reason=is_text),
    "_cleanup": _with_some(seq=is_count, step=is_count, handler=is_text),
    "_forked": map_of(is_text, is_count),
    "_groups": map_of(is_text, list_of(is_count)),
    "_migrated": _with(
        **{"from": is_text, "to": is_text, "from_step": is_count, "to_step": is_count},
        step_map=map_of(is_text, is_text),
        compensations=map_of(is_index, _with(name=is_text, config=_is_config)),
    ),
    "_output": _is_object,
    "_replayed": _with(source_workflow_id=is_count, source_status=is_text),
    "_rewound": _with(to_step=is_count, to_seq=is_count),
    "_signal": _with(name=is_text, payload=_is_object),
    "_used": list_of(is_count),
    "_waiting": _with(wait_type=is_text, waiting_for=list_of(is_text), wait_mode=is_text),
}

_OF_ATTEMPTS: Final = {Entry.CLEANED: "_cleanup", Entry.UNCLEANED: "_cleanup", Entry.ITEM: "_output"}

_NEEDED: Final = {
    Entry.FORKED: "_forked",
    Entry.MIGRATED: "_migrated",
    Entry.REPLAYED: "_replayed",
    Entry.REWOUND: "_rewound",
    Entry.SIGNALLED: "_signal",
    Entry.WAITING: "_waiting",
}
"""What a row of this sort is about."""
