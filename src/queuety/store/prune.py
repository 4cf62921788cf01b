"""Histories made shorter from their start, where nothing needs what is old. Inside an open transaction.

What must be known of the past stays: of an open run the state as of the last row that goes is kept as a checkpoint,
and no row is touched that its snapshot, its present visit, the undoing of its steps or the giving back of its signals
may need. A run that is over keeps its last state. What is unknowable then is not guessed: `past` leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from queuety.codec import decode, encode
from queuety.model import CleanupStatus, Entry, WorkflowStatus
from queuety.store.past import states_at
from queuety.store.tx import Tx

MOST_ROWS: Final = 5_000
"""Rows of history that one call deletes, when runs are pruned or purged; a run that has more is done in parts."""

ROWS_PER_RUN: Final = 50
"""So many for each run that a call may look at: who asks for few has little time. Never less than `FEWEST_ROWS`."""

FEWEST_ROWS: Final = 500

LARGE_STATE: Final = 16_384
"""An open run whose state has more characters is not given a checkpoint to be rid of fewer than `FEW_ROWS` rows."""

FEW_ROWS: Final = 256

AWAITING: Final = f"CASE WHEN status IN ('{WorkflowStatus.CANCELLED}', '{WorkflowStatus.FAILED}') THEN runtime END"
"""The runtime of a run, where it may say what `awaits` asks."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows are gone. `after_id` is where the next call goes on, None when all runs were looked at."""

    rows: int
    after_id: int | None


def rows_for(limit: int) -> int:
    """How many rows a call may delete that may look at so many runs.

    >>> rows_for(1), rows_for(20), rows_for(500)
    (500, 1000, 5000)
    """
    return min(max(limit * ROWS_PER_RUN, FEWEST_ROWS), MOST_ROWS)


def awaits(runtime: str | None, ledger: str | None) -> bool:
    """Whether a run that has ended waits for a child to be clean, that of its step or one that it has left behind."""
    if runtime is not None and decode(runtime).get("awaits"):
        return True
    return ledger is not None and bool(decode(ledger).get("left"))


