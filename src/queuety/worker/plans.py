"""How the handlers of claimed jobs are called, kept so that a known one costs nothing to look up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from queuety import codec
from queuety.define.call import Plan
from queuety.model import HandlerRef, Json, Use

_MOST: Final = 4096
"""Plans kept; with more handlers and configurations than that, they are looked up anew."""


class Planning(Protocol):
    """What a registry does for the executor."""

    def plan(self, name: str, config: Mapping[str, Json] | None = None, use: Use = Use.STEP) -> Plan:
        """How to call the handler of that name as that; imports its module if need be. Raises `HandlerNotFound`."""


class Plans:
    """The plans of the handlers that this process has met. Safe to use from several threads."""

    def __init__(self, registry: Planning) -> None:
        self._registry = registry
        self._plain: dict[Use, dict[str, Plan]] = {use: {} for use in Use}
        self._bound: dict[tuple[str, str, Use], Plan] = {}

    def known(self, ref: HandlerRef, use: Use = Use.STEP) -> Plan | None:
        """The plan, if it has been found before; imports nothing."""
        if not ref.config:
            return self._plain[use].get(ref.name)
        return self._bound.get((ref.name, codec.encode(ref.config), use))

    def find(self, ref: HandlerRef, use: Use = Use.STEP) -> Plan:
        """The plan, looked for now; that may import the user's module. Raises `HandlerNotFound`, or what it raises."""
        plan = self._registry.plan(ref.name, ref.config, use)
        if sum(map(len, self._plain.values())) + len(self._bound) >= _MOST:
            for plans in self._plain.values():
                plans.clear()
            self._bound.clear()
        if ref.config:
            self._bound[ref.name, codec.encode(ref.config), use] = plan
        else:
            self._plain[use][ref.name] = plan
        return plan
