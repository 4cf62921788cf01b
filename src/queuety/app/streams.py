"""Verbs that follow what a run yields."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from queuety.app.core import Core, checked_timeout, known_id
from queuety.app.workflows import WAIT_PAUSE_S
from queuety.errors import NotFoundError, WaitTimeout
from queuety.inspect.streams import Reader
from queuety.model import Json


class StreamVerbs(Core):
    """What can be followed while it happens."""

    def workflow_stream(self, workflow_id: int, *, timeout: float | None = None) -> Iterator[Json]:
        """Every chunk that the run's streaming steps have yielded so far, in order, then each as it comes.

        It ends when the run has ended, and waits as long as the run does: for workers, delays and people. It may be
        another process that runs it; nothing is run here. Branches of a step yield side by side. Raises `NotFoundError`
        for an unknown id, `WaitTimeout` once `timeout` seconds have passed without a chunk.
        """
        follower = _Follower(self, workflow_id, timeout)
        first = follower.look()
        return self._followed(follower, first)

    def _followed(self, follower: _Follower, chunks: list[Json]) -> Iterator[Json]:
        while True:
            for chunk in chunks:
                yield chunk
                follower.rest()
            if follower.has_ended:
                return
            self._bell.wait(follower.pause_s())
            chunks = follower.look()

    async def workflow_stream_async(self, workflow_id: int, *, timeout: float | None = None) -> AsyncIterator[Json]:  # noqa: ASYNC109
        """See `workflow_stream`; what it raises at once, this raises at the first step of the loop."""
        follower = _Follower(self, workflow_id, timeout)
        while True:
            for chunk in await asyncio.to_thread(follower.look):
                yield chunk
                follower.rest()
            if follower.has_ended:
                return
            await asyncio.sleep(follower.pause_s())


class _Follower:
    """One reader of one run, and how long it has waited."""

    def __init__(self, verbs: Core, workflow_id: Any, timeout: float | None) -> None:
        if known_id(workflow_id, "workflow_id") is None:
            raise _unknown(workflow_id)
        self._door = verbs.door
        self._reader = Reader(workflow_id)
        self._timeout_s = checked_timeout(timeout)
        self._since = time.monotonic()
        self._next_s = WAIT_PAUSE_S[0]

    @property
    def has_ended(self) -> bool:
        return self._reader.has_ended

    def look(self) -> list[Json]:
        """What has come since the last look. Raises `NotFoundError` if the run is not there, or not any more."""
        with self._door.reading() as connection:
            chunks = self._reader.read(connection, self._door.tables)
        if chunks is None:
            raise _unknown(self._reader.workflow_id)
        if chunks:
            self.rest()
            self._next_s = WAIT_PAUSE_S[0]
        return chunks

    def rest(self) -> None:
        """Starts the waiting anew: the time that somebody takes over a chunk is not waited."""
        self._since = time.monotonic()

    def pause_s(self) -> float:
        """How long to pause before the next look. Raises `WaitTimeout` if nothing has come for too long."""
        pause_s = self._next_s
        self._next_s = min(pause_s * 1.5, WAIT_PAUSE_S[1])
        if self._timeout_s is None:
            return pause_s
        left_s = self._since + self._timeout_s - time.monotonic()
        if left_s <= 0:
            workflow_id = self._reader.workflow_id
            raise WaitTimeout(
                f"workflow {workflow_id} has yielded nothing for {self._timeout_s:g} s and has not ended; wait longer, "
                f"or see what `queuety why {workflow_id}` says"
            )
        return min(pause_s, left_s)


def _unknown(workflow_id: int) -> NotFoundError:
    return NotFoundError(f"no workflow has the id {workflow_id}")
