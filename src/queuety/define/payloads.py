"""What a run is started with: the payload of a workflow, and a plain job in every way that one can be named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queuety.codec import checked_mapping
from queuety.define import typed
from queuety.define.call import check_payload, field_readers, instance_maker
from queuety.define.handlers import Handler, controls_of
from queuety.define.marks import HandlerKind, HandlerLike, Job
from queuety.define.options import merged
from queuety.define.registry import Registry
from queuety.errors import DefinitionError, HandlerNotFound, PayloadError
from queuety.model import HandlerRef, Json, Options


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to be queued: what to call, with what, and the options that the handler itself states."""

    handler: HandlerRef
    payload: dict[str, Json]
    options: Options


def workflow_payload(payload: Any, *, max_bytes: int | None = None, where: str = "payload") -> dict[str, Json]:
    """The first state of a workflow: a checked copy; None is the empty one.

    Objects of typed classes give their JSON form. Raises `PayloadError`, also for a key that starts with `_`: those
    are reserved. `where` names the payload in messages.
    """
    if payload is None:
        return {}
    state = checked_mapping(typed.json_form(payload), what=where, max_bytes=max_bytes)
    for key in state:
        if key.startswith("_"):
            raise PayloadError(f"{where}.{key}: keys that start with _ are reserved; choose another name")
    return state


def job_request(
    registry: Registry,
    handler: HandlerLike | Job,
    payload: Any = None,
    *,
    max_bytes: int | None = None,
) -> JobRequest:
    """The job that `dispatch(handler, payload)` means.

    `handler` is a marked function, an alias, a `Job` class, or an instance of one, which carries its payload: it gives
    the same request as its class with the same fields. Raises `DefinitionError` for what is no job, `PayloadError` for
    a payload that does not fit.
    """
    if isinstance(handler, Job):
        if payload is not None:
            raise DefinitionError(f"{type(handler).__qualname__} carries its payload; leave out the second argument")
        ref, own = registry.ref(type(handler), HandlerKind.JOB, where="dispatch")
        known = registry.resolve(ref.name)
        own = merged(controls_of(handler, known.name), own)
        return JobRequest(ref, _fields_of(known, handler, max_bytes), own)
    ref, own = registry.ref(handler, HandlerKind.JOB, where="dispatch")
    given = checked_mapping({} if payload is None else typed.json_form(payload), what="payload", max_bytes=max_bytes)
    try:
        known = registry.resolve(ref.name)
    except HandlerNotFound:  # `ref` has taken the name on trust; who runs it will see whether the payload fits
        return JobRequest(ref, given, own)
    check_payload(known, given, ref.config)
    if known.is_class:
        given = _fields_of(known, instance_maker(known)(given), max_bytes)
    return JobRequest(ref, given, own)


def _fields_of(handler: Handler, instance: Job, max_bytes: int | None) -> dict[str, Json]:
    readers = field_readers(handler)
    values = {name: getattr(instance, name) for name in handler.takes.parameters}
    return checked_mapping(
        {key: typed.builtins_of(value) if key in readers else value for key, value in values.items()},
        what=type(instance).__qualname__,
        max_bytes=max_bytes,
    )
