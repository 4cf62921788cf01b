"""One try of one job, from the moment it is in hand until its code has returned."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final, Protocol

from queuety.define.call import Plan
from queuety.errors import LeaseLost
from queuety.model import Json, Span
from queuety.worker.outcome import Outcome, Work
from queuety.worker.traces import Trace

_NOT_STARTED: Final = -1.0
_FIRST_NOTE: Final = Lock()
"""Held while a `Trace` is made: few attempts want one, and each of a handler's threads may be the first."""


class Pulse(Protocol):
    """What renews the leases of attempts."""

    def beat(self, attempt: Attempt, progress: Mapping[str, Json] | None, /) -> None:
        """Renew the lease and keep the progress. Raises `LeaseLost`, and `PayloadError` if it is not JSON."""

    async def beat_async(self, attempt: Attempt, progress: Mapping[str, Json] | None, /) -> None:
        """The same, without blocking the event loop."""


class Shelves(Protocol):
    """What keeps the artifacts of attempts. Both raise `LeaseLost`, and `InvalidStateError` in a plain job."""

    def put(self, attempt: Attempt, key: str, content: Any, kind: str, metadata: Mapping[str, Any] | None, /) -> None:
        """Keep an artifact now. Raises `PayloadError` or `DefinitionError` for one that cannot be kept."""

    async def put_async(
        self, attempt: Attempt, key: str, content: Any, kind: str, metadata: Mapping[str, Any] | None, /
    ) -> None:
        """The same, without blocking the event loop."""


class Attempt:
    """What the executor knows of a try. Its flags change under the executor's lock only."""

    __slots__ = (
        "_pulse",
        "_shelf",
        "_trace_bytes",
        "has_ended",
        "has_slot",
        "is_cancelled",
        "is_late",
        "is_settled",
        "is_told",
        "on_drop",
        "plan",
        "report",
        "started_s",
        "started_us",
        "trace",
        "work",
    )

    def __init__(
        self,
        work: Work,
        *,
        report: Callable[[Outcome], object],
        pulse: Pulse,
        shelf: Shelves,
        trace_bytes: int,
    ) -> None:
        self.work = work
        self.report = report
        self.on_drop: Callable[[], object] | None = None
        self._pulse = pulse
        self._shelf = shelf
        self._trace_bytes = trace_bytes
        self.trace: Trace | None = None
        self.plan: Plan | None = None
        self.started_us = 0
        self.started_s = _NOT_STARTED
        self.has_slot = True  # counts against the concurrency
        self.is_settled = False  # its outcome has been reported, or never will be
        self.is_cancelled = False  # its code should stop
        self.is_late = False  # its time limit has passed
        self.is_told = False  # its task has been asked to stop
        self.has_ended = False  # its code has returned, or never began

    @property
    def has_started(self) -> bool:
        """True once its code may be running."""
        return self.started_s != _NOT_STARTED

    def start(self, now_us: int) -> None:
        """Start its time; `now_us` is the database's."""
        self.started_us = now_us
        self.started_s = time.monotonic()

    def tell(self) -> None:
        """Note that its task has been asked to stop."""
        self.is_told = True

    def span(self, owner: int) -> Span:
        """From its start to now, the duration by the monotonic clock: the host's clock may jump meanwhile."""
        lasted_s = time.monotonic() - self.started_s if self.has_started else 0.0
        return Span(self.started_us, self.started_us + round(lasted_s * 1_000_000), owner)

    def beat(self, progress: Mapping[str, Json] | None) -> None:
        """Renew the lease and keep the progress. Raises `LeaseLost`, and `PayloadError` if it is not JSON."""
        self._pulse.beat(self, progress)

    async def beat_async(self, progress: Mapping[str, Json] | None) -> None:
        """The same, without blocking the event loop."""
        await self._pulse.beat_async(self, progress)

    def note(self, parts: Mapping[str, Any]) -> None:
        """Merge mappings into what the handler notes for the history. Raises `PayloadError`; then nothing was noted."""
        with _FIRST_NOTE:
            self.trace = trace = self.trace or Trace()
        trace.add(parts, max_bytes=self._trace_bytes)

    def put(self, key: str, content: Any, kind: str, metadata: Mapping[str, Any] | None) -> None:
        """Keep an artifact of the run at once. Raises as `Shelves.put`."""
        self._shelf.put(self, key, content, kind, metadata)

    async def put_async(self, key: str, content: Any, kind: str, metadata: Mapping[str, Any] | None) -> None:
        """The same, without blocking the event loop."""
        await self._shelf.put_async(self, key, content, kind, metadata)

    def check_held(self) -> None:
        """Raises `LeaseLost` if nothing of it will be kept any more."""
        if self.is_settled or self.is_cancelled:
            job = self.work.job
            raise LeaseLost(f"attempt {job.attempt} of job {job.id} has ended or was given up; nothing of it is kept")
