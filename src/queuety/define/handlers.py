"""What is known of a handler: enough to check a definition against it and to call it.

Finding a handler by its name is the registry's work, calling it `call`'s.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from queuety.define import typed
from queuety.define.marks import BASES, CONTROLS, HandlerKind, Job, Step, mark_of
from queuety.define.options import merged, options_from
from queuety.errors import DefinitionError
from queuety.model import Json, Options, Use


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A handler that this process can call.

    `takes` is the signature of what is called with the state or the payload (the constructor, for a `Job` class);
    `hints` holds its annotations that matter and, for steps, `return`.
    """

    name: str
    target: Any
    kind: HandlerKind
    is_class: bool
    is_async: bool
    options: Options
    takes: inspect.Signature
    hints: Mapping[str, Any]


def handler_of(target: Any, name: str) -> Handler:
    """What is known of a marked function or a class derived from our bases; `name` is what it will be called by.

    Raises `DefinitionError` that says why it is no handler.
    """
    mark = mark_of(target)
    if isinstance(target, type):
        kind = next((kind for base, kind in BASES.items() if issubclass(target, base)), None)
        if kind is None or target in BASES:
            raise DefinitionError(f"{name} is a class that is no handler; derive it from Step or Job")
        if mark is not None and mark.kind is not kind:
            raise DefinitionError(f"{name} is marked as a {mark.kind} but derives from {kind.title()}")
        if inspect.isabstract(target):
            raise DefinitionError(f"{name} has no method handle(); add it")
    elif mark is None:
        raise DefinitionError(_no_handler(target, name))
    else:
        kind = mark.kind
    call: Any = inspect.getattr_static(target, "handle") if isinstance(target, type) else target
    if isinstance(call, staticmethod | classmethod):
        raise DefinitionError(f"{name}.handle must be a plain method")
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise DefinitionError(f"{name} is a generator; a handler must return its result")
    options = mark.options if mark is not None else Options()
    if isinstance(target, type) and issubclass(target, Job):
        takes, hints = _job_class(target, name)
        options = merged(controls_of(target, name), options)
    else:
        takes, hints = _call_shape(target, call, kind, name)
    is_async = inspect.iscoroutinefunction(call)
    return Handler(name, target, kind, isinstance(target, type), is_async, options, takes, hints)


def is_configured(handler: Handler) -> bool:
    """True for a `Step` whose `config()` is to be asked."""
    return handler.is_class and issubclass(handler.target, Step) and handler.target.config is not Step.config


def options_of(handler: Handler, config: Mapping[str, Json]) -> Options:
    """The handler's own options with this configuration: those of `config()` before those of its mark.

    Makes an instance of a `Step` that has a `config()`. Raises `DefinitionError` for what it says, or raises.
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


def check_call(handler: Handler, config: Mapping[str, Json], use: Use = Use.STEP) -> None:
    """Raises `DefinitionError` that says why the handler cannot be called with this configuration, if so."""
    try:
        if handler.kind is HandlerKind.JOB:
            if handler.is_class and config:
                raise TypeError("a Job has no configuration beside its payload")
            handler.takes.bind_partial(**config)
        elif handler.is_class:
            inspect.signature(handler.target).bind(**config)
            handler.takes.bind(*_given(use))
        else:
            handler.takes.bind(*_given(use), **config)
    except TypeError as error:
        given = ", ".join([*(["state"] if handler.kind is HandlerKind.STEP else []), *(f"{key}=…" for key in config)])
        raise DefinitionError(f"{handler.name} cannot be called with ({given}): {error}") from error


def _given(use: Use) -> list[None]:
    return [None] * {Use.ITEM: 3, Use.REDUCER: 2}.get(use, 1)


def _no_handler(target: Any, name: str) -> str:
    if isinstance(target, tuple(BASES)):
        return f"{name} is an instance; give the class, or bind({type(target).__qualname__}, key=value)"
    if callable(target):
        return f"{name} carries no mark; put @step (or @job) above it"
    return f"{name} is no handler; give a function marked with @step or @job, or a class derived from Step or Job"


def _call_shape(target: Any, call: Any, kind: HandlerKind, name: str) -> tuple[inspect.Signature, Mapping[str, Any]]:
    takes = inspect.signature(call)
    parameters = list(takes.parameters.values())
    if isinstance(target, type):
        parameters = parameters[1:]
        takes = takes.replace(parameters=parameters)
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
