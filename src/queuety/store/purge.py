"""What goes for good: runs with everything that belongs to them, and plain jobs. Inside an open transaction.

A run stays that somebody may still need: one that others wait for or will wait for, one whose parent or child goes on,
one that is not clean. What is written to a run that has gone is answered as for one that is not there.

A run with a long past goes in parts. Its row goes at once, so that nobody can bring it back to life, and in the same
transaction a note is left: a checkpoint under its negative id, whose `seq` tells how much of the history is gone.
Whoever purges next deletes the rest of what is noted, some rows at a time. How histories are made shorter stands in
`prune`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from queuety.codec import decode
from queuety.model import CleanupStatus, JobStatus, LetterKind, WorkflowStatus
from queuety.store.prune import AWAITING, Pruned, awaits, prune_history, rows_for
from queuety.store.tx import Tx

__all__ = ["Place", "Pruned", "Purged", "prune_history", "purge_plain_jobs", "purge_runs", "read_ahead"]

FAILED_AT_ONCE: Final = 500
"""Failed runs that are looked at by one call: they are read in the order of their ids and not of their ends."""

AWAITED_FOR_US: Final = 60_000_000
"""How long a pass trusts in what it has read of who waits for whom."""

_OVER: Final = (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED)

_LIVING: Final = ", ".join(f"'{status}'" for status in WorkflowStatus if not status.is_terminal)

_OWN_LETTERS: Final = f"'{LetterKind.TIMER}', '{LetterKind.DEADLINE}'"
"""Letters of a run to itself; any other says something that is to be heard, or to be answered."""

FORKED: Final = "%_fork_%"
"""The names of forks, and of few other runs."""

_PHASES: Final = {JobStatus.COMPLETED: "completed", JobStatus.BURIED: "buried"}


@dataclass(frozen=True, slots=True)
class Place:
    """How far a pass has come: the moment and the id of the last run or job, failed runs being a part of their own.

    `awaited` are the runs that others wait for, as of `read_us`.
    """

    is_at_failed: bool = False
    moment_us: int = -1
    last_id: int = -1
    awaited: frozenset[int] = frozenset()
    read_us: int = -AWAITED_FOR_US


@dataclass(frozen=True, slots=True)
class Purged:
    """How many are gone. `after` is where the next call goes on, None when all were looked at."""

    count: int
    after: Place | None


def purge_runs(
    tx: Tx, *, before_us: int, statuses: Collection[WorkflowStatus], after: Place | None, limit: int
) -> Purged:
    """Deletes at most `limit` of the runs that have ended so before this moment: the earliest first, failed ones last.

    What is in use or locked stays, and is looked at again in the next pass; statuses that are no end are passed over.
    What an earlier call has left of a long run is deleted first, and then nothing else.
    """
    place, rows = after or Place(), rows_for(limit)
    if _finish(tx, rows):
        return Purged(0, place)
    page, is_last = _page(tx, place, before_us, statuses, limit)
    runs = _locked(tx, page, before_us, statuses)
    if runs and tx.now_us() - place.read_us >= AWAITED_FOR_US:
        place = replace(place, awaited=_awaited(tx, before_us), read_us=tx.now_us())
    weights = _weights(tx, [run for run in runs if run.id not in place.awaited])
    chosen: list[int] = []
    weight = 0
    for moment_us, run_id in page:
        own = weights.get(run_id, 0)
        if chosen and own and (len(chosen) == limit or weight + own > rows):
            is_last = False
            break
        place = replace(place, moment_us=moment_us, last_id=run_id)
        if own:
            chosen.append(run_id)
            weight += own
    long = [run_id for run_id in chosen if weights[run_id] > rows]
    _delete(tx, [run_id for run_id in chosen if run_id not in long], long)
    if long or not is_last:
        return Purged(len(chosen), place)
    if place.is_at_failed or WorkflowStatus.FAILED not in statuses:
        return Purged(len(chosen), None)
    return Purged(len(chosen), Place(is_at_failed=True, awaited=place.awaited, read_us=place.read_us))


def read_ahead(tx: Tx, *, before_us: int, statuses: Collection[WorkflowStatus]) -> Place | None:
    """Where a pass begins that knows already who waits for whom; None if there is nothing to be deleted.

    That reads the runtime of every run that waits, so it is done in a transaction that only reads; a pass trusts in it
    for `AWAITED_FOR_US` anyway. A letter that has come since, and `watchers`, `purge_runs` sees itself.
    """
    page, _ = _page(tx, Place(), before_us, statuses, 1)
    if not page and WorkflowStatus.FAILED in statuses:
        page, _ = _page(tx, Place(is_at_failed=True), before_us, statuses, 1)
    return Place(awaited=_awaited(tx, before_us), read_us=tx.now_us()) if page else None


def purge_plain_jobs(
    tx: Tx, *, before_us: int, statuses: Collection[JobStatus], after: Place | None, limit: int
) -> Purged:
    """Deletes, of the next `limit` plain jobs that have ended before this moment, those that have ended so (completed,
    buried), the earliest first, each with its history. What is locked stays."""
    statements, cursor = tx.statements, tx.cursor
    p, place = statements.parameter, after or Place()
    cursor.execute(
        f"SELECT completed_us, id FROM {statements.jobs} WHERE workflow_id IS NULL AND completed_us IS NOT NULL "
        f"AND completed_us >= {p} AND completed_us < {p} AND (completed_us > {p} OR id > {p}) "
        f"ORDER BY completed_us, id LIMIT {p}",
        [place.moment_us, before_us, place.moment_us, place.last_id, limit],
    )
    page = cursor.fetchall()
    phases = ", ".join(f"'{_PHASES[status]}'" for status in statuses if status in _PHASES)
    ids: list[int] = []
    if page and phases:
        # Asked again under the lock: a buried job may have been given another chance.
        tail = f" AND phase IN ({phases}) AND completed_us < {p} ORDER BY id{statements.bulk.for_update}"
        ended = statements.select_among(
            cursor, ("id",), statements.jobs, "id", [row[1] for row in page], tail, before_us
        )
        ids = [row[0] for row in ended]
    if ids:
        statements.change_among(cursor, f"DELETE FROM {statements.history}", "run_id", ids)
        statements.change_among(cursor, f"DELETE FROM {statements.jobs}", "id", ids)
    return Purged(len(ids), Place(False, page[-1][0], page[-1][1]) if len(page) == limit else None)


@dataclass(frozen=True, slots=True)
class _Run:
    """One that is locked and may go if nobody needs it."""

    id: int
    version: int
    parent_id: int | None
    is_completed: bool


def _page(
    tx: Tx, place: Place, before_us: int, statuses: Collection[WorkflowStatus], limit: int
) -> tuple[list[tuple[int, int]], bool]:
    """The next runs by moment and id, not locked, and whether no more follow; some may be of other statuses."""
    statements, cursor = tx.statements, tx.cursor
    p = statements.parameter
    if place.is_at_failed:
        cursor.execute(
            f"SELECT 0, id FROM {statements.workflows} WHERE status = '{WorkflowStatus.FAILED}' AND id > {p} "
            f"ORDER BY id LIMIT {p}",
            [place.last_id, FAILED_AT_ONCE],
        )
        found = list(cursor.fetchall())
        return found, len(found) < FAILED_AT_ONCE
    if not set(_OVER).intersection(statuses):
        return [], True
    cursor.execute(
        f"SELECT completed_us, id FROM {statements.workflows} WHERE completed_us IS NOT NULL AND completed_us >= {p} "
        f"AND completed_us < {p} AND (completed_us > {p} OR id > {p}) ORDER BY completed_us, id LIMIT {p}",
        [place.moment_us, before_us, place.moment_us, place.last_id, limit],
    )
    found = list(cursor.fetchall())
    return found, len(found) < limit


def _locked(
    tx: Tx, page: Sequence[tuple[int, int]], before_us: int, statuses: Collection[WorkflowStatus]
) -> list[_Run]:
    """Those of the page, locked, that have ended so and are clean: none of them can be brought back to life now."""
    wanted = ", ".join(f"'{status}'" for status in statuses if status.is_terminal)
    if not page or not wanted:
        return []
    statements = tx.statements
    p = statements.parameter
    rows = statements.select_among(
        tx.cursor,
        ("id", "version", "parent_id", "status", "ledger", AWAITING),
        statements.workflows,
        "id",
        sorted(run_id for _, run_id in page),
        f" AND status IN ({wanted}) AND CASE WHEN status = '{WorkflowStatus.FAILED}' THEN failed_us "
        f"ELSE completed_us END < {p} AND cleanup <> '{CleanupStatus.PENDING}' "
        f"ORDER BY id{statements.bulk.for_update}",
        before_us,
    )
    return [
        _Run(run_id, version, parent_id, status == WorkflowStatus.COMPLETED)
        for run_id, version, parent_id, status, ledger, runtime in rows
        if not awaits(runtime, ledger)
    ]


def _awaited(tx: Tx, before_us: int) -> frozenset[int]:
    """The runs that others wait for, those included that have told of their end, and those that a living run has
    started as a group before this moment, and may come to wait for. A fork has a group that is older than itself."""
    statements, cursor = tx.statements, tx.cursor
    cursor.execute(
        f"SELECT runtime FROM {statements.workflows} WHERE status = '{WorkflowStatus.WAITING_FOR_WORKFLOWS}' "
        f"AND runtime IS NOT NULL"
    )
    found = {other for (runtime,) in cursor.fetchall() for other in decode(runtime).get("ids", ())}
    cursor.execute(
        f"SELECT kept.ids FROM {statements.workflows} run JOIN {statements.groups} kept ON kept.workflow_id = run.id "
        f"WHERE run.status IN ({_LIVING}) "
        f"AND (run.created_us < {statements.parameter} OR run.name LIKE {statements.parameter})",
        [before_us, FORKED],
    )
    for (ids,) in cursor.fetchall():
        found.update(decode(ids))
    return frozenset(found)


def _weights(tx: Tx, runs: Sequence[_Run]) -> dict[int, int]:
    """How many rows of history and chunks these runs have, at most, and one for themselves; those are left out that
    somebody needs."""
    if not runs:
        return {}
    statements, cursor = tx.statements, tx.cursor
    ids = [run.id for run in runs]
    parents = sorted({run.parent_id for run in runs if run.parent_id is not None})
    living = f"status IN ({_LIVING})"
    needed: set[int] = set()
    if parents:
        rows = statements.select_among(cursor, ("id",), statements.workflows, "id", parents, f" AND {living}")
        going = {row[0] for row in rows}
        needed |= {run.id for run in runs if run.parent_id in going}
    for table, column, more in (
        (statements.workflows, "parent_id", f" AND parent_id IS NOT NULL AND {living}"),
        (
            f"{statements.watchers} watching JOIN {statements.workflows} waiter ON waiter.id = watching.waiter_id",
            "watching.workflow_id",
            f" AND waiter.{living}",
        ),
        (statements.inbox, "workflow_id", f" AND kind NOT IN ({_OWN_LETTERS})"),
    ):
        needed |= {row[0] for row in statements.select_among(cursor, (column,), table, column, ids, more)}
    weights = {run.id: run.version + 1 for run in runs if run.id not in needed}
    streaming = [run.id for run in runs if run.id in weights and not run.is_completed]
    if streaming:
        columns, tail = ("workflow_id", "COUNT(*)"), " GROUP BY workflow_id"
        for run_id, count in statements.select_among(
            cursor, columns, statements.chunks, "workflow_id", streaming, tail
        ):
            weights[run_id] += count
    return weights


def _delete(tx: Tx, ids: Sequence[int], long: Sequence[int]) -> None:
    """Deletes these runs whole, and those that are too long for that but for what may be much of them."""
    statements, cursor = tx.statements, tx.cursor
    both = sorted((*ids, *long))
    if not both:
        return
    # A letter of another run that has come since it was looked for stays: whoever opens it finds nobody, and answers.
    statements.change_among(
        cursor, f"DELETE FROM {statements.inbox}", "workflow_id", both, f" AND kind IN ({_OWN_LETTERS})"
    )
    tables: list[tuple[str, str, Sequence[int]]] = [
        (statements.groups, "workflow_id", both),
        (statements.watchers, "workflow_id", both),
        (statements.watchers, "waiter_id", both),
        (statements.tags, "workflow_id", both),
        (statements.artifacts, "workflow_id", both),
        (statements.checkpoints, "run_id", both),
        (statements.jobs, "workflow_id", ids),
        (statements.signals, "workflow_id", ids),
        (statements.chunks, "workflow_id", ids),
        (statements.history, "run_id", ids),
        (statements.workflows, "id", both),
    ]
    for table, column, values in tables:
        if values:
            statements.change_among(cursor, f"DELETE FROM {table}", column, sorted(values))
    if long:
        statements.keep_checkpoints(cursor, [(-run_id, 0, "") for run_id in long])


def _finish(tx: Tx, rows: int) -> bool:
    """Deletes about so many rows of a run of which only they are left; False if there is none."""
    statements, cursor = tx.statements, tx.cursor
    p = statements.parameter
    cursor.execute(
        f"SELECT run_id, seq FROM {statements.checkpoints} WHERE run_id < 0 ORDER BY run_id LIMIT 1"
        f"{statements.bulk.for_update}"
    )
    note = cursor.fetchone()
    if note is None:
        return False
    run_id, gone = -note[0], note[1]
    for table, rest in (
        (statements.jobs, ("id",)),
        (statements.signals, ("seq",)),
        (statements.chunks, ("visit", "branch", "number")),
    ):
        rows -= _delete_first(tx, table, ("workflow_id", *rest), run_id, rows)[0]
        if rows <= 0:
            return True
    _, last = _delete_first(tx, statements.history, ("run_id", "seq"), run_id, rows, above=gone)
    if last is None:
        cursor.execute(f"DELETE FROM {statements.checkpoints} WHERE run_id = {p}", [-run_id])
    else:
        # Where the next part begins: MySQL reads over all that was deleted a moment ago.
        cursor.execute(f"UPDATE {statements.checkpoints} SET seq = {p} WHERE run_id = {p}", [last[0], -run_id])
    return True


def _delete_first(
    tx: Tx, table: str, key: Sequence[str], run_id: int, count: int, *, above: int | None = None
) -> tuple[int, Sequence[Any] | None]:
    """Deletes the first so many rows that a run has in this table, by the key that begins with the run; of a key of two
    columns those `above` a value. Says how many, and which was the last; None if it was not that many."""
    cursor, p = tx.cursor, tx.statements.parameter
    owner, *rest = key
    names = ", ".join(rest)
    own, more = f"{owner} = {p}" + ("" if above is None else f" AND {rest[0]} > {p}"), [] if above is None else [above]
    cursor.execute(
        f"SELECT {names} FROM {table} WHERE {own} ORDER BY {names} LIMIT 1 OFFSET {p}", [run_id, *more, count - 1]
    )
    last: Sequence[Any] | None = cursor.fetchone()
    upto = "" if last is None else f" AND ({names}) <= ({', '.join([p] * len(rest))})"
    cursor.execute(f"DELETE FROM {table} WHERE {own}{upto}", [run_id, *more, *(last or ())])
    return int(cursor.rowcount), last
