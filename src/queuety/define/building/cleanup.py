"""What is called when a run has not ended well, and what undoes its steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from queuety.define.building.draft import Draft
from queuety.define.marks import HandlerLike
from queuety.errors import DefinitionError
from queuety.model import HandlerRef, Use


class Cleanup(Draft):
    """Handlers that clean up. Each is a function `(state)`, a `Step` or a `Compensation`, run as a durable job.

    They run after the run has ended, one after the other; one that fails for good does not keep the others from
    running. What they return is ignored; `compensation_status` tells how far they are.
    """

    def compensate_with(self, handler: HandlerLike) -> Self:
        """Has a handler undo the step that was added last, if it has completed and the run is cancelled later.

        It gets the public state as it was when the step had completed. The steps are undone in the reverse of the
        order in which they completed; one that completed several times is undone as often. A second call for the same
        step replaces the first. Raises `DefinitionError` if there is no step yet.
        """
        if not self._steps:
            raise DefinitionError(
                f"workflow {self._name!r}: compensate_with says how the step before it is undone, and there is none "
                "yet; add one with then()"
            )
        spec = self._steps[-1]
        where = f"step {len(self._steps) - 1} ({spec.name!r}) of workflow {self._name!r}: compensation"
        self._steps[-1] = replace(spec, compensation=self._cleaning(handler, where))
        self._built = None
        return self

    def compensate_on_failure(self) -> Self:
        """Has the completed steps undone when the run fails, too; otherwise only when it is cancelled."""
        return self._set(compensates_on_failure=True)

    def on_cancel(self, handler: HandlerLike) -> Self:
        """Has a handler run with the public state when the run has been cancelled, after all that undoes steps."""
        return self._set(on_cancel=self._cleaning(handler, f"workflow {self._name!r}: on_cancel"))

    def on_deadline(self, handler: HandlerLike) -> Self:
        """Has a handler run once with the public state when the run has failed at its deadline.

        The deadline is what `must_complete_within` says.
        """
        return self._set(on_deadline=self._cleaning(handler, f"workflow {self._name!r}: on_deadline"))

    def _cleaning(self, handler: HandlerLike, where: str) -> HandlerRef:
        return self._ref(handler, where, Use.CLEANUP)[0]
