"""How a database's work is getting on: what stands where, who is there to do it, and what is stuck and why.

Counts of what may be endless end at a cap, so that a look costs the same on a large database. What follows from the
numbers is said in `problems`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from queuety.codec import decode
from queuety.inspect import stuck
from queuety.inspect.problems import problems_of
from queuety.inspect.report import Backlog, Health, UnknownHandler, WorkerState
from queuety.inspect.states import moment
from queuety.model import JobPhase
from queuety.store.queries import Record, health, jobs
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

CAP: Final = 10_000
"""How far anything is counted, and how many workflows are looked at for having nothing outstanding."""


SHOWN: Final = 20
"""How many examples of a thing are named, and how many queues are looked at one by one."""

WORKERS_SHOWN: Final = 1_000

_HORIZON_LEASES: Final = 20
"""How many leases ahead leased and put-off jobs are looked for; nothing is leased for longer than one."""


def examine(
    connection: Connection,
    tables: Tables,
    *,
    now_us: int,
    lease_s: float,
    revision: str | None = None,
    needed_revision: str | None = None,
) -> Health:
    """What was found, with what follows from it in `problems`, the worst first.

    `now_us` is the time by the database's clock. The tables must be readable: whoever finds their revision
    (`migrate.standing`) other than it should be asks `problems.of_schema` instead.
    """
    lease_us = round(lease_s * 1_000_000)
    workers = registered(connection, tables, now_us=now_us, lease_s=lease_s)
    paused = jobs.paused(connection, tables)
    horizon_us = now_us + _HORIZON_LEASES * lease_us
    soon = health.soon(connection, tables, until_us=horizon_us, overdue_us=now_us - lease_us, cap=CAP)
    unknown = health.unknown(connection, tables, until_us=horizon_us, cap=CAP, limit=SHOWN)
    timer_us = health.next_timer(connection, tables)
    moments = (health.next_delayed(connection, tables), timer_us)
    next_us = min((us for us in moments if us is not None), default=None)
    due_queues = health.late_queues(connection, tables, before_us=now_us, cap=CAP, limit=SHOWN)
    found = Health(
        at=moment(now_us),
        revision=revision,
        needed_revision=needed_revision,
        workers=workers,
        backlog=_backlog(connection, tables, paused, workers, now_us=now_us),
        delayed=health.delayed(connection, tables, cap=CAP),
        next_due_s=None if next_us is None else (next_us - now_us) / 1_000_000,
        next_timer_s=None if timer_us is None else (timer_us - now_us) / 1_000_000,
        due_queues=tuple(queue for queue in due_queues if queue not in paused),
        leased=soon.leased,
        overdue_leases=soon.overdue,
        late=soon.late,
        late_timers=health.overdue_timers(connection, tables, before_us=now_us - lease_us, cap=CAP),
        unknown_handlers=tuple(_unknown(row, now_us=now_us) for row in unknown),
        buried=health.buried(connection, tables, cap=CAP),
        failed_workflows=health.failed(connection, tables, cap=CAP),
        stranded=tuple(stuck.stranded(connection, tables, among=CAP, limit=SHOWN)),
        unwoken=tuple(stuck.unwoken(connection, tables, among=CAP, limit=SHOWN)),
    )
    return replace(found, problems=problems_of(found, lease_s=lease_s))


def registered(connection: Connection, tables: Tables, *, now_us: int, lease_s: float) -> tuple[WorkerState, ...]:
    """The processes that run handlers, or did until lately; the last seen first."""
    alive_since_us = now_us - 2 * round(lease_s * 1_000_000)
    return tuple(
        WorkerState(
            id=row["id"],
            host=row["host"],
            pid=row["pid"],
            queues=tuple(decode(row["queues"])),
            concurrency=row["concurrency"],
            started_at=moment(row["started_us"]),
            seen_at=moment(row["seen_us"]),
            is_alive=row["seen_us"] >= alive_since_us,
        )
        for row in health.workers(connection, tables, limit=WORKERS_SHOWN)
    )


def _backlog(
    connection: Connection, tables: Tables, paused: Iterable[str], workers: Iterable[WorkerState], *, now_us: int
) -> tuple[Backlog, ...]:
    served = {queue for worker in workers if worker.is_alive for queue in worker.queues}
    ready = health.queues_in_phase(connection, tables, JobPhase.READY, limit=SHOWN)
    suspect = health.queues_in_phase(connection, tables, JobPhase.SUSPECT, limit=SHOWN)
    waiting = []
    for queue in sorted({*ready, *suspect}):
        due_us = [health.earliest_due(connection, tables, phase, queue) for phase in (JobPhase.READY, JobPhase.SUSPECT)]
        waiting.append(
            Backlog(
                queue=queue,
                ready=health.in_phase(connection, tables, JobPhase.READY, queue, cap=CAP),
                suspects=health.in_phase(connection, tables, JobPhase.SUSPECT, queue, cap=CAP),
                oldest_s=(now_us - min((us for us in due_us if us is not None), default=now_us)) / 1_000_000,
                is_paused=queue in paused,
                is_served=queue in served,
            )
        )
    return tuple(waiting)


def _unknown(row: Record, *, now_us: int) -> UnknownHandler:
    return UnknownHandler(
        handler=row["handler"],
        queue=row["queue"],
        jobs=row["jobs"],
        job_id=row["job_id"],
        since_s=(now_us - row["since_us"]) / 1_000_000,
        error_message=row["error_message"] or "",
    )
