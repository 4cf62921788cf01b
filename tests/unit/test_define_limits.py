"""What holds for the run as a whole: limits, deadline, pruning and tags, from the builder and from JSON."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from queuety.define.builder import WorkflowBuilder, workflow
from queuety.define.marks import Step, bind, job, step
from queuety.define.registry import Registry
from queuety.define.wire import LIMITS, definition_from_json, definition_to_json
from queuety.errors import DefinitionError
from queuety.model import Definition, Guards, HandlerRef, Options

FORM: dict[str, Any] = {"name": "w", "steps": [{"type": "delay", "name": "d", "seconds": 1}]}
MOST = 2**63 - 1


@step
def fetch(state: dict[str, Any], limit: int = 1) -> None: ...


@step(cost_units=5)
def dear(state: dict[str, Any]) -> None: ...


class Dearer(Step):
    def handle(self, state: Any) -> None: ...

    def config(self) -> dict[str, Any]:
        return {"cost_units": 0}


@job(cost_units=3)
def dear_job() -> None: ...


def described() -> WorkflowBuilder:
    return workflow("w").delay(1, step_name="d")


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("count", [1, 7, MOST])
def test_a_limit_is_a_guard_of_the_definition(limit: str, count: int) -> None:
    built = getattr(described(), limit)(count).build()
    assert built.guards == dataclasses.replace(Guards(), **{limit: count})
    assert built == definition_from_json({**FORM, limit: count})
    assert definition_to_json(built) == {**FORM, limit: count}


@pytest.mark.parametrize("limit", [*LIMITS, "prune_state_after"])
@pytest.mark.parametrize("count", [0, -1, True, 1.0, "3", None, MOST + 1])
def test_a_limit_that_limits_nothing_is_refused(limit: str, count: Any) -> None:
    builder = described()
    with pytest.raises(
        DefinitionError, match=rf"^workflow 'w': {limit} must be an integer, 1 or above, not {re.escape(repr(count))}$"
    ):
        getattr(builder, limit)(count)
    assert builder.build() == described().build()
    if count is not None and count != MOST + 1:
        with pytest.raises(DefinitionError, match=rf"^workflow 'w': {limit} must be an integer, 1 or above"):
            definition_from_json({**FORM, limit: count})


def test_limits_are_set_one_by_one_and_the_last_word_counts() -> None:
    builder = described().max_transitions(9).max_state_bytes(100).max_transitions(8)
    assert builder.build().guards == Guards(max_transitions=8, max_state_bytes=100)


def test_nothing_limits_a_run_that_says_nothing() -> None:
    built = described().build()
    assert (built.guards, built.prune_after, built.deadline_s, built.on_deadline) == (None, None, None, None)
    assert built.compensates_on_failure is False
    assert definition_to_json(built) == FORM
    left_out = dict.fromkeys([*LIMITS, "must_complete_within", "prune_state_after", "on_deadline"])
    assert definition_from_json({**FORM, **left_out, "compensate_on_failure": False}) == built


def test_pruning_keeps_two_steps_unless_another_number_is_given() -> None:
    assert described().prune_state_after().build().prune_after == 2
    assert described().prune_state_after(1).build().prune_after == 1
    assert definition_from_json({**FORM, "prune_state_after": 3}).prune_after == 3


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [
        ({"seconds": 1}, 1),
        ({"seconds": 30, "minutes": 2, "hours": 1, "days": 1}, 90_150),
        ({"minutes": 0.5}, 30),
        ({"seconds": 1.5}, 1.5),
        ({"hours": 1, "seconds": -1}, 3599),
    ],
)
def test_a_deadline_is_the_sum_of_its_parts(parts: dict[str, Any], seconds: float) -> None:
    built = described().must_complete_within(**parts).build()
    assert built.deadline_s == seconds
    assert definition_to_json(built)["must_complete_within"] == seconds
    for given in (parts, seconds):
        back = definition_from_json({**FORM, "must_complete_within": given})
        assert (back, back.hash) == (built, built.hash)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "the sum must lie between 1 and 3153600000 seconds, not 0"),
        ({"seconds": 0.999}, "the sum must lie between 1 and"),
        ({"minutes": 1, "seconds": -60}, "the sum must lie between 1 and"),
        ({"days": 10**6}, "the sum must lie between 1 and"),
        ({"seconds": float("nan")}, "the sum must lie between 1 and"),
        ({"seconds": "60"}, "seconds must be a number, not '60'"),
        ({"hours": True}, "hours must be a number, not True"),
        ({"days": None}, "days must be a number, not None"),
    ],
)
def test_a_deadline_that_cannot_be_right_is_refused(parts: dict[str, Any], message: str) -> None:
    where = "^workflow 'w': must_complete_within: "
    with pytest.raises(DefinitionError, match=where + message):
        described().must_complete_within(**parts)
    if parts.get("seconds") == parts.get("seconds"):  # NaN is no JSON
        with pytest.raises(DefinitionError, match=where + message):
            definition_from_json({**FORM, "must_complete_within": parts})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "must_complete_within must lie between 1 and"),
        ("1 hour", "must_complete_within must be a number of seconds, not '1 hour'"),
        ([60], "must_complete_within must be a number of seconds"),
        (True, "must_complete_within must be a number of seconds"),
        ({"weeks": 1}, "must_complete_within: there is no key 'weeks'; there are days, hours, minutes, seconds"),
    ],
)
def test_a_deadline_in_json_that_cannot_be_right_is_refused(value: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=f"^workflow 'w': {message}"):
        definition_from_json({**FORM, "must_complete_within": value})


@pytest.mark.parametrize("value", [1, "yes", [], {}])
def test_a_flag_in_json_is_true_or_false(value: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^workflow 'w': compensate_on_failure must be true or false"):
        definition_from_json({**FORM, "compensate_on_failure": value})


OPTIONS: list[Callable[[WorkflowBuilder], WorkflowBuilder]] = [
    lambda w: w.max_transitions(1).max_for_each_items(2).max_state_bytes(3).max_cost_units(4).max_started_workflows(5),
    lambda w: w.must_complete_within(minutes=1).on_deadline(bind(fetch, limit=3)),
    lambda w: w.prune_state_after().compensate_on_failure().tag("a"),
    lambda w: w.then(fetch, "get").compensate_with(fetch),
]


def test_options_may_come_before_and_after_the_steps_in_any_order() -> None:
    built = set()
    for options in itertools.permutations(OPTIONS):
        builder = workflow("w")
        for option in options:
            option(builder)
        built.add((definition := builder.build()).hash)
        assert definition.guards == Guards(1, 2, 3, 4, 5)
        assert (definition.deadline_s, definition.prune_after, definition.compensates_on_failure) == (60, 2, True)
        assert definition.on_deadline == HandlerRef(f"{__name__}:fetch", {"limit": 3})
        assert definition.compensated == (0,)
    assert len(built) == 1


def hashes(changes: dict[str, Callable[[WorkflowBuilder], WorkflowBuilder]]) -> set[str]:
    return {change(workflow("w").then(fetch)).build().hash for change in changes.values()}


def test_every_option_is_in_the_hash() -> None:
    """W-37: a run that is limited otherwise is another workflow."""
    changes: dict[str, Callable[[WorkflowBuilder], WorkflowBuilder]] = {
        "nothing": lambda w: w,
        "deadline": lambda w: w.must_complete_within(60),
        "another deadline": lambda w: w.must_complete_within(61),
        "on_deadline": lambda w: w.must_complete_within(60).on_deadline(fetch),
        "on_deadline bound": lambda w: w.must_complete_within(60).on_deadline(bind(fetch, limit=2)),
        "on_cancel": lambda w: w.on_cancel(fetch),
        "on failure": lambda w: w.compensate_on_failure(),
        "pruned": lambda w: w.prune_state_after(1),
        "pruned later": lambda w: w.prune_state_after(2),
        "compensated": lambda w: w.compensate_with(fetch),
        "compensated bound": lambda w: w.compensate_with(bind(fetch, limit=2)),
        "costs": lambda w: w.then(fetch, cost_units=1),
        "costs more": lambda w: w.then(fetch, cost_units=2),
        "costs nothing": lambda w: w.then(fetch, cost_units=0),
        "costs what it costs": lambda w: w.then(fetch),
        **{f"{limit}=1": lambda w, limit=limit: getattr(w, limit)(1) for limit in LIMITS},  # type: ignore[misc]
        **{f"{limit}=2": lambda w, limit=limit: getattr(w, limit)(2) for limit in LIMITS},  # type: ignore[misc]
    }
    assert len(hashes(changes)) == len(changes) == 15 + 2 * 5


def test_what_belongs_to_the_dispatch_is_not_in_the_hash() -> None:
    changes: dict[str, Callable[[WorkflowBuilder], WorkflowBuilder]] = {
        "nothing": lambda w: w,
        "tags": lambda w: w.tag("a", "b"),
        "key": lambda w: w.idempotency_key("k"),
    }
    assert len(hashes(changes)) == 1


def test_the_options_of_a_child_are_those_of_its_builder_at_the_moment_of_the_call() -> None:
    child = workflow("c").then(fetch).max_cost_units(3).must_complete_within(hours=1).tag("c")
    parent = workflow("w").run_workflow("inner", child).start_workflows("items", child)
    child.max_cost_units(4).compensate_with(fetch).on_deadline(fetch)
    inner, started = (spec.child for spec in parent.build().steps)
    assert inner is not None
    assert started is not None
    for one in (inner, started):
        assert (one.guards, one.deadline_s, one.on_deadline, one.compensated) == (
            Guards(max_cost_units=3),
            3600,
            None,
            (),
        )
    assert parent.build().guards is None
    assert parent.tags == ()


def first(definition: Definition) -> Options:
    return definition.steps[0].options


def test_the_entry_says_what_a_step_costs_before_its_handler_does() -> None:
    assert first(workflow("w").then(dear).build()).cost_units == 5
    assert first(workflow("w").then(dear, cost_units=0).build()).cost_units == 0
    assert first(workflow("w").then(Dearer).build()).cost_units == 0
    assert first(workflow("w").then(fetch).build()).cost_units is None
    assert workflow("w").parallel([dear, fetch]).build().steps[0].branches[0].options.cost_units == 5
    entry = {"type": "single", "name": "0", "handler": f"{__name__}:dear"}
    assert first(definition_from_json({"name": "w", "steps": [entry]}, Registry())).cost_units == 5
    entry["resources"] = {"cost_units": 0}  # type: ignore[assignment]
    assert first(definition_from_json({"name": "w", "steps": [entry]}, Registry())).cost_units == 0


@pytest.mark.parametrize("cost", [-1, 1.5, True, "1", 10**9 + 1])
def test_a_cost_that_cannot_be_right_is_refused_wherever_it_is_given(cost: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^step 0 of workflow 'w': cost_units must be an integer from 0 to"):
        workflow("w").then(fetch, cost_units=cost)
    with pytest.raises(DefinitionError, match=r"^@step of .*: cost_units must be an integer from 0 to"):
        step(cost_units=cost)(lambda _: None)


def test_tags_stand_on_the_builder_each_once_in_their_order() -> None:
    builder = workflow("w").tag("b", "a", "b").then(fetch).tag().tag("a", "Ä b", "A")
    assert builder.tags == ("b", "a", "Ä b", "A")
    assert workflow("w").tags == ()
    assert "tag" not in str(builder.definition())


@pytest.mark.parametrize("tag", ["", " ", "a\n", "x" * 256, 3, None, ["a"]])
def test_a_tag_that_is_no_name_is_refused_and_none_of_the_call_is_kept(tag: Any) -> None:
    builder = workflow("w").tag("a")
    with pytest.raises(DefinitionError, match=r"^workflow 'w': tag "):
        builder.tag("b", tag)
    assert builder.tags == ("a",)


def test_there_are_at_most_fifty_tags() -> None:
    builder = workflow("w").tag(*(f"t{number}" for number in range(50))).tag("t7")
    with pytest.raises(DefinitionError, match=r"^workflow 'w': tag: there are 51; at most 50 are allowed"):
        builder.tag("t50")
    assert len(builder.tags) == 50
