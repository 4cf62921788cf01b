"""The answer to why something is not running, and what all answers look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from queuety.inspect.health import registered
from queuety.inspect.report import WorkerState
from queuety.inspect.why import words
from queuety.model import Json
from queuety.store.queries import jobs
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class Why:
    """Why a workflow or a job is not running, or that it is.

    `kind` is `"workflow"` or `"job"`, `status` its status. `answer` is a sentence or two for people. `details` is JSON:
    what the answer rests on, times in ISO 8601; `because` there is another answer in the same form, of the child, the
    dependency or the job that this one waits for. `reason` is one word for machines:

    of both `completed`, `failed`, `running`; of jobs `ready` (it waits its turn), `queue_paused`, `no_worker`,
    `delayed`, `due`, `backing_off`, `handler_unknown`, `suspect`, `holder_not_seen`, `lease_ended`; of workflows
    `cancelled`, `cleaning_up`, `awaits_child`, `paused`, `waiting_for_signal`, `waiting_for_workflows`, `not_told`
    (what it waits for is decided, and the message lost), `in_circle` (only nested), `child`, `step`,
    `fan_out`, `delayed`, `continuing`, `letter_overdue`, `kind_unknown`, `definition_missing`, `stranded`.
    """

    id: int
    kind: str
    status: str
    reason: str
    answer: str
    details: dict[str, Json] = field(default_factory=dict)

    def nested(self) -> dict[str, Json]:
        """The answer as JSON, for the details of another one."""
        return {
            "id": self.id,
            "kind": self.kind,
            "status": self.status,
            "reason": self.reason,
            "answer": self.answer,
            "details": self.details,
        }


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a queue's jobs from being taken."""

    reason: str
    answer: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Look:
    """One look at the database at one moment. `now_us` is the time by the database's clock."""

    connection: Connection
    tables: Tables
    now_us: int
    lease_s: float

    @cached_property
    def workers(self) -> tuple[WorkerState, ...]:
        """The processes that run handlers, or did until lately."""
        return registered(self.connection, self.tables, now_us=self.now_us, lease_s=self.lease_s)

    @cached_property
    def paused(self) -> dict[str, int]:
        """Since when each paused queue has been paused."""
        return jobs.paused(self.connection, self.tables)

    def servers(self, queue: str) -> list[WorkerState]:
        """The living processes that take from this queue."""
        return [worker for worker in self.workers if worker.is_alive and queue in worker.queues]

    def obstacle(self, queue: str) -> Obstacle | None:
        """Why nobody takes from this queue; None if somebody does."""
        if queue in self.paused:
            paused = words.since(self.paused[queue], self.now_us)
            return Obstacle(
                "queue_paused",
                f"Queue {queue!r} has been paused {paused}; `queuety resume {queue}` has workers take from it again.",
                {"queue": queue, "paused_at": words.iso(self.paused[queue])},
            )
        if not self.servers(queue):
            alive = [worker for worker in self.workers if worker.is_alive]
            others = f", only from {words.listed(_queues(alive))}" if alive else ""
            return Obstacle(
                "no_worker",
                f"No living worker takes from queue {queue!r}{others}; start one: `queuety work --queue {queue}`.",
                {"queue": queue, "workers": len(alive)},
            )
        return None

    def when(self, us: int) -> str:
        """The moment as seen from now, and exactly."""
        return words.when(us, self.now_us)

    def since(self, us: int) -> str:
        """For how long already, and since when exactly."""
        return words.since(us, self.now_us)


def _queues(workers: list[WorkerState]) -> list[str]:
    return sorted({repr(queue) for worker in workers for queue in worker.queues})
