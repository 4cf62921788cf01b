"""Steps of every kind as JSON: the form that is written, the others that are read, and those that cannot be right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety.codec import checked, decode, encode
from queuety.define.builder import WorkflowBuilder, workflow
from queuety.define.marks import bind, job, step
from queuety.define.registry import Registry
from queuety.define.wire import definition_from_json, definition_hash, definition_to_json, nested
from queuety.errors import DefinitionError
from queuety.model import Branch, HandlerRef, Options, StepSpec
from tests.support.describing import builders
from tests.unit.test_define_wire import shuffled


@step(queue="theirs", max_attempts=2)
def fetch(state: dict[str, Any], limit: int = 1) -> None: ...


@step
def plain(state: dict[str, Any]) -> None: ...


@step
def each(state: dict[str, Any], item: Any, index: int) -> None: ...


@step
def total(state: dict[str, Any], for_each: dict[str, Any], limit: int = 1) -> None: ...


@step(timeout=9)
def is_good(state: dict[str, Any], limit: int = 1) -> bool: ...


@job
def plain_job() -> None: ...


def name(function: Any) -> str:
    return f"{__name__}:{function.__name__}"


@given(builders(), st.randoms())
def test_what_the_builder_says_survives_its_json_form(builder: WorkflowBuilder, random: Any) -> None:
    built = builder.build()
    form = definition_to_json(built)
    assert checked(form, what="form") == form == builder.definition()
    for registry in (None, Registry()):
        back = definition_from_json(shuffled(decode(encode(form)), random), registry)
        assert back == built
        assert back.hash == built.hash == definition_hash(back)
    assert [one.hash for one in nested(back)] == [definition_hash(one) for one in nested(built)]


@given(builders(levels=1), builders(levels=1))
def test_different_workflows_have_different_hashes(one: WorkflowBuilder, other: WorkflowBuilder) -> None:
    first, second = one.build(), other.build()
    assert (first.hash == second.hash) == (definition_to_json(first) == definition_to_json(second))


def test_the_forms_of_the_kinds() -> None:
    child = workflow("c").then(plain)
    built = (
        workflow("w")
        .parallel([plain, bind(fetch, limit=2)])
        .for_each("urls", fetch, reducer=bind(total, limit=3))
        .repeat_until("0", condition=is_good)
        .repeat_while("0", "left", None)
        .wait_for_decision(timeout=60, on_timeout="0")
        .wait_for_workflow("other")
        .run_workflow("run", child)
        .start_workflows("orders", child, group_key="g")
    )
    single = {"type": "single", "name": "0", "handler": name(plain)}
    theirs = {"queue": "theirs", "max_attempts": 2}
    assert built.definition() == {
        "name": "w",
        "steps": [
            {
                "type": "parallel",
                "name": "0",
                "branches": [name(plain), {"handler": {"handler": name(fetch), "config": {"limit": 2}}, **theirs}],
            },
            {
                "type": "for_each",
                "name": "1",
                "handler": name(fetch),
                **theirs,
                "items_key": "urls",
                "result_key": "1_results",
                "mode": "all",
                "reducer": {"handler": name(total), "config": {"limit": 3}},
            },
            {
                "type": "repeat",
                "name": "repeat_until_2",
                "until": True,
                "target": "0",
                "condition": name(is_good),
                "timeout": 9,
            },
            {
                "type": "repeat",
                "name": "repeat_while_3",
                "until": False,
                "target": "0",
                "state_key": "left",
                "expected": None,
            },
            {
                "type": "wait_for_signal",
                "name": "wait_for_decision",
                "names": ["approved", "rejected"],
                "mode": "any",
                "result_key": "decision",
                "timeout": 60,
                "on_timeout": "0",
                "human": "decision",
                "outcomes": {"approved": "approved", "rejected": "rejected"},
            },
            {
                "type": "wait_for_workflows",
                "name": "wait_for_workflow",
                "workflows": "other",
                "mode": "all",
                "keyed": False,
            },
            {"type": "run_workflow", "name": "6", "workflow": {"name": "run", "steps": [single]}},
            {
                "type": "start_workflows",
                "name": "start_workflows_7",
                "items_key": "orders",
                "result_key": "started_workflow_ids",
                "payload_key": "item",
                "inherit_state": True,
                "group": "g",
                "workflow": {"name": "c", "steps": [single]},
            },
        ],
    }


def only(entry: dict[str, Any], registry: Registry | None = None) -> StepSpec:
    """The step that an entry means, behind another one."""
    form = {"name": "w", "steps": [{"type": "delay", "name": "d"}, {"name": "a", **entry}]}
    return definition_from_json(form, registry).steps[1]


@pytest.mark.parametrize(
    ("branch", "expected"),
    [
        ("m:f", Branch(HandlerRef("m:f"), Options(queue="q", max_attempts=4))),
        ({"class": "m:F"}, Branch(HandlerRef("m:F"), Options(queue="q", max_attempts=4))),
        ({"handler": "m:f", "queue": "r"}, Branch(HandlerRef("m:f"), Options(queue="r", max_attempts=4))),
        (
            {"handler": "m:f", "payload": {"a": 1}, "retry": {"max_attempts": 1}, "config": {"timeout": 3}},
            Branch(HandlerRef("m:f", {"a": 1}), Options(queue="q", max_attempts=1, timeout_s=3.0)),
        ),
        (
            {"handler": {"class": "m:F", "payload": {"a": 1}}},
            Branch(HandlerRef("m:F", {"a": 1}), Options(queue="q", max_attempts=4)),
        ),
    ],
)
def test_a_branch_comes_before_its_step(branch: Any, expected: Branch) -> None:
    entry = {"type": "parallel", "queue": "q", "retry": {"max_attempts": 4}, "branches": ["m:g", branch]}
    spec = only(entry)
    assert spec.options == Options()
    assert spec.branches[1] == expected


def test_a_branch_and_its_step_come_before_the_handler() -> None:
    entry = {"type": "parallel", "queue": "q", "branches": [{"handler": name(fetch), "timeout": 1}]}
    assert only(entry, Registry()).branches[0].options == Options(queue="q", timeout_s=1.0, max_attempts=2)


def test_the_payload_of_a_branch_is_merged_over_its_steps() -> None:
    entry = {
        "type": "parallel",
        "payload": {"a": 1, "b": 1},
        "branches": ["m:f", {"class": "m:F", "payload": {"b": 2}}],
    }
    assert [branch.handler.config for branch in only(entry).branches] == [{"a": 1, "b": 1}, {"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {"type": "single", "class": "m:F", "payload": {"a": 1}},
            StepSpec("single", "a", HandlerRef("m:F", {"a": 1})),
        ),
        (
            {"type": "for_each", "class": "m:F", "items_key": "urls", "reducer": {"class": "m:R", "payload": {"a": 1}}},
            StepSpec(
                "for_each",
                "a",
                HandlerRef("m:F"),
                settings={"items_key": "urls", "result_key": "a_results", "mode": "all"},
                reducer=HandlerRef("m:R", {"a": 1}),
            ),
        ),
        (
            {"type": "repeat", "until": False, "target": "d", "state_key": "left", "condition": None},
            StepSpec("repeat", "a", settings={"until": False, "target": "d", "state_key": "left", "expected": True}),
        ),
        (
            {"type": "repeat", "until": True, "target": "d", "condition": {"class": "m:C", "payload": {"a": 1}}},
            StepSpec("repeat", "a", HandlerRef("m:C", {"a": 1}), settings={"until": True, "target": "d"}),
        ),
        (
            {"type": "wait_for_signal", "names": [" go ", "", "go"]},
            StepSpec("wait_for_signal", "a", settings={"names": ["go"], "mode": "all"}),
        ),
        (
            {"type": "wait_for_workflows", "workflows": [3, 3]},
            StepSpec("wait_for_workflows", "a", settings={"workflows": [3], "mode": "all", "keyed": True}),
        ),
    ],
)
def test_the_other_shapes_are_read_too(entry: dict[str, Any], expected: StepSpec) -> None:
    assert only(entry) == expected


CHILD = {"name": "c", "steps": [{"type": "single", "name": "0", "handler": "m:f"}]}


def decision(**changes: Any) -> dict[str, Any]:
    outcomes = {"approved": "yes", "rejected": "no"}
    whole = {
        "type": "wait_for_signal",
        "names": ["yes", "no"],
        "mode": "any",
        "human": "decision",
        "outcomes": outcomes,
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"type": "parallel"}, "branches must be a list with at least one handler"),
        ({"type": "parallel", "branches": []}, "branches must be a list with at least one handler"),
        ({"type": "parallel", "branches": "m:f"}, "branches must be a list with at least one handler"),
        ({"type": "parallel", "branches": [3]}, "branch 0 must be a string"),
        ({"type": "parallel", "branches": [{"queue": "q"}]}, "branch 0: handler or class is missing"),
        ({"type": "parallel", "branches": [{"handler": "m:f", "limit": 3}]}, "branch 0: there is no key 'limit'"),
        ({"type": "parallel", "branches": ["m:f"], "handler": "m:f"}, "there is no key 'handler'"),
        ({"type": "parallel", "branches": ["m:f"], "payload": 3}, "payload must be a JSON object"),
        ({"type": "for_each", "items_key": "urls"}, "handler or class is missing"),
        ({"type": "for_each", "handler": "m:f"}, "items_key is missing"),
        ({"type": "for_each", "handler": "m:f", "items_key": "_a"}, "items_key '_a': keys that start with _"),
        (
            {"type": "for_each", "handler": "m:f", "items_key": "a", "mode": "any"},
            "mode must be one of all, first_succ",
        ),
        ({"type": "for_each", "handler": "m:f", "items_key": "a", "mode": "quorum"}, "the mode quorum needs quorum"),
        ({"type": "for_each", "handler": "m:f", "items_key": "a", "reducer": 3}, "reducer must be a string"),
        ({"type": "single", "handler": "m:f", "reducer": "m:r"}, "there is no key 'reducer'"),
        ({"type": "repeat", "target": "d", "state_key": "x"}, "until is missing"),
        ({"type": "repeat", "until": 1, "target": "d", "state_key": "x"}, "until must be true or false"),
        ({"type": "repeat", "until": True, "state_key": "x"}, "target is missing"),
        ({"type": "repeat", "until": True, "target": "d"}, "either state_key or condition; neither is given"),
        ({"type": "repeat", "until": True, "target": "a", "state_key": "x"}, "'a' is no earlier step but step 1"),
        ({"type": "repeat", "until": True, "target": "b", "state_key": "x"}, "no step before it is named 'b'"),
        (
            {"type": "repeat", "until": True, "target": "d", "state_key": "x", "queue": "q"},
            "queue says how a condition",
        ),
        ({"type": "repeat", "until": True, "target": "d", "handler": "m:f"}, "there is no key 'handler'"),
        ({"type": "wait_for_signal"}, "names is missing"),
        ({"type": "wait_for_signal", "names": ["a"], "mode": "quorum"}, "mode must be one of all, any, not 'quorum'"),
        (
            {"type": "wait_for_signal", "names": ["a"], "human": "robot"},
            "human must be one of approval, decision, input",
        ),
        (
            {"type": "wait_for_signal", "names": ["a"], "timeout": 1, "on_timeout": "z"},
            "on_timeout: no step is named 'z'",
        ),
        ({"type": "wait_for_signal", "names": ["a"], "handler": "m:f"}, "there is no key 'handler'"),
        (decision(human=None), "a decision, and nothing else, has outcomes"),
        (decision(human="input"), "a decision, and nothing else, has outcomes"),
        (decision(outcomes=None), "a decision, and nothing else, has outcomes"),
        (decision(outcomes={"approved": "yes"}), "outcomes must name the signals of approved and rejected"),
        (decision(outcomes={"approved": "yes", "rejected": "yes"}), "both outcomes are the signal 'yes'"),
        (decision(names=["yes"]), "a decision waits for any of 'yes' and 'no'"),
        (decision(mode="all"), "a decision waits for any of 'yes' and 'no'"),
        ({"type": "wait_for_workflows"}, "workflows is missing"),
        ({"type": "wait_for_workflows", "workflows": [1], "group": "g"}, "either workflows or group; both are given"),
        ({"type": "wait_for_workflows", "group": "g", "keyed": False}, "only what waits for one workflow"),
        ({"type": "wait_for_workflows", "workflows": [1, 2], "keyed": False}, "only what waits for one workflow"),
        ({"type": "wait_for_workflows", "workflows": [1], "mode": "any", "keyed": False}, "only what waits for one"),
        ({"type": "wait_for_workflows", "workflows": [1], "keyed": 0}, "keyed must be true or false"),
        ({"type": "run_workflow"}, "workflow is missing"),
        ({"type": "run_workflow", "workflow": "c"}, "workflow must be a JSON object, not 'c'"),
        ({"type": "run_workflow", "workflow": {"name": "c", "steps": []}}, ": workflow 'c': steps must be a list"),
        ({"type": "run_workflow", "workflow": {**CHILD, "hash": "x"}}, ": definition: there is no key 'hash'"),
        ({"type": "run_workflow", "workflow": CHILD, "items_key": "x"}, "there is no key 'items_key'"),
        ({"type": "start_workflows", "workflow": CHILD}, "items_key is missing"),
        (
            {"type": "start_workflows", "workflow": CHILD, "items_key": "x", "payload_key": ""},
            "payload_key must not be",
        ),
        ({"type": "start_workflows", "items_key": "x"}, "workflow is missing"),
    ],
)
def test_an_entry_that_cannot_be_right_names_the_step_and_the_key(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"step 1 \('a'\).*{message}"):
        only(entry)


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "parallel", "branches": [name(plain_job)]},
        {"type": "for_each", "items_key": "urls", "handler": name(plain_job)},
        {"type": "for_each", "items_key": "urls", "handler": name(each), "reducer": name(plain_job)},
        {"type": "repeat", "until": True, "target": "d", "condition": name(plain_job)},
        {
            "type": "run_workflow",
            "workflow": {"name": "c", "steps": [{"type": "single", "name": "0", "handler": name(plain_job)}]},
        },
    ],
)
def test_with_a_registry_every_handler_must_fit_its_place(entry: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r"step 1 \('a'\).* is a job and cannot be used as"):
        only(entry, Registry())
    assert only(entry).name == "a"
