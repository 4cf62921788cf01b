"""Waits, as the builder describes them."""

from __future__ import annotations

from typing import Any

import pytest

from queuety.define.builder import WorkflowBuilder, workflow
from queuety.define.marks import step
from queuety.errors import DefinitionError
from queuety.model import StepSpec, WaitMode


@step
def fetch(state: dict[str, Any]) -> None: ...


def last(builder: WorkflowBuilder) -> StepSpec:
    return builder.build().steps[-1]


def signal_step(name: str, **settings: Any) -> StepSpec:
    return StepSpec("wait_for_signal", name, settings=settings)


def workflow_step(name: str, **settings: Any) -> StepSpec:
    return StepSpec("wait_for_workflows", name, settings=settings)


def test_a_wait_for_a_signal() -> None:
    assert last(workflow("w").wait_for_signal(" go ")) == signal_step("wait_for_go", names=["go"], mode="all")
    built = last(
        workflow("w").wait_for_signal(
            "go",
            "answer",
            match_payload={"kind": {"a": [1, None]}},
            correlation_key="order",
            timeout=60.0,
            on_timeout="mine",
            step_name="mine",
        )
    )
    assert built == signal_step(
        "mine",
        names=["go"],
        mode="all",
        result_key="answer",
        match_payload={"kind": {"a": [1, None]}},
        correlation_key="order",
        timeout=60,
        on_timeout="mine",
    )


def test_a_wait_for_several_signals_takes_each_name_once() -> None:
    assert last(workflow("w").wait_for_signals([" b", "a", "", "b "], WaitMode.ANY)) == signal_step(
        "wait_for_signals_0", names=["b", "a"], mode="any"
    )
    assert last(workflow("w").wait_for_signals(("a", "a"), match_payload={})) == signal_step(
        "wait_for_a", names=["a"], mode="all"
    )


def test_waits_for_people() -> None:
    assert last(workflow("w").wait_for_approval()) == signal_step(
        "wait_for_approval", names=["approval"], mode="all", result_key="approval", human="approval"
    )
    assert last(workflow("w").wait_for_input("text", None, timeout=0.5)) == signal_step(
        "wait_for_input", names=["text"], mode="all", timeout=0.5, human="input"
    )
    assert last(workflow("w").wait_for_decision(reject_signal=" no ")) == signal_step(
        "wait_for_decision",
        names=["approved", "no"],
        mode="any",
        result_key="decision",
        human="decision",
        outcomes={"approved": "approved", "rejected": "no"},
    )


def test_waits_for_workflows() -> None:
    assert last(workflow("w").wait_for_workflow(7)) == workflow_step(
        "wait_for_workflow", workflows=[7], mode="all", keyed=False
    )
    assert last(workflow("w").wait_for_workflow("id", "other")) == workflow_step(
        "wait_for_workflow", workflows="id", mode="all", result_key="other", keyed=False
    )
    assert last(workflow("w").wait_for_workflows([2, 1, 2], "quorum", quorum=2)) == workflow_step(
        "wait_for_workflows_0", workflows=[2, 1], mode="quorum", quorum=2, keyed=True
    )
    assert last(workflow("w").wait_for_workflows([], WaitMode.ANY)).settings["workflows"] == []
    assert last(workflow("w").wait_for_workflows("ids", "quorum", quorum=99)).settings["quorum"] == 99
    assert last(workflow("w").wait_for_workflow_group("orders", "any")) == workflow_step(
        "wait_for_workflow_group_0", group="orders", mode="any", keyed=True
    )
    assert last(workflow("w").wait_for_agents()) == workflow_step(
        "wait_for_agents", workflows="agent_workflow_ids", mode="all", result_key="agent_results", keyed=True
    )
    assert last(workflow("w").wait_for_agent_group(result_key=None)) == workflow_step(
        "wait_for_agent_group", group="agents", mode="all", keyed=True
    )


