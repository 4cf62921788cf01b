"""Verbs that steer a run: pause, resume, retry, cancel. Each may say who asks and why; the history keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuety import codec
from queuety.app.core import Core, known_id
from queuety.commands.steer import By, steer
from queuety.errors import DefinitionError, NotFoundError
from queuety.model import Cancel, Command, Json, Pause, Resume, RetryRun

LONGEST_ACTOR: Final = 255
LONGEST_REASON: Final = 4000


class SteeringVerbs(Core):
    """What can be asked of a run that goes on or has failed."""

    def pause_workflow(self, workflow_id: int, *, actor: str | None = None, reason: str | None = None) -> None:
        """Lets the current step finish and starts no other. Raises `InvalidStateError` unless it is running.

        `actor` and `reason` say who asks and why; the history keeps them.
        """
        self._steer(workflow_id, Pause(), checked_by(actor, reason))

    def resume_workflow(self, workflow_id: int, *, actor: str | None = None, reason: str | None = None) -> None:
        """Goes on after a pause. Raises `InvalidStateError` unless it is paused. `actor`, `reason`: see `pause`."""
        self._steer(workflow_id, Resume(), checked_by(actor, reason))

    def retry_workflow(
        self,
        workflow_id: int,
        *,
        with_state: Mapping[str, Any] | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Goes on at the step that failed, with fresh attempts; `with_state` is merged into the state first.

        Raises `InvalidStateError` unless it has failed and nothing of it was compensated. `actor`, `reason`: see
        `pause_workflow`.
        """
        self._steer(workflow_id, RetryRun(self._given(with_state, "with_state")), checked_by(actor, reason))

    def cancel_workflow(self, workflow_id: int, *, actor: str | None = None, reason: str | None = None) -> None:
        """Ends the run now. Workers then undo its steps (`compensate_with`), the last one first, and run its

        `on_cancel` handler; `compensation_status` tells how far that is. A handler that is running is not interrupted;
        its result is refused. Raises `InvalidStateError` if the run has been completed or cancelled. `actor`,
        `reason`: see `pause_workflow`.
        """
        self._steer(workflow_id, Cancel(), checked_by(actor, reason))

    def _steer(self, workflow_id: int, command: Command, by: By) -> None:
        if known_id(workflow_id, "workflow_id") is None:
            raise NotFoundError(f"no workflow has the id {workflow_id}")
        most = self.settings.max_value_bytes
        steer(self.door, self.definitions, workflow_id, command, by=by, max_bytes=most)
        self._ring()

    def _given(self, value: Mapping[str, Any] | None, what: str) -> dict[str, Json] | None:
        """The JSON of a mapping that somebody gave, checked. Raises `PayloadError`."""
        if value is None:
            return None
        return codec.checked_mapping(value, what=what, max_bytes=self.settings.max_value_bytes)


def checked_by(actor: object, reason: object, *, dry_run: bool = False) -> By:
    """Who asks and why. Raises `DefinitionError` or `PayloadError` for what is no text that can be kept."""
    return By(_text(actor, "actor", LONGEST_ACTOR), _text(reason, "reason", LONGEST_REASON), dry_run)


def _text(value: object, what: str, longest: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > longest:
        shown = repr(value)[:100]
        raise DefinitionError(f"{what}={shown}: a text of 1 to {longest} characters is needed, or None")
    text: str = codec.checked(value.strip(), what=what)
    return text
