"""Workflows out of the database: locked for deciding, or just read; and what waits in their inboxes.

A workflow's row holds a snapshot of its state; the deltas since stand in the history and are folded over it. A process
keeps what it decoded (`Runs`) and trusts it only while the row still has the same version, which it reads every time;
of a run that others have moved on it reads what has changed since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from queuety.codec import decode
from queuety.errors import PayloadError, StoreError
from queuety.model import LetterKind, State, Workflow
from queuety.model.deltas import fold
from queuety.store.claims import UNREADABLE_US
from queuety.store.door import Tx
from queuety.store.rows import workflow_from_row
from queuety.store.statements import WORKFLOW_COLUMNS

_WITHOUT_STATE: Final = tuple("NULL" if name == "state" else name for name in WORKFLOW_COLUMNS)
"""What is read of a run whose state is known up to an earlier version."""

_KINDS: Final = frozenset(LetterKind)


LETTERS_AT_ONCE: Final = 1_000
"""Letters that are opened in one transaction."""

_LOOKS: Final = 3
"""How often a run is read whose deltas go away, pruned or purged, after its row was read; not locked, they may."""


@dataclass(frozen=True, slots=True)
class Held:
    """A workflow and how its state is stored: a snapshot as of `state_version`, and the deltas since.

    Sizes are in characters.
    """

    workflow: Workflow
    state_bytes: int
    delta_bytes: int
    state_version: int


class Runs:
    """The workflows that this process has decoded, the latest used last; at most `most` of them.

    Not thread-safe: it belongs to one loop. An entry may be outdated; `lock` and `read` compare versions.
    """

    def __init__(self, most: int = 4096, most_bytes: int = 64 * 1024 * 1024) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._held: OrderedDict[int, Held] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, workflow_id: int) -> Held | None:
        """What is kept of this workflow, or None."""
        return self._held.get(workflow_id)

    def keep(self, held: Held) -> None:
        """Keeps this version; a workflow that has ended is forgotten instead."""
        workflow_id = held.workflow.id
        self.forget(workflow_id)
        if held.workflow.status.is_terminal:
            return
        self._held[workflow_id] = held
        self._bytes += held.state_bytes + held.delta_bytes
        while len(self._held) > self._most or (self._bytes > self._most_bytes and len(self._held) > 1):
            _, oldest = self._held.popitem(last=False)
            self._bytes -= oldest.state_bytes + oldest.delta_bytes

    def forget(self, workflow_id: int) -> None:
        """Drops what is kept of this workflow, if anything is."""
        held = self._held.pop(workflow_id, None)
        if held is not None:
            self._bytes -= held.state_bytes + held.delta_bytes


def lock(
    tx: Tx, runs: Runs, ids: Iterable[int], *, waiting: bool = False, strange: dict[int, str] | None = None
) -> dict[int, Held]:
    """The workflows with these ids, locked in id order; missing ones are left out.

    So are those that another transaction holds, unless `waiting`. Those that this version cannot read are left out too
    and go into `strange`, with the reason; without it, `StoreError` is raised.
    """
    bulk = tx.statements.bulk
    return _load(tx, runs, sorted(set(ids)), bulk.for_update_waiting if waiting else bulk.for_update, strange)


def read(tx: Tx, runs: Runs, ids: Iterable[int], *, strange: dict[int, str] | None = None) -> dict[int, Held]:
    """The workflows with these ids as they stand in this transaction, not locked; missing ones are left out.

    `strange` as for `lock`.
    """
    return _load(tx, runs, sorted(set(ids)), "", strange)


def existing(tx: Tx, ids: Sequence[int]) -> set[int]:
    """Which of these workflows are there, locked by others or not."""
    if not ids:
        return set()
    rows = tx.statements.select_among(tx.cursor, ("id",), tx.statements.workflows, "id", ids)
    return {row[0] for row in rows}


def _load(tx: Tx, runs: Runs, ids: Sequence[int], locking: str, strange: dict[int, str] | None) -> dict[int, Held]:
    if not ids:
        return {}
    statements, cursor = tx.statements, tx.cursor
    found: dict[int, Held] = {}
    tail = f" ORDER BY id{locking}"
    whole = list(ids)
    if any(runs.get(workflow_id) for workflow_id in ids):
        versions = statements.select_among(
            cursor, ("id", "version", "state_version"), statements.workflows, "id", ids, tail
        )
        tail = " ORDER BY id"
        whole = []
        known: dict[int, Held] = {}
        for workflow_id, version, state_version in versions:
            held = runs.get(workflow_id)
            if held is not None and held.workflow.version == version:
                found[workflow_id] = held
            elif held is not None and state_version <= held.workflow.version < version:
                known[workflow_id] = held
            else:
                whole.append(workflow_id)
        if known:
            rows = statements.select_among(cursor, _WITHOUT_STATE, statements.workflows, "id", sorted(known), tail)
            # Unlocked, a row may have moved on since its version was read.
            fit = [row for row in rows if row[9] <= known[row[0]].workflow.version]
            whole += [row[0] for row in rows if row[9] > known[row[0]].workflow.version]
            decoded, torn = _decode(tx, fit, strange, known)
            found |= decoded
            whole += torn
    for _ in range(_LOOKS):
        if not whole:
            break
        rows = statements.select_among(cursor, WORKFLOW_COLUMNS, statements.workflows, "id", sorted(whole), tail)
        decoded, whole = _decode(tx, rows, strange, {})
        found |= decoded
    for workflow_id in whole:
        reason = "rows of its history are missing"
        if strange is None:
            raise StoreError(f"workflow {workflow_id} cannot be read: {reason}")
        strange[workflow_id] = reason
    return found


def _decode(
    tx: Tx, rows: Sequence[Sequence[Any]], strange: dict[int, str] | None, known: Mapping[int, Held]
) -> tuple[dict[int, Held], list[int]]:
    """The workflows of these rows of `WORKFLOW_COLUMNS`; the states of those in `known` are folded from there. Then the
    ids of those whose deltas are not there any more."""
    behind: dict[int, tuple[int, int]] = {}
    for row in rows:
        before = known.get(row[0])
        if before is None:
            if row[11]:
                behind[row[0]] = (row[9], row[4])
        elif (row[9], row[11]) != (before.state_version, before.delta_bytes):
            behind[row[0]] = (before.workflow.version, row[4])
    deltas = _deltas(tx, behind) if behind else {}
    torn = [workflow_id for workflow_id in behind if workflow_id not in deltas]
    decoded: dict[int, Held] = {}
    for row in rows:
        if row[0] in behind and row[0] not in deltas:
            continue
        before = known.get(row[0])
        state: State = decode(row[8]) if before is None else before.workflow.state
        if row[0] in deltas:
            state = fold(state, deltas[row[0]])
        try:
            workflow = workflow_from_row(row, state)
        except ValueError as error:  # a status, say, that only a newer version has
            if strange is None:
                raise unreadable(row[0], error) from error
            strange[row[0]] = str(error)
        else:
            decoded[row[0]] = Held(workflow, state_bytes=row[10], delta_bytes=row[11], state_version=row[9])
    return decoded, torn


def unreadable(workflow_id: int, error: ValueError) -> StoreError:
    """What is raised of a run that only a newer version can read."""
    return StoreError(
        f"workflow {workflow_id} cannot be read by this version of queuety ({error}); upgrade this process"
    )


def _deltas(tx: Tx, between: Mapping[int, tuple[int, int]]) -> dict[int, list[tuple[dict[str, Any], list[str]]]]:
    """What each of these runs has set and removed after the first version given for it, up to the second, in order.

    Left out are those of which the first row is gone: a history is pruned, and purged, from its start.
    """
    p = tx.statements.parameter
    part = (
        f"SELECT run_id, seq, changed, removed FROM {tx.statements.history} WHERE run_id = {p} AND seq > {p} "
        f"AND seq <= {p} AND (changed IS NOT NULL OR removed IS NOT NULL OR seq = {p})"
    )
    found: dict[int, list[tuple[dict[str, Any], list[str]]]] = {}
    ranges = ((run_id, after, upto, after + 1) for run_id, (after, upto) in between.items())
    rows = sorted(tx.statements.select_ranges(tx.cursor, part, ranges), key=lambda row: (row[0], row[1]))
    for run_id, seq, changed, removed in rows:
        if seq == between[run_id][0] + 1:
            found[run_id] = []
        if run_id in found:
            found[run_id].append((decode(changed) if changed else {}, decode(removed) if removed else []))
    return found


def id_of_key(tx: Tx, name: str, idempotency_key: str, *, is_latest: bool = False) -> int | None:
    """The id of the run of this name that was dispatched with this key, or None.

    `is_latest`: as it was committed last, its row locked; else as this transaction sees it.
    """
    p = tx.statements.parameter
    tx.cursor.execute(
        f"SELECT id FROM {tx.statements.workflows} WHERE name = {p} AND idempotency_key = {p} "
        f"AND idempotency_key IS NOT NULL{tx.statements.bulk.for_update_waiting if is_latest else ''}",
        [name, idempotency_key],
    )
    row = tx.cursor.fetchone()
    return None if row is None else int(row[0])


def was_started(tx: Tx, workflow_id: int, created_us: int) -> bool:
    """Whether this run was started at that moment: on SQLite an id that was never committed is drawn again."""
    p = tx.statements.parameter
    tx.cursor.execute(
        f"SELECT 1 FROM {tx.statements.workflows} WHERE id = {p} AND created_us = {p}", [workflow_id, created_us]
    )
    return tx.cursor.fetchone() is not None


def has_operation(tx: Tx, run_id: int, operation: int) -> bool:
    """Whether a command with this operation id stands in the run's history."""
    p = tx.statements.parameter
    tx.cursor.execute(
        f"SELECT 1 FROM {tx.statements.history} WHERE run_id = {p} AND token = {p} LIMIT 1", [run_id, operation]
    )
    return tx.cursor.fetchone() is not None


