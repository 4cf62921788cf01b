"""Verbs that do now what workers do by themselves: delete what has grown old, fail the runs whose time is over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from queuety.app.core import Core
from queuety.errors import DefinitionError
from queuety.model import JobStatus, WorkflowStatus
from queuety.worker.deadlines import fail_late_runs
from queuety.worker.retain import DAY_US, count_runs, delete_all, history_before, jobs_ended, runs_ended
from queuety.worker.works import Defaults


class RetentionVerbs(Core):
    """What can be done about age."""

    def purge(
        self,
        older_than_days: float | None = None,
        *,
        statuses: Iterable[JobStatus | str] | JobStatus | str = (JobStatus.COMPLETED,),
    ) -> int:
        """Deletes the plain jobs that were completed so long ago, with their history; says how many.

        Without a number it is `Settings.retention_days`. `statuses` may name `buried` ones too. Raises
        `DefinitionError`.
        """
        days = self.settings.retention_days if older_than_days is None else older_than_days
        if days is None:
            raise DefinitionError("older_than_days=None, and Settings.retention_days keeps all; say how many days")
        chosen = _statuses(statuses, JobStatus, [JobStatus.COMPLETED, JobStatus.BURIED])
        return delete_all(self.door, jobs_ended(self._before(days, "older_than_days"), chosen))

    def purge_workflows(
        self,
        older_than_days: float,
        statuses: Iterable[WorkflowStatus | str] | WorkflowStatus | str = (WorkflowStatus.COMPLETED,),
        *,
        dry_run: bool = False,
    ) -> int:
        """Deletes the runs that ended so long ago and stand so, with all that is theirs; says how many.

        `statuses` may name `completed`, `failed` and `cancelled`. A run stays that cleans up, that others wait for, or
        whose parent or child goes on. With `dry_run` nothing is deleted. Raises `DefinitionError`.
        """
        chosen = _statuses(statuses, WorkflowStatus, [status for status in WorkflowStatus if status.is_terminal])
        before_us = self._before(older_than_days, "older_than_days")
        if dry_run:
            return count_runs(self.door, before_us, chosen)
        return delete_all(self.door, runs_ended(before_us, chosen))

    def prune_history(self, days: float) -> int:
        """Deletes the rows of histories that are older and that nothing needs; says how many rows.

        The present state stays, and what is younger; `rewind_workflow` and `workflow_state_at` reach back as far as
        rows do. The history of a run that may still undo its steps stays whole. Raises `DefinitionError`.
        """
        return delete_all(self.door, history_before(self._before(days, "days"), self.definitions))

    def check_deadlines(self) -> int:
        """Fails now the runs whose time is over; says how many. Workers do it by themselves."""
        failed = fail_late_runs(self.door, self.definitions, Defaults(max_value_bytes=self.settings.max_value_bytes))
        self._ring()
        return failed

    def _before(self, days: Any, what: str) -> int:
        """The moment so many days ago, in microseconds; not before the epoch. Raises `DefinitionError`."""
        is_number = isinstance(days, int | float) and not isinstance(days, bool)
        if not is_number or not 0 <= days < float("inf"):
            raise DefinitionError(f"{what}={days!r}: a finite number of days that is not negative is needed")
        now_us = self.door.now_us()
        age_us: float = min(days * DAY_US, now_us)
        return now_us - round(age_us)


def _statuses(given: Any, kind: Any, allowed: list[Any]) -> tuple[Any, ...]:
    """The statuses that were given, one or several, each once. Raises `DefinitionError` for any that is not allowed."""
    asked = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    known = {status.value: status for status in allowed}
    for status in asked:
        if not isinstance(status, str) or status not in known:
            raise DefinitionError(f"statuses: {str(status)!r} is not one of {', '.join(known)}")
    if not asked:
        raise DefinitionError(f"statuses: at least one of {', '.join(known)} is needed")
    return tuple(dict.fromkeys(known[kind(status).value] for status in asked))
