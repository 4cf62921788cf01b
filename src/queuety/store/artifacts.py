"""What runs have put aside under a key: text, JSON text or bytes. Every function works inside an open transaction.

An artifact is written when it is put and not with the step's boundary: it outlives a failed attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from queuety.store.statements import ARTIFACT_COLUMNS
from queuety.store.tx import Tx


@dataclass(frozen=True, slots=True)
class Artifact:
    """One of a run's. `content` is text or JSON text by its `kind`, `data` bytes; both None where they were not asked
    for. `metadata` is JSON text."""

    key: str
    kind: str
    content: str | None
    data: bytes | None
    metadata: str
    step_index: int | None
    created_us: int
    updated_us: int


def put(
    tx: Tx,
    workflow_id: int,
    key: str,
    *,
    kind: str,
    content: str | None,
    data: bytes | None,
    metadata: str,
    step_index: int | None,
    now_us: int,
    is_fenced: bool = False,
) -> bool:
    """Keeps it, or replaces what the run had under that key, whose moment of creation stays; False if there is no such
    run.

    The run is locked, so that it is not purged meanwhile. Not if `is_fenced`: then this transaction has extended the
    lease of one of its jobs, without which the run cannot end. To lock it after the job is the order of a deadlock.
    """
    statements = tx.statements
    if not is_fenced:
        tx.cursor.execute(
            f"SELECT 1 FROM {statements.workflows} WHERE id = {statements.parameter}"
            f"{statements.bulk.for_update_waiting}",
            [workflow_id],
        )
        if tx.cursor.fetchone() is None:
            return False
    row = (workflow_id, key, kind, content, data, metadata, step_index, now_us, now_us)
    statements.keep_artifacts(tx.cursor, [row])
    return True


def get(tx: Tx, workflow_id: int, key: str) -> Artifact | None:
    """What the run has put aside under this key, or None."""
    found = _read(tx, workflow_id, " AND name = {p}", [key], with_content=True)
    return found[0] if found else None


def listed(tx: Tx, workflow_id: int, *, with_content: bool) -> list[Artifact]:
    """All that the run has put aside, by key."""
    return _read(tx, workflow_id, " ORDER BY name", [], with_content=with_content)


def delete(tx: Tx, workflow_id: int, key: str) -> bool:
    """Forgets it; False if there was none."""
    statements = tx.statements
    p = statements.parameter
    tx.cursor.execute(f"DELETE FROM {statements.artifacts} WHERE workflow_id = {p} AND name = {p}", [workflow_id, key])
    return int(tx.cursor.rowcount) == 1


def keys(tx: Tx, ids: Sequence[int]) -> dict[int, list[str]]:
    """The keys that each of these runs has put something under, in order; none is left out."""
    found: dict[int, list[str]] = {run_id: [] for run_id in ids}
    if ids:
        columns, statements = ("workflow_id", "name"), tx.statements
        rows = statements.select_among(
            tx.cursor, columns, statements.artifacts, "workflow_id", list(found), " ORDER BY workflow_id, name"
        )
        for run_id, key in rows:
            found[run_id].append(key)
    return found


def _read(tx: Tx, workflow_id: int, tail: str, more: Sequence[str], *, with_content: bool) -> list[Artifact]:
    statements = tx.statements
    columns = ["NULL" if name in ("content", "data") and not with_content else name for name in ARTIFACT_COLUMNS[1:]]
    p = statements.parameter
    tx.cursor.execute(
        f"SELECT {', '.join(columns)} FROM {statements.artifacts} WHERE workflow_id = {p}{tail.format(p=p)}",
        [workflow_id, *more],
    )
    return [
        Artifact(key, kind, content, None if data is None else bytes(data), metadata, step, created_us, updated_us)
        for key, kind, content, data, metadata, step, created_us, updated_us in tx.cursor.fetchall()
    ]
