"""The words that runs were given when they were started, to be found by. Inside an open transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queuety.store.tx import Tx


def add(tx: Tx, rows: Iterable[tuple[int, str]]) -> None:
    """Gives runs that are started in this transaction their tags; a pair that is named twice counts once."""
    if unique := dict.fromkeys((tag, workflow_id) for workflow_id, tag in rows):
        tx.statements.add_tags(tx.cursor, list(unique))


def of(tx: Tx, ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """The tags of each of these runs, in order; none is left out."""
    found: dict[int, list[str]] = {run_id: [] for run_id in ids}
    if ids:
        columns, statements = ("workflow_id", "tag"), tx.statements
        rows = statements.select_among(tx.cursor, columns, statements.tags, "workflow_id", list(found))
        for run_id, tag in rows:
            found[run_id].append(tag)
    return {run_id: tuple(sorted(tags)) for run_id, tags in found.items()}
