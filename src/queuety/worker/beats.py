"""Heartbeats of handlers: the lease renewed and the progress kept, from a thread or from the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from queuety import codec
from queuety.errors import LeaseLost
from queuety.model import Job, Json
from queuety.worker.aside import Aside
from queuety.worker.attempt import Attempt


class Beats:
    """Beats for attempts. `heartbeat` writes, or raises `LeaseLost`; then the attempt is given up."""

    def __init__(
        self,
        heartbeat: Callable[[Job, Mapping[str, Json] | None], None],
        aside: Aside,
        *,
        give_up: Callable[[Attempt], object],
        max_bytes: int,
    ) -> None:
        self._heartbeat = heartbeat
        self._aside = aside
        self._give_up = give_up
        self._max_bytes = max_bytes

    def beat(self, attempt: Attempt, progress: Mapping[str, Json] | None) -> None:
        """Write here and now."""
        progress = self._checked(attempt, progress)
        try:
            self._heartbeat(attempt.work.job, progress)
        except LeaseLost:
            self._give_up(attempt)
            raise

    async def beat_async(self, attempt: Attempt, progress: Mapping[str, Json] | None) -> None:
        """Write in a thread; the progress is that of the moment of the call."""
        progress = self._checked(attempt, progress)
        try:
            await self._aside.short(partial(self._heartbeat, attempt.work.job, progress))
        except LeaseLost:
            self._give_up(attempt)
            raise

    def _checked(self, attempt: Attempt, progress: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
        attempt.check_held()
        if progress is None:
            return None
        return codec.checked_mapping(progress, what="progress", max_bytes=self._max_bytes)
