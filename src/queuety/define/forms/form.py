"""What a form of a kind is made of, and the readers of settings that several kinds have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from queuety.define.names import check_name
from queuety.errors import DefinitionError
from queuety.model import Json, Use

Settings = dict[str, Json]
"""What only the step's kind understands; what is not set is left out."""

MAX_ID: Final = 2**63 - 1

Mode = TypeVar("Mode", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Form:
    """How a step of one kind is written down.

    `keys` are those of its settings, as the builder and JSON give them; `settings` reads them. It is handed all that
    was given of the step (its `name` and whatever stands for its handler among it) and what messages call the step.
    `handler` is the key of the step's handler, which is called for `use`.
    """

    keys: frozenset[str] = frozenset()
    settings: Callable[[Mapping[str, Any], str], Settings] = lambda _given, _where: {}
    handler: str | None = None
    use: Use = Use.STEP
    needs_handler: bool = True
    has_branches: bool = False
    has_reducer: bool = False
    has_child: bool = False


def only_given(**settings: Json) -> Settings:
    """The settings that are not None."""
    return {key: value for key, value in settings.items() if value is not None}


def required(given: Mapping[str, Any], key: str, where: str) -> Any:
    """What stands under the key. Raises `DefinitionError` if nothing does."""
    value = given.get(key)
    if value is None:
        raise DefinitionError(f"{where}: {key} is missing")
    return value


def read_key(value: object, where: str) -> str:
    """A key of the public state: text that is not blank and does not start with `_`."""
    key = check_name(value, what=where)
    if key.startswith("_"):
        raise DefinitionError(f"{where} {key!r}: keys that start with _ are reserved; choose another name")
    return key


def read_count(value: object, where: str) -> int:
    """A whole number, 1 and above."""
    if type(value) is not int or not 1 <= value <= MAX_ID:
        raise DefinitionError(f"{where} must be an integer, 1 or above, not {value!r}")
    return value


def read_flag(value: object, where: str) -> bool:
    """True or False."""
    if type(value) is not bool:
        raise DefinitionError(f"{where} must be true or false, not {value!r}")
    return value


def read_mode(value: object, modes: type[Mode], where: str, *, without: Mode | None = None) -> Mode:
    """One of the modes, or its value; `without` is the one that does not fit here."""
    allowed = [mode for mode in modes if mode is not without]
    for mode in allowed:
        if isinstance(value, str) and value == mode.value:
            return mode
    raise DefinitionError(f"{where} must be one of {', '.join(allowed)}, not {value!r}")


def read_quorum(value: object, mode: StrEnum, where: str) -> int | None:
    """How many are enough: a count in the mode `quorum`, and None in every other one."""
    if mode != "quorum":
        if value is not None:
            raise DefinitionError(f"{where}: quorum is for the mode quorum; leave it out, or choose that mode")
        return None
    if value is None:
        raise DefinitionError(f"{where}: the mode quorum needs quorum, the number that is enough")
    return read_count(value, f"{where}: quorum")


def optional_key(given: Mapping[str, Any], key: str, where: str) -> str | None:
    """The key of the public state that is given there, or None."""
    value = given.get(key)
    return None if value is None else read_key(value, f"{where}: {key}")
