"""Leases that have ended, and what a dead process held. Every function works inside an open transaction.

Attempts are counted at the claim, and one of the jobs that a dead process held may have killed it. If it held one
alone, that one pays its attempt; if it held several, all become suspects at no cost, and each will run alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from queuety.model import Job, JobPhase
from queuety.store import claims
from queuety.store.door import Tx
from queuety.store.rows import claimed_from_row
from queuety.store.statements import CLAIM_COLUMNS

_log = logging.getLogger("queuety.worker")


@dataclass(frozen=True, slots=True)
class Fallen:
    """A job whose holder is gone. `was_alone`: the holder held nothing else."""

    job: Job
    owner: int
    was_alone: bool
    started_us: int


def ended(tx: Tx, *, now_us: int, limit: int) -> list[Fallen]:
    """Jobs whose lease has ended, longest ago first; nothing is locked, so `take_over` asks again."""
    p = tx.statements.parameter
    rows = _leased(tx, f"wake_us < {p} AND wake_us IS NOT NULL", f" ORDER BY wake_us LIMIT {p}", [now_us, limit])
    return _judged(tx, rows)


def held_by(tx: Tx, owner: int) -> list[Fallen]:
    """Everything that this process holds, its lease ended or not."""
    return _judged(tx, _leased(tx, f"owner = {tx.statements.parameter} AND wake_us IS NOT NULL", "", [owner]))


def _leased(tx: Tx, condition: str, tail: str, parameters: Sequence[Any]) -> list[Sequence[Any]]:
    columns = (*CLAIM_COLUMNS, "started_us", "suspect", "token", "owner")
    tx.cursor.execute(
        f"SELECT {', '.join(columns)} FROM {tx.statements.jobs} WHERE {condition} AND phase = 'leased'{tail}",
        list(parameters),
    )
    return list(tx.cursor.fetchall())


def _judged(tx: Tx, rows: Iterable[Sequence[Any]]) -> list[Fallen]:
    rows = list(rows)
    owners = sorted({row[-1] for row in rows})
    if not owners:
        return []
    counts = dict(
        tx.statements.select_among(
            tx.cursor,
            ("owner", "COUNT(*)"),
            tx.statements.jobs,
            "owner",
            owners,
            " AND wake_us IS NOT NULL AND phase = 'leased' GROUP BY owner",
        )
    )
    fallen = []
    for row in rows:
        *columns, started_us, suspect, token, owner = row
        try:
            job = claimed_from_row(columns, token)
        except (ValueError, TypeError, LookupError) as error:
            _log.warning("job %s is left for a newer version of queuety, which can read it: %s", row[0], error)
            continue
        # The row already counts the attempt that was cut short.
        job = replace(job, attempt=job.attempt - 1)
        was_alone = counts.get(owner, 1) == 1 and not suspect
        fallen.append(Fallen(job, owner, was_alone, started_us))
    return fallen


def suspect(tx: Tx, fallen: Sequence[Fallen], *, ended_by_us: int | None) -> int:
    """Puts these jobs back as suspects at no cost, if they are still held as they were seen; says how many.

    With `ended_by_us` only those whose lease had ended by then. What else their holders hold is marked, so that a later
    end of those leases does not look like a death alone.
    """
    statements = tx.statements
    held = [(one.job.id, one.job.token) for one in fallen]
    count = claims.give_back(tx, held, phase=JobPhase.SUSPECT, ended_by_us=ended_by_us)
    for owner in sorted({one.owner for one in fallen}):
        rest = [one.job.id for one in held_by(tx, owner)]
        if rest:
            statements.change_among(tx.cursor, f"UPDATE {statements.jobs} SET suspect = 1", "id", rest)
    return count


def take_over(tx: Tx, fallen: Fallen, token: int, *, now_us: int, ended_by_us: int | None) -> Job | None:
    """The job under a new token, so that nobody else can settle it any more; None if it is not held as it was seen."""
    p = tx.statements.parameter
    still, more = claims.ended_by(p, ended_by_us)
    tx.cursor.execute(
        f"UPDATE {tx.statements.jobs} SET token = {p}, wake_us = {p} "
        f"WHERE id = {p} AND token = {p} AND phase = 'leased'{still}",
        [token, now_us, fallen.job.id, fallen.job.token, *more],
    )
    return replace(fallen.job, token=token) if int(tx.cursor.rowcount) == 1 else None
