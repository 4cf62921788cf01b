"""Steps that wait: for signals, for people, for other workflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from queuety.define.building.draft import Draft
from queuety.define.forms.signals import read_name, read_names
from queuety.model import Json, WaitMode


class SignalWaits(Draft):
    """What a run waits to be told."""

    def wait_for_signal(
        self,
        name: str,
        result_key: str | None = None,
        step_name: str | None = None,
        match_payload: Mapping[str, Json] | None = None,
        correlation_key: str | None = None,
        timeout: float | None = None,
        on_timeout: str | None = None,
    ) -> Self:
        """Waits for a signal of that name; one that came before the wait counts, if no other wait has used it up.

        Its payload is stored under `result_key`, or merged into the state. `match_payload` is what the payload must
        hold, `correlation_key` a key whose value must be the same in the payload and in the state. After `timeout`
        seconds the run fails with `WaitTimeout`, or goes to the step that `on_timeout` names, before or after it.
        """
        names = [read_name(name, self._where(step_name))]
        return self._wait_for_signals(
            step_name,
            f"wait_for_{names[0]}",
            names=names,
            result_key=result_key,
            match_payload=match_payload,
            correlation_key=correlation_key,
            timeout=timeout,
            on_timeout=on_timeout,
        )

    def wait_for_signals(
        self,
        names: Sequence[str],
        mode: WaitMode | str = WaitMode.ALL,
        result_key: str | None = None,
        name: str | None = None,
        match_payload: Mapping[str, Json] | None = None,
        correlation_key: str | None = None,
        timeout: float | None = None,
        on_timeout: str | None = None,
    ) -> Self:
        """Waits for `ALL` of several signals, or for `ANY` of them; `QUORUM` is not for signals.

        `result_key` then holds the payloads by name, of those that came; the rest is as in `wait_for_signal`. Blank
        names and repeated ones are left out.
        """
        found = read_names(names, self._where(name))
        default = f"wait_for_{found[0]}" if len(found) == 1 else f"wait_for_signals_{len(self._steps)}"
        return self._wait_for_signals(
            name,
            default,
            names=found,
            mode=mode,
            result_key=result_key,
            match_payload=match_payload,
            correlation_key=correlation_key,
            timeout=timeout,
            on_timeout=on_timeout,
        )

    def wait_for_approval(
        self,
        signal_name: str = "approval",
        result_key: str | None = "approval",
        name: str | None = None,
        match_payload: Mapping[str, Json] | None = None,
        correlation_key: str | None = None,
        timeout: float | None = None,
        on_timeout: str | None = None,
    ) -> Self:
        """Waits for somebody's approval, which `app.approve_workflow` gives; the rest is as in `wait_for_signal`."""
        return self._wait_for_signals(
            name,
            "wait_for_approval",
            names=[read_name(signal_name, self._where(name))],
            result_key=result_key,
            match_payload=match_payload,
            correlation_key=correlation_key,
            timeout=timeout,
            on_timeout=on_timeout,
            human="approval",
        )

    def wait_for_input(
        self,
        signal_name: str = "input",
        result_key: str | None = "input",
        name: str | None = None,
        match_payload: Mapping[str, Json] | None = None,
        correlation_key: str | None = None,
        timeout: float | None = None,
        on_timeout: str | None = None,
    ) -> Self:
        """Waits for somebody's input, which `app.submit_workflow_input` gives; the rest is as in `wait_for_signal`."""
        return self._wait_for_signals(
            name,
            "wait_for_input",
            names=[read_name(signal_name, self._where(name))],
            result_key=result_key,
            match_payload=match_payload,
            correlation_key=correlation_key,
            timeout=timeout,
            on_timeout=on_timeout,
            human="input",
        )

    def wait_for_decision(
        self,
        approve_signal: str = "approved",
        reject_signal: str = "rejected",
        result_key: str | None = "decision",
        name: str | None = None,
        match_payload: Mapping[str, Json] | None = None,
        correlation_key: str | None = None,
        timeout: float | None = None,
        on_timeout: str | None = None,
    ) -> Self:
        """Waits for a yes or a no: `app.approve_workflow` or `app.reject_workflow`.

        `result_key` holds `{"outcome": "approved" or "rejected", "signal": name, "data": payload}`; without one the
        payload is merged, with `decision_outcome` and `decision_signal`. The rest is as in `wait_for_signal`.
        """
        where = self._where(name)
        outcomes = {"approved": read_name(approve_signal, where), "rejected": read_name(reject_signal, where)}
        return self._wait_for_signals(
            name,
            "wait_for_decision",
            names=list(outcomes.values()),
            mode=WaitMode.ANY,
            result_key=result_key,
            match_payload=match_payload,
            correlation_key=correlation_key,
            timeout=timeout,
            on_timeout=on_timeout,
            human="decision",
            outcomes=outcomes,
        )

    def _wait_for_signals(self, name: str | None, default: str, **given: Any) -> Self:
        settings = self._settings("wait_for_signal", name, default, **given)
        return self._add("wait_for_signal", name, default, settings)


