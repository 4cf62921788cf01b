"""The marks that make users' functions and classes callable by name, and the base classes of the class form.

A mark is an attribute on the function itself; the decorators give back what they were given, so that a handler is
called in a unit test like any function. What can be known of a marked object is in `handlers`.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar, Unpack, overload

from queuety.codec import checked_mapping
from queuety.define.names import attribute, check_name, qualified_name
from queuety.define.options import HandlerOptions, options_from
from queuety.errors import DefinitionError, PayloadError
from queuety.model import Json, Options

_MARK: Final = "__queuety__"

Target = TypeVar("Target", bound=Callable[..., Any])


class HandlerKind(StrEnum):
    """What a handler may be used as: any role in a workflow, or a plain job."""

    STEP = "step"
    JOB = "job"


class MarkOptions(HandlerOptions, total=False):
    """The keywords of `@step` and `@job`."""

    name: str


@dataclass(frozen=True, slots=True)
class Mark:
    """What `@step` and `@job` leave on a function or a class."""

    kind: HandlerKind
    name: str | None
    options: Options


class Step(ABC):
    """A step as a class. A new instance is made for every attempt, with the configuration that `bind` gave."""

    @abstractmethod
    def handle(self, state: Any) -> Any:
        """The keys to merge into the state, or None. `state` is a copy; it may be a coroutine function."""

    def config(self) -> Mapping[str, Any]:
        """Options of this step, as in `@step`: `queue`, `priority`, `max_attempts`, `backoff`, `timeout`."""
        return {}


class Job(ABC):
    """A job as a class: a dataclass whose fields are the payload, rebuilt from it for every attempt.

    `tries`, `timeout` (seconds) and `backoff` are options, not fields, whichever way they are written.
    """

    tries: ClassVar[int | None] = None
    timeout: ClassVar[float | None] = None
    backoff: ClassVar[str | list[float] | tuple[float, ...] | None] = None

    def __init__(self, *args: Any, **values: Any) -> None:
        if args or values:
            raise DefinitionError(
                f"{type(self).__qualname__} is no dataclass: put @dataclass above it to give it fields"
            )

    @abstractmethod
    def handle(self) -> Any:
        """Do the job. What it returns is ignored; it may be a coroutine function."""


CONTROLS: Final[Mapping[str, str]] = {"tries": "max_attempts", "timeout": "timeout", "backoff": "backoff"}
"""The attributes of a `Job` that are options, and which ones."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A handler with its configuration."""

    target: Any
    config: Mapping[str, Json]


HandlerLike = Callable[..., Any] | type[Step] | type[Job] | Bound | str
"""What may be given where a handler is wanted: a marked function, a class, a `bind(…)` of one, a name or an alias."""


@overload
def step(target: Target, /) -> Target: ...
@overload
def step(**options: Unpack[MarkOptions]) -> Callable[[Target], Target]: ...
def step(target: Any = None, /, **options: Any) -> Any:
    """Marks a function, or a class derived from `Step`, as something that workflows call.

    `@step` or `@step(name=…, max_attempts=…, backoff=…, timeout=…, queue=…, priority=…, retry_on=…, give_up_on=…)`.
    Gives back the same object. Raises `DefinitionError` for an option that cannot be right.
    """
    return _mark(HandlerKind.STEP, target, options)


@overload
def job(target: Target, /) -> Target: ...
@overload
def job(**options: Unpack[MarkOptions]) -> Callable[[Target], Target]: ...
def job(target: Any = None, /, **options: Any) -> Any:
    """Marks a function, or a class derived from `Job`, as something that `dispatch` queues; options as in `step`."""
    return _mark(HandlerKind.JOB, target, options)


def bind(handler: Any, /, **config: Any) -> Bound:
    """The handler with JSON configuration: keyword arguments of a function, constructor arguments of a class.

    Raises `DefinitionError` if the configuration is not JSON.
    """
    if isinstance(handler, Bound):
        handler, config = handler.target, {**handler.config, **config}
    try:
        return Bound(handler, checked_mapping(config, what="bind"))
    except PayloadError as error:
        raise DefinitionError(f"configuration must be JSON; {error}") from error


def mark_of(target: Any) -> Mark | None:
    """The mark of that very object, or None. A class does not inherit one, and an instance has none."""
    try:
        own = object.__getattribute__(target, "__dict__") if not isinstance(target, type) else vars(target)
    except AttributeError:
        return None
    mark = own.get(_MARK)
    return mark if isinstance(mark, Mark) and callable(target) else None


def declared(name: str) -> Any:
    """What was marked with `name=` as that name in a module that this process has imported, or None."""
    entry = _declared.get(name)
    if entry is None:
        return None
    module, qualname, target = entry
    # A decorator above ours may have wrapped it: what the module holds is what is meant.
    holder = sys.modules.get(module)
    found = None if holder is None else attribute(holder, qualname)
    return target if found is None else found


BASES: Final[Mapping[type, HandlerKind]] = {Step: HandlerKind.STEP, Job: HandlerKind.JOB}
"""The base classes of the class form, and what their subclasses may be used as."""

_declared: dict[str, tuple[str, str, Any]] = {}


def _mark(kind: HandlerKind, target: Any, options: dict[str, Any]) -> Any:
    if target is None:
        return lambda marked: _mark(kind, marked, options)
    where = f"@{kind} of {getattr(target, '__qualname__', repr(target))}"
    marked = target.__func__ if isinstance(target, staticmethod) else target
    if not callable(marked) or inspect.ismethod(marked):
        raise DefinitionError(f"@{kind} marks functions and classes, not {marked!r}")
    if isinstance(marked, type) and not issubclass(marked, tuple(BASES)):
        raise DefinitionError(f"{where}: a class must derive from {kind.title()}")
    if (present := mark_of(marked)) is not None:
        raise DefinitionError(f"{where}: it is already marked as a {present.kind}")
    name = options.pop("name", None) if options else None
    mark = Mark(
        kind, None if name is None else check_name(name, what=f"{where}: name"), options_from(options, where=where)
    )
    try:
        setattr(marked, _MARK, mark)
    except (AttributeError, TypeError) as error:
        raise DefinitionError(f"{where}: it takes no mark; write a function with def around it") from error
    if mark.name is not None:
        entry = (marked.__module__, marked.__qualname__, marked)
        other = _declared.setdefault(mark.name, entry)
        if qualified_name(other[2]) != qualified_name(marked):
            raise DefinitionError(f"{where}: {qualified_name(other[2])} already has the name {mark.name!r}")
        _declared[mark.name] = entry
    return target
