"""What is not the same in two definitions of a workflow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from queuety.codec import canonical
from queuety.define.entries import step_to_json
from queuety.define.wire import definition_to_json
from queuety.engine.pairing import Pairing, is_alike
from queuety.model import Definition, Json, StepSpec


class StepFate(StrEnum):
    """What has become of a step in another definition.

    `renamed`: a step map says so; `maybe_renamed`: a step that is gone and one that is new do the same. `moved`: its
    order among the others is another; it may have changed as well.
    """

    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    MAYBE_RENAMED = "maybe_renamed"
    MOVED = "moved"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Difference:
    """A key of the JSON form that is not the same, with its values; None where it is not set.

    Of a definition within a step, `before` and `after` are `{"name", "hash"}`.
    """

    key: str
    before: Json
    after: Json


@dataclass(frozen=True, slots=True)
class StepChange:
    """A step that is not the same. `name` and `index` are None if it was added, `to_name` and `to_index` if removed."""

    fate: StepFate
    name: str | None
    index: int | None
    to_name: str | None
    to_index: int | None
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """What is not the same in the definition `to_hash` as in `from_hash`: options of the run, and steps.

    Steps come in their new order, those that are gone last. `step_map` is what a migration would have to be told if
    those that may have been renamed have been.
    """

    from_hash: str
    to_hash: str
    options: tuple[Difference, ...]
    steps: tuple[StepChange, ...]
    step_map: dict[str, str]


def changes_between(pairing: Pairing) -> DefinitionChange:
    """What is not the same, by the names of steps and by what the step map says of them."""
    old, new, places = pairing.old, pairing.new, pairing.places
    kept = {there: index for index, there in reversed(list(enumerate(places))) if there is not None}
    gone = [index for index, there in enumerate(places) if there is None]
    fresh = [index for index in range(len(new.steps)) if index not in kept]
    guesses = _guesses(pairing, gone, fresh)
    in_order = _in_order([there for there in places if there is not None])
    changes: list[StepChange] = []
    for there, spec in enumerate(new.steps):
        index = kept.get(there, guesses.get(there))
        if index is None:
            changes.append(StepChange(StepFate.ADDED, None, None, spec.name, there))
            continue
        here = old.steps[index]
        differences = _differences(_entry(here), _entry(spec))
        fate = _fate(here, spec, is_guess=there in guesses, is_moved=there in kept and there not in in_order)
        if fate is not None or differences:
            changes.append(StepChange(fate or StepFate.CHANGED, here.name, index, spec.name, there, differences))
    guessed = set(guesses.values())
    changes += [
        StepChange(StepFate.REMOVED, old.steps[index].name, index, None, None) for index in gone if index not in guessed
    ]
    return DefinitionChange(
        old.hash,
        new.hash,
        _differences(_options(old), _options(new)),
        tuple(changes),
        {old.steps[index].name: new.steps[there].name for there, index in guesses.items()},
    )


def _fate(here: StepSpec, there: StepSpec, *, is_guess: bool, is_moved: bool) -> StepFate | None:
    if is_guess:
        return StepFate.MAYBE_RENAMED
    if here.name != there.name:
        return StepFate.RENAMED
    return StepFate.MOVED if is_moved else None


def _guesses(pairing: Pairing, gone: Iterable[int], fresh: Iterable[int]) -> dict[int, int]:
    """New steps that may be old ones under another name, in order: those that do the same, then those of the same
    kind and handler."""
    old, new, step_map = pairing.old, pairing.new, pairing.step_map
    found: dict[int, int] = {}
    for is_same in (lambda one, other: is_alike(one, other, step_map), _has_same_handler):
        for index in gone:
            if index in found.values() or old.steps[index].name in step_map:
                continue
            likely = [there for there in fresh if there not in found and is_same(old.steps[index], new.steps[there])]
            if likely:
                found[likely[0]] = index
    return found


def _has_same_handler(here: StepSpec, there: StepSpec) -> bool:
    return here.kind == there.kind and here.handler is not None and here.handler == there.handler


def _in_order(places: Sequence[int]) -> frozenset[int]:
    """As many of these as stand in rising order: the others were moved.

    >>> sorted(_in_order([1, 2, 0, 3])), sorted(_in_order([2, 0, 1])), sorted(_in_order([]))
    ([1, 2, 3], [0, 1], [])
    """
    ends: list[int] = []
    lengths: list[int] = []
    for place in places:
        at = bisect_left(ends, place)
        ends[at : at + 1] = [place]
        lengths.append(at)
    chosen: list[int] = []
    wanted = len(ends) - 1
    for place, length in zip(reversed(places), reversed(lengths), strict=True):
        if length == wanted and (not chosen or place < chosen[-1]):
            chosen.append(place)
            wanted -= 1
    return frozenset(chosen)


def _entry(spec: StepSpec) -> dict[str, Json]:
    """The step as its JSON form has it, without its name; a definition in it by its name and hash."""
    form = step_to_json(spec, lambda child: {"name": child.name, "hash": child.hash})
    del form["name"]
    return form


def _options(definition: Definition) -> dict[str, Json]:
    form = definition_to_json(definition)
    return {key: value for key, value in form.items() if key not in ("name", "steps", "version")}


def _differences(before: Mapping[str, Json], after: Mapping[str, Json]) -> tuple[Difference, ...]:
    keys = dict.fromkeys((*before, *after))
    return tuple(
        Difference(key, before.get(key), after.get(key))
        for key in keys
        if canonical(before.get(key)) != canonical(after.get(key))
    )
