"""What is found when a database's work is looked at, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from queuety.store.queries import Tally


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A process that runs handlers. `is_alive`: it was seen within two leases."""

    id: int
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    started_at: datetime
    seen_at: datetime
    is_alive: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in a queue to be claimed. `oldest_s`: for how many seconds the longest waiting job has been due.

    `suspects` were in hand when a process died, and wait to be run alone. `is_served`: a living worker takes from it.
    """

    queue: str
    ready: Tally
    suspects: Tally
    oldest_s: float
    is_paused: bool
    is_served: bool


@dataclass(frozen=True, slots=True)
class UnknownHandler:
    """A handler that no worker knew when it was asked to. `job_id` is one of the `jobs` that wait for it."""

    handler: str
    queue: str
    jobs: int
    job_id: int
    since_s: float
    error_message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that a person should know: what is wrong, why, and what to do.

    `severity` is `"error"` (work stands still), `"warning"` (some of it does, or will) or `"note"`.
    """

    severity: str
    what: str
    why: str
    do: str


@dataclass(frozen=True, slots=True)
class Health:
    """All that was found at `at`. Ages are in seconds; `next_due_s` is negative if it should have happened already.

    `next_due_s` is the earliest moment of a delayed job, a timer or a message; None if there is none; `next_timer_s`
    that of a timer or message alone. `due_queues` are the queues, unless paused, of delayed jobs that have come due and
    that nobody has looked at yet. `late` are delayed jobs and `late_timers` timers that came due more than a lease ago.
    `stranded` are ids of running workflows that nothing will move, `unwoken` of those that wait for others of which
    nothing more will come.
    """

    at: datetime
    revision: str | None
    needed_revision: str | None
    workers: tuple[WorkerState, ...]
    backlog: tuple[Backlog, ...]
    delayed: Tally
    next_due_s: float | None
    next_timer_s: float | None
    due_queues: tuple[str, ...]
    leased: Tally
    overdue_leases: Tally
    late: Tally
    late_timers: Tally
    unknown_handlers: tuple[UnknownHandler, ...]
    buried: Tally
    failed_workflows: Tally
    stranded: tuple[int, ...]
    unwoken: tuple[int, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def alive(self) -> tuple[WorkerState, ...]:
        """The workers that live."""
        return tuple(worker for worker in self.workers if worker.is_alive)

    @property
    def is_well(self) -> bool:
        """True if nothing is an error."""
        return all(problem.severity != "error" for problem in self.problems)