@dataclass(frozen=True, slots=True)
class Letter:
    """Something that has come due for a workflow, or that another run tells it. `body` as `LetterKind` says."""

    id: int
    workflow_id: int
    kind: LetterKind
    visit: int | None
    body: Any


def due_workflows(tx: Tx, now_us: int, limit: int) -> list[int]:
    """Ids of workflows for which something is due, earliest first, without repeats; nothing is locked."""
    tx.cursor.execute(tx.statements.due_inbox, [now_us, limit])
    return list(dict.fromkeys(row[0] for row in tx.cursor.fetchall()))


def last_due(tx: Tx, now_us: int) -> int | None:
    """The highest id of a letter that is due, None if none is; with it `due_until` asks for no later ones."""
    statements = tx.statements
    tx.cursor.execute(f"SELECT MAX(id) FROM {statements.inbox} WHERE due_us <= {statements.parameter}", [now_us])
    (found,) = tx.cursor.fetchone() or (None,)
    return None if found is None else int(found)


def due_until(tx: Tx, now_us: int, last_id: int) -> int | None:
    """A workflow for which a letter of at most this id is due, the earliest; nothing is locked."""
    statements, p = tx.statements, tx.statements.parameter
    tx.cursor.execute(
        f"SELECT workflow_id FROM {statements.inbox} WHERE due_us <= {p} AND id <= {p} ORDER BY due_us LIMIT 1",
        [now_us, last_id],
    )
    row = tx.cursor.fetchone()
    return None if row is None else int(row[0])


