"""Every method of the builder, as a program with types calls it: mypy reads this file, and a test builds it."""

from __future__ import annotations

from typing import Any, assert_type

from queuety.define.builder import WorkflowBuilder, workflow
from queuety.define.marks import bind, step
from queuety.model import ForEachMode, WaitMode


@step
def typed_step(state: dict[str, Any]) -> dict[str, Any]:
    return {}


@step
def typed_item(state: dict[str, Any], item: Any, index: int) -> dict[str, Any]:
    return {}


@step
def typed_reducer(state: dict[str, Any], for_each: dict[str, Any]) -> dict[str, Any]:
    return {}


@step
def typed_condition(state: dict[str, Any], score: int = 1) -> bool:
    return True


def every_call() -> WorkflowBuilder:
    """A builder with a step of every method, each argument by its name."""
    child = workflow("child").then(typed_step)
    built = (
        workflow("typed")
        .then(handler=typed_step, name="first", timeout=5, retry_on=OSError, cost_units=0)
        .compensate_with(handler=bind(typed_condition, score=2))
        .parallel(handlers=[typed_step, "an:alias", bind(typed_condition, score=2)], step_name="both")
        .for_each(
            items_key="urls",
            handler=typed_item,
            result_key="pages",
            mode=ForEachMode.QUORUM,
            quorum=2,
            reducer=typed_reducer,
            name="each",
        )
        .repeat_until(target_step="first", state_key="done", expected=1, name="until", max_iterations=3)
        .repeat_while(target_step="first", condition=bind(typed_condition, score=2), name="while")
        .run_workflow(name="inner", builder=child, step_name="inside")
        .start_workflows(
            items_key="orders",
            workflow=child,
            result_key="ids",
            payload_key="order",
            inherit_state=False,
            name="start",
            group_key="orders",
        )
        .start_agents(
            items_key="tasks",
            workflow=child,
            result_key="agents",
            payload_key="task",
            inherit_state=True,
            name="agents",
            group_key="agents",
        )
        .delay(seconds=1, minutes=2, hours=3, days=4, step_name="pause")
        .wait_for_signal(
            name="go",
            result_key="go",
            step_name="signal",
            match_payload={"a": 1},
            correlation_key="order",
            timeout=1.5,
            on_timeout="first",
        )
        .wait_for_signals(
            names=["a", "b"],
            mode=WaitMode.ANY,
            result_key="signals",
            name="signals",
            match_payload={"a": 1},
            correlation_key="order",
            timeout=1,
            on_timeout="first",
        )
        .wait_for_approval(
            signal_name="yes",
            result_key=None,
            name="approval",
            match_payload={"a": 1},
            correlation_key="order",
            timeout=1,
            on_timeout="first",
        )
        .wait_for_input(
            signal_name="text",
            result_key=None,
            name="input",
            match_payload={"a": 1},
            correlation_key="order",
            timeout=1,
            on_timeout="first",
        )
        .wait_for_decision(
            approve_signal="yes",
            reject_signal="no",
            result_key=None,
            name="decision",
            match_payload={"a": 1},
            correlation_key="order",
            timeout=1,
            on_timeout="first",
        )
        .wait_for_workflow(workflow=7, result_key="seven", name="one")
        .wait_for_workflows(workflows=[1, 2, 3], mode="quorum", result_key="some", name="some", quorum=2)
        .wait_for_workflow_group(group_key="orders", mode=WaitMode.ANY, quorum=None, result_key="any", name="group")
        .wait_for_agents(workflows="agents", mode=WaitMode.ALL, result_key="all", name="wait", quorum=None)
        .wait_for_agent_group(group_key="agents", mode=WaitMode.QUORUM, quorum=1, result_key="one", name="agent group")
        .compensate_with(handler=typed_step)
        .compensate_on_failure()
        .on_cancel(handler=typed_step)
        .on_deadline(handler=bind(typed_condition, score=2))
        .must_complete_within(seconds=1, minutes=2, hours=3, days=4)
        .prune_state_after(steps=3)
        .max_transitions(limit=100)
        .max_for_each_items(limit=50)
        .max_state_bytes(limit=65_536)
        .max_cost_units(limit=20)
        .max_started_workflows(limit=10)
        .tag("typed", "every call")
    )
    return assert_type(built, WorkflowBuilder)