class WorkflowWaits(Draft):
    """What a run waits to see completed. Its end fails the wait once it can no longer be satisfied."""

    def wait_for_workflow(self, workflow: int | str, result_key: str | None = None, name: str | None = None) -> Self:
        """Waits for a workflow to complete: its id, or the state key that holds it when the step is reached.

        Its public state is stored under `result_key`, or merged into this one. If it fails or is cancelled, the run
        fails with `WaitUnsatisfiable`.
        """
        given = workflow if isinstance(workflow, str) else [workflow]
        return self._wait_for_workflows(name, "wait_for_workflow", workflows=given, result_key=result_key, keyed=False)

    def wait_for_workflows(
        self,
        workflows: Sequence[int] | str,
        mode: WaitMode | str = WaitMode.ALL,
        result_key: str | None = None,
        name: str | None = None,
        quorum: int | None = None,
    ) -> Self:
        """Waits for workflows to complete: their ids, or the state key that holds them when the step is reached.

        `ALL` of them, `ANY` one, or as many as `quorum` says. `result_key` holds the public states by id, as text;
        without one they are merged in the listed order. The run fails with `WaitUnsatisfiable` once too few are left.
        """
        default = f"wait_for_workflows_{len(self._steps)}"
        return self._wait_for_workflows(
            name, default, workflows=workflows, mode=mode, quorum=quorum, result_key=result_key
        )

    def wait_for_workflow_group(
        self,
        group_key: str,
        mode: WaitMode | str = WaitMode.ALL,
        quorum: int | None = None,
        result_key: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Waits for those that an earlier step of the run has started under `group_key`; as `wait_for_workflows`."""
        default = f"wait_for_workflow_group_{len(self._steps)}"
        return self._wait_for_workflows(name, default, group=group_key, mode=mode, quorum=quorum, result_key=result_key)

    def wait_for_agents(
        self,
        workflows: Sequence[int] | str = "agent_workflow_ids",
        mode: WaitMode | str = WaitMode.ALL,
        result_key: str | None = "agent_results",
        name: str | None = None,
        quorum: int | None = None,
    ) -> Self:
        """Waits for what `start_agents` has started; as `wait_for_workflows`."""
        return self._wait_for_workflows(
            name, "wait_for_agents", workflows=workflows, mode=mode, quorum=quorum, result_key=result_key
        )

    def wait_for_agent_group(
        self,
        group_key: str = "agents",
        mode: WaitMode | str = WaitMode.ALL,
        quorum: int | None = None,
        result_key: str | None = "agent_results",
        name: str | None = None,
    ) -> Self:
        """Waits for what `start_agents` has started under `group_key`; as `wait_for_workflows`."""
        return self._wait_for_workflows(
            name, "wait_for_agent_group", group=group_key, mode=mode, quorum=quorum, result_key=result_key
        )

    def _wait_for_workflows(self, name: str | None, default: str, **given: Any) -> Self:
        settings = self._settings("wait_for_workflows", name, default, **given)
        return self._add("wait_for_workflows", name, default, settings)
