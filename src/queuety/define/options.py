"""How a handler's jobs are run: checked wherever a user says it, as keywords, as `config()` or as JSON.

One table says which options there are. A later option is a line in it and its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, TypedDict

from queuety.define.names import check_name, qualified_name
from queuety.errors import DefinitionError, Fail, JobTimeout
from queuety.model import Json, Options, Priority

BACKOFFS: Final = ("exponential", "linear", "fixed")

MAX_SECONDS: Final = 100 * 365 * 86_400
"""A century: times of that size still fit into microseconds of 64 bits."""

MAX_ATTEMPTS: Final = 1_000_000

MAX_COST_UNITS: Final = 1_000_000_000
"""Of one job. What a run of any length adds up still fits into 64 bits."""

UNITS: Final[Mapping[str, int]] = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}
"""The parts that a length of time may be given in, and the seconds in each."""

Exceptions = type[Exception] | tuple[type[Exception], ...]


class HandlerOptions(TypedDict, total=False):
    """The keywords of `@step`, `@job` and `then`. `timeout` is in seconds, `cost_units` 0 or above."""

    max_attempts: int
    backoff: str | list[float] | tuple[float, ...]
    timeout: float
    queue: str
    priority: Priority | int | str
    cost_units: int
    retry_on: Exceptions
    give_up_on: Exceptions


def options_from(given: Mapping[str, Any], *, where: str, of_entry: bool = False) -> Options:
    """The options that `given` names, each checked; with `of_entry` those that only a step's JSON entry takes as well.

    A None stands for an option that is not given. Raises `DefinitionError` naming `where` and the key.
    """
    readers = _ENTRY_READERS if of_entry else _READERS
    values: dict[str, Any] = {}
    for key, value in given.items():
        entry = readers.get(key)
        if entry is None:
            raise DefinitionError(f"{where}: there is no option {key!r}; there are {', '.join(sorted(readers))}")
        if value is not None:
            field, read = entry
            values[field] = read(value, f"{where}: {key}")
    return Options(**values)


def merged(first: Options, then: Options) -> Options:
    """`first`, filled up from `then` where it leaves something open."""
    if first == _NOTHING:
        return then
    if then == _NOTHING:
        return first
    return Options(
        **{
            field.name: getattr(then, field.name) if getattr(first, field.name) is None else getattr(first, field.name)
            for field in fields(Options)
        }
    )


def options_to_json(options: Options) -> dict[str, Json]:
    """The options that are set, under the keys of `options_from`.

    >>> options_to_json(Options(priority=Priority.HIGH, timeout_s=30.0, backoff=(1.0, 2.5)))
    {'priority': 'high', 'backoff': [1, 2.5], 'timeout': 30}
    """
    form: dict[str, Json] = {}
    for key, (field, _) in _ENTRY_READERS.items():
        value = getattr(options, field)
        if value is None:
            continue
        if isinstance(value, Priority):
            form[key] = value.name.lower()
        elif isinstance(value, tuple):
            form[key] = [plain_number(item) if isinstance(item, float) else item for item in value]
        else:
            form[key] = plain_number(value) if isinstance(value, float) else value
    return form


def gives_up(options: Options, error: BaseException) -> bool:
    """True if no further attempt may follow this error: `Fail`, `give_up_on`, or `retry_on` without it.

    A time limit that was reached ends a job only where `give_up_on` names `JobTimeout`.

    Classes are compared by name along the error's bases, so nothing is imported to decide it.
    """
    if isinstance(error, Fail):
        return True
    if options.retry_on is None and options.give_up_on is None:
        return False
    names = {qualified_name(base) for base in type(error).__mro__}
    if options.give_up_on is not None and not names.isdisjoint(options.give_up_on):
        return True
    if options.retry_on is None or isinstance(error, JobTimeout):  # a time limit is not the handler's own error
        return False
    return names.isdisjoint(options.retry_on)


def plain_number(value: float) -> int | float:
    """The number as JSON should show it: without a fraction where there is none."""
    return int(value) if value == int(value) else value


def read_seconds(value: object, where: str, *, least: float = 0.0) -> float:
    """A number of seconds, `least` and above. Raises `DefinitionError` naming `where`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise DefinitionError(f"{where} must be a number of seconds, not {value!r}")
    if not least <= value <= MAX_SECONDS:  # false for NaN too
        raise DefinitionError(f"{where} must lie between {least:g} and {MAX_SECONDS} seconds, not {value!r}")
    return float(value)


