"""What is said of two definitions that are not the same, and which version is meant."""

from __future__ import annotations

from typing import Any

import pytest

from queuety.define.wire import definition_from_json
from queuety.engine.pairing import paired
from queuety.errors import DefinitionError, NotFoundError
from queuety.inspect.diff_steps import DefinitionChange, Difference, StepChange, StepFate, changes_between
from queuety.inspect.diff_versions import Version, meant, of_code
from queuety.model import Definition


def single(name: str, handler: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "single", "name": name, "handler": f"app:{handler or name}", **more}


def of(*steps: dict[str, Any], **more: Any) -> Definition:
    return definition_from_json({"name": "order", "steps": list(steps), **more})


def compared(old: Definition, new: Definition, step_map: dict[str, str] | None = None) -> DefinitionChange:
    return changes_between(paired(old, new, step_map or {}))


def told(old: Definition, new: Definition, step_map: dict[str, str] | None = None) -> list[tuple[str, str, str]]:
    """Of each step that is not the same: what has become of it, its name before and after."""
    changes = compared(old, new, step_map).steps
    return [(one.fate.value, one.name or "-", one.to_name or "-") for one in changes]


OLD = of(single("a"), single("b"), single("c"))


def test_equal_definitions_have_no_difference() -> None:
    found = compared(OLD, of(single("a"), single("b"), single("c"), version="2"))
    assert (found.options, found.steps, found.step_map) == ((), (), {})


def test_steps_that_came_and_went() -> None:
    new = of(single("x"), single("a"), single("c"))
    assert told(OLD, new) == [("added", "-", "x"), ("removed", "b", "-")], "that the others stand elsewhere is no news"
    assert compared(OLD, new).steps == (
        StepChange(StepFate.ADDED, None, None, "x", 0),
        StepChange(StepFate.REMOVED, "b", 1, None, None),
    )


def test_steps_in_another_order() -> None:
    assert told(OLD, of(single("b"), single("c"), single("a"))) == [("moved", "a", "a")]
    assert told(OLD, of(single("c"), single("a"), single("b"))) == [("moved", "c", "c")]


def test_a_step_that_was_moved_and_changed_says_both() -> None:
    (change,) = compared(OLD, of(single("b"), single("c"), single("a", timeout=5))).steps
    assert (change.fate, change.index, change.to_index) == (StepFate.MOVED, 0, 2)
    assert change.differences == (Difference("timeout", None, 5),)


def test_a_step_that_may_have_been_renamed_is_guessed() -> None:
    new = of(single("a"), single("b2", "b"), single("c"))
    found = compared(OLD, new)
    assert told(OLD, new) == [("maybe_renamed", "b", "b2")]
    assert found.step_map == {"b": "b2"}
    assert told(OLD, new, {"b": "b2"}) == [("renamed", "b", "b2")]
    assert compared(OLD, new, {"b": "b2"}).step_map == {}


def test_a_guess_goes_by_what_steps_do_and_then_by_their_handlers() -> None:
    old = of({**single("a"), "handler": {"handler": "app:send", "config": {"to": 1}}}, single("b", "pack"))
    new = of(single("x", "pack", timeout=5), {**single("y"), "handler": {"handler": "app:send", "config": {"to": 1}}})
    assert told(old, new) == [("maybe_renamed", "b", "x"), ("maybe_renamed", "a", "y")]
    assert told(of(single("a")), of(single("z"))) == [("added", "-", "z"), ("removed", "a", "-")]


def test_steps_without_names_of_their_own_are_told_by_what_they_do() -> None:
    old, new = of(single("0", "a"), single("1", "b")), of(single("0", "x"), single("1", "a"), single("2", "b"))
    assert told(old, new) == [("added", "-", "0"), ("maybe_renamed", "0", "1"), ("maybe_renamed", "1", "2")]
    assert compared(old, new).step_map == {"0": "1", "1": "2"}


