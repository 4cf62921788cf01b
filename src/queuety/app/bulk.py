"""Verbs for many runs at once: those that meet a filter, each in a transaction of its own.

With `dry_run` each is decided and none is done: what would be refused is known, and why. One that is refused does not
stop the others. A filter without a condition is refused: it would mean every run there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from queuety.app.core import read_count
from queuety.app.repair import RepairVerbs, checked_step
from queuety.app.results import BulkResult
from queuety.app.signals import SignalVerbs
from queuety.app.steering import checked_by
from queuety.commands.steer import By
from queuety.errors import DefinitionError, QueuetyError, StoreError
from queuety.inspect.filters import WorkflowFilter
from queuety.inspect.workflows import ids_of
from queuety.model import Cancel, Command, Pause, Resume, RetryRun, Rewind, RunNow, SkipStep

AT_ONCE: Final = 500
"""Ids that are read at a time."""


class BulkVerbs(RepairVerbs, SignalVerbs):
    """What operators do to many runs. `where` says which, `limit` how many of them at most, newest first.

    Each gives back a `BulkResult` and raises `DefinitionError` for a filter without a condition.
    """

    def pause_workflows(
        self,
        where: WorkflowFilter,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """`pause_workflow` for each."""
        return self._each(where, Pause(), checked_by(actor, reason, dry_run=dry_run), limit)

    def resume_workflows(
        self,
        where: WorkflowFilter,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """`resume_workflow` for each."""
        return self._each(where, Resume(), checked_by(actor, reason, dry_run=dry_run), limit)

    def retry_workflows(
        self,
        where: WorkflowFilter,
        *,
        with_state: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """`retry_workflow` for each."""
        command = RetryRun(self._given(with_state, "with_state"))
        return self._each(where, command, checked_by(actor, reason, dry_run=dry_run), limit)

    def cancel_workflows(
        self,
        where: WorkflowFilter,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """`cancel_workflow` for each."""
        return self._each(where, Cancel(), checked_by(actor, reason, dry_run=dry_run), limit)

    def rewind_workflows(
        self,
        where: WorkflowFilter,
        to_step: int | str,
        *,
        with_state: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """`rewind_workflow` for each."""
        command = Rewind(checked_step(to_step, "to_step"), self._given(with_state, "with_state"))
        return self._each(where, command, checked_by(actor, reason, dry_run=dry_run), limit)

    def skip_steps(
        self,
        where: WorkflowFilter,
        step: int | str,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """`skip_step` for each that is at this step."""
        command = SkipStep(step=checked_step(step, "step"))
        return self._each(where, command, checked_by(actor, reason, dry_run=dry_run), limit)

    def run_workflows_now(
        self,
        where: WorkflowFilter,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """`run_now` for each."""
        return self._each(where, RunNow(), checked_by(actor, reason, dry_run=dry_run), limit)

    def signal_workflows(
        self,
        where: WorkflowFilter,
        name: str,
        data: Any = None,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """`signal` for each."""
        by = checked_by(actor, reason, dry_run=dry_run)
        signal, payload = self._read_signal(name, data)
        return self._for_all(where, lambda workflow_id: self._deliver(workflow_id, signal, payload, by), by, limit)

    def _each(self, where: WorkflowFilter, command: Command, by: By, limit: int | None) -> BulkResult:
        return self._for_all(where, lambda workflow_id: self._steer(workflow_id, command, by), by, limit)

    def _for_all(self, where: WorkflowFilter, do: Callable[[int], None], by: By, limit: int | None) -> BulkResult:
        if not isinstance(where, WorkflowFilter):
            raise DefinitionError(f"where={where!r}: a WorkflowFilter is needed")
        if where.is_empty:
            raise DefinitionError("the filter has no condition, so it means every run; say which ones are meant")
        left = None if limit is None else read_count(limit, "limit", least=1)
        result = BulkResult(dry_run=by.dry_run)
        before_id: int | None = None
        door = self.door
        now_us = door.now_us()  # one for all pages: who reaches an age meanwhile is not meant
        while left is None or left > 0:
            some = AT_ONCE if left is None else min(AT_ONCE, left)
            with door.reading() as connection:
                ids = ids_of(connection, door.tables, where, now_us=now_us, limit=some, before_id=before_id)
            for workflow_id in ids:
                try:
                    do(workflow_id)
                except StoreError:
                    raise
                except QueuetyError as error:
                    result.refused[workflow_id] = str(error)
                else:
                    result.done.append(workflow_id)
            if len(ids) < some:
                break
            before_id = ids[-1]
            left = None if left is None else left - len(ids)
        return result
