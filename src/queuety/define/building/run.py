"""What holds for the whole run."""

from __future__ import annotations

from typing import Self

from queuety.define.building.draft import Draft
from queuety.define.marks import HandlerLike
from queuety.define.options import read_attempts, read_priority, read_queue
from queuety.define.wire import read_label
from queuety.model import Priority, Use


class RunOptions(Draft):
    """Options of the run; they may be set before or after the steps that they affect."""

    def on_cancel(self, handler: HandlerLike) -> Self:
        """Has a handler run with the public state, as a durable job, when the run has been cancelled.

        A function `(state)`, a `Step` or a `Compensation`; what it returns is ignored.
        """
        ref, _ = self._ref(handler, f"workflow {self._name!r}: on_cancel", Use.CLEANUP)
        return self._set(on_cancel=ref)

    def on_queue(self, queue: str) -> Self:
        """Runs the steps that name no queue on this one."""
        return self._set(queue=read_queue(queue, f"workflow {self._name!r}: queue"))

    def with_priority(self, priority: Priority | int | str) -> Self:
        """Gives the steps that name no priority this one."""
        return self._set(priority=read_priority(priority, f"workflow {self._name!r}: priority"))

    def max_attempts(self, attempts: int) -> Self:
        """Tries the steps that do not say how often at most this often each."""
        return self._set(max_attempts=read_attempts(attempts, f"workflow {self._name!r}: max_attempts"))

    def version(self, label: str) -> Self:
        """Labels the definition for people; runs carry the label."""
        return self._set(version=read_label(label, f"workflow {self._name!r}: version"))
