"""The backstop for a lost wake-up: runs that are over for good, and somebody still waits to be told.

Whoever ends a run tells its watchers in the same transaction, so this finds nothing unless that went wrong. Those of a
failed run were told too; they are kept because it may be retried.
"""

from __future__ import annotations

from dataclasses import dataclass

from queuety.model import WorkflowStatus
from queuety.store import letters
from queuety.store.statements import WATCHER_COLUMNS
from queuety.store.tx import Tx

_OVER = [WorkflowStatus.COMPLETED.value, WorkflowStatus.CANCELLED.value]

_FIRST = (-1, -1)
"""Below every key."""

Watcher = tuple[int, int, int]
"""A row: the run, who waits for it, for which visit."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a look at some watchers has found. `after` is where the next one goes on, None when all were looked at."""

    told: int
    after: tuple[int, int] | None


def stale_watchers(tx: Tx, after: tuple[int, int] | None, limit: int, *, now_us: int) -> Swept:
    """Tells those whose run is over or is not there, among the first `limit` watchers past this key, and forgets
    them.

    Two statements where nobody is to be told. A run that somebody else has locked is left to the next sweep.
    """
    page = _page(tx, after or _FIRST, limit)
    last = (page[-1][0], page[-1][1]) if len(page) == limit else None
    watched = sorted({row[0] for row in page})
    if not watched:
        return Swept(0, last)
    statements = tx.statements
    rows = statements.select_among(tx.cursor, ("id", "status"), statements.workflows, "id", watched)
    there = {row[0] for row in rows}
    over = [row[0] for row in rows if row[1] in _OVER]
    stale = set(watched) - there
    if over:
        # Asked again under the lock: whoever brings a run back to life holds it.
        marks = ", ".join([statements.parameter] * len(_OVER))
        tail = f" AND status IN ({marks}) ORDER BY id{statements.bulk.for_update}"
        still = statements.select_among(tx.cursor, ("id",), statements.workflows, "id", over, tail, *_OVER)
        stale |= {row[0] for row in still}
    told = [row for row in page if row[0] in stale]
    if told:
        statements.delete_watchers(tx.cursor, told)
        again = [letters.settled(ended_id, waiter_id, visit, due_us=now_us) for ended_id, waiter_id, visit in told]
        letters.send(tx, (), again)
    return Swept(len(told), last)


def _page(tx: Tx, after: tuple[int, int], limit: int) -> list[Watcher]:
    """The first watchers past this key, in its order: the rest of that run's, then those of later runs.

    Each is a range of the key; asked for both at once, MySQL and PostgreSQL would read what comes before.
    """
    p, cursor = tx.statements.parameter, tx.cursor
    head = f"SELECT {', '.join(WATCHER_COLUMNS)} FROM {tx.statements.watchers} WHERE "
    cursor.execute(f"{head}workflow_id = {p} AND waiter_id > {p} ORDER BY waiter_id LIMIT {p}", [*after, limit])
    found = list(cursor.fetchall())
    if len(found) < limit:
        order = f" ORDER BY workflow_id, waiter_id LIMIT {p}"
        cursor.execute(f"{head}workflow_id > {p}{order}", [after[0], limit - len(found)])
        found += cursor.fetchall()
    return [(row[0], row[1], row[2]) for row in found]
