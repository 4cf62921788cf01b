"""Which step of one definition of a workflow is which step of another one.

Steps are told by their names: a step goes on as the step of the same name, unless a step map says otherwise. Names that
a builder has made from the place of a step are no names: such a step goes on as one of the same name only if that one
does the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from queuety.codec import canonical
from queuety.model import Definition, HandlerRef, Json, StepSpec

StepMap = Mapping[str, str]
"""Which steps are called otherwise in the new definition: old name to new."""

NO_MAP: Final[StepMap] = MappingProxyType({})

_POINTERS: Final = ("target", "on_timeout")
"""Settings that hold the name of another step."""

_FROM_PLACE: Final = re.compile(
    r"(\d+|(delay|repeat_until|repeat_while|start_workflows)_\d+)(_\d+)?|(wait_for_.+|start_agents)_\d+"
)
_FROM_WORK: Final = re.compile(r"wait_for_.+|start_agents")
"""Names that a builder makes from what a step does: the second one of them has a 2 at its end."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two definitions of a workflow; `places` has for each step of the old one its index in the new one, or None."""

    old: Definition
    new: Definition
    step_map: StepMap
    places: tuple[int | None, ...]

    def again(self, at: int, to_step: int) -> list[str]:
        """Steps before the step `at` that come after it there, where it is `to_step`: a run would do them again."""
        return self._unasked(range(at), lambda place: place > to_step)

    def left_out(self, at: int, to_step: int) -> list[str]:
        """Steps after the step `at` that come before it there: a run would never do them."""
        return self._unasked(range(at + 1, len(self.places)), lambda place: place < to_step)

    def new_before(self, to_step: int) -> list[str]:
        """Steps of the new definition alone that come before this one: a run that stands here has not done them."""
        known = {place for place in self.places if place is not None}
        return [spec.name for place, spec in enumerate(self.new.steps[:to_step]) if place not in known]

    def _unasked(self, indices: range, is_so: Any) -> list[str]:
        """Of these steps those of which that is so, and that the step map does not name."""
        steps = self.old.steps
        return [
            steps[index].name
            for index in indices
            if (place := self.places[index]) is not None and is_so(place) and steps[index].name not in self.step_map
        ]


def paired(old: Definition, new: Definition, step_map: StepMap = NO_MAP) -> Pairing:
    """Which step is which."""
    index_of = {spec.name: index for index, spec in enumerate(new.steps)}
    names = {spec.name for spec in old.steps} | index_of.keys()
    places: list[int | None] = []
    for spec in old.steps:
        mapped = step_map.get(spec.name)
        place = index_of.get(spec.name if mapped is None else mapped)
        if mapped is None and place is not None and is_from_place(spec.name, names):
            place = place if is_alike(spec, new.steps[place], step_map) else None
        places.append(place)
    return Pairing(old, new, step_map, tuple(places))


def counterpart(old: Definition, new: Definition, step_map: StepMap, index: int) -> int | None:
    """The index in the new definition of what is step `index` of the old one, or None if it has nothing like it."""
    return paired(old, new, step_map).places[index]


def is_from_place(name: str, among: frozenset[str] | set[str] = frozenset()) -> bool:
    """Whether a builder makes this name from the place of a step: with another step before it, it has another name.

    >>> [is_from_place(name) for name in ("3", "delay_0", "repeat_until_4", "wait_for_go_2", "wait_for_go", "v2")]
    [True, True, True, True, False, False]
    >>> is_from_place("wait_for_go", {"wait_for_go", "wait_for_go_2"})
    True
    """
    return bool(_FROM_PLACE.fullmatch(name)) or (f"{name}_2" in among and bool(_FROM_WORK.fullmatch(name)))


def is_alike(here: StepSpec, there: StepSpec, step_map: StepMap) -> bool:
    """Whether two steps do the same, whatever they are called and however their jobs are run and undone."""
    return here.kind == there.kind and _work(here, step_map) == _work(there, NO_MAP)


def handler_form(ref: HandlerRef | None) -> dict[str, Any] | None:
    """A handler as JSON: its name and its configuration."""
    return None if ref is None else {"name": ref.name, "config": None if ref.config is None else dict(ref.config)}


def _work(spec: StepSpec, step_map: StepMap) -> str:
    """What a step does, as text: equal for steps that do the same. Steps that it names go by their new names.

    Of a run that it starts the name counts: one that is there goes on under its own definition.
    """
    settings: dict[str, Json] = dict(spec.settings)
    for key in _POINTERS:
        if isinstance(settings.get(key), str):
            settings[key] = step_map.get(settings[key], settings[key])
    return canonical(
        {
            "handler": handler_form(spec.handler),
            "settings": settings,
            "branches": [handler_form(branch.handler) for branch in spec.branches],
            "reducer": handler_form(spec.reducer),
            "child": None if spec.child is None else spec.child.name,
        }
    )
