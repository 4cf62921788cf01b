"""Definitions inside definitions."""

from __future__ import annotations

from typing import Any

import pytest

from queuety.define.builder import WorkflowBuilder, workflow
from queuety.define.checks import MAX_NESTING, MAX_STEPS
from queuety.define.marks import bind, step
from queuety.define.registry import Registry
from queuety.define.wire import definition_from_json, definition_hash, definition_to_json, nested
from queuety.errors import DefinitionError
from queuety.model import Definition, HandlerRef, Options, StepSpec


@step
def fetch(state: dict[str, Any]) -> None: ...


@step(queue="slow")
def render(state: dict[str, Any], width: int = 1) -> None: ...


def child_of(builder: WorkflowBuilder, registry: Registry | None = None) -> Definition:
    child = builder.build(registry).steps[-1].child
    assert child is not None
    return child


def test_a_child_runs_under_its_own_name_with_all_its_options() -> None:
    child = workflow("c").then(fetch).on_queue("q").version("2").idempotency_key("once").on_cancel(fetch)
    built = workflow("p").then(fetch).run_workflow(" review ", child).build()
    assert built.steps[1] == StepSpec("run_workflow", "1", child=built.steps[1].child)
    expected = workflow("review").then(fetch).on_queue("q").version("2").on_cancel(fetch).build()
    assert built.steps[1].child == expected


def test_one_workflow_is_started_for_each_item() -> None:
    child = workflow("c").then(fetch)
    assert workflow("p").start_workflows("orders", child).build().steps == (
        StepSpec(
            "start_workflows",
            "start_workflows_0",
            settings={
                "items_key": "orders",
                "result_key": "started_workflow_ids",
                "payload_key": "item",
                "inherit_state": True,
            },
            child=child.build(),
        ),
    )
    agents = workflow("p").start_agents("tasks", child).start_agents("tasks", child, inherit_state=False, group_key="g")
    first, second = agents.build().steps
    assert (first.name, second.name) == ("start_agents", "start_agents_2")
    assert second.settings == {
        "items_key": "tasks",
        "result_key": "agent_workflow_ids",
        "payload_key": "agent_task",
        "inherit_state": False,
        "group": "g",
    }


def test_a_child_is_what_it_was_at_the_call() -> None:
    child = workflow("c").then(fetch)
    parent = workflow("p").run_workflow("c", child).start_workflows("items", child)
    before = parent.build()
    child.then(fetch).on_queue("later")
    assert parent.build() == before


def test_a_childs_aliases_are_those_of_its_parents_application() -> None:
    registry = Registry()
    registry.register("draw", render)
    inner = workflow("i").then(bind("draw", width=2)).on_cancel("draw")
    middle = workflow("m").run_workflow("i", inner)
    known = child_of(WorkflowBuilder("p", registry=registry).start_workflows("items", middle))
    late = child_of(workflow("p").start_workflows("items", middle), registry)
    assert known == late
    found = late.steps[0].child
    assert found is not None
    assert found.steps[0] == StepSpec("single", "0", HandlerRef("draw", {"width": 2}), Options(queue="slow"))
    assert found.on_cancel == HandlerRef("draw")
    assert (found.hash, late.hash) == (definition_hash(found), definition_hash(late))
    where = "step 0 of workflow 'p': step 0 of workflow 'm': step 0 of workflow 'i': no handler is named 'draw' here"
    with pytest.raises(DefinitionError, match=where):
        workflow("p").start_workflows("items", middle).build()
    with pytest.raises(DefinitionError, match=where):
        WorkflowBuilder("p", registry=Registry()).start_workflows("items", middle)


def test_a_child_that_knows_its_application_needs_no_other() -> None:
    registry = Registry()
    registry.register("draw", render)
    child = WorkflowBuilder("c", registry=registry).then("draw")
    built = workflow("p").run_workflow("renamed", child).build()
    assert built.steps[0].child == workflow("renamed").then("draw").build(registry)


def test_the_hash_knows_the_children() -> None:
    def of(*children: WorkflowBuilder) -> str:
        builder = workflow("p")
        for child in children:
            builder.run_workflow("c", child)
        return builder.build().hash

    one, other = workflow("c").then(fetch), workflow("x").then(render)
    assert of(one) == of(one)
    assert len({of(one), of(other), of(one, other), of(other, one), of(workflow("c").run_workflow("c", one))}) == 5


