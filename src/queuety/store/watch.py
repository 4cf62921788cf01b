"""What a supervisor asks about its children's work. Every function works inside an open transaction; none locks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from queuety.store import leases
from queuety.store.leases import Fallen
from queuety.store.schema import LOOKED_FOR
from queuety.store.tx import Tx


@dataclass(frozen=True, slots=True)
class Running:
    """A job in a process's hand; `held` is how it would be taken over. `started_us` is when it was claimed."""

    held: Fallen
    started_us: int


def running(tx: Tx, owner: int) -> list[Running]:
    """Everything that this process has in hand, in id order."""
    held = leases.held_by(tx, owner)
    if not held:
        return []
    statements = tx.statements
    rows = statements.select_among(
        tx.cursor, ("id", "started_us"), statements.jobs, "id", sorted(one.job.id for one in held)
    )
    started = {job_id: started_us for job_id, started_us in rows if started_us is not None}
    return [
        Running(one, started[one.job.id]) for one in sorted(held, key=lambda one: one.job.id) if one.job.id in started
    ]


def count_suspects(tx: Tx, queues: Sequence[str], *, most: int) -> int:
    """How many suspects wait in these queues, as far as they are not paused; counts no further than `most`."""
    p = tx.statements.parameter
    names = list(dict.fromkeys(queues))
    # The condition of the partial index stands here word for word, see `LOOKED_FOR`.
    tx.cursor.execute(
        f"SELECT COUNT(*) FROM (SELECT 1 AS one FROM {tx.statements.jobs} WHERE phase = 'suspect' AND {LOOKED_FOR} "
        f"AND queue IN ({', '.join([p] * len(names))}) "
        f"AND queue NOT IN (SELECT name FROM {tx.tables.queues.name} WHERE paused_us IS NOT NULL) LIMIT {p}) few",
        [*names, most],
    )
    row = tx.cursor.fetchone()
    return 0 if row is None else int(row[0])
