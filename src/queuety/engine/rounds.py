"""Which round of a repeat a step is in."""

from __future__ import annotations

from queuety.model import Definition, State


def round_of(definition: Definition, loops: State | None, step_index: int) -> int | None:
    """The round of the innermost repeat that the step stands in, from 1; None outside one.

    `loops` is what the workflow keeps: how often each repeat step has jumped.
    """
    steps = definition.steps
    for index in range(step_index, len(steps)):
        settings = steps[index].settings  # asked of every job: most have none
        if settings and (target := settings.get("target")) is not None:
            first = definition.step_index(target)
            if first is not None and first <= step_index:
                return int((loops or {}).get(str(index), 0)) + 1
    return None
