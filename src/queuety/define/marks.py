"""The marks that make users' functions and classes callable by name, and the base classes of the class form.

A mark is an attribute on the function itself; the decorators give back what they were given, so that a handler is
called in a unit test like any function. What can be known of a marked object is in `handlers`.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar, Unpack, overload

from queuety.codec import checked_mapping
from queuety.define.names import attribute, check_name, qualified_name
from queuety.define.options import HandlerOptions, options_from
from queuety.errors import DefinitionError, PayloadError
from queuety.model import Json, Options, Use

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


class _Configurable:
    """What has options of its own."""

    def config(self) -> Mapping[str, Any]:
        """Options of this handler, as in `@step`: `max_attempts`, `backoff`, `timeout`, `queue`, `priority`, …"""
        return {}


class Step(_Configurable, ABC):
    """A step as a class. A new instance is made for every attempt, with the configuration that `bind` gave."""

    @abstractmethod
    def handle(self, state: Any) -> Any:
        """The keys to merge into the state, or None. `state` is a copy; it may be a coroutine function."""


class StreamingStep(_Configurable, ABC):
    """A step whose result comes in pieces, each of which is kept at once and survives a failure of the attempt.

    One instance is made for every attempt; it makes the stream and then the result.
    """

    @abstractmethod
    def stream(self, state: Any, existing_chunks: list[Any]) -> Any:
        """A generator, plain or asynchronous, that yields strings or JSON values.

        Each is in the database before the generator goes on. `existing_chunks` are those that earlier attempts of this
        step have yielded: go on after them. What the generator returns is ignored.
        """

    @abstractmethod
    def on_complete(self, chunks: list[Any], state: Any) -> Any:
        """The keys to merge into the state, or None, once the stream has ended; it may be a coroutine function.

        `chunks` are all of them, those of earlier attempts first; `state` is as it was when the attempt began.
        """


class ForEachHandler(_Configurable, ABC):
    """What is done with each item of a for-each step, as a class; a marked function `(state, item, index)` will do."""

    @abstractmethod
    def handle_item(self, state: Any, item: Any, index: int) -> Any:
        """The item's result, a mapping or None. `index` counts from 0; it may be a coroutine function."""


class ForEachReducer(ABC):
    """What makes one result of those of all items, as a class; a marked function `(state, for_each)` will do."""

    @abstractmethod
    def reduce(self, state: Any, for_each: Any) -> Any:
        """The keys to merge into the state, or None. `for_each` holds `results`, `failures` and their numbers."""


class RepeatCondition(ABC):
    """What a repeat step asks, as a class; a marked function `(state)` will do."""

    @abstractmethod
    def matches(self, state: Any) -> Any:
        """True or false, or what counts as either. It may be a coroutine function."""


class Compensation(ABC):
    """What undoes a step, as a class; a marked function `(state)` will do."""

    @abstractmethod
    def handle(self, state: Any) -> Any:
        """Undo it. What it returns is ignored; it may be a coroutine function."""


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


HandlerLike = (
    Callable[..., Any]
    | type[Step]
    | type[StreamingStep]
    | type[ForEachHandler]
    | type[ForEachReducer]
    | type[RepeatCondition]
    | type[Compensation]
    | type[Job]
    | Bound
    | str
)
"""What may be given where a handler is wanted: a marked function, a class, a `bind(…)` of one, a name or an alias."""


@overload
def step(target: Target, /) -> Target: ...
@overload
def step(**options: Unpack[MarkOptions]) -> Callable[[Target], Target]: ...
def step(target: Any = None, /, **options: Any) -> Any:
    """Marks a function, or a class derived from `Step` and the like, as something that workflows call.

    `@step` or `@step(name=…, max_attempts=…, backoff=…, timeout=…, queue=…, priority=…, cost_units=…, retry_on=…,
    give_up_on=…)`. Gives back the same object. Raises `DefinitionError` for an option that cannot be right.
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


def undeclare(modules: Collection[str]) -> None:
    """Forgets the names that were declared with `name=` in these modules, which this process has not imported after
    all."""
    for name in [name for name, (module, _, _) in list(_declared.items()) if module in modules]:
        del _declared[name]


@dataclass(frozen=True, slots=True)
class Base:
    """A base class of the class form: the method that is called, and what its subclasses may be used as."""

    kind: HandlerKind
    method: str
    uses: frozenset[Use] = frozenset()


BASES: Final[Mapping[type, Base]] = {
    Step: Base(HandlerKind.STEP, "handle", frozenset({Use.STEP, Use.ITEM, Use.CLEANUP})),
    StreamingStep: Base(HandlerKind.STEP, "stream", frozenset({Use.STEP})),
    ForEachHandler: Base(HandlerKind.STEP, "handle_item", frozenset({Use.ITEM})),
    ForEachReducer: Base(HandlerKind.STEP, "reduce", frozenset({Use.REDUCER})),
    RepeatCondition: Base(HandlerKind.STEP, "matches", frozenset({Use.CONDITION})),
    Compensation: Base(HandlerKind.STEP, "handle", frozenset({Use.CLEANUP})),
    Job: Base(HandlerKind.JOB, "handle"),
}
"""The base classes of the class form. A step may be given for the items: then it is called with the state alone."""


def base_of(target: type) -> type | None:
    """The base class that it derives from, or None. Raises `DefinitionError` if it derives from several."""
    bases = [base for base in BASES if issubclass(target, base)]
    if len(bases) > 1:
        names = " and ".join(base.__name__ for base in bases)
        raise DefinitionError(f"{target.__qualname__} derives from {names}; write a class for each")
    return bases[0] if bases else None


def bases_named(kind: HandlerKind, use: Use | None = None) -> str:
    """The base classes of that kind (and use), for people: `Step or StreamingStep`."""
    names = [base.__name__ for base, own in BASES.items() if own.kind is kind and (use is None or use in own.uses)]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def has_config(target: Any) -> bool:
    """True for a class whose `config()` is to be asked."""
    return isinstance(target, type) and issubclass(target, _Configurable) and target.config is not _Configurable.config


_declared: dict[str, tuple[str, str, Any]] = {}


def _mark(kind: HandlerKind, target: Any, options: dict[str, Any]) -> Any:
    if target is None:
        return lambda marked: _mark(kind, marked, options)
    where = f"@{kind} of {getattr(target, '__qualname__', repr(target))}"
    marked = target.__func__ if isinstance(target, staticmethod) else target
    if not callable(marked) or inspect.ismethod(marked):
        raise DefinitionError(f"@{kind} marks functions and classes, not {marked!r}")
    if isinstance(marked, type) and not issubclass(marked, tuple(BASES)):
        raise DefinitionError(f"{where}: a class must derive from {bases_named(kind)}")
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
