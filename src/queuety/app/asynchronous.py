"""The `…_async` forms of the verbs. Written by `scripts/generate_async.py`: change the verbs and run that."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from queuety.app.artifacts import ArtifactVerbs
from queuety.app.bulk import BulkVerbs
from queuety.app.changing import ChangingVerbs
from queuety.app.graph import GraphVerbs
from queuety.app.history import HistoryVerbs
from queuety.app.jobs import JobVerbs
from queuety.app.portable import PortableVerbs
from queuety.app.queues import QueueVerbs
from queuety.app.results import BulkResult
from queuety.app.retention import RetentionVerbs
from queuety.app.running import RunningVerbs
from queuety.app.streams import StreamVerbs
from queuety.app.templates import TemplateVerbs
from queuety.app.why import WhyVerbs
from queuety.define.builder import WorkflowBuilder
from queuety.define.templates import WorkflowTemplate
from queuety.engine.migrating import Move
from queuety.inspect.artifacts import Artifact
from queuety.inspect.diff import WorkflowDiff
from queuety.inspect.events import TimelineEvent
from queuety.inspect.filters import WorkflowFilter
from queuety.inspect.logged import LogRow
from queuety.inspect.states import JobState, WorkflowState
from queuety.inspect.why import Why
from queuety.model import (
    ErrorKind,
    JobStatus,
    Json,
    Priority,
    WorkflowStatus,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession


class AsyncVerbs(
    TemplateVerbs,
    JobVerbs,
    QueueVerbs,
    BulkVerbs,
    StreamVerbs,
    ArtifactVerbs,
    PortableVerbs,
    HistoryVerbs,
    WhyVerbs,
    GraphVerbs,
    ChangingVerbs,
    RunningVerbs,
    RetentionVerbs,
):
    """Each verb as a coroutine: the same, run in a thread."""

    async def migrate_async(self) -> None:
        """See `migrate`."""
        await asyncio.to_thread(self.migrate)

    async def run_workflow_async(
        self,
        name: str,
        payload: Any = None,
        *,
        idempotency_key: str | None = None,
        tags: Iterable[str] = (),
        connection: AsyncConnection | AsyncSession | None = None,
    ) -> int:
        """See `run_workflow`."""
        if connection is not None:
            return await connection.run_sync(
                lambda theirs: self.run_workflow(
                    name, payload, idempotency_key=idempotency_key, tags=tags, connection=theirs
                )
            )
        return await asyncio.to_thread(self.run_workflow, name, payload, idempotency_key=idempotency_key, tags=tags)

    async def dispatch_workflow_async(
        self, builder: WorkflowBuilder, payload: Any = None, *, connection: AsyncConnection | AsyncSession | None = None
    ) -> int:
        """See `dispatch_workflow`."""
        if connection is not None:
            return await connection.run_sync(lambda theirs: self.dispatch_workflow(builder, payload, connection=theirs))
        return await asyncio.to_thread(self.dispatch_workflow, builder, payload)

    async def dispatch_definition_async(
        self,
        definition: Mapping[str, Any],
        payload: Any = None,
        *,
        idempotency_key: str | None = None,
        tags: Iterable[str] = (),
        connection: AsyncConnection | AsyncSession | None = None,
    ) -> int:
        """See `dispatch_definition`."""
        if connection is not None:
            return await connection.run_sync(
                lambda theirs: self.dispatch_definition(
                    definition, payload, idempotency_key=idempotency_key, tags=tags, connection=theirs
                )
            )
        return await asyncio.to_thread(
            self.dispatch_definition, definition, payload, idempotency_key=idempotency_key, tags=tags
        )

    async def dispatch_many_async(self, builder: WorkflowBuilder, payloads: Iterable[Any]) -> list[int]:
        """See `dispatch_many`."""
        return await asyncio.to_thread(self.dispatch_many, builder, payloads)

    async def workflow_status_async(self, workflow_id: int) -> WorkflowState | None:
        """See `workflow_status`."""
        return await asyncio.to_thread(self.workflow_status, workflow_id)

    async def list_workflows_async(
        self,
        status: WorkflowStatus | str | Collection[WorkflowStatus | str] | None = None,
        name: str | None = None,
        parent_id: int | None = None,
        limit: int = 50,
        before_id: int | None = None,
        tag: str | None = None,
        error_kind: ErrorKind | str | None = None,
        older_than: timedelta | float | None = None,
        newer_than: timedelta | float | None = None,
    ) -> list[WorkflowState]:
        """See `list_workflows`."""
        return await asyncio.to_thread(
            self.list_workflows, status, name, parent_id, limit, before_id, tag, error_kind, older_than, newer_than
        )

    async def wait_async(self, workflow_id: int, timeout: float | None = None) -> WorkflowState:
        """See `wait`."""
        return await asyncio.to_thread(self.wait, workflow_id, timeout)

    async def dispatch_async(
        self,
        handler: Any,
        payload: Any = None,
        *,
        queue: str | None = None,
        priority: Priority | int | str | None = None,
        delay: float | None = None,
        max_attempts: int | None = None,
        connection: AsyncConnection | AsyncSession | None = None,
    ) -> int:
        """See `dispatch`."""
        if connection is not None:
            return await connection.run_sync(
                lambda theirs: self.dispatch(
                    handler,
                    payload,
                    queue=queue,
                    priority=priority,
                    delay=delay,
                    max_attempts=max_attempts,
                    connection=theirs,
                )
            )
        return await asyncio.to_thread(
            self.dispatch, handler, payload, queue=queue, priority=priority, delay=delay, max_attempts=max_attempts
        )

    async def job_status_async(self, job_id: int) -> JobState | None:
        """See `job_status`."""
        return await asyncio.to_thread(self.job_status, job_id)

    async def list_jobs_async(
        self,
        queue: str | None = None,
        status: JobStatus | str | Collection[JobStatus | str] | None = None,
        workflow_id: int | None = None,
        cleanup: bool = False,
        limit: int = 50,
    ) -> list[JobState]:
        """See `list_jobs`."""
        return await asyncio.to_thread(self.list_jobs, queue, status, workflow_id, cleanup, limit)

    async def pause_async(self, queue: str) -> None:
        """See `pause`."""
        await asyncio.to_thread(self.pause, queue)

    async def resume_async(self, queue: str) -> None:
        """See `resume`."""
        await asyncio.to_thread(self.resume, queue)

    async def is_paused_async(self, queue: str) -> bool:
        """See `is_paused`."""
        return await asyncio.to_thread(self.is_paused, queue)

    async def paused_queues_async(self) -> list[str]:
        """See `paused_queues`."""
        return await asyncio.to_thread(self.paused_queues)

    async def stats_async(self, queue: str | None = None) -> dict[str, int]:
        """See `stats`."""
        return await asyncio.to_thread(self.stats, queue)

    async def pause_workflows_async(
        self,
        where: WorkflowFilter,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """See `pause_workflows`."""
        return await asyncio.to_thread(
            self.pause_workflows, where, dry_run=dry_run, limit=limit, actor=actor, reason=reason
        )

    async def resume_workflows_async(
        self,
        where: WorkflowFilter,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """See `resume_workflows`."""
        return await asyncio.to_thread(
            self.resume_workflows, where, dry_run=dry_run, limit=limit, actor=actor, reason=reason
        )

    async def retry_workflows_async(
        self,
        where: WorkflowFilter,
        *,
        with_state: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """See `retry_workflows`."""
        return await asyncio.to_thread(
            self.retry_workflows, where, with_state=with_state, dry_run=dry_run, limit=limit, actor=actor, reason=reason
        )

    async def cancel_workflows_async(
        self,
        where: WorkflowFilter,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """See `cancel_workflows`."""
        return await asyncio.to_thread(
            self.cancel_workflows, where, dry_run=dry_run, limit=limit, actor=actor, reason=reason
        )

    async def rewind_workflows_async(
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
        """See `rewind_workflows`."""
        return await asyncio.to_thread(
            self.rewind_workflows,
            where,
            to_step,
            with_state=with_state,
            dry_run=dry_run,
            limit=limit,
            actor=actor,
            reason=reason,
        )

    async def skip_steps_async(
        self,
        where: WorkflowFilter,
        step: int | str,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """See `skip_steps`."""
        return await asyncio.to_thread(
            self.skip_steps, where, step, dry_run=dry_run, limit=limit, actor=actor, reason=reason
        )

    async def run_workflows_now_async(
        self,
        where: WorkflowFilter,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """See `run_workflows_now`."""
        return await asyncio.to_thread(
            self.run_workflows_now, where, dry_run=dry_run, limit=limit, actor=actor, reason=reason
        )

    async def signal_workflows_async(
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
        """See `signal_workflows`."""
        return await asyncio.to_thread(
            self.signal_workflows, where, name, data, dry_run=dry_run, limit=limit, actor=actor, reason=reason
        )

    async def rewind_workflow_async(
        self,
        workflow_id: int,
        to_step: int | str,
        *,
        with_state: Mapping[str, Any] | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """See `rewind_workflow`."""
        await asyncio.to_thread(
            self.rewind_workflow, workflow_id, to_step, with_state=with_state, actor=actor, reason=reason
        )

    async def fork_workflow_async(
        self,
        workflow_id: int,
        at_step: int | str | None = None,
        *,
        with_state: Mapping[str, Any] | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> int:
        """See `fork_workflow`."""
        return await asyncio.to_thread(
            self.fork_workflow, workflow_id, at_step, with_state=with_state, actor=actor, reason=reason
        )

    async def skip_step_async(
        self, workflow_id: int, step: int | str | None = None, *, actor: str | None = None, reason: str | None = None
    ) -> None:
        """See `skip_step`."""
        await asyncio.to_thread(self.skip_step, workflow_id, step, actor=actor, reason=reason)

    async def complete_step_async(
        self,
        workflow_id: int,
        output: Mapping[str, Any] | None = None,
        step: int | str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """See `complete_step`."""
        await asyncio.to_thread(self.complete_step, workflow_id, output, step, actor=actor, reason=reason)

    async def patch_state_async(
        self,
        workflow_id: int,
        changes: Mapping[str, Any] | None = None,
        *,
        remove: Iterable[str] = (),
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """See `patch_state`."""
        await asyncio.to_thread(self.patch_state, workflow_id, changes, remove=remove, actor=actor, reason=reason)

    async def run_now_async(self, workflow_id: int, *, actor: str | None = None, reason: str | None = None) -> None:
        """See `run_now`."""
        await asyncio.to_thread(self.run_now, workflow_id, actor=actor, reason=reason)

    async def pause_workflow_async(
        self, workflow_id: int, *, actor: str | None = None, reason: str | None = None
    ) -> None:
        """See `pause_workflow`."""
        await asyncio.to_thread(self.pause_workflow, workflow_id, actor=actor, reason=reason)

    async def resume_workflow_async(
        self, workflow_id: int, *, actor: str | None = None, reason: str | None = None
    ) -> None:
        """See `resume_workflow`."""
        await asyncio.to_thread(self.resume_workflow, workflow_id, actor=actor, reason=reason)

    async def retry_workflow_async(
        self,
        workflow_id: int,
        *,
        with_state: Mapping[str, Any] | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """See `retry_workflow`."""
        await asyncio.to_thread(self.retry_workflow, workflow_id, with_state=with_state, actor=actor, reason=reason)

    async def cancel_workflow_async(
        self, workflow_id: int, *, actor: str | None = None, reason: str | None = None
    ) -> None:
        """See `cancel_workflow`."""
        await asyncio.to_thread(self.cancel_workflow, workflow_id, actor=actor, reason=reason)

    async def signal_async(
        self, workflow_id: int, name: str, data: Any = None, *, actor: str | None = None, reason: str | None = None
    ) -> None:
        """See `signal`."""
        await asyncio.to_thread(self.signal, workflow_id, name, data, actor=actor, reason=reason)

    async def approve_workflow_async(
        self,
        workflow_id: int,
        data: Any = None,
        signal_name: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """See `approve_workflow`."""
        await asyncio.to_thread(self.approve_workflow, workflow_id, data, signal_name, actor=actor, reason=reason)

    async def reject_workflow_async(
        self,
        workflow_id: int,
        data: Any = None,
        signal_name: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """See `reject_workflow`."""
        await asyncio.to_thread(self.reject_workflow, workflow_id, data, signal_name, actor=actor, reason=reason)

    async def submit_workflow_input_async(
        self,
        workflow_id: int,
        data: Any = None,
        signal_name: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> None:
        """See `submit_workflow_input`."""
        await asyncio.to_thread(self.submit_workflow_input, workflow_id, data, signal_name, actor=actor, reason=reason)

    async def put_artifact_async(
        self,
        workflow_id: int,
        key: str,
        content: Any,
        kind: str = "json",
        step_index: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """See `put_artifact`."""
        await asyncio.to_thread(self.put_artifact, workflow_id, key, content, kind, step_index, metadata)

    async def workflow_artifact_async(self, workflow_id: int, key: str) -> Artifact | None:
        """See `workflow_artifact`."""
        return await asyncio.to_thread(self.workflow_artifact, workflow_id, key)

    async def workflow_artifacts_async(self, workflow_id: int, include_content: bool = False) -> Sequence[Artifact]:
        """See `workflow_artifacts`."""
        return await asyncio.to_thread(self.workflow_artifacts, workflow_id, include_content)

    async def delete_workflow_artifact_async(self, workflow_id: int, key: str) -> None:
        """See `delete_workflow_artifact`."""
        await asyncio.to_thread(self.delete_workflow_artifact, workflow_id, key)

    async def export_workflow_async(self, workflow_id: int) -> dict[str, Json]:
        """See `export_workflow`."""
        return await asyncio.to_thread(self.export_workflow, workflow_id)

    async def export_workflow_to_file_async(
        self, workflow_id: int, path: str | os.PathLike[str], *, replace: bool = False
    ) -> None:
        """See `export_workflow_to_file`."""
        await asyncio.to_thread(self.export_workflow_to_file, workflow_id, path, replace=replace)

    async def replay_workflow_async(
        self, data: Mapping[str, Any], *, actor: str | None = None, reason: str | None = None
    ) -> int:
        """See `replay_workflow`."""
        return await asyncio.to_thread(self.replay_workflow, data, actor=actor, reason=reason)

    async def replay_workflow_from_file_async(
        self, path: str | os.PathLike[str], *, actor: str | None = None, reason: str | None = None
    ) -> int:
        """See `replay_workflow_from_file`."""
        return await asyncio.to_thread(self.replay_workflow_from_file, path, actor=actor, reason=reason)

    async def workflow_timeline_async(
        self, workflow_id: int, limit: int = 100, offset: int = 0, after_id: int | None = None
    ) -> Sequence[TimelineEvent]:
        """See `workflow_timeline`."""
        return await asyncio.to_thread(self.workflow_timeline, workflow_id, limit, offset, after_id)

    async def workflow_state_at_async(self, workflow_id: int, step_index: int | str) -> dict[str, Json] | None:
        """See `workflow_state_at`."""
        return await asyncio.to_thread(self.workflow_state_at, workflow_id, step_index)

    async def workflow_trace_async(self, workflow_id: int, states: bool = True) -> dict[str, Json]:
        """See `workflow_trace`."""
        return await asyncio.to_thread(self.workflow_trace, workflow_id, states)

    async def logs_async(
        self,
        workflow_id: int | None = None,
        job_id: int | None = None,
        handler: str | None = None,
        event: str | None = None,
        since: datetime | timedelta | float | None = None,
        limit: int = 50,
    ) -> list[LogRow]:
        """See `logs`."""
        return await asyncio.to_thread(self.logs, workflow_id, job_id, handler, event, since, limit)

    async def why_async(self, id_: int) -> Why:
        """See `why`."""
        return await asyncio.to_thread(self.why, id_)

    async def workflow_graph_async(
        self, target: int | str | WorkflowBuilder | WorkflowTemplate | Mapping[str, Any], format: str = "mermaid"
    ) -> str:
        """See `workflow_graph`."""
        return await asyncio.to_thread(self.workflow_graph, target, format)

    async def workflow_diff_async(
        self,
        name: str,
        to: str | WorkflowBuilder | None = None,
        from_: str | None = None,
        *,
        step_map: Mapping[str, str] | None = None,
        limit: int = 100,
    ) -> WorkflowDiff:
        """See `workflow_diff`."""
        return await asyncio.to_thread(self.workflow_diff, name, to, from_, step_map=step_map, limit=limit)

    async def migrate_workflow_async(
        self,
        workflow_id: int,
        to: str | WorkflowBuilder,
        step_map: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Move:
        """See `migrate_workflow`."""
        return await asyncio.to_thread(
            self.migrate_workflow, workflow_id, to, step_map, dry_run=dry_run, actor=actor, reason=reason
        )

    async def migrate_workflows_async(
        self,
        name: str,
        to: str | WorkflowBuilder,
        step_map: Mapping[str, str] | None = None,
        *,
        ids: Iterable[int] | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """See `migrate_workflows`."""
        return await asyncio.to_thread(
            self.migrate_workflows,
            name,
            to,
            step_map,
            ids=ids,
            dry_run=dry_run,
            limit=limit,
            actor=actor,
            reason=reason,
        )

    async def run_until_idle_async(
        self, queues: str | Sequence[str] | None = None, timeout: float | None = None, max_jobs: int | None = None
    ) -> int:
        """See `run_until_idle`."""
        return await asyncio.to_thread(self.run_until_idle, queues, timeout, max_jobs)

    async def recover_async(self) -> int:
        """See `recover`."""
        return await asyncio.to_thread(self.recover)

    async def purge_async(
        self,
        older_than_days: float | None = None,
        *,
        statuses: Iterable[JobStatus | str] | JobStatus | str = (JobStatus.COMPLETED,),
    ) -> int:
        """See `purge`."""
        return await asyncio.to_thread(self.purge, older_than_days, statuses=statuses)

    async def purge_workflows_async(
        self,
        older_than_days: float,
        statuses: Iterable[WorkflowStatus | str] | WorkflowStatus | str = (WorkflowStatus.COMPLETED,),
        *,
        dry_run: bool = False,
    ) -> int:
        """See `purge_workflows`."""
        return await asyncio.to_thread(self.purge_workflows, older_than_days, statuses, dry_run=dry_run)

    async def prune_history_async(self, days: float) -> int:
        """See `prune_history`."""
        return await asyncio.to_thread(self.prune_history, days)

    async def check_deadlines_async(self) -> int:
        """See `check_deadlines`."""
        return await asyncio.to_thread(self.check_deadlines)
