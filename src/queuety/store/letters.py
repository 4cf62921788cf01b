"""Letters going out: timers of runs, what runs tell each other, and who is to be told when a run has ended.

How they are opened stands in `load`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from queuety.codec import encode
from queuety.model import DropTimers, LetterKind, Send, SetTimer, TellWatchers, Watch
from queuety.store.statements import WATCHER_COLUMNS
from queuety.store.tx import Tx


def drop_timers(tx: Tx, dropped: Iterable[DropTimers], *, without_work: Iterable[int] = ()) -> None:
    """Forgets the timers of these runs, and of those whose work is dropped; messages to them stay."""
    statements = tx.statements
    runs: dict[LetterKind, set[int]] = {LetterKind.TIMER: set(without_work)}
    for drop in dropped:
        runs.setdefault(drop.kind, set()).add(drop.workflow_id)
    for kind, ids in runs.items():
        if ids:
            delete, of_kind = f"DELETE FROM {statements.inbox}", f" AND kind = '{kind}'"
            statements.change_among(tx.cursor, delete, "workflow_id", sorted(ids), of_kind)


def send(
    tx: Tx, timers: Sequence[SetTimer], letters: Sequence[Send], watching: Sequence[Watch | TellWatchers] = ()
) -> None:
    """Writes timers and letters, notes who watches which run, and tells those who watch a run that has ended.

    The watched runs are locked: nobody else can come to watch them meanwhile.
    """
    rows: list[tuple[Any, ...]] = []
    for timer in timers:
        rows.append((timer.workflow_id, timer.due_us, LetterKind.TIMER.value, timer.visit, None))
    for letter in letters:
        body = None if letter.body is None else encode(letter.body)
        rows.append((letter.to, letter.due_us, letter.kind.value, letter.visit, body))
    if watching:
        rows += _heeded(tx, watching)
    if rows:
        ids = tx.reserve(len(rows))
        tx.statements.add_inbox(tx.cursor, [(letter_id, *row) for letter_id, row in zip(ids, rows, strict=True)])


def settled(ended_id: int, waiter_id: int, visit: int, *, due_us: int, is_done: bool = False) -> Send:
    """The letter that tells a run that the one it waits for has ended, and whether it is known to have completed."""
    return Send(waiter_id, LetterKind.SETTLED, due_us, _told_of(ended_id, is_done), visit)


def _told_of(ended_id: int, is_done: bool) -> dict[str, Any]:
    return {"id": ended_id, "is_done": True} if is_done else {"id": ended_id}


def _heeded(tx: Tx, watching: Sequence[Watch | TellWatchers]) -> list[tuple[Any, ...]]:
    """The letters to the watchers of what has ended; those of other runs are noted.

    A run that is watched and ends, or ends, goes on and is watched again, is taken step by step.
    """
    watched = [one for one in watching if isinstance(one, Watch)]
    ended = [one for one in watching if isinstance(one, TellWatchers)]
    both = {one.workflow_id for one in watched} & {one.workflow_id for one in ended}
    _note(tx, [one for one in watched if one.workflow_id not in both])
    rows = _told(tx, [one for one in ended if one.workflow_id not in both])
    for one in watching:
        if one.workflow_id in both and isinstance(one, Watch):
            _note(tx, [one])
        elif one.workflow_id in both and isinstance(one, TellWatchers):
            rows += _told(tx, [one])
    return rows


def _note(tx: Tx, watched: Sequence[Watch]) -> None:
    """Keeps who watches; of several visits of one waiter the latest one stands, in whatever order they are told of."""
    visits = {(one.workflow_id, one.waiter_id): one.visit for one in sorted(watched, key=lambda one: one.visit)}
    if visits:
        tx.statements.keep_watchers(tx.cursor, [(*key, visit) for key, visit in sorted(visits.items())])


def _told(tx: Tx, told: Sequence[TellWatchers]) -> list[tuple[Any, ...]]:
    """The letters to all who watch these runs; who watches one that is over for good is then forgotten."""
    if not told:
        return []
    statements = tx.statements
    ended = {run.workflow_id: run.now_us for run in told}
    runs, over = sorted(ended), {run.workflow_id for run in told if run.forgets}
    watching = statements.select_among(
        tx.cursor, WATCHER_COLUMNS, statements.watchers, "workflow_id", runs, " ORDER BY workflow_id, waiter_id"
    )
    left = sorted({row[0] for row in watching} & over)
    if left:
        statements.change_among(tx.cursor, f"DELETE FROM {statements.watchers}", "workflow_id", left)
    bodies = {run.workflow_id: encode(_told_of(run.workflow_id, run.is_done)) for run in told}
    return [
        (waiter_id, ended[workflow_id], LetterKind.SETTLED.value, visit, bodies[workflow_id])
        for workflow_id, waiter_id, visit in watching
    ]
