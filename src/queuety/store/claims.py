"""Taking jobs: the claim, the lease, and what gives jobs back. Every function works inside an open transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queuety.model import Job, JobPhase, NewJob
from queuety.store.door import Tx
from queuety.store.rows import TOP_RANK, Lease, claimed_from_new, claimed_from_row, job_row
from queuety.store.schema import LOOKED_FOR

UNREADABLE_US = 15_000_000
"""How long a job that this version cannot read is put off."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one transaction claims: jobs to run, the rows of the jobs that it adds, and how many of those stay ready."""

    jobs: tuple[Job, ...]
    new_rows: tuple[tuple[Any, ...], ...]
    left_ready: int


def claim(
    tx: Tx,
    queues: Sequence[str] | None,
    limit: int,
    lease: Lease,
    *,
    now_us: int,
    new: Sequence[tuple[int, NewJob]] = (),
    paused: Collection[str] = (),
) -> Claimed:
    """Leases the first `limit` jobs of these queues, in claim order: queue as listed, priority, due time, id.

    Without `queues`, of all queues alike; that reads all ready rows, and is for scripts and tests.

    Jobs that this very transaction adds (`new`, with their ids) compete with those that are there; the winners' rows
    are born leased, which spares a second write of each.
    """
    place = _places(tx, queues, paused)
    contenders: list[tuple[tuple[int, int, int, int], Sequence[Any] | None, NewJob | None]] = []
    for job_id, job in new:
        if job.due_us <= now_us and (number_of := _place_of(job.queue, place, queues, paused)) is not None:
            key = (number_of, TOP_RANK - job.priority, job.due_us, job_id)
            contenders.append((key, None, job))
    wanted = limit
    for queue, number in place.items():
        if wanted <= 0:
            break
        tx.cursor.execute(tx.statements.claim_ready, [queue, wanted])
        rows = tx.cursor.fetchall()
        contenders.extend(((number, row[3], row[7], row[0]), row, None) for row in rows)
        if queues is not None:
            wanted -= len(rows)
    contenders.sort(key=lambda contender: contender[0])
    winners = contenders[: max(limit, 0)]
    taken = [row[0] for _, row, _ in winners if row is not None]
    if taken:
        hold(tx, taken, lease, now_us=now_us)
    jobs: list[Job] = []
    born_leased: set[int] = set()
    for (*_, job_id), row, added in winners:
        if row is not None:
            readable = _readable(tx, row, lease, now_us=now_us)
            jobs += [readable] if readable else []
        elif added is not None:
            born_leased.add(job_id)
            jobs.append(claimed_from_new(job_id, added, now_us, lease))
    new_rows = tuple(job_row(job_id, job, now_us, lease if job_id in born_leased else None) for job_id, job in new)
    return Claimed(tuple(jobs), new_rows, sum(1 for row in new_rows if row[2] == "ready"))


def _places(tx: Tx, queues: Sequence[str] | None, paused: Collection[str]) -> dict[str, int]:
    """Each queue's place in the order; of all queues alike, the same place."""
    if queues is not None:
        return {queue: number for number, queue in enumerate(dict.fromkeys(queues)) if queue not in paused}
    tx.cursor.execute(f"SELECT DISTINCT queue FROM {tx.statements.jobs} WHERE {LOOKED_FOR} ORDER BY queue")
    return {row[0]: 0 for row in tx.cursor.fetchall() if row[0] not in paused}


def _place_of(
    queue: str, place: Mapping[str, int], queues: Sequence[str] | None, paused: Collection[str]
) -> int | None:
    if queues is None:
        return None if queue in paused else 0
    return place.get(queue)


def claim_suspect(
    tx: Tx, queues: Sequence[str] | None, lease: Lease, *, now_us: int, paused: Collection[str] = ()
) -> Job | None:
    """Leases the first suspect of these queues (of all, without), for a process that holds nothing else."""
    for queue in _places(tx, queues, paused):
        tx.cursor.execute(tx.statements.claim_suspects, [queue, 1])
        row = tx.cursor.fetchone()
        if row is not None:
            hold(tx, [row[0]], lease, now_us=now_us)
            return _readable(tx, row, lease, now_us=now_us)
    return None


def _readable(tx: Tx, row: Sequence[Any], lease: Lease, *, now_us: int) -> Job | None:
    """The job, or None if this version cannot read its row: it is put off, for a newer worker."""
    try:
        return claimed_from_row(row, lease.token)
    except (ValueError, TypeError, LookupError) as error:
        message = f"this worker's version of queuety cannot read the job ({error}); it waits for one that can"
        _put_off(tx, row[0], lease.token, until_us=now_us + UNREADABLE_US, now_us=now_us, message=message)
        return None


