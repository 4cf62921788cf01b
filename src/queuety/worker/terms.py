"""What a worker is told of how to work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from queuety.worker.works import Defaults


@dataclass(frozen=True, slots=True)
class Terms:
    """How a worker works; `queues` in strict order, times in seconds (`timeout_s`: of a handler that names none).

    After `retention_days` what is over is deleted, after `history_days` what happened; None keeps it.
    """

    queues: Sequence[str]
    concurrency: int
    lease_s: float = 30.0
    idle_poll_s: float = 1.0
    grace_s: float = 30.0
    handler_grace_s: float = 3600.0
    timeout_s: float | None = 3600.0
    jitter: float = 0.1
    max_value_bytes: int | None = None
    retention_days: float | None = None
    history_days: float | None = None
    is_supervised: bool = False
    takes_suspects_only: bool = False

    @property
    def defaults(self) -> Defaults:
        """What holds for every job of this worker."""
        return Defaults(self.timeout_s, self.jitter, round(self.handler_grace_s * 1_000_000), self.max_value_bytes)
