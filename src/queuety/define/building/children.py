"""Steps that start other workflows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

from queuety.define.building.draft import Draft
from queuety.define.wire import hashed, read_label

if TYPE_CHECKING:
    from queuety.define.builder import WorkflowBuilder


class Children(Draft):
    """The runs that a run starts. Each takes what the other builder describes at the moment of the call."""

    def run_workflow(self, name: str, builder: WorkflowBuilder, step_name: str | None = None) -> Self:
        """Runs another workflow with this one's public state, and waits for it: its public state is then merged.

        The child run is named `name`, and has all that its builder says, but for an idempotency key, which is ignored.
        If it fails or is cancelled, so does this run, with `ChildFailed` or `ChildCancelled`; if this run is
        cancelled, so is the child.
        """
        where = self._where(step_name)
        called = read_label(name, f"{where}: the name of the child")
        child = replace(self._child(builder, where), name=called)
        return self._add("run_workflow", step_name, self._index(), child=hashed(child) if child.hash else child)

    def start_workflows(
        self,
        items_key: str,
        workflow: WorkflowBuilder,
        result_key: str = "started_workflow_ids",
        payload_key: str = "item",
        inherit_state: bool = True,
        name: str | None = None,
        group_key: str | None = None,
    ) -> Self:
        """Starts a workflow for each item of the list under `items_key`, and goes on at once.

        Each is independent of this run. Its payload is this run's public state, unless `inherit_state` is False, then
        the keys of the item if it is a mapping, or the item under `payload_key`, and its index under
        `start_item_index`. `result_key` holds the ids in the order of the items; `group_key` is a name for them that
        `wait_for_workflow_group` knows. The builder's idempotency key is ignored.
        """
        default = f"start_workflows_{len(self._steps)}"
        return self._start(default, items_key, workflow, result_key, payload_key, inherit_state, name, group_key)

    def start_agents(
        self,
        items_key: str,
        workflow: WorkflowBuilder,
        result_key: str = "agent_workflow_ids",
        payload_key: str = "agent_task",
        inherit_state: bool = True,
        name: str | None = None,
        group_key: str | None = None,
    ) -> Self:
        """`start_workflows` under the names that `wait_for_agents` and `wait_for_agent_group` know."""
        return self._start("start_agents", items_key, workflow, result_key, payload_key, inherit_state, name, group_key)

    def _start(
        self,
        default: str,
        items_key: str,
        workflow: WorkflowBuilder,
        result_key: str,
        payload_key: str,
        inherit_state: bool,
        name: str | None,
        group_key: str | None,
    ) -> Self:
        settings = self._settings(
            "start_workflows",
            name,
            default,
            items_key=items_key,
            result_key=result_key,
            payload_key=payload_key,
            inherit_state=inherit_state,
            group=group_key,
        )
        return self._add("start_workflows", name, default, settings, child=self._child(workflow, self._where(name)))