def test_defaults_that_collide_are_numbered_within_the_length_of_a_name() -> None:
    builder = workflow("w")
    for _ in range(3):
        builder.wait_for_signal("x" * 255)
    names = [spec.name for spec in builder.build().steps]
    assert [name.removeprefix("wait_for_").strip("x") for name in names] == ["", "_2", "_3"]
    assert [len(name) for name in names] == [255, 255, 255]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda w: w.wait_for_signal(" "), "the name of a signal must not be empty"),
        (lambda w: w.wait_for_signal(None), "the name of a signal must be a string"),
        (lambda w: w.wait_for_signal("x" * 256), "the name of a signal has 256 characters"),
        (lambda w: w.wait_for_signal("go", step_name=""), "the name of step 1 must not be empty"),
        (lambda w: w.wait_for_signals("go"), "the names of signals must be a list, not 'go'"),
        (lambda w: w.wait_for_signals([" ", ""]), "it needs the name of a signal"),
        (lambda w: w.wait_for_signals([]), "it needs the name of a signal"),
        (lambda w: w.wait_for_signals(["go", 3]), "the name of a signal must be a string"),
        (lambda w: w.wait_for_signals(["a", "b"], WaitMode.QUORUM), "mode must be one of all, any, not"),
        (lambda w: w.wait_for_signals(["a", "b"], "quorum"), "mode must be one of all, any, not 'quorum'"),
        (lambda w: w.wait_for_signal("go", ""), "result_key must not be empty"),
        (lambda w: w.wait_for_signal("go", "_go"), "result_key '_go': keys that start with _"),
        (lambda w: w.wait_for_signal("go", correlation_key=" "), "correlation_key must not be empty"),
        (lambda w: w.wait_for_signal("go", correlation_key="_id"), "correlation_key '_id': keys that start with _"),
        (lambda w: w.wait_for_signal("go", match_payload=[1]), "match_payload must be a mapping"),
        (lambda w: w.wait_for_signal("go", match_payload={"a": {1}}), r"match_payload\.a: a set"),
        (lambda w: w.wait_for_signal("go", timeout=0), "timeout must be above 0 seconds"),
        (lambda w: w.wait_for_signal("go", timeout=-1), "timeout must lie between"),
        (lambda w: w.wait_for_signal("go", timeout="1"), "timeout must be a number"),
        (lambda w: w.wait_for_signal("go", timeout=True), "timeout must be a number"),
        (lambda w: w.wait_for_signal("go", on_timeout="0"), "on_timeout is where a timeout leads to"),
        (lambda w: w.wait_for_signal("go", timeout=1, on_timeout=""), "on_timeout must not be empty"),
        (lambda w: w.wait_for_approval(""), "the name of a signal must not be empty"),
        (lambda w: w.wait_for_input(result_key=""), "result_key must not be empty"),
        (lambda w: w.wait_for_decision("yes", " yes "), "both outcomes are the signal 'yes'"),
        (lambda w: w.wait_for_decision(""), "the name of a signal must not be empty"),
        (lambda w: w.wait_for_workflow(0), r"workflows\[0\] must be an integer from 1 to"),
        (lambda w: w.wait_for_workflow(True), r"workflows\[0\] must be an integer from 1 to"),
        (lambda w: w.wait_for_workflow(2**63), r"workflows\[0\] must be an integer from 1 to"),
        (lambda w: w.wait_for_workflow(""), "the state key of workflows must not be empty"),
        (lambda w: w.wait_for_workflow("_id"), "keys that start with _ are reserved"),
        (lambda w: w.wait_for_workflow([1]), r"workflows\[0\] must be an integer from 1 to"),
        (lambda w: w.wait_for_workflows([1, "2"]), r"workflows\[1\] must be an integer from 1 to"),
        (lambda w: w.wait_for_workflows(1), "workflows must be a list of ids, or the state key"),
        (lambda w: w.wait_for_workflows(None), "workflows is missing"),
        (lambda w: w.wait_for_workflows([1], "most"), "mode must be one of all, any, quorum, not 'most'"),
        (lambda w: w.wait_for_workflows([1], "quorum"), "the mode quorum needs quorum"),
        (lambda w: w.wait_for_workflows("ids", "quorum", quorum=0), "quorum must be an integer, 1 or above"),
        (lambda w: w.wait_for_workflows([1, 1], "quorum", quorum=2), "a quorum of 2 among 1 workflows cannot be"),
        (lambda w: w.wait_for_workflows([], "quorum", quorum=1), "a quorum of 1 among 0 workflows cannot be"),
        (lambda w: w.wait_for_workflows([1], quorum=1), "quorum is for the mode quorum"),
        (lambda w: w.wait_for_workflow_group(" "), "group must not be empty"),
        (lambda w: w.wait_for_workflow_group("_step_1"), "group .* names that start with _ are reserved"),
        (lambda w: w.wait_for_workflow_group(None), "workflows is missing"),
        (lambda w: w.wait_for_agents(["a"]), r"workflows\[0\] must be an integer"),
        (lambda w: w.wait_for_agent_group(mode="any", quorum=2), "quorum is for the mode quorum"),
    ],
)
def test_wrong_use_is_refused_at_the_call_and_changes_nothing(wrong: Any, message: str) -> None:
    builder = workflow("w").then(fetch)
    before = builder.build()
    with pytest.raises(DefinitionError, match=rf"workflow 'w'.*{message}"):
        wrong(builder)
    assert builder.build() == before


def test_what_a_timeout_leads_to_may_come_later_but_must_come() -> None:
    builder = workflow("w").wait_for_signal("go", timeout=1, on_timeout="give up")
    with pytest.raises(
        DefinitionError, match=r"step 0 \('wait_for_go'\) of workflow 'w': on_timeout: no step is named 'give up'"
    ):
        builder.build()
    with pytest.raises(DefinitionError, match=r"workflow 'p': step 0 .* of workflow 'w': on_timeout"):
        workflow("p").run_workflow("c", builder)
    assert last(builder.then(fetch, "give up")).name == "give up"
