"""What a claim of ten jobs costs with few and with very many pending ones."""

from __future__ import annotations

import secrets
import statistics
import time

from queuety import Queuety
from queuety.model import NewJob, Priority, Role
from queuety.store import claims, settle
from queuety.store.door import Tx
from queuety.store.rows import Lease

CLAIMS = 40
AT_ONCE = 10


def claim_ms(app: Queuety, *, few: int, many: int) -> tuple[float, float]:
    """Median milliseconds of the claiming transaction, its commit left out, with `few` and with `many` pending jobs."""
    _fill(app, few)
    small = _measure(app)
    _fill(app, many - few)
    return small, _measure(app)


def _fill(app: Queuety, count: int) -> None:
    door = app.door
    now_us = door.now_us()
    job = NewJob(
        role=Role.JOB,
        queue="default",
        priority=Priority.LOW,
        handler="benchmarks.flow:empty",
        max_attempts=3,
        due_us=now_us,
    )
    while count > 0:
        part = min(count, 20_000)

        def unit(tx: Tx, part: int = part) -> list[int]:
            return settle.add_jobs(tx, [job] * part, now_us=now_us)

        door.write(unit)
        count -= part


def _measure(app: Queuety) -> float:
    """Claims and takes it back, so that every claim finds the same."""
    door = app.door
    line = door.line()
    spent: list[float] = []

    class Undo(Exception):
        """Takes the claim back."""

    def unit(tx: Tx) -> None:
        began = time.perf_counter()
        lease = Lease(secrets.randbits(63), 1, door.now_us() + 30_000_000)
        claimed = claims.claim(tx, ["default"], AT_ONCE, lease, now_us=door.now_us())
        spent.append((time.perf_counter() - began) * 1000)
        assert len(claimed.jobs) == AT_ONCE
        raise Undo

    for _ in range(CLAIMS):
        try:
            door.write(unit, on=line)
        except Undo:
            continue
    line.close()
    return statistics.median(spent)