def postpone_letters(tx: Tx, workflow_ids: Sequence[int], *, now_us: int, until_us: int) -> None:
    """Lets what is due for these workflows come due again later."""
    if workflow_ids:
        p = tx.statements.parameter
        tx.statements.change_among(
            tx.cursor,
            f"UPDATE {tx.statements.inbox} SET due_us = {p}",
            "workflow_id",
            workflow_ids,
            f" AND due_us <= {int(now_us)}",
            until_us,
        )


def open_letters(tx: Tx, workflow_ids: Sequence[int], now_us: int, *, limit: int = LETTERS_AT_ONCE) -> list[Letter]:
    """Takes out what is due for these workflows, which must be locked; in order of due time and arrival.

    At most `limit`: the rest stays due. Letters of a kind that only a newer version knows stay, and come due again
    later.
    """
    p = tx.statements.parameter
    tail = f" AND due_us <= {p} ORDER BY due_us, id LIMIT {p}"
    return _taken(tx, workflow_ids, tail, now_us, limit, now_us=now_us)


def letters_of_missing(tx: Tx, workflow_ids: Sequence[int]) -> list[Letter]:
    """Takes out all letters to these workflows, which are not there: nobody else will ever open them.

    Those that another process is just taking out are left to it; letters of unknown kinds as in `open_letters`.
    """
    return _taken(tx, workflow_ids, f" ORDER BY due_us, id{tx.statements.bulk.for_update}", now_us=tx.now_us())


def _taken(tx: Tx, workflow_ids: Sequence[int], tail: str, *more: Any, now_us: int) -> list[Letter]:
    if not workflow_ids:
        return []
    statements, cursor = tx.statements, tx.cursor
    columns = ("id", "workflow_id", "kind", "visit", "body")
    rows = statements.select_among(cursor, columns, statements.inbox, "workflow_id", workflow_ids, tail, *more)
    known = [row for row in rows if row[2] in _KINDS]
    if known:
        statements.change_among(cursor, f"DELETE FROM {statements.inbox}", "id", [row[0] for row in known])
    if len(known) < len(rows):
        later = f"UPDATE {statements.inbox} SET due_us = {statements.parameter}"
        strange = [row[0] for row in rows if row[2] not in _KINDS]
        statements.change_among(cursor, later, "id", strange, "", now_us + UNREADABLE_US)
    return [Letter(row[0], row[1], LetterKind(row[2]), row[3], _body(row[4])) for row in known]


def _body(text: str | None) -> Any:
    """What the letter says; None where nobody can read it, which is no reason to leave the others closed."""
    try:
        return decode(text) if text else None
    except PayloadError:
        return None