def hold(tx: Tx, ids: Sequence[int], lease: Lease, *, now_us: int) -> None:
    """Leases these rows, which the transaction has locked; the attempt is counted here."""
    p = tx.statements.parameter
    tx.statements.change_among(
        tx.cursor,
        f"UPDATE {tx.statements.jobs} SET phase = 'leased', token = {p}, owner = {p}, wake_us = {p}, started_us = {p}, "
        "attempts = attempts + 1, suspect = 0, progress = NULL",
        "id",
        ids,
        "",
        lease.token,
        lease.owner,
        lease.until_us,
        now_us,
    )


def promote(tx: Tx, *, now_us: int, limit: int) -> int:
    """Makes delayed jobs ready whose time has come, earliest first; says how many."""
    statements = tx.statements
    p = statements.parameter
    tx.cursor.execute(
        f"SELECT id FROM {statements.jobs} WHERE wake_us <= {p} AND wake_us IS NOT NULL AND phase = 'delayed' "
        f"ORDER BY wake_us LIMIT {p}{statements.bulk.for_update}",
        [now_us, limit],
    )
    ids = [row[0] for row in tx.cursor.fetchall()]
    if ids:
        statements.change_among(
            tx.cursor,
            f"UPDATE {statements.jobs} SET phase = 'ready', wake_us = NULL",
            "id",
            ids,
            " AND phase = 'delayed'",
        )
    return len(ids)


def renew(tx: Tx, owners: Collection[int], until_us: int) -> int:
    """Extends every lease that these processes hold; says how many. By primary key: a range update would deadlock."""
    statements = tx.statements
    # No lease ends later than `until_us`, so the index of wake times bounds the search: few delayed jobs fall into it.
    rows = statements.select_among(
        tx.cursor,
        ("id",),
        statements.jobs,
        "owner",
        sorted(owners),
        f" AND wake_us <= {statements.parameter} AND wake_us IS NOT NULL AND phase = 'leased'",
        until_us,
    )
    if not rows:
        return 0
    condition, parameters = statements.bulk.among("owner", sorted(owners))
    ids = sorted(row[0] for row in rows)
    among, more = statements.bulk.among("id", ids)
    tx.cursor.execute(
        f"UPDATE {statements.jobs} SET wake_us = {statements.parameter} "
        f"WHERE {among} AND {condition} AND phase = 'leased'",
        [until_us, *more, *parameters],
    )
    return int(tx.cursor.rowcount)


def give_back(
    tx: Tx, held: Iterable[tuple[int, int]], *, phase: JobPhase = JobPhase.READY, ended_by_us: int | None = None
) -> int:
    """Releases jobs (id and token), the attempt not counted, as ready or as suspects; says how many.

    With `ended_by_us` only those whose lease had ended by then. One statement for each claim that they came from.
    """
    statements = tx.statements
    p = statements.parameter
    still, more = ended_by(p, ended_by_us)
    by_token: dict[int, list[int]] = {}
    for job_id, token in sorted(held):
        by_token.setdefault(token, []).append(job_id)
    released = 0
    for token, ids in by_token.items():
        among, parameters = statements.bulk.among("id", ids)
        tx.cursor.execute(
            f"UPDATE {statements.jobs} SET phase = {p}, token = NULL, owner = NULL, wake_us = NULL, suspect = 0, "
            f"attempts = attempts - 1, started_us = NULL WHERE {among} AND token = {p} AND phase = 'leased'{still}",
            [phase.value, *parameters, token, *more],
        )
        released += int(tx.cursor.rowcount)
    return released


def ended_by(parameter: str, ended_by_us: int | None) -> tuple[str, list[int]]:
    """A further condition on a lease, with its parameters: none, or that it had ended by this moment."""
    return ("", []) if ended_by_us is None else (f" AND wake_us < {parameter}", [ended_by_us])


def put_off(tx: Tx, job: Job, *, until_us: int, now_us: int, message: str) -> bool:
    """Puts back a job whose handler this process does not know; the attempt is not counted, and the row says why."""
    return _put_off(tx, job.id, job.token, until_us=until_us, now_us=now_us, message=message)


def _put_off(tx: Tx, job_id: int, token: int, *, until_us: int, now_us: int, message: str) -> bool:
    p = tx.statements.parameter
    tx.cursor.execute(
        f"UPDATE {tx.statements.jobs} SET phase = 'delayed', token = NULL, owner = NULL, wake_us = {p}, "
        f"attempts = attempts - 1, started_us = NULL, error_message = {p}, "
        f"unknown_since_us = COALESCE(unknown_since_us, {p}) WHERE id = {p} AND token = {p} AND phase = 'leased'",
        [until_us, message, now_us, job_id, token],
    )
    return int(tx.cursor.rowcount) == 1