def prune_history(
    tx: Tx, *, before_us: int, after_id: int | None, limit: int, may_prune: Callable[[str], bool]
) -> Pruned:
    """Deletes rows older than this moment from the start of the histories of the next `limit` runs, by id.

    Of completed and cancelled runs any row may go, of others those of visits before the present one. `may_prune` says
    of a definition, by its hash, that nothing is ever undone in its runs; it is not asked of cancelled ones. A run that
    was moved from one whose steps can be undone keeps its rows, whatever its present one says. What is locked or not
    clean stays, and is looked at again in the next pass.
    """
    statements, cursor = tx.statements, tx.cursor
    p = statements.parameter
    if after_id is None:
        cursor.execute(f"SELECT at_us FROM {statements.history} ORDER BY at_us LIMIT 1")
        oldest = cursor.fetchone()
        if oldest is None or oldest[0] >= before_us:
            return Pruned(0, None)
    cursor.execute(
        f"SELECT id, created_us FROM {statements.workflows} WHERE id > {p} ORDER BY id LIMIT {p}",
        [-1 if after_id is None else after_id, limit],
    )
    page = cursor.fetchall()
    firsts = _firsts(tx, [row[0] for row in page if row[1] < before_us], before_us)
    rows, most = 0, rows_for(limit)
    for run in _locked(tx, sorted(firsts)):
        if run.status != WorkflowStatus.CANCELLED and (run.was_undoable or not may_prune(run.definition_hash)):
            continue
        if rows and most - rows < FEW_ROWS:
            return Pruned(rows, run.id - 1)
        first = firsts[run.id]
        upto = _upto(tx, run, first, before_us, most - rows)
        if upto < first:
            continue
        _delete(tx, run, upto)
        is_cut = upto - first + 1 == most - rows
        rows += upto - first + 1
        if is_cut:
            return Pruned(rows, run.id - 1)
    return Pruned(rows, page[-1][0] if len(page) == limit else None)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that is locked and clean. `size`: about how many characters its state has. `was_undoable`: it was moved to
    its definition from one that could undo its steps."""

    id: int
    status: WorkflowStatus
    was_undoable: bool
    version: int
    visit: int
    definition_hash: str
    state_version: int
    delta_bytes: int
    size: int

    @property
    def is_over(self) -> bool:
        """True if no process keeps what it knows of the run, so that its snapshot may be written anew."""
        return self.status in (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED)


def _firsts(tx: Tx, ids: Sequence[int], before_us: int) -> dict[int, int]:
    """The first row of each of these runs whose first row is older than that moment."""
    p = tx.statements.parameter
    part = (
        f"SELECT * FROM (SELECT run_id, seq, at_us FROM {tx.statements.history} WHERE run_id = {p} "
        f"ORDER BY seq LIMIT 1) AS first_one"
    )
    rows = tx.statements.select_ranges(tx.cursor, part, ((run_id,) for run_id in ids))
    return {run_id: seq for run_id, seq, at_us in rows if at_us < before_us}


def _locked(tx: Tx, ids: Sequence[int]) -> list[_Run]:
    if not ids:
        return []
    known = ", ".join(f"'{status}'" for status in WorkflowStatus)
    columns = ("id", "status", "version", "visit", "definition_hash", "state_version", "delta_bytes")
    rows = tx.statements.select_among(
        tx.cursor,
        (*columns, "state_bytes + delta_bytes", "ledger", AWAITING),
        tx.statements.workflows,
        "id",
        ids,
        f" AND status IN ({known}) AND cleanup <> '{CleanupStatus.PENDING}' ORDER BY id{tx.statements.bulk.for_update}",
    )
    return [
        _Run(row[0], WorkflowStatus(row[1]), _was_undoable(row[-2]), *row[2:-2])
        for row in rows
        if not awaits(row[-1], row[-2])
    ]


def _was_undoable(ledger: str | None) -> bool:
    return ledger is not None and bool(decode(ledger).get("moved"))


def _upto(tx: Tx, run: _Run, first: int, before_us: int, most: int) -> int:
    """The last row that may go, of the `most` that begin with `first`; one below `first` if none may."""
    cursor, p = tx.cursor, tx.statements.parameter
    # By the key: of the index on times, MariaDB would read what all runs have since then.
    old = f"at_us + 0 >= {p}"
    stays, more = (old, []) if run.is_over else (f"({old} OR visit >= {p})", [run.visit])
    cursor.execute(
        f"SELECT seq FROM {tx.statements.history} WHERE run_id = {p} AND seq >= {p} AND seq < {p} AND {stays} "
        f"ORDER BY seq LIMIT 1",
        [run.id, first, first + most, before_us, *more],
    )
    kept = cursor.fetchone()
    upto = min(first + most - 1, run.version) if kept is None else int(kept[0]) - 1
    if not run.is_over:
        if run.delta_bytes:
            upto = min(upto, run.state_version)
        if run.size > LARGE_STATE and upto - first + 1 < FEW_ROWS:
            return first - 1
    return upto if run.status == WorkflowStatus.CANCELLED else _before_signals(tx, run, first, upto)


def _before_signals(tx: Tx, run: _Run, first: int, upto: int) -> int:
    """The last row at or below `upto` so that no signal goes that a row which stays has used: going back to before
    that row gives the signal back."""
    cursor, p = tx.cursor, tx.statements.parameter
    cursor.execute(
        f"SELECT 1 FROM {tx.statements.history} WHERE run_id = {p} AND seq >= {p} AND seq <= {p} "
        f"AND entry = '{Entry.SIGNALLED}' LIMIT 1",
        [run.id, first, upto],
    )
    if upto == run.version or cursor.fetchone() is None:
        return upto
    cursor.execute(
        f"SELECT seq, control FROM {tx.statements.history} WHERE run_id = {p} AND seq > {p} AND job_id IS NULL "
        f"AND control LIKE {p}",
        [run.id, first, '%"_used"%'],
    )
    uses = [(seq, min(used)) for seq, control in cursor.fetchall() if (used := decode(control).get("_used"))]
    while torn := [signal for seq, signal in uses if signal <= upto < seq]:
        upto = min(torn) - 1
    return upto


def _delete(tx: Tx, run: _Run, upto: int) -> None:
    statements, cursor = tx.statements, tx.cursor
    p = statements.parameter
    if upto > run.state_version:
        _move_snapshot(tx, run, upto)
    if not run.is_over:
        state = states_at(tx, [(run.id, upto)]).get((run.id, upto))
        if state is not None:  # it may have been unknowable before
            statements.keep_checkpoints(cursor, [(run.id, upto, encode(state))])
    at_or = "=" if run.is_over else ""
    cursor.execute(f"DELETE FROM {statements.checkpoints} WHERE run_id = {p} AND seq <{at_or} {p}", [run.id, upto])
    cursor.execute(f"DELETE FROM {statements.history} WHERE run_id = {p} AND seq <= {p}", [run.id, upto])


def _move_snapshot(tx: Tx, run: _Run, upto: int) -> None:
    """Has the snapshot need no row up to this one: it is that of a later row, or nothing has changed since it.

    In an open run that is always so; what other processes keep of it stays right.
    """
    statements = tx.statements
    if run.delta_bytes:
        text = encode(states_at(tx, [(run.id, run.version)])[run.id, run.version])
        statements.save_base(tx.cursor, [(run.id, text, run.version, len(text), 0)])
    else:
        p = statements.parameter
        tx.cursor.execute(f"UPDATE {statements.workflows} SET state_version = {p} WHERE id = {p}", [upto, run.id])
