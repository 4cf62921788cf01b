"""What stands in each queue, and who takes from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from queuety.inspect.limits import checked_text
from queuety.inspect.report import WorkerState
from queuety.model import JobPhase
from queuety.store.queries import jobs
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class QueueState:
    """How many jobs of a queue stand where.

    `ready` may be claimed now, `delayed` are not due yet, `suspects` were in hand when a process died and wait to be
    run alone. `workers` is how many living processes take from it.
    """

    queue: str
    ready: int
    delayed: int
    suspects: int
    processing: int
    buried: int
    workers: int
    is_paused: bool


def queue_states(
    connection: Connection, tables: Tables, workers: Iterable[WorkerState], *, queue: str | None = None
) -> list[QueueState]:
    """Each queue that has an open or buried job, is paused or has a living worker, in order of their names.

    With `queue` that one only, whether it has anything or not. Reads every job that is kept. Raises
    `DefinitionError` for what can be no queue.
    """
    if queue is not None:
        checked_text(queue, what="queue")
    counts: dict[str, Counter[str]] = {}
    for name, phase, count in jobs.counts(connection, tables, queue=queue):
        if phase != JobPhase.COMPLETED:
            counts.setdefault(name, Counter())[phase] += count
    paused = jobs.paused(connection, tables)
    served = Counter(name for worker in workers if worker.is_alive for name in worker.queues)
    names = [queue] if queue is not None else sorted(counts.keys() | paused.keys() | served.keys())
    return [
        QueueState(
            queue=name,
            ready=found[JobPhase.READY],
            delayed=found[JobPhase.DELAYED],
            suspects=found[JobPhase.SUSPECT],
            processing=found[JobPhase.LEASED],
            buried=found[JobPhase.BURIED],
            workers=served[name],
            is_paused=name in paused,
        )
        for name in names
        for found in (counts.get(name, Counter()),)
    ]
