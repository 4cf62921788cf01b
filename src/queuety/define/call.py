"""How a handler is called: worked out once, so that a call adds next to nothing to the handler itself.

Nothing is called here. The worker calls `Plan.call`, which is the user's function itself where no configuration and no
typed parameter is in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from queuety.codec import checked_mapping, copy_json
from queuety.define import typed
from queuety.define.handlers import Handler
from queuety.define.marks import HandlerKind, Job
from queuety.errors import PayloadError
from queuety.model import Json, Use

Call = Callable[[dict[str, Json]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How to call one handler with one configuration.

    `call` takes the state or the payload, which it may keep: hand it a copy of its own. It runs the user's code and
    raises whatever that raises, `PayloadError` if the value does not fit a typed parameter. With `is_async` it returns
    a coroutine.
    """

    handler: Handler
    call: Call
    is_async: bool
    use: Use = Use.STEP

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
    if handler.kind is HandlerKind.STEP:
        return Plan(handler, _step_call(handler, config), handler.is_async, use)
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


def _step_call(handler: Handler, config: Mapping[str, Json]) -> Call:
    target = handler.target
    hint = handler.hints.get("state")
    read = typed.reader(hint) if typed.is_object(hint) else None
    if handler.is_class:
        if read is None:
            return lambda state: target(**copy_json(config)).handle(state)
        return lambda state: target(**copy_json(config)).handle(read(state, "state"))
    if config:
        if read is None:
            return lambda state: target(state, **copy_json(config))
        return lambda state: target(read(state, "state"), **copy_json(config))
    if read is None:
        return target  # type: ignore[no-any-return]
    return lambda state: target(read(state, "state"))


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
    return typed.reader(hint) if typed.is_object(hint) else lambda payload, _: payload


def _read(payload: Mapping[str, Json], readers: Mapping[str, typed.Reader]) -> dict[str, Any]:
    return {key: readers[key](value, f"payload.{key}") if key in readers else value for key, value in payload.items()}
