"""What a running handler can ask about itself: `current()`.

It travels in a context variable, so tasks see it, and so do threads that are started in a copy of the context
(`asyncio.to_thread`, `contextvars.copy_context().run`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from queuety.errors import InvalidStateError
from queuety.model import Json, Role
from queuety.worker.outcome import Work


class Attempting(Protocol):
    """What the context reads of the attempt that it belongs to."""

    @property
    def work(self) -> Work:
        """What is being run."""

    @property
    def is_cancelled(self) -> bool:
        """True once the attempt should stop."""

    def beat(self, progress: Mapping[str, Json] | None) -> None:
        """Renew the lease and keep the progress. Raises `LeaseLost`, and `PayloadError` if it is not JSON."""

    async def beat_async(self, progress: Mapping[str, Json] | None) -> None:
        """The same, without blocking the event loop."""


class Context:
    """The running attempt, as its handler sees it."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempting) -> None:
        self._attempt = attempt

    @property
    def workflow_id(self) -> int | None:
        """The run that the handler works for; None in a plain job."""
        return self._attempt.work.job.workflow_id

    @property
    def job_id(self) -> int:
        """The job; the same for every attempt of it."""
        return self._attempt.work.job.id

    @property
    def step_index(self) -> int | None:
        """The 0-based step; None in a plain job."""
        return self._attempt.work.job.step_index

    @property
    def step_name(self) -> str | None:
        """The step's name; None in a plain job."""
        return self._attempt.work.step_name

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._attempt.work.job.attempt

    @property
    def iteration(self) -> int | None:
        """The round of the repeat that the step stands in; None outside one."""
        return self._attempt.work.iteration

    @property
    def item_index(self) -> int | None:
        """Which item of a for-each step, or which of the parallel handlers, this is, from 0; None elsewhere."""
        return self._attempt.work.job.branch

    @property
    def idempotency_key(self) -> str:
        """The same text for every attempt of this visit to this step, and for nothing else in this database."""
        job = self._attempt.work.job
        if job.workflow_id is None:
            return str(job.id)
        role = None if job.role is Role.STEP else job.role.value
        parts = (job.workflow_id, role, job.step_index, job.visit, job.branch)
        return "-".join(str(part) for part in parts if part is not None)

    @property
    def cancelled(self) -> bool:
        """True once the attempt should stop: it is over its time limit, its lease is lost, or the worker ends."""
        return self._attempt.is_cancelled

    def heartbeat(self, progress: Mapping[str, Json] | None = None) -> None:
        """Renew the lease now and keep `progress` (a mapping of JSON) with the job, where `job_status` shows it.

        It waits for the database: in an `async def` handler, where that would hold up all others, use
        `heartbeat_async`. Raises `LeaseLost` if the attempt no longer owns its job: stop then, nothing of it will be
        kept. Raises `PayloadError` if the progress is not JSON.
        """
        self._attempt.beat(progress)

    async def heartbeat_async(self, progress: Mapping[str, Json] | None = None) -> None:
        """`heartbeat` for `async def` handlers: `await current().heartbeat_async(…)` lets others run meanwhile."""
        await self._attempt.beat_async(progress)

    def __repr__(self) -> str:
        job = self._attempt.work.job
        return f"<Context job {job.id}, attempt {job.attempt}, handler {job.handler}>"


_running: ContextVar[Context] = ContextVar("queuety_context")


def current() -> Context:
    """The context of the handler that is running here. Raises `InvalidStateError` outside one."""
    context = _running.get(None)
    if context is None:
        raise InvalidStateError(
            "current() was called where no handler runs; a thread that a handler starts sees it only in a copy of the "
            "handler's context (asyncio.to_thread, contextvars.copy_context().run)"
        )
    return context


def enter(context: Context) -> None:
    """Make `context` the current one for what runs in the present `contextvars.Context`."""
    _running.set(context)
