"""What is kept beside a run until it is used: signals, groups, chunks. Written under the run's lock."""

from __future__ import annotations

from collections.abc import Sequence

from queuety.codec import encode
from queuety.model import ClearChunks, KeepGroup, KeepSignal, UseSignals
from queuety.store.tx import Tx

NO_BRANCH = -1
"""The `branch` of chunks that a step without branches yields; a key holds no NULL."""

Beside = KeepSignal | UseSignals | KeepGroup | ClearChunks


def write(tx: Tx, effects: Sequence[Beside]) -> None:
    """Writes what these effects say, deletions first; a signal that is used at once is never written."""
    statements, cursor = tx.statements, tx.cursor
    signals = {(one.workflow_id, one.seq): one for one in effects if isinstance(one, KeepSignal)}
    used = {(one.workflow_id, seq) for one in effects if isinstance(one, UseSignals) for seq in one.seqs}
    cleared = {(one.workflow_id, one.visit, branch_of(one.branch)) for one in effects if isinstance(one, ClearChunks)}
    # The last one of several stands.
    groups = {(one.workflow_id, one.name): one.ids for one in effects if isinstance(one, KeepGroup)}
    if stored := used - signals.keys():
        statements.delete_signals(cursor, sorted(stored))
    if cleared:
        statements.delete_chunks(cursor, sorted(cleared))
    if kept := [one for key, one in signals.items() if key not in used]:
        statements.add_signals(
            cursor, [(one.workflow_id, one.seq, one.name, encode(one.payload), one.at_us) for one in kept]
        )
    p = statements.parameter
    for run_id, name in (key for key, ids in groups.items() if ids is None):
        cursor.execute(f"DELETE FROM {statements.groups} WHERE workflow_id = {p} AND name = {p}", [run_id, name])
    if there := [(*key, encode(list(ids))) for key, ids in groups.items() if ids is not None]:
        statements.keep_groups(cursor, there)


def branch_of(branch: int | None) -> int:
    """How a job's branch stands in the chunks' key."""
    return NO_BRANCH if branch is None else branch
