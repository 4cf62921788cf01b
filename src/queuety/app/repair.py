"""Verbs that mend a run which does not go as it should. Each is one transaction, and says in the history who and why.

Every one raises `NotFoundError` for an unknown id and `InvalidStateError`, naming the status, where it cannot be done;
nothing is changed then. `actor` and `reason` say who asks and why. A step is given by its index or its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from queuety.app.core import known_id
from queuety.app.steering import SteeringVerbs, checked_by
from queuety.errors import DefinitionError, NotFoundError
from queuety.model import CompleteStep, Fork, PatchState, Rewind, RunNow, SkipStep
from queuety.store.queries import workflows


class RepairVerbs(SteeringVerbs):
    """What operators do to a single run."""

    def rewind_workflow(
        self,
        workflow_id: int,
        to_step: int | str,
        *,
        with_state: Mapping[str, Any] | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Goes back to where the step had last settled and on from there; `with_state` is merged into that state.

        What came after it is given up: work that is open, counts of loops, steps to be undone; signals that later steps
        have used may be used again. Budgets and the deadline stay as they are. A completed run is running again, and a
        paused one too. Raises `SnapshotMissingError` if the step has not settled or its history was pruned,
        `DefinitionError` if there is no such step, `InvalidStateError` for a cancelled or compensated run.
        """
        command = Rewind(checked_step(to_step, "to_step"), self._given(with_state, "with_state"))
        self._steer(workflow_id, command, checked_by(actor, reason))

    def fork_workflow(
        self,
        workflow_id: int,
        at_step: int | str | None = None,
        *,
        with_state: Mapping[str, Any] | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Starts a run of its own that goes on from where this one is, and gives back its id; this one stays as it is.

        With `at_step` it begins with that step, in the state with which the step was last entered. It has no parent, no
        idempotency key and no artifacts, a deadline of its own, and what it undoes is only what it does itself. Raises
        `InvalidStateError` for a cancelled or compensated run, and without `at_step` for a completed one;
        `SnapshotMissingError` if the step was never entered.
        """
        step = None if at_step is None else checked_step(at_step, "at_step")
        given, by = self._given(with_state, "with_state"), checked_by(actor, reason)
        if known_id(workflow_id, "workflow_id") is None:
            raise NotFoundError(f"no workflow has the id {workflow_id}")
        (new_id,) = self._write(lambda tx: tx.reserve(1))
        self._steer(workflow_id, Fork(new_id, step, given), by)
        return new_id

    def skip_step(
        self,
        workflow_id: int,
        step: int | str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Leaves the current step as it is and goes on with the next; its work is given up, nothing is merged.

        A failed run goes on, a paused one stays paused. With `step` only if that is the current one. Of two that skip
        at the same instant one is refused.
        """
        named = None if step is None else checked_step(step, "step")
        command = SkipStep(self._visit_of(workflow_id), named)
        self._steer(workflow_id, command, checked_by(actor, reason))

    def complete_step(
        self,
        workflow_id: int,
        output: Mapping[str, Any] | None = None,
        step: int | str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Settles the current step with this output, as if its handler had returned it, and goes on.

        `_next_step` in the output says where. The step counts as done: it is undone with the others. Otherwise as
        `skip_step`. Raises `ConstraintViolation` if the output breaks a budget, `PayloadError` if it is not JSON.
        """
        named = None if step is None else checked_step(step, "step")
        command = CompleteStep(self._given(output, "output") or {}, self._visit_of(workflow_id), named)
        self._steer(workflow_id, command, checked_by(actor, reason))

    def patch_state(
        self,
        workflow_id: int,
        changes: Mapping[str, Any] | None = None,
        *,
        remove: Iterable[str] = (),
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Sets these keys of the state and takes those in `remove` out, and does nothing else.

        A handler that is running has the state as it was; what it returns is merged over the new one. A wait whose
        `correlation_key` has changed looks again. Raises `InvalidStateError` for a run that is completed, cancelled or
        compensated, and for the list that a for-each under way works on; `DefinitionError` for a key to be removed that
        is not there; `PayloadError`, `ConstraintViolation` for what may not be in the state.
        """
        if isinstance(remove, str) or not isinstance(remove, Iterable):
            raise DefinitionError(f"remove={remove!r}: a list of keys is needed")
        keys = tuple(remove)
        if not all(isinstance(key, str) for key in keys):
            raise DefinitionError(f"remove={keys!r}: keys are texts")
        removed = tuple(dict.fromkeys(keys))
        command = PatchState(self._given(changes, "changes") or {}, removed)
        self._steer(workflow_id, command, checked_by(actor, reason))

    def run_now(self, workflow_id: int, *, actor: str | None = None, reason: str | None = None) -> None:
        """Waits no longer for what only time holds back: a delay, the back-off after a failed attempt, a step's delay.

        Raises `InvalidStateError` if nothing of the run waits for its time. A wait for a signal or for another run is
        not cut short: send the signal, or `skip_step`.
        """
        self._steer(workflow_id, RunNow(), checked_by(actor, reason))

    def _visit_of(self, workflow_id: int) -> int | None:
        """The visit that the run is in now: what is asked of its step is meant for this one."""
        if known_id(workflow_id, "workflow_id") is None:
            return None
        with self.door.reading() as connection:
            found = workflows.found(connection, self._door.tables, workflow_id)
        return None if found is None else int(found["visit"])


def checked_step(value: object, what: str) -> int | str:
    """A step's index or name. Raises `DefinitionError`."""
    if isinstance(value, str) or type(value) is int:
        return value
    raise DefinitionError(f"{what}={value!r}: the index or the name of a step is needed")
