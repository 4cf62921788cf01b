"""Letters going out: timers of runs, and what runs tell each other. How they are opened stands in `load`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuety.codec import encode
from queuety.model import LetterKind, Send, SetTimer, TellWatchers
from queuety.store.tx import Tx


def drop_timers(tx: Tx, workflow_ids: Sequence[int]) -> None:
    """Forgets the timers of these (at least one) workflows; messages to them stay."""
    statements = tx.statements
    statements.change_among(
        tx.cursor, f"DELETE FROM {statements.inbox}", "workflow_id", workflow_ids, f" AND kind = '{LetterKind.TIMER}'"
    )


def send(tx: Tx, timers: Sequence[SetTimer], letters: Sequence[Send], told: Sequence[TellWatchers]) -> None:
    """Writes timers and letters, and tells those who watch these runs that they have ended, each for its visit.

    The watched runs are locked: nobody else can come to watch them meanwhile.
    """
    rows: list[tuple[Any, ...]] = []
    for timer in timers:
        rows.append((timer.workflow_id, timer.due_us, LetterKind.TIMER.value, timer.visit, None))
    for letter in letters:
        body = None if letter.body is None else encode(letter.body)
        rows.append((letter.to, letter.due_us, letter.kind.value, letter.visit, body))
    if told:
        rows += _to_watchers(tx, told)
    if rows:
        ids = tx.reserve(len(rows))
        tx.statements.add_inbox(tx.cursor, [(letter_id, *row) for letter_id, row in zip(ids, rows, strict=True)])


def settled(ended_id: int, waiter_id: int, visit: int, *, due_us: int) -> Send:
    """The letter that tells a run that the one it waits for has ended."""
    return Send(waiter_id, LetterKind.SETTLED, due_us, {"id": ended_id}, visit)


def _to_watchers(tx: Tx, told: Sequence[TellWatchers]) -> list[tuple[Any, ...]]:
    """The letters to all who watch these runs, who are then forgotten."""
    statements = tx.statements
    ended = {run.workflow_id: run.now_us for run in told}
    columns = ("workflow_id", "waiter_id", "visit")
    watching = statements.select_among(
        tx.cursor, columns, statements.watchers, "workflow_id", sorted(ended), " ORDER BY workflow_id, waiter_id"
    )
    if watching:
        statements.change_among(tx.cursor, f"DELETE FROM {statements.watchers}", "workflow_id", sorted(ended))
    bodies = {workflow_id: encode({"id": workflow_id}) for workflow_id in ended}
    return [
        (waiter_id, ended[workflow_id], LetterKind.SETTLED.value, visit, bodies[workflow_id])
        for workflow_id, waiter_id, visit in watching
    ]
