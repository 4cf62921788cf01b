"""How a handler is called: worked out once, so that a call adds next to nothing to the handler itself.

Nothing is called here. The worker calls `Plan.call`, which is the user's function itself where no configuration and no
typed parameter is in the way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from queuety.codec import checked_mapping, copy_json
from queuety.define import typed
from queuety.define.handlers import ARGUMENTS, Handler, Stream, arguments_of
from queuety.define.marks import HandlerKind, Job
from queuety.errors import PayloadError
from queuety.model import Json, Use

Call = Callable[..., Any]
Complete = Callable[[list[Json], dict[str, Json]], Any]
"""What makes the result of a stream: takes all its chunks and the state."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How to call one handler with one configuration.

    `call` takes the payload, or the state and what else belongs to the use (`handlers.ARGUMENTS`), all of which it may
    keep: hand it copies of its own. It runs the user's code and raises whatever that raises, `PayloadError` if a value
    does not fit a typed parameter. With `is_async` it returns a coroutine.

    With `stream` it takes the state and the chunks that are there, and gives back the generator and a `Complete`; with
    `is_async` at least one of the two has to do with coroutines (`Stream`).
    """

    handler: Handler
    call: Call
    is_async: bool
    use: Use = Use.STEP

    @property
    def stream(self) -> Stream | None:
        """How the handler streams; None if it is no streaming step."""
        return self.handler.stream

    def output(self, result: Any, *, max_bytes: int | None = None) -> dict[str, Json]:
        """What is stored of a handler's result: the mapping that a step returned, checked; nothing of a job's.

        None is the empty mapping; objects of typed classes give their JSON form. Raises `PayloadError`.
        """
        if result is None or self.handler.kind is HandlerKind.JOB:
            return {}
        if type(result) is not dict:
            result = typed.json_form(result)
        elif typed.is_typed_dict(self.handler.hints.get("return")):
            result = typed.builtins_of(result)
        return checked_mapping(result, what="result", max_bytes=max_bytes)


def prepare(handler: Handler, config: Mapping[str, Json] | None = None, use: Use = Use.STEP) -> Plan:
    """The plan of a handler with a configuration that `check_call` has accepted.

    Raises `DefinitionError` for a typed parameter that no JSON can be read into.
    """
    config = config or {}
    if handler.stream is not None:
        return Plan(handler, _stream_call(handler, config), handler.is_async, use)
    if handler.kind is HandlerKind.STEP:
        return Plan(handler, _step_call(handler, config, use), handler.is_async, use)
    if not handler.is_class:
        return Plan(handler, _job_call(handler, config), handler.is_async)
    make = instance_maker(handler)
    return Plan(handler, lambda payload: make(payload).handle(), handler.is_async)


def check_payload(handler: Handler, payload: Mapping[str, Json], config: Mapping[str, Json] | None = None) -> None:
    """Raises `PayloadError` that says why a job cannot be called with this payload (checked JSON), if so."""
    config = config or {}
    if takes_whole(handler, config):
        _whole_reader(handler)(dict(payload), "payload")
        return
    try:
        if twice := config.keys() & payload.keys():
            raise TypeError(f"bind already gives {', '.join(sorted(twice))}")
        handler.takes.bind(**payload, **config)
    except TypeError as error:
        raise PayloadError(
            f"payload does not fit {handler.name}({', '.join(handler.takes.parameters)}): {error}"
        ) from error
    for key, read in field_readers(handler).items():
        if key in payload:
            read(copy_json(payload[key]), f"payload.{key}")


def takes_whole(handler: Handler, config: Mapping[str, Json]) -> bool:
    """True for a job whose only parameter, beside its configuration, is named `payload`."""
    if handler.is_class:
        return False
    parameters = [each for name, each in handler.takes.parameters.items() if name not in config]
    return [(each.name, each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)) for each in parameters] == [
        ("payload", False)
    ]


@lru_cache(maxsize=4096)
def field_readers(handler: Handler) -> Mapping[str, typed.Reader]:
    """What reads the fields of a job's payload that are not passed on as they are.

    For a function those are its typed parameters; for a `Job` class whatever is not JSON already, so that an enum or a
    datetime comes back as it was given.
    """
    return {
        name: typed.reader(hint)
        for name, hint in handler.hints.items()
        if (not typed.is_plain(hint) if handler.is_class else typed.is_object(hint))
    }


def instance_maker(handler: Handler) -> Callable[[Mapping[str, Json]], Job]:
    """What makes the instance of a `Job` class from its payload."""
    target = handler.target
    readers = field_readers(handler)
    if not readers:
        return lambda payload: target(**payload)
    return lambda payload: target(**_read(payload, readers))


def _step_call(handler: Handler, config: Mapping[str, Json], use: Use) -> Call:
    names = arguments_of(handler, config, use)
    invoke = _invoker(handler, config)
    readers = [_reader(handler.hints.get("state")), *(_reader(_hint_of(handler, n)) for n in range(1, len(names)))]
    if any(readers):
        named = list(zip(names, readers, strict=True))
        return lambda *given: invoke(
            *(read(value, name) if read else value for value, (name, read) in zip(given, named, strict=False))
        )
    if len(names) < len(ARGUMENTS[use]):
        return lambda *given: invoke(*given[: len(names)])
    return invoke


def _invoker(handler: Handler, config: Mapping[str, Json]) -> Call:
    target, method = handler.target, handler.method
    if handler.is_class:

        def call(*given: Any) -> Any:
            return getattr(target(**copy_json(config)), method)(*given)

        return call
    if config:
        return lambda *given: target(*given, **copy_json(config))
    return target  # type: ignore[no-any-return]


def _stream_call(handler: Handler, config: Mapping[str, Json]) -> Call:
    target = handler.target
    read = _reader(handler.hints.get("state")) or _as_it_is
    read_again = _reader(handler.hints.get("completed")) or _as_it_is

    def call(state: dict[str, Json], existing_chunks: list[Json]) -> tuple[Any, Complete]:
        made = target(**copy_json(config))
        chunks = made.stream(read(state, "state"), existing_chunks)
        return chunks, lambda chunks, state: made.on_complete(chunks, read_again(state, "state"))

    return call


def _hint_of(handler: Handler, index: int) -> Any:
    """The annotation of that parameter of a step's handler, looked up only where it matters."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, each in handler.takes.parameters.items() if each.kind in positional][index : index + 1]
    call = getattr(handler.target, handler.method) if handler.is_class else handler.target
    return next(iter(typed.hints_of(call, what=handler.name, of=frozenset(names)).values()), None)


def _reader(hint: Any) -> typed.Reader | None:
    """What reads the value of a typed parameter; None for one that takes JSON as it is."""
    return typed.reader(hint) if typed.is_object(hint) else None


def _as_it_is(value: Json, what: str) -> Json:
    del what
    return value


def _job_call(handler: Handler, config: Mapping[str, Json]) -> Call:
    target = handler.target
    if takes_whole(handler, config):
        read = _whole_reader(handler)
        return lambda payload: target(payload=read(payload, "payload"), **copy_json(config))
    readers = field_readers(handler)
    if not readers and not config:
        return lambda payload: target(**payload)
    return lambda payload: target(**_read(payload, readers), **copy_json(config))


def _whole_reader(handler: Handler) -> typed.Reader:
    hint = handler.hints.get("payload")
    return typed.reader(hint) if typed.is_object(hint) else _as_it_is


def _read(payload: Mapping[str, Json], readers: Mapping[str, typed.Reader]) -> dict[str, Any]:
    return {key: readers[key](value, f"payload.{key}") if key in readers else value for key, value in payload.items()}
