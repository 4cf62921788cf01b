"""How each handler is called, found once and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from queuety.model import HandlerRef, Json


class Resolving(Protocol):
    """Finds handlers by name. Raises `HandlerNotFound`."""

    def resolve(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How to call a handler. `call` takes its private input; `as_mapping` reads a returned object of the user's."""

    call: Callable[[dict[str, Json]], Any]
    is_async: bool
    as_mapping: Callable[[Any], Any]


class Plans:
    """The plans of the handlers that this process has met."""

    def __init__(self, registry: Resolving) -> None:
        self._registry = registry
        self._known: dict[str, Plan] = {}

    def known(self, ref: HandlerRef) -> Plan | None:
        """The plan, if it has been made; loads nothing."""
        return self._known.get(ref.name)

    def find(self, ref: HandlerRef) -> Plan:
        """The plan, made now if need be; that may import the user's module. Raises `HandlerNotFound`."""
        handler = self._registry.resolve(ref.name)
        plan = Plan(handler, handler.is_async, lambda v: v)
        self._known[ref.name] = plan
        return plan
