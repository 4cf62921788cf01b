"""Streaming steps: what their generators yield is in the database before they go on, and outlives the attempt.

A plain generator runs where plain handlers run, an asynchronous one on the event loop with its writes beside it. Where
only one of `stream` and `on_complete` is a coroutine's, the other one gets a thread of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol

from queuety import codec
from queuety.define.call import Complete, Plan
from queuety.errors import InvalidStateError, LeaseLost, PayloadError
from queuety.model import Job, Json, Role
from queuety.store import chunks
from queuety.store.door import Door, Tx
from queuety.worker import faults
from queuety.worker.aside import Aside
from queuety.worker.attempt import Attempt
from queuety.worker.inputs import Inputs

_log = logging.getLogger("queuety.worker")

Streamed = tuple[object, tuple[Json, ...]]
"""What `on_complete` gave back, and all the chunks."""


class Chunks(Protocol):
    """Where chunks are kept, numbered from 0 over all attempts of a visit."""

    def existing(self, job: Job) -> list[Json]:
        """What the visit has yielded so far, in order."""

    def append(self, job: Job, number: int, content: Json) -> None:
        """Keep a chunk and renew the lease, at once. Raises `LeaseLost`; then nothing was written."""


class StoredChunks:
    """The chunks in the database."""

    def __init__(self, door: Door, *, lease_s: float) -> None:
        self._door = door
        self._lease_us = round(lease_s * 1_000_000)

    def existing(self, job: Job) -> list[Json]:
        """What the visit has yielded so far, in order."""
        workflow_id, visit = job.workflow_id, job.visit
        if workflow_id is None or visit is None:
            return []
        return self._door.read(lambda tx: chunks.existing(tx, workflow_id, visit, job.branch))

    def append(self, job: Job, number: int, content: Json) -> None:
        """Keep a chunk and renew the lease, at once. Raises `LeaseLost`; then nothing was written."""
        text = codec.encode(content)

        def unit(tx: Tx) -> bool:
            now_us = tx.now_us()
            return chunks.append(tx, job, number, text, now_us=now_us, until_us=now_us + self._lease_us)

        if not self._door.write(unit):
            raise LeaseLost(f"attempt {job.attempt} of job {job.id} has lost its lease; chunk {number} was not kept")


class Streams:
    """Runs streaming steps. Without `kept_in` there is nowhere to keep chunks, and they fail."""

    def __init__(
        self,
        kept_in: Chunks | None,
        aside: Aside,
        inputs: Inputs,
        *,
        give_up: Callable[[Attempt], object],
        max_bytes: int,
    ) -> None:
        self._kept_in = kept_in
        self._aside = aside
        self._inputs = inputs
        self._give_up = give_up
        self._max_bytes = max_bytes

    def run(self, attempt: Attempt, plan: Plan) -> Streamed:
        """Run one whose two methods are plain. Raises what they raise."""
        stream = self._opened(attempt)
        try:
            complete = stream.drain(plan)
            return complete(stream.chunks, self._inputs.state_of(attempt.work)), stream.all
        finally:
            self._mind_loss(stream)

    async def run_async(self, attempt: Attempt, plan: Plan) -> Streamed:
        """Run one of whose two methods at least one is a coroutine's."""
        shape = plan.stream
        stream = await self._aside.short(partial(self._opened, attempt))
        try:
            if shape is not None and shape.yields_async:
                complete = await stream.drain_async(plan, self._aside)
            else:
                complete = await self._aside.long(partial(stream.drain, plan))
            end = partial(complete, stream.chunks, self._inputs.state_of(attempt.work))
            if shape is not None and shape.completes_async:
                return await end(), stream.all
            return await self._aside.long(end), stream.all
        finally:
            self._mind_loss(stream)

    def _opened(self, attempt: Attempt) -> _Stream:
        job = attempt.work.job
        if self._kept_in is None:
            raise InvalidStateError(f"{job.handler} is a streaming step, and its chunks cannot be kept here")
        if job.role is not Role.STEP:
            raise InvalidStateError(f"{job.handler} is a streaming step and runs only as a step of a workflow")
        return _Stream(attempt, self._kept_in, self._inputs.state_of(attempt.work), max_bytes=self._max_bytes)

    def _mind_loss(self, stream: _Stream) -> None:
        """Drop the attempt if a chunk was refused; not before its generator is closed: its task is cancelled by it."""
        if stream.is_lost:
            self._give_up(stream.attempt)


