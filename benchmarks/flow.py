"""The work that is measured: workflows of five empty steps that pass on 240 bytes of state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from queuety import step, workflow
from queuety.define.builder import WorkflowBuilder

STEPS = 5
PAYLOAD = {"customer": "c" * 40, "note": "n" * 120, "amount": 1234, "lines": [1, 2, 3, 4, 5, 6, 7, 8]}


def _quietly(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"done": state["amount"]}


watching: Callable[[Mapping[str, Any]], dict[str, Any]] = _quietly
"""What a step does; the measured process puts its stop-watch here."""


@step
async def empty(state: Mapping[str, Any]) -> dict[str, Any]:
    """Sets one small key, on the event loop."""
    return watching(state)


@step
def empty_in_thread(state: Mapping[str, Any]) -> dict[str, Any]:
    """The same in a thread."""
    return watching(state)


def five_steps(*, in_threads: bool = False) -> WorkflowBuilder:
    """The workflow."""
    builder = workflow("bench")
    for _ in range(STEPS):
        builder.then(empty_in_thread if in_threads else empty)
    return builder
