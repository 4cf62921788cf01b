"""Runs that nothing will ever move: what must not happen, and is looked for all the same.

Other transactions go on meanwhile, so a suspicion is looked at once more: whoever had moved the run in between has left
a letter or a later version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from queuety.codec import decode
from queuety.inspect.outline import Outline, outlines
from queuety.inspect.waits import dependencies, kept, sort_out
from queuety.model import LetterKind, WorkflowStatus
from queuety.store.queries import Record, health, workflows
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


def stranded(connection: Connection, tables: Tables, *, among: int, limit: int) -> list[int]:
    """Ids of running runs that have no open job, no timer and no letter, and no child that goes on; oldest first."""

    def suspicious(rows: Sequence[Record]) -> list[Record]:
        children = {row["id"]: kept(row).get("child") for row in rows}
        standings = workflows.statuses(connection, tables, {id_ for id_ in children.values() if id_ is not None})
        return [row for row in rows if not _goes_on(standings.get(children[row["id"]] or 0))]

    return _confirmed(connection, tables, WorkflowStatus.RUNNING, suspicious, among=among, limit=limit)


def unwoken(connection: Connection, tables: Tables, *, among: int, limit: int) -> list[int]:
    """Ids of runs that wait for others although what they wait for is decided, and nobody is to tell them so."""

    def suspicious(rows: Sequence[Record]) -> list[Record]:
        ids = {id_ for row in rows for id_ in dependencies(row)}
        found = workflows.statuses(connection, tables, ids)
        standings = {id_: WorkflowStatus(status) for id_, status in found.items()}
        known = outlines(connection, tables, {row["definition_hash"] for row in rows})
        decided = [row for row in rows if is_decided(row, known[row["definition_hash"]], standings)]
        unread = _subscriptions(connection, tables, decided)
        return [row for row in decided if row["id"] not in unread]

    status = WorkflowStatus.WAITING_FOR_WORKFLOWS
    return _confirmed(connection, tables, status, suspicious, among=among, limit=limit)


def is_decided(row: Record, outline: Outline, standings: Mapping[int, WorkflowStatus]) -> bool:
    """Whether the run has nothing left to wait for, as far as its definition can be read."""
    step = outline.step(row["current_step"])
    if step is None:
        return False
    found = sort_out(dependencies(row), standings)
    return found.is_decided(step.entry.get("mode", "all"), step.entry.get("quorum"))


def _confirmed(
    connection: Connection,
    tables: Tables,
    status: WorkflowStatus,
    suspicious: Callable[[Sequence[Record]], list[Record]],
    *,
    among: int,
    limit: int,
) -> list[int]:
    rows = suspicious(health.unmoved(connection, tables, status, among=among))[:limit]
    if not rows:
        return []
    seen = {row["id"]: row["version"] for row in rows}
    again = health.unmoved(connection, tables, status, among=len(seen), only=seen)
    return [row["id"] for row in again if row["version"] == seen[row["id"]]]


def _subscriptions(connection: Connection, tables: Tables, rows: Sequence[Record]) -> set[int]:
    """Those of these runs whose wish to be told has not been read yet."""
    ids = {id_ for row in rows for id_ in dependencies(row)}
    waiters: set[int | None] = set()
    for _, text in health.letters_to(connection, tables, ids, kind=LetterKind.SUBSCRIBE):
        body: Mapping[str, Any] = decode(text) if text else {}
        waiters.add(body.get("waiter"))
    return {row["id"] for row in rows if row["id"] in waiters}


def _goes_on(status: str | None) -> bool:
    return status is not None and not WorkflowStatus(status).is_terminal