class _Stream:
    """One attempt's stream: its generator, and the chunks."""

    def __init__(self, attempt: Attempt, kept_in: Chunks, state: dict[str, Json], *, max_bytes: int) -> None:
        self.attempt = attempt
        self.is_lost = False  # a chunk was refused: the lease is not held any more
        self._kept_in = kept_in
        self._state = state
        self._max_bytes = max_bytes
        self._chunks = kept_in.existing(attempt.work.job)
        self._bytes = codec.size(codec.encode(self._chunks))
        self._check_size(self._bytes)

    @property
    def all(self) -> tuple[Json, ...]:
        """All chunks, in order."""
        return tuple(self._chunks)

    @property
    def chunks(self) -> list[Json]:
        """All chunks so far, a copy for the handler."""
        copied: list[Json] = codec.copy_json(self._chunks)
        return copied

    def drain(self, plan: Plan) -> Complete:
        """Keep all that a plain generator yields; what then makes the result."""
        generator, complete = plan.call(self._state, self.chunks)
        try:
            for value in _iterated(generator):
                self._keep(*self._checked(value))
        except BaseException:
            self._close(generator)
            raise
        getattr(generator, "close", _nothing)()
        self.attempt.check_held()
        found: Complete = complete
        return found

    async def drain_async(self, plan: Plan, aside: Aside) -> Complete:
        """Keep all that an asynchronous generator yields; what then makes the result."""
        generator, complete = plan.call(self._state, self.chunks)
        try:
            async for value in generator:
                chunk, size = self._checked(value)
                await aside.short(partial(self._keep, chunk, size))
        except BaseException:
            await self._close_async(generator)
            raise
        self.attempt.check_held()
        found: Complete = complete
        return found

    def _checked(self, value: object) -> tuple[Json, int]:
        """The next chunk and its bytes with what they add to the whole. Raises `PayloadError`, or `LeaseLost`."""
        self.attempt.check_held()
        chunk = codec.checked(value, what=f"chunks[{len(self._chunks)}]", max_bytes=self._max_bytes)
        size = codec.size(codec.encode(chunk)) + (1 if self._chunks else 0)
        self._check_size(self._bytes + size)
        return chunk, size

    def _keep(self, chunk: Json, size: int) -> None:
        try:
            self._kept_in.append(self.attempt.work.job, len(self._chunks), chunk)
        except LeaseLost:
            self.is_lost = True
            raise
        self._chunks.append(chunk)
        self._bytes += size

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise PayloadError(
                f"all chunks of this step together are {size:,} bytes as JSON, more than the limit of "
                f"{self._max_bytes:,} bytes; store what they hold elsewhere and yield references"
            )

    def _close(self, generator: Any) -> None:
        """Close it after something went wrong: that is what the attempt fails with, whatever closing raises."""
        try:
            getattr(generator, "close", _nothing)()
        except BaseException as error:  # noqa: BLE001 - user code
            self._tell(error)

    async def _close_async(self, generator: AsyncGenerator[object, None]) -> None:
        try:
            await generator.aclose()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - user code
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        job, reason = self.attempt.work.job, faults.message_of(error)
        _log.warning(
            "closing the stream of %s (job %d) raised %s: %s",
            job.handler,
            job.id,
            faults.type_name(type(error)),
            reason,
        )


def _iterated(generator: Any) -> Iterator[object]:
    """It, if it is an iterator. Raises `PayloadError` that says what `stream` gave back instead."""
    if hasattr(type(generator), "__next__"):
        iterator: Iterator[object] = generator
        return iterator
    kind = type(generator).__qualname__
    if inspect.iscoroutine(generator):
        generator.close()  # it would warn that nobody awaited it
    hint = _ASYNC if inspect.isawaitable(generator) or hasattr(type(generator), "__anext__") else _PLAIN
    raise PayloadError(f"stream returned a {kind}; {hint}")


def _nothing() -> None:
    """What closes an iterator that cannot be closed."""


_PLAIN: Final = "it must be a generator: yield each chunk"
_ASYNC: Final = "write it as `async def stream(…)` that yields each chunk itself"