def still_held(tx: Tx, held: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Which of these jobs (id and token) still carry that token; their rows are locked."""
    if not held:
        return set()
    rows = tx.statements.select_among(
        tx.cursor,
        ("id", "token"),
        tx.statements.jobs,
        "id",
        sorted({job_id for job_id, _ in held}),
        f" AND phase = 'leased' ORDER BY id{tx.statements.bulk.for_update_waiting}",
    )
    now_held = {(row[0], row[1]) for row in rows}
    return {pair for pair in held if pair in now_held}


def beat(tx: Tx, job: Job, *, until_us: int, progress: str | None) -> bool:
    """Extends this attempt's lease and keeps its progress (JSON text), if given; False if the lease is lost."""
    p = tx.statements.parameter
    kept = "" if progress is None else f", progress = {p}"
    tx.cursor.execute(
        f"UPDATE {tx.statements.jobs} SET wake_us = {p}{kept} WHERE id = {p} AND token = {p} AND phase = 'leased'",
        [until_us, *([] if progress is None else [progress]), job.id, job.token],
    )
    return int(tx.cursor.rowcount) == 1


def was_added(tx: Tx, job_id: int, created_us: int) -> bool:
    """Whether this job was added at that moment: on SQLite an id that was never committed is drawn again."""
    p = tx.statements.parameter
    tx.cursor.execute(f"SELECT 1 FROM {tx.statements.jobs} WHERE id = {p} AND created_us = {p}", [job_id, created_us])
    return tx.cursor.fetchone() is not None


def held_by(tx: Tx, owner: int, *, until_us: int) -> list[tuple[int, int]]:
    """Id and token of everything that this process holds; no lease of it may end later than `until_us`."""
    rows = tx.statements.select_among(
        tx.cursor,
        ("id", "token"),
        tx.statements.jobs,
        "owner",
        [owner],
        f" AND wake_us <= {tx.statements.parameter} AND wake_us IS NOT NULL AND phase = 'leased'",
        until_us,
    )
    return [(row[0], row[1]) for row in rows]


def has_token(tx: Tx, token: int) -> bool:
    """Whether a claim with this token is in the database."""
    tx.cursor.execute(
        f"SELECT 1 FROM {tx.statements.jobs} WHERE token = {tx.statements.parameter} "
        "AND wake_us IS NOT NULL AND phase = 'leased' LIMIT 1",
        [token],
    )
    return tx.cursor.fetchone() is not None


def has_settled(tx: Tx, job_id: int, token: int) -> bool:
    """Whether the attempt of this job under this token has been recorded."""
    p = tx.statements.parameter
    tx.cursor.execute(
        f"SELECT 1 FROM {tx.statements.history} WHERE job_id = {p} AND token = {p} LIMIT 1", [job_id, token]
    )
    return tx.cursor.fetchone() is not None


@dataclass(frozen=True, slots=True)
class Probe:
    """What an idle worker asks: is there something to claim, when is the next thing due, has a pause changed?

    `next_us` is the earliest due time of a delayed job, a lease's end, a timer or a message; None if there is none.
    """

    has_ready: bool
    has_suspect: bool
    next_us: int | None
    pauses: int


def probe(tx: Tx, queues: Sequence[str], *, paused: Collection[str] = ()) -> Probe:
    """One statement, a few reads of an index's edge.

    Each queue is asked for by itself and in the index's order: asked for any row of several, PostgreSQL reads the
    table from its start, and when nothing is ready all of it.
    """
    statements = tx.statements
    p = statements.parameter
    open_queues = [queue for queue in dict.fromkeys(queues) if queue not in paused]
    first = (
        f"(SELECT 1 FROM {statements.jobs} WHERE phase = '{{}}' AND {LOOKED_FOR} AND queue = {p} "
        "ORDER BY priority_rank, due_us, id LIMIT 1)"
    )
    ready, suspect = (
        f"COALESCE({', '.join([first.format(phase)] * len(open_queues))}, NULL)" if open_queues else "NULL"
        for phase in ("ready", "suspect")
    )
    tx.cursor.execute(
        f"SELECT {ready}, {suspect}, "
        f"(SELECT MIN(wake_us) FROM {statements.jobs} WHERE wake_us IS NOT NULL), "
        f"(SELECT MIN(due_us) FROM {statements.inbox}), "
        f"(SELECT COALESCE(SUM(changes), 0) FROM {tx.tables.queues.name})",
        [*open_queues, *open_queues],
    )
    has_ready, has_suspect, wake_us, due_us, pauses = tx.cursor.fetchone()
    alarms = [moment for moment in (wake_us, due_us) if moment is not None]
    return Probe(has_ready is not None, has_suspect is not None, min(alarms, default=None), int(pauses))


def paused_queues(tx: Tx) -> frozenset[str]:
    """The names of all paused queues."""
    tx.cursor.execute(f"SELECT name FROM {tx.tables.queues.name} WHERE paused_us IS NOT NULL")
    return frozenset(row[0] for row in tx.cursor.fetchall())