def test_every_part_of_a_step_is_compared() -> None:
    old = of(
        {"type": "delay", "name": "d", "seconds": 5},
        {"type": "parallel", "name": "p", "branches": ["app:one", "app:two"]},
        {"type": "run_workflow", "name": "i", "workflow": {"name": "inner", "steps": [single("x")]}},
        single("s", compensation="app:undo"),
    )
    new = of(
        {"type": "delay", "name": "d", "seconds": 9},
        {"type": "parallel", "name": "p", "branches": ["app:one"]},
        {"type": "run_workflow", "name": "i", "workflow": {"name": "inner", "steps": [single("y")]}},
        {"type": "wait_for_signal", "name": "s", "names": ["go"], "mode": "all"},
    )
    changes = compared(old, new).steps
    assert [one.fate for one in changes] == [StepFate.CHANGED] * 4
    assert [[one.key for one in change.differences] for change in changes] == [
        ["seconds"],
        ["branches"],
        ["workflow"],
        ["type", "handler", "compensation", "names", "mode"],
    ]
    assert changes[1].differences == (Difference("branches", ["app:one", "app:two"], ["app:one"]),)
    (child,) = changes[2].differences
    assert (child.before["name"], len(child.before["hash"])) == ("inner", 64)
    assert child.before != child.after


def test_options_of_the_run_are_compared() -> None:
    old = of(single("a"), queue="slow", max_attempts=2)
    new = of(single("a"), queue="fast", on_cancel="app:tidy", max_transitions=9)
    found = {one.key: (one.before, one.after) for one in compared(old, new).options}
    assert found == {
        "queue": ("slow", "fast"),
        "max_attempts": (2, None),
        "on_cancel": (None, "app:tidy"),
        "max_transitions": (None, 9),
    }


def test_numbers_and_truths_are_not_the_same() -> None:
    repeat = {"type": "repeat", "name": "r", "until": True, "target": "a", "state_key": "ok"}
    found = compared(of(single("a"), {**repeat, "expected": 1}), of(single("a"), {**repeat, "expected": True}), {})
    assert [one.differences for one in found.steps] == [(Difference("expected", 1, True),)]


# which version


VERSIONS = [
    Version("aaaaaaaa11" + "0" * 54, "1", 3, None),
    Version("aaaaaaaa22" + "0" * 54, "2", 2, None),
    Version("bbbbbbbb33" + "0" * 54, "2", 1, None, "it is of a kind that nobody knows"),
    Version("cccccccc44" + "0" * 54, "deadbeef", 0, None),
    Version("deadbeef55" + "0" * 54, None, 0, None),
]


@pytest.mark.parametrize(
    ("said", "place"),
    [("1", 0), ("aaaaaaaa1", 0), ("bbbbbbbb", 2), (VERSIONS[1].hash, 1), ("deadbeef", 3), ("deadbeef5", 4)],
)
def test_a_version_is_meant_by_its_label_or_the_beginning_of_its_hash(said: str, place: int) -> None:
    assert meant(said, VERSIONS, "order") is VERSIONS[place]


@pytest.mark.parametrize("said", ["2", "aaaaaaaa"])
def test_what_means_two_versions_means_none(said: str) -> None:
    with pytest.raises(DefinitionError, match=f"'{said}' is meant by 2 definitions of 'order': .* give one's hash"):
        meant(said, VERSIONS, "order")


@pytest.mark.parametrize("said", ["", "3", "aaaaaaa", "AAAAAAAA1", "ffffffff"])
def test_what_means_no_version_says_which_there_are(said: str) -> None:
    with pytest.raises(NotFoundError, match=r"stored are aaaaaaaa1100 \(1\), aaaaaaaa2200 \(2\)"):
        meant(said, VERSIONS, "order")


def test_what_the_code_has_is_the_stored_version_if_there_is_one() -> None:
    definition = of(single("a"), version="7")
    stored = Version(definition.hash, "7", 5, definition)
    assert of_code(definition, [*VERSIONS, stored]) is stored
    assert of_code(definition, VERSIONS) == Version(definition.hash, "7", None, definition)


def test_a_version_that_cannot_be_read_says_so_when_it_is_needed() -> None:
    with pytest.raises(DefinitionError, match="definition bbbbbbbb3300 cannot be read: it is of a kind"):
        VERSIONS[2].read()