def read_sum(parts: Mapping[str, Any], where: str, *, least: float = 0.0) -> float:
    """The seconds in the parts `seconds`, `minutes`, `hours` and `days` that are given, `least` and above.

    A single part may be negative. Raises `DefinitionError` naming `where`.
    """
    total: float = 0
    for unit, seconds in UNITS.items():
        part = parts.get(unit, 0)
        if isinstance(part, bool) or not isinstance(part, int | float):
            raise DefinitionError(f"{where}: {unit} must be a number, not {part!r}")
        total += part * seconds
    return read_seconds(total, f"{where}: the sum", least=least)


def read_queue(value: object, where: str) -> str:
    """The name of a queue. A comma would never be told from one that separates two queues of a worker."""
    name = check_name(value, what=where)
    if "," in name:
        raise DefinitionError(f"{where} {name!r} contains a comma, which separates queues; choose another name")
    return name


def read_priority(value: object, where: str) -> Priority:
    """A `Priority`, its number or its name."""
    if type(value) is str and value.upper() in Priority.__members__:
        return Priority[value.upper()]
    if type(value) in (int, Priority) and value in set(Priority):
        return Priority(value)  # type: ignore[arg-type]
    names = ", ".join(f"{each.name.lower()} ({each.value})" for each in Priority)
    raise DefinitionError(f"{where} must be one of {names}, not {value!r}")


def read_attempts(value: object, where: str) -> int:
    """How often a job may be tried, at least once."""
    if type(value) is not int or not 1 <= value <= MAX_ATTEMPTS:
        raise DefinitionError(f"{where} must be an integer from 1 to {MAX_ATTEMPTS}, not {value!r}")
    return value


def _read_cost(value: object, where: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_COST_UNITS:
        raise DefinitionError(f"{where} must be an integer from 0 to {MAX_COST_UNITS}, not {value!r}")
    return value


def _read_backoff(value: object, where: str) -> str | tuple[float, ...]:
    if type(value) is str and value in BACKOFFS:
        return value
    if isinstance(value, list | tuple) and value:
        return tuple(read_seconds(item, f"{where}[{index}]") for index, item in enumerate(value))
    raise DefinitionError(
        f"{where} must be one of {', '.join(map(repr, BACKOFFS))} or a list of seconds, of which the last repeats, "
        f"not {value!r}"
    )


def _read_timeout(value: object, where: str) -> float:
    if isinstance(value, Mapping):
        if set(value) != {"seconds"}:
            raise DefinitionError(f"{where} must be a number of seconds or {{'seconds': number}}, not {value!r}")
        value = value["seconds"]
    seconds = read_seconds(value, where)
    if seconds == 0:
        raise DefinitionError(f"{where} must be above 0 seconds; leave it out for the default limit")
    return seconds


def _read_exceptions(value: object, where: str) -> tuple[str, ...]:
    given = value if isinstance(value, tuple | list) else (value,)
    names = []
    for item in given:
        if isinstance(item, type) and issubclass(item, Exception):
            names.append(qualified_name(item))
        elif type(item) is str and item.count(":") == 1 and all(item.split(":")):
            names.append(check_name(item, what=where))
        else:
            raise DefinitionError(f"{where} takes classes of exceptions, not {item!r}")
    if not names:
        raise DefinitionError(f"{where} names no exception; leave it out instead")
    return tuple(names)


_Reader = Callable[[object, str], Any]

_READERS: Final[Mapping[str, tuple[str, _Reader]]] = {
    "queue": ("queue", read_queue),
    "priority": ("priority", read_priority),
    "max_attempts": ("max_attempts", read_attempts),
    "backoff": ("backoff", _read_backoff),
    "timeout": ("timeout_s", _read_timeout),
    "cost_units": ("cost_units", _read_cost),
    "retry_on": ("retry_on", _read_exceptions),
    "give_up_on": ("give_up_on", _read_exceptions),
}

_ENTRY_READERS: Final[Mapping[str, tuple[str, _Reader]]] = {**_READERS, "delay": ("delay_s", read_seconds)}

OPTION_KEYS: Final = frozenset(_ENTRY_READERS)

_NOTHING: Final = Options()