def test_nested_gives_children_and_theirs() -> None:
    leaf = workflow("leaf").then(fetch)
    middle = workflow("middle").run_workflow("leaf", leaf).delay(1)
    built = workflow("p").start_workflows("items", middle).then(fetch).run_workflow("other", leaf).build()
    assert [one.name for one in nested(built)] == ["middle", "leaf", "other"]
    assert all(one.hash == definition_hash(one) for one in nested(built))
    assert list(nested(leaf.build())) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda w, c: w.run_workflow(" ", c), "the name of the child must not be empty"),
        (lambda w, c: w.run_workflow(None, c), "the name of the child must be a string"),
        (lambda w, _: w.run_workflow("c", workflow("empty")), "workflow 'empty' has no steps"),
        (lambda w, c: w.run_workflow("c", c.build()), "it starts what a builder describes"),
        (lambda w, _: w.run_workflow("c", "c"), "it starts what a builder describes"),
        (lambda w, c: w.run_workflow("c", c, step_name="0"), "step 0 already has the name '0'"),
        (lambda w, _: w.start_workflows("items", workflow("empty")), "workflow 'empty' has no steps"),
        (lambda w, c: w.start_workflows("", c), "items_key must not be empty"),
        (lambda w, c: w.start_workflows("_items", c), "items_key '_items': keys that start with _"),
        (lambda w, c: w.start_workflows("items", c, ""), "result_key must not be empty"),
        (lambda w, c: w.start_workflows("items", c, None), "result_key is missing"),
        (lambda w, c: w.start_workflows("items", c, "_ids"), "result_key '_ids': keys that start with _"),
        (lambda w, c: w.start_workflows("items", c, payload_key=" "), "payload_key must not be empty"),
        (lambda w, c: w.start_workflows("items", c, payload_key="_i"), "payload_key '_i': keys that start with _"),
        (lambda w, c: w.start_workflows("items", c, inherit_state=1), "inherit_state must be true or false"),
        (lambda w, c: w.start_agents("items", c, group_key=""), "group must not be empty"),
        (lambda w, c: w.start_agents("items", c, group_key="_step_1"), "group .* names that start with _ are reserved"),
    ],
)
def test_wrong_use_is_refused_at_the_call_and_changes_nothing(wrong: Any, message: str) -> None:
    builder = workflow("w").then(fetch)
    before = builder.build()
    with pytest.raises(DefinitionError, match=rf"workflow 'w'.*{message}"):
        wrong(builder, workflow("c").then(fetch))
    assert builder.build() == before


def test_there_is_a_limit_to_the_nesting() -> None:
    builder = workflow("w").then(bind(fetch))
    for _ in range(MAX_NESTING - 1):
        builder = workflow("w").run_workflow("w", builder)
    built = builder.build()
    assert definition_from_json(definition_to_json(built)) == built
    with pytest.raises(DefinitionError, match=f"more than {MAX_NESTING} levels deep"):
        workflow("w").run_workflow("w", builder)
    form = {"name": "w", "steps": [{"type": "run_workflow", "name": "0", "workflow": definition_to_json(built)}]}
    with pytest.raises(DefinitionError, match=f"more than {MAX_NESTING} levels deep"):
        definition_from_json(form)


def test_children_count_among_the_steps() -> None:
    builder = workflow("w").then(fetch)
    for _ in range(12):  # each holds all before it: the number doubles
        builder.run_workflow("w", builder)
    assert len(list(nested(builder.build()))) == 2**12 - 1
    with pytest.raises(DefinitionError, match=f"workflow 'w' has more than {MAX_STEPS} steps"):
        builder.run_workflow("w", builder)
    half = {"name": "h", "steps": [{"type": "delay", "name": str(index)} for index in range(MAX_STEPS // 2)]}
    form = {"name": "w", "steps": [{"type": "run_workflow", "name": name, "workflow": half} for name in ("a", "b")]}
    with pytest.raises(DefinitionError, match=f"workflow 'w' has {MAX_STEPS + 2} steps with its children's"):
        definition_from_json(form)


def test_what_is_nested_too_deep_to_be_read_back_is_refused() -> None:
    deep: Any = 1
    for _ in range(125):
        deep = [deep]
    with pytest.raises(DefinitionError, match=r"workflow 'w'\.steps.*nested deeper than 128 levels"):
        workflow("w").then(bind(render, width=deep)).build()
