"""What is known of a handler: enough to check a definition against it and to call it.

Finding a handler by its name is the registry's work, calling it `call`'s.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from queuety.define import typed
from queuety.define.marks import (
    BASES,
    CONTROLS,
    HandlerKind,
    Job,
    Mark,
    StreamingStep,
    base_of,
    bases_named,
    has_config,
    mark_of,
)
from queuety.define.options import merged, options_from
from queuety.errors import DefinitionError
from queuety.model import Json, Options, Use

ARGUMENTS: Final[Mapping[Use, tuple[str, ...]]] = {
    Use.STEP: ("state",),
    Use.ITEM: ("state", "item", "index"),
    Use.REDUCER: ("state", "for_each"),
    Use.CONDITION: ("state",),
    Use.CLEANUP: ("state",),
}
"""What a step's handler is called with, in this order, and how messages call it."""

STREAM_ARGUMENTS: Final = ("state", "existing_chunks")
_USED: Final = {
    Use.STEP: "a step",
    Use.ITEM: "the handler of items",
    Use.REDUCER: "a reducer",
    Use.CONDITION: "a condition",
    Use.CLEANUP: "a handler that cleans up",
}


@dataclass(frozen=True, slots=True)
class Stream:
    """How a streaming step is written: whether its generator is asynchronous, and whether its `on_complete` is.

    `completes` is the signature of the latter.
    """

    yields_async: bool
    completes_async: bool
    completes: inspect.Signature


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A handler that this process can call.

    `takes` is the signature of what is called with the state or the payload (the constructor, for a `Job` class);
    `hints` holds its annotations that matter and, for steps, `return` (of a streaming step's `on_complete`, whose state
    is `completed`). `base` is what a class derives from, `method` what is called of its instances.
    """

    name: str
    target: Any
    kind: HandlerKind
    is_class: bool
    is_async: bool
    options: Options
    takes: inspect.Signature
    hints: Mapping[str, Any]
    base: type | None = None
    method: str = "handle"
    stream: Stream | None = None


def handler_of(target: Any, name: str) -> Handler:
    """What is known of a marked function or a class derived from our bases; `name` is what it will be called by.

    Raises `DefinitionError` that says why it is no handler.
    """
    mark = mark_of(target)
    if isinstance(target, type):
        return _class_handler(target, name, mark)
    if mark is None:
        raise DefinitionError(_no_handler(target, name))
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise DefinitionError(
            f"{name} is a generator; a handler must return its result, or be a class derived from StreamingStep"
        )
    takes, hints = _call_shape(inspect.signature(target), target, mark.kind, name)
    is_async = inspect.iscoroutinefunction(target)
    return Handler(name, target, mark.kind, False, is_async, mark.options, takes, hints)


def _class_handler(target: type, name: str, mark: Mark | None) -> Handler:
    base = base_of(target)
    if base is None or target in BASES:
        raise DefinitionError(f"{name} is a class that is no handler; derive it from Step or Job")
    kind, method = BASES[base].kind, BASES[base].method
    if mark is not None and mark.kind is not kind:
        raise DefinitionError(f"{name} is marked as a {mark.kind} but derives from {base.__name__}")
    if missing := sorted(getattr(target, "__abstractmethods__", ())):
        raise DefinitionError(f"{name} has no method {missing[0]}(); add it")
    call = _method(target, method, name)
    options = mark.options if mark is not None else Options()
    is_async = inspect.iscoroutinefunction(call)
    if issubclass(target, Job):
        takes, hints = _job_class(target, name)
        options = merged(controls_of(target, name), options)
        return Handler(name, target, kind, True, is_async, options, takes, hints, base)
    takes, hints = _call_shape(_without_self(call), call, kind, name)
    if base is not StreamingStep:
        return Handler(name, target, kind, True, is_async, options, takes, hints, base, method)
    if is_async:
        raise DefinitionError(f"{name}.stream is a coroutine function that yields nothing; it must be a generator")
    ending = _method(target, "on_complete", name)
    completes = _without_self(ending)
    stream = Stream(inspect.isasyncgenfunction(call), inspect.iscoroutinefunction(ending), completes)
    read = typed.hints_of(
        ending, what=f"{name}.on_complete", of=frozenset([*list(completes.parameters)[1:2], "return"])
    )
    hints = {key: hint for key, hint in hints.items() if key == "state"}
    hints |= {key if key == "return" else "completed": hint for key, hint in read.items()}
    is_async = stream.yields_async or stream.completes_async
    return Handler(name, target, kind, True, is_async, options, takes, hints, base, method, stream)


def _method(target: type, method: str, name: str) -> Any:
    """The method itself. Raises `DefinitionError` if nobody could call it as one, or await or iterate its result."""
    call: Any = inspect.getattr_static(target, method)
    if isinstance(call, staticmethod | classmethod):
        raise DefinitionError(f"{name}.{method} must be a plain method")
    if method != "stream" and (inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call)):
        hint = ", or be a StreamingStep" if method == "handle" else ""
        raise DefinitionError(f"{name}.{method} is a generator; a handler must return its result{hint}")
    return call


def _without_self(call: Any) -> inspect.Signature:
    takes = inspect.signature(call)
    return takes.replace(parameters=list(takes.parameters.values())[1:])


def is_configured(handler: Handler) -> bool:
    """True for a class whose `config()` is to be asked."""
    return has_config(handler.target)


def options_of(handler: Handler, config: Mapping[str, Json]) -> Options:
    """The handler's own options with this configuration: those of `config()` before those of its mark.

    Makes an instance of a class that has a `config()`. Raises `DefinitionError` for what it says, or raises.
    """
    if not is_configured(handler):
        return handler.options
    try:
        given = handler.target(**config).config()
    except Exception as error:
        raise DefinitionError(f"{handler.name}: config() raised {type(error).__name__}: {error}") from error
    if not isinstance(given, Mapping):
        raise DefinitionError(f"{handler.name}: config() must return a mapping of options, not {given!r}")
    return merged(options_from(given, where=f"{handler.name}.config()"), handler.options)


def controls_of(target: Any, name: str) -> Options:
    """The options that a `Job` class, or an instance of one, states in `tries`, `timeout` and `backoff`."""
    stated = {attribute: getattr(target, attribute) for attribute in CONTROLS}
    if isinstance(target, type) and hasattr(target, "__dataclass_fields__"):
        # With slots, the class holds a descriptor where its field has a default.
        stated.update({each.name: each.default for each in fields(target) if each.name in CONTROLS})
    return options_from({CONTROLS[attribute]: value for attribute, value in stated.items()}, where=name)


def check_use(handler: Handler, kind: HandlerKind, use: Use) -> None:
    """Raises `DefinitionError` that says what the handler is and what is wanted, if it is of another role."""
    if handler.kind is not kind:
        raise DefinitionError(f"{handler.name} is a {handler.kind} and cannot be used as a {kind}")
    if kind is HandlerKind.JOB or handler.base is None or use in BASES[handler.base].uses:
        return
    raise DefinitionError(
        f"{handler.name} is a {handler.base.__name__} and cannot be used as {_USED[use]}; give a class derived from "
        f"{bases_named(kind, use)}, or a function ({', '.join(ARGUMENTS[use])}) marked with @step"
    )


def arguments_of(handler: Handler, config: Mapping[str, Json], use: Use) -> tuple[str, ...]:
    """What a step's handler is called with as that: all of `ARGUMENTS`, or of an item's the state alone.

    A streaming step gets its state and what it has yielded before.
    """
    if handler.stream is not None:
        return STREAM_ARGUMENTS
    if use is Use.ITEM and not _binds(handler, config, 3) and _binds(handler, config, 1):
        return ARGUMENTS[Use.STEP]
    return ARGUMENTS[use]


def check_call(handler: Handler, config: Mapping[str, Json], use: Use = Use.STEP) -> None:
    """Raises `DefinitionError` that says why the handler cannot be called with this configuration, if so."""
    names: tuple[str, ...] = () if handler.kind is HandlerKind.JOB else arguments_of(handler, config, use)
    call = handler.name
    try:
        if handler.kind is HandlerKind.JOB:
            if handler.is_class and config:
                raise TypeError("a Job has no configuration beside its payload")
            handler.takes.bind_partial(**config)
        elif handler.is_class:
            inspect.signature(handler.target).bind(**config)
            handler.takes.bind(*names)
        else:
            handler.takes.bind(*names, **config)
        if handler.stream is not None:
            names, call = ("chunks", "state"), f"{handler.name}.on_complete"
            handler.stream.completes.bind(*names)
    except TypeError as error:
        given = ", ".join([*names, *(f"{key}=…" for key in config)])
        raise DefinitionError(f"{call} cannot be called with ({given}): {error}") from error


def _binds(handler: Handler, config: Mapping[str, Json], count: int) -> bool:
    try:
        handler.takes.bind(*[None] * count, **({} if handler.is_class else config))
    except TypeError:
        return False
    return True


def _no_handler(target: Any, name: str) -> str:
    if isinstance(target, tuple(BASES)):
        return f"{name} is an instance; give the class, or bind({type(target).__qualname__}, key=value)"
    if callable(target):
        return f"{name} carries no mark; put @step (or @job) above it"
    return f"{name} is no handler; give a function marked with @step or @job, or a class derived from Step or Job"


def _call_shape(
    takes: inspect.Signature, call: Any, kind: HandlerKind, name: str
) -> tuple[inspect.Signature, Mapping[str, Any]]:
    parameters = list(takes.parameters.values())
    if kind is HandlerKind.STEP:
        names = [parameters[0].name, "return"] if parameters else []
    else:
        names = [parameter.name for parameter in parameters]
        if any(parameter.kind is parameter.POSITIONAL_ONLY for parameter in parameters):
            raise DefinitionError(f"{name}: a job is called with keyword arguments; leave out the '/' of its signature")
    hints = typed.hints_of(call, what=name, of=frozenset(names))
    if names and kind is HandlerKind.STEP and names[0] in hints:
        hints["state"] = hints.pop(names[0])
    return takes, hints


def _job_class(target: type[Job], name: str) -> tuple[inspect.Signature, Mapping[str, Any]]:
    bases = [base for base in target.__mro__ if issubclass(base, Job) and base is not Job]
    for base in bases:
        written = {key for key, hint in inspect.get_annotations(base).items() if "ClassVar" not in str(hint)}
        if "__dataclass_fields__" not in vars(base) and (written - set(CONTROLS) or "__init__" in vars(base)):
            raise DefinitionError(f"{name} is no dataclass: put @dataclass above {base.__qualname__}")
    is_dataclass = any("__dataclass_fields__" in vars(base) for base in bases)
    takes = inspect.signature(target) if is_dataclass else inspect.Signature()
    kept = {each.name for each in fields(target)} if is_dataclass else set()  # type: ignore[arg-type]
    for parameter in takes.parameters.values():
        if parameter.name not in kept:
            raise DefinitionError(f"{name}: {parameter.name} is given to the constructor but kept nowhere (an InitVar)")
    payload = [parameter for parameter in takes.parameters.values() if parameter.name not in CONTROLS]
    hints: dict[str, Any] = {}
    for base in reversed(target.__mro__):
        own = inspect.get_annotations(base)
        wanted = frozenset(parameter.name for parameter in payload if parameter.name in own)
        hints.update(typed.hints_of(base, what=name, of=wanted))
    return takes.replace(parameters=payload), hints
