"""Verbs of plain jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from queuety.app.core import Core, known_id
from queuety.commands.dispatch import add_jobs
from queuety.define.builder import WorkflowBuilder
from queuety.define.options import merged, read_attempts, read_priority, read_queue, read_seconds
from queuety.define.payloads import JobRequest, job_request
from queuety.errors import DefinitionError
from queuety.inspect import jobs
from queuety.inspect.states import JobState
from queuety.model import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, JobStatus, NewJob, Options, Priority, Role
from queuety.store import claims
from queuety.store.door import Tx

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session, scoped_session


class JobVerbs(Core):
    """What can be done with plain jobs."""

    def dispatch(
        self,
        handler: Any,
        payload: Any = None,
        *,
        queue: str | None = None,
        priority: Priority | int | str | None = None,
        delay: float | None = None,
        max_attempts: int | None = None,
        connection: Connection | Session | scoped_session[Session] | None = None,
    ) -> int:
        """Adds a job and gives back its id. What the call says wins over what the handler says.

        `handler` is a function marked with `@job`, a `Job` class or instance, or a registered alias; `delay` is in
        seconds. With `connection` the job is part of the caller's own transaction. Raises `DefinitionError` for what is
        no job, `PayloadError` for a payload that is not JSON or does not fit the handler; nothing is written then.
        """
        if isinstance(handler, WorkflowBuilder):
            raise DefinitionError(f"{handler!r} is no job; start it with app.dispatch_workflow(builder, payload)")
        request = job_request(self.registry, handler, payload, max_bytes=self.settings.max_value_bytes)
        own = Options(
            queue=None if queue is None else read_queue(queue, "queue"),
            priority=None if priority is None else read_priority(priority, "priority"),
            max_attempts=None if max_attempts is None else read_attempts(max_attempts, "max_attempts"),
            delay_s=None if delay is None else read_seconds(delay, "delay"),
        )
        request = replace(request, options=merged(own, request.options))
        if connection is not None:
            with self._joined(connection) as tx:
                now_us = tx.now_us()
                return add_jobs(tx, [_new_job(request, now_us)], now_us=now_us)[0]
        made: list[tuple[int, int]] = []

        def unit(tx: Tx) -> int:
            now_us = tx.now_us()
            (job_id,) = add_jobs(tx, [_new_job(request, now_us)], now_us=now_us)
            made[:] = [(job_id, now_us)]
            return job_id

        def landed(tx: Tx) -> int | None:
            return made[0][0] if made and claims.was_added(tx, *made[0]) else None

        return self._write(unit, landed=landed)

    def job_status(self, job_id: int) -> JobState | None:
        """The job as it is now, or None for an unknown id."""
        if known_id(job_id, "job_id") is None:
            return None
        with self.door.reading() as connection:
            return jobs.job_status(connection, self._door.tables, job_id)

    def list_jobs(
        self,
        queue: str | None = None,
        status: JobStatus | str | Collection[JobStatus | str] | None = None,
        workflow_id: int | None = None,
        cleanup: bool = False,
        limit: int = 50,
    ) -> list[JobState]:
        """Jobs, newest first, at most `limit`; those that clean up after a run only with `cleanup`.

        Of several statuses a job has any.
        """
        if workflow_id is not None and known_id(workflow_id, "workflow_id") is None:
            return []
        with self.door.reading() as connection:
            return jobs.list_jobs(
                connection,
                self._door.tables,
                queue=queue,
                status=status,
                workflow_id=workflow_id,
                cleanup=cleanup,
                limit=limit,
            )


def _new_job(request: JobRequest, now_us: int) -> NewJob:
    options = request.options
    return NewJob(
        role=Role.JOB,
        queue=options.queue or DEFAULT_QUEUE,
        priority=Priority.LOW if options.priority is None else options.priority,
        handler=request.handler.name,
        max_attempts=options.max_attempts or DEFAULT_MAX_ATTEMPTS,
        due_us=now_us + round((options.delay_s or 0) * 1_000_000),
        payload=request.payload,
        config=request.handler.config,
        options=options,
    )
