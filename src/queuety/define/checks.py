"""What can only be said of a definition as a whole: where its steps lead, and how large it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from queuety.errors import DefinitionError
from queuety.model import Definition, StepSpec

MAX_STEPS: Final = 10_000
"""Steps of a definition, with those of the runs that it starts."""

MAX_NESTING: Final = 40
"""How deep definitions may stand inside each other. Each takes three levels of JSON, of which the codec allows 128."""


def check_jumps(definition: Definition) -> None:
    """Raises `DefinitionError` for a step that leads to one which is not there."""
    steps = {spec.name: index for index, spec in enumerate(definition.steps)}
    for index, spec in enumerate(definition.steps):
        where = f"step {index} ({spec.name!r}) of workflow {definition.name!r}"
        if "target" in spec.settings:
            check_target(spec.settings["target"], index, steps, where)
        on_timeout = spec.settings.get("on_timeout")
        if on_timeout is not None and on_timeout not in steps:
            raise DefinitionError(f"{where}: on_timeout: no step is named {on_timeout!r}")


def check_deadline(definition: Definition) -> None:
    """Raises `DefinitionError` for a handler of a deadline that the run does not have."""
    if definition.on_deadline is not None and definition.deadline_s is None:
        raise DefinitionError(
            f"workflow {definition.name!r}: on_deadline is never called without a deadline; set one with "
            "must_complete_within, or leave the handler out"
        )


def check_target(target: str, index: int, steps: Mapping[str, int], where: str) -> None:
    """Raises `DefinitionError` unless step `index` goes back to one before it; `steps` are indexes by name."""
    found = steps.get(target)
    if found is None:
        raise DefinitionError(f"{where}: no step before it is named {target!r}; it can only go back to one that is")
    if found >= index:
        raise DefinitionError(f"{where}: {target!r} is no earlier step but step {found}; it can only go back")


def count_steps(steps: Iterable[StepSpec]) -> int:
    """How many steps these are with those of the runs that they start."""
    return sum(1 + (0 if spec.child is None else count_steps(spec.child.steps)) for spec in steps)


def depth(definition: Definition) -> int:
    """How many definitions stand inside each other: 1 for one that starts no runs."""
    return 1 + max((depth(spec.child) for spec in definition.steps if spec.child is not None), default=0)
