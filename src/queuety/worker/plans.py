"""How the handlers of claimed jobs are called, kept so that a known one costs nothing to look up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from queuety import codec
from queuety.define.call import Plan
from queuety.model import HandlerRef, Json

_MOST: Final = 4096
"""Plans kept; with more handlers and configurations than that, they are looked up anew."""


class Planning(Protocol):
    """What a registry does for the executor."""

    def plan(self, name: str, config: Mapping[str, Json] | None = None) -> Plan:
        """How to call the handler of that name; imports its module if need be. Raises `HandlerNotFound`."""


class Plans:
    """The plans of the handlers that this process has met. Safe to use from several threads."""

    def __init__(self, registry: Planning) -> None:
        self._registry = registry
        self._plain: dict[str, Plan] = {}
        self._bound: dict[tuple[str, str], Plan] = {}

    def known(self, ref: HandlerRef) -> Plan | None:
        """The plan, if it has been found before; imports nothing."""
        if not ref.config:
            return self._plain.get(ref.name)
        return self._bound.get((ref.name, codec.encode(ref.config)))

    def find(self, ref: HandlerRef) -> Plan:
        """The plan, looked for now; that may import the user's module. Raises `HandlerNotFound`, or what it raises."""
        plan = self._registry.plan(ref.name, ref.config)
        if len(self._plain) + len(self._bound) >= _MOST:
            self._plain.clear()
            self._bound.clear()
        if ref.config:
            self._bound[ref.name, codec.encode(ref.config)] = plan
        else:
            self._plain[ref.name] = plan
        return plan
