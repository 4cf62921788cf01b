"""What a running handler can ask about itself: `current()`.

It travels in a context variable, so tasks see it, and so do threads that are started in a copy of the context
(`asyncio.to_thread`, `contextvars.copy_context().run`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

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

    def note(self, parts: Mapping[str, Any]) -> None:
        """Merge mappings into what is noted for the history. Raises `PayloadError`; then nothing was noted."""

    def put(self, key: str, content: Any, kind: str, metadata: Mapping[str, Any] | None) -> None:
        """Keep an artifact of the run at once."""

    async def put_async(self, key: str, content: Any, kind: str, metadata: Mapping[str, Any] | None) -> None:
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
        """The 0-based step, in a compensation the one that it undoes; None where there is no step."""
        return self._attempt.work.job.step_index

    @property
    def step_name(self) -> str | None:
        """The step's name; None where there is no step."""
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
        if job.role is Role.STEP:
            # The visit says which step: its place may change while the run is moved to another definition.
            parts: tuple[object, ...] = (job.workflow_id, job.visit, job.branch)
        else:
            # A step of a loop is undone once for each time that it was done; a failed run may be cancelled as well.
            what = job.payload or {}
            parts = (job.workflow_id, job.role.value, job.step_index, job.visit, what.get("seq"), what.get("handler"))
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

    def trace(
        self,
        *,
        input: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Note mappings of JSON for the history of this attempt: the timeline shows them, the state never has them.

        Several calls are merged key by key; nothing is written before the attempt ends, well or not. Raises
        `PayloadError` for what is no mapping of JSON, or if it were more than a value may take; nothing of the call is
        noted then.
        """
        self._attempt.note({"input": input, "output": output, "context": context})

    def put_artifact(
        self, key: str, content: Any, kind: str = "json", metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Keep something beside the state, under a key of the run; what it had under that key is replaced.

        Of the kind `json` the content is any JSON value, of any other kind text or bytes, of `binary` bytes. It is
        written now, in a transaction of its own, and stays if the attempt fails. It waits for the database: in an
        `async def` handler use `put_artifact_async`. Raises `LeaseLost` if the attempt no longer owns its job,
        `InvalidStateError` in a plain job, `DefinitionError` for a blank key or kind, `PayloadError` for content that
        does not fit the kind or is too large; nothing is written then.
        """
        self._attempt.put(key, content, kind, metadata)

    async def put_artifact_async(
        self, key: str, content: Any, kind: str = "json", metadata: Mapping[str, Any] | None = None
    ) -> None:
        """`put_artifact` for `async def` handlers: others run meanwhile."""
        await self._attempt.put_async(key, content, kind, metadata)

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
