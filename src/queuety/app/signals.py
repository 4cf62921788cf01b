"""Verbs that tell a run something: signals, and the answers of people."""

from __future__ import annotations

from typing import Any

from queuety import codec
from queuety.app.core import Core, known_id
from queuety.app.steering import checked_by
from queuety.commands.signals import send_signal
from queuety.commands.steer import By
from queuety.define.names import check_name
from queuety.errors import NotFoundError
from queuety.inspect import waits
from queuety.model import Json


class SignalVerbs(Core):
    """What can be told to workflows."""

    def signal(
        self,
        workflow_id: int,
        name: str,
        data: Any = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Sends the run a signal; a wait that it satisfies goes on in the same transaction.

        It is kept, whatever the run is doing, until a wait uses it; each is used once. `name` is taken without the
        blanks around it, `data` is a mapping of JSON, None for an empty one. Raises `NotFoundError` for an unknown id,
        `DefinitionError` for a name that is none, `PayloadError` for data that is not JSON; nothing is kept then.
        `actor` and `reason` say who sends it and why; the history keeps them.
        """
        self._send(workflow_id, _checked_name(name, "name"), data, checked_by(actor, reason))

    def approve_workflow(
        self,
        workflow_id: int,
        data: Any = None,
        signal_name: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Says yes: a `signal` of the name that the run's present approval or decision listens for.

        If it waits for neither, and no `signal_name` is given, the name is `approval`. Raises as `signal`.
        """
        by = checked_by(actor, reason)
        self._answer(workflow_id, data, signal_name, by, human="approval", outcome="approved", usual="approval")

    def reject_workflow(
        self,
        workflow_id: int,
        data: Any = None,
        signal_name: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Says no: a `signal` of the name with which the run's present decision is rejected.

        If it waits for none, and no `signal_name` is given, the name is `rejected`. Raises as `signal`.
        """
        by = checked_by(actor, reason)
        self._answer(workflow_id, data, signal_name, by, human=None, outcome="rejected", usual="rejected")

    def submit_workflow_input(
        self,
        workflow_id: int,
        data: Any = None,
        signal_name: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Hands over what was asked for: a `signal` of the name that the run's present input step listens for.

        If it waits for none, and no `signal_name` is given, the name is `input`. Raises as `signal`.
        """
        by = checked_by(actor, reason)
        self._answer(workflow_id, data, signal_name, by, human="input", outcome=None, usual="input")

    def _answer(
        self,
        workflow_id: int,
        data: Any,
        signal_name: str | None,
        by: By,
        *,
        human: str | None,
        outcome: str | None,
        usual: str,
    ) -> None:
        if signal_name is not None:
            self._send(workflow_id, _checked_name(signal_name, "signal_name"), data, by)
            return
        name: str | None = None
        if known_id(workflow_id, "workflow_id") is not None:
            with self.door.reading() as connection:
                name = waits.awaited_signal(connection, self._door.tables, workflow_id, human=human, outcome=outcome)
        self._send(workflow_id, name or usual, data, by)

    def _send(self, workflow_id: int, name: str, data: Any, by: By) -> None:
        self._deliver(workflow_id, *self._read_signal(name, data), by)

    def _read_signal(self, name: object, data: Any) -> tuple[str, dict[str, Json]]:
        """The name and the payload of a signal, checked."""
        payload: dict[str, Json] = {}
        if data is not None:
            payload = codec.checked_mapping(data, what="data", max_bytes=self.settings.max_value_bytes)
        return _checked_name(name, "name"), payload

    def _deliver(self, workflow_id: int, name: str, payload: dict[str, Json], by: By) -> None:
        if known_id(workflow_id, "workflow_id") is None:
            raise NotFoundError(f"no workflow has the id {workflow_id}")
        most = self.settings.max_value_bytes
        send_signal(self.door, self.definitions, workflow_id, name, payload, by=by, max_bytes=most)
        self._ring()


def _checked_name(name: object, what: str) -> str:
    return check_name(name.strip() if isinstance(name, str) else name, what=what)
