"""What holds for the whole run."""

from __future__ import annotations

from typing import Self

from queuety.define.building.draft import Draft
from queuety.define.forms.form import read_count
from queuety.define.options import read_attempts, read_priority, read_queue
from queuety.define.wire import read_label, read_within
from queuety.model import Priority


class RunOptions(Draft):
    """Options of the run; they may be set before or after the steps that they affect."""

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

    def must_complete_within(self, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> Self:
        """Fails a run that has not ended this long after its dispatch, the sum of the parts, with `DeadlineExceeded`.

        At least 1 second. Runs that wait are failed too; a paused one is once it goes on. A retry does not move the
        deadline.
        """
        parts = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
        return self._set(deadline_s=read_within(parts, f"workflow {self._name!r}: must_complete_within"))

    def prune_state_after(self, steps: int = 2) -> Self:
        """Takes a step's keys out of the state once the step that stands `steps` after it has settled, 1 or more.

        A key that a later step has written counts as that one's, and in loops the latest visit counts. What the run
        was started with stays, unless a step has written it.
        """
        return self._set(prune_after=read_count(steps, f"workflow {self._name!r}: prune_state_after"))
