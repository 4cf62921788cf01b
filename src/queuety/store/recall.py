"""Answers to what a run must know of its own past, and of what it keeps beside itself: the rarer part of `facts`.

Whoever asks holds the run's lock, so nothing of this changes meanwhile. A history is read from its end, and only as far
as the answer lies back. Keys of ours in `control` count only in rows without a job: handlers may return any key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from queuety.codec import decode
from queuety.model import Entry, HandlerRef
from queuety.model.needs import (
    Belongings,
    Need,
    NeedBelongings,
    NeedOpenJobs,
    NeedPast,
    NeedUndo,
    NeedUsedSignals,
    NeedWatching,
    OpenJobs,
    Past,
    Signal,
    Undo,
)
from queuety.store.past import states_at
from queuety.store.tx import Tx

N = TypeVar("N", bound=Need)

Answer = tuple[int, Need, Any]
Answers = Iterator[Answer]

_SETTLED: Final = ", ".join(f"'{entry}'" for entry in Entry if entry.settles)

_AFTERWARDS: Final = f"'{Entry.CLEANED}', '{Entry.UNCLEANED}'"
"""Rows of a step that tell nothing of its own visits."""

_OVER: Final = ("completed", "cancelled")


def answers(tx: Tx, pairs: Sequence[tuple[int, Need]]) -> Answers:
    """The answers to those needs that are of these kinds, each with the run that has it."""
    yield from _pasts(tx, _of(pairs, NeedPast))
    for run_id, undo in _of(pairs, NeedUndo):
        yield run_id, undo, _undo(tx, run_id, undo)
    for run_id, used in _of(pairs, NeedUsedSignals):
        yield run_id, used, _used(tx, run_id, used)
    for run_id, watching in _of(pairs, NeedWatching):
        yield run_id, watching, _watching(tx, run_id, watching)
    yield from _belongings(tx, _of(pairs, NeedBelongings))
    yield from _open_jobs(tx, _of(pairs, NeedOpenJobs))


def _of(pairs: Iterable[tuple[int, Need]], kind: type[N]) -> list[tuple[int, N]]:
    return [(run_id, need) for run_id, need in pairs if isinstance(need, kind)]


def _pasts(tx: Tx, asked: Sequence[tuple[int, NeedPast]]) -> Answers:
    seqs = {(run_id, need): (_entry_of if need.is_entry else _settled)(tx, run_id, need.step) for run_id, need in asked}
    states = states_at(tx, {(run_id, seq) for (run_id, _), seq in seqs.items() if seq is not None})
    for (run_id, need), seq in seqs.items():
        if seq is None or (run_id, seq) not in states:
            yield run_id, need, None
        else:
            yield run_id, need, Past(seq, states[run_id, seq], _used_by(tx, run_id, seq), _groups_by(tx, run_id, seq))


def _settled(tx: Tx, run_id: int, step: int) -> int | None:
    """The row with which the step has settled last, since the run was last moved to another definition."""
    p = tx.statements.parameter
    tx.cursor.execute(
        f"SELECT seq, entry FROM {tx.statements.history} WHERE run_id = {p} "
        f"AND ((step_index = {p} AND entry IN ({_SETTLED})) OR entry = '{Entry.MIGRATED}') ORDER BY seq DESC LIMIT 1",
        [run_id, step],
    )
    row = tx.cursor.fetchone()
    return None if row is None or row[1] == Entry.MIGRATED else int(row[0])


def _entry_of(tx: Tx, run_id: int, step: int) -> int | None:
    """The row before the first one of the step's last visit: the state was as of that when it was entered."""
    statements, cursor = tx.statements, tx.cursor
    p = statements.parameter
    cursor.execute(f"SELECT version, visit, current_step, status FROM {statements.workflows} WHERE id = {p}", [run_id])
    run = cursor.fetchone()
    if run is None:
        return None
    version, present, current_step, status = run
    cursor.execute(
        f"SELECT seq, visit, entry FROM {statements.history} WHERE run_id = {p} "
        f"AND ((step_index = {p} AND entry NOT IN ({_AFTERWARDS})) OR entry = '{Entry.MIGRATED}') "
        f"ORDER BY seq DESC LIMIT 1",
        [run_id, step],
    )
    last = cursor.fetchone()
    is_visited = last is not None and last[2] != Entry.MIGRATED
    if step == current_step and not (is_visited and last[1] == present):
        return int(version)
    if not is_visited:
        return None
    seq, visit, _ = last
    cursor.execute(
        f"SELECT seq FROM {statements.history} WHERE run_id = {p} AND seq < {p} "
        f"AND (visit < {p} OR entry = '{Entry.MIGRATED}') ORDER BY seq DESC LIMIT 1",
        [run_id, seq, visit],
    )
    before = cursor.fetchone()
    if before is not None:
        return int(before[0])
    cursor.execute(f"SELECT MIN(seq) FROM {statements.history} WHERE run_id = {p}", [run_id])
    first: int = cursor.fetchone()[0]
    # Of an earlier visit the beginning may have been pruned.
    is_whole = first == 1 or (visit == present and status not in _OVER)
    return first - 1 if is_whole else None


def _used_by(tx: Tx, run_id: int, seq: int) -> tuple[int, ...]:
    """The signals that had been used when the run was at this row, if it has gone back before it since; else none."""
    statements, cursor = tx.statements, tx.cursor
    p = statements.parameter
    rewound = f"entry = '{Entry.REWOUND}' AND job_id IS NULL"
    cursor.execute(
        f"SELECT control FROM {statements.history} WHERE run_id = {p} AND seq > {p} AND {rewound}", [run_id, seq]
    )
    if all(decode(control)["_rewound"]["to_seq"] >= seq for (control,) in cursor.fetchall()):
        return ()
    cursor.execute(
        f"SELECT seq, entry, control FROM {statements.history} WHERE run_id = {p} AND seq <= {p} AND job_id IS NULL "
        f"AND (({rewound}) OR control LIKE {p}) ORDER BY seq DESC",
        [run_id, seq, '%"_used"%'],
    )
    used: set[int] = set()
    until = seq
    for at, entry, control in cursor.fetchall():
        if at <= until and entry == Entry.REWOUND:
            until = decode(control)["_rewound"]["to_seq"]
        elif at <= until:
            used.update(decode(control).get("_used", ()))
    return tuple(sorted(used))


def _groups_by(tx: Tx, run_id: int, seq: int) -> tuple[tuple[str, tuple[int, ...] | None], ...]:
    """The groups that had been started when the run was at this row, and as None those of which only others tell."""
    p = tx.statements.parameter
    tx.cursor.execute(
        f"SELECT seq, entry, control FROM {tx.statements.history} WHERE run_id = {p} AND job_id IS NULL "
        f"AND (entry = '{Entry.REWOUND}' OR control LIKE {p}) ORDER BY seq DESC",
        [run_id, "%_groups%"],
    )
    found: dict[str, tuple[int, ...] | None] = {}
    until = seq
    for at, entry, control in tx.cursor.fetchall():
        said = decode(control)
        if at <= until and entry == Entry.REWOUND:
            until = said["_rewound"]["to_seq"]
        for name, ids in said.get("_groups", {}).items():
            known = found.setdefault(name, None)
            if at <= until and known is None:
                found[name] = tuple(ids)
    return tuple(sorted(found.items()))


def _undo(tx: Tx, run_id: int, need: NeedUndo) -> Undo | None:
    """Walks down from the end: over what was rewound, and through moves to other definitions."""
    p = tx.statements.parameter
    before = need.before_seq
    earlier = _moved_above(tx, run_id, before)
    handlers = earlier or {}
    steps = need.steps if earlier is None else tuple(earlier)
    while True:
        settled = f"entry IN ('{Entry.COMPLETED}', '{Entry.RESUMED}') AND step_index IN ({', '.join([p] * len(steps))})"
        tx.cursor.execute(
            f"SELECT seq, entry, step_index, control FROM {tx.statements.history} WHERE run_id = {p} AND seq < {p} "
            f"AND ({f'({settled}) OR ' if steps else ''}"
            f"(entry IN ('{Entry.REWOUND}', '{Entry.MIGRATED}') AND job_id IS NULL)) ORDER BY seq DESC LIMIT 1",
            [run_id, before, *steps],
        )
        row = tx.cursor.fetchone()
        if row is None:
            return None
        seq, entry, step, control = row
        if entry == Entry.REWOUND:
            before = decode(control)["_rewound"]["to_seq"] + 1
        elif entry == Entry.MIGRATED:
            handlers = _handlers(control)
            before, steps = seq, tuple(handlers)
        else:
            return Undo(seq, step, handlers.get(step))


def _moved_above(tx: Tx, run_id: int, seq: int) -> dict[int, HandlerRef] | None:
    """What could be undone under the definition that the run had before this row, if it has another one by now.

    Of a run that was never moved the rows are not read: they lie above what is undone already.
    """
    statements, cursor = tx.statements, tx.cursor
    p = statements.parameter
    cursor.execute(f"SELECT ledger FROM {statements.workflows} WHERE id = {p}", [run_id])
    row = cursor.fetchone()
    if row is None or row[0] is None or not decode(row[0]).get("moved"):
        return None
    cursor.execute(
        f"SELECT control FROM {statements.history} WHERE run_id = {p} AND seq >= {p} AND entry = '{Entry.MIGRATED}' "
        f"AND job_id IS NULL ORDER BY seq LIMIT 1",
        [run_id, seq],
    )
    moved = cursor.fetchone()
    return None if moved is None else _handlers(moved[0])


def _handlers(control: str) -> dict[int, HandlerRef]:
    """By index, what undid the steps of the definition that this move has left."""
    known = decode(control)["_migrated"]["compensations"]
    return {int(index): HandlerRef(told["name"], told.get("config")) for index, told in known.items()}


def _used(tx: Tx, run_id: int, need: NeedUsedSignals) -> tuple[Signal, ...]:
    statements, cursor = tx.statements, tx.cursor
    p = statements.parameter
    cursor.execute(
        f"SELECT control FROM {statements.history} WHERE run_id = {p} AND seq > {p} AND job_id IS NULL "
        f"AND control LIKE {p}",
        [run_id, need.after_seq, '%"_used"%'],
    )
    seqs = {seq for (control,) in cursor.fetchall() for seq in decode(control).get("_used", ())}
    if not seqs:
        return ()
    mine = f" AND {{column}} = {p}"
    kept = statements.select_among(
        cursor, ("seq",), statements.signals, "seq", sorted(seqs), mine.format(column="workflow_id"), run_id
    )
    seqs -= {row[0] for row in kept}
    if not seqs:
        return ()
    rows = statements.select_among(
        cursor, ("seq", "control"), statements.history, "seq", sorted(seqs), mine.format(column="run_id"), run_id
    )
    told = {seq: decode(control)["_signal"] for seq, control in rows}
    return tuple(Signal(seq, told[seq]["name"], told[seq]["payload"]) for seq in sorted(told))


def _watching(tx: Tx, run_id: int, need: NeedWatching) -> frozenset[int]:
    if not need.ids:
        return frozenset()
    statements = tx.statements
    p = statements.parameter
    rows = statements.select_among(
        tx.cursor,
        ("workflow_id",),
        statements.watchers,
        "workflow_id",
        need.ids,
        f" AND waiter_id = {p} AND visit = {p}",
        run_id,
        need.visit,
    )
    return frozenset(row[0] for row in rows)


def _belongings(tx: Tx, asked: Sequence[tuple[int, NeedBelongings]]) -> Answers:
    if not asked:
        return
    ids, statements = sorted({run_id for run_id, _ in asked}), tx.statements
    signals: dict[int, list[Signal]] = defaultdict(list)
    groups: dict[int, list[tuple[str, tuple[int, ...]]]] = defaultdict(list)
    kept = statements.select_among(
        tx.cursor,
        ("workflow_id", "seq", "name", "payload"),
        statements.signals,
        "workflow_id",
        ids,
        " ORDER BY workflow_id, seq",
    )
    for run_id, seq, name, payload in kept:
        signals[run_id].append(Signal(seq, name, decode(payload)))
    started = statements.select_among(
        tx.cursor,
        ("workflow_id", "name", "ids"),
        statements.groups,
        "workflow_id",
        ids,
        " ORDER BY workflow_id, name",
    )
    for run_id, name, members in started:
        groups[run_id].append((name, tuple(decode(members))))
    for run_id, need in asked:
        yield run_id, need, Belongings(tuple(signals[run_id]), tuple(groups[run_id]))


def _open_jobs(tx: Tx, asked: Sequence[tuple[int, NeedOpenJobs]]) -> Answers:
    """Locked: no worker takes one of them in hand before what is decided by their number is written."""
    if not asked:
        return
    ids, statements = sorted({run_id for run_id, _ in asked}), tx.statements
    rows = statements.select_among(
        tx.cursor,
        ("workflow_id", "role", "phase"),
        statements.jobs,
        "workflow_id",
        ids,
        f" AND phase IN ('ready', 'delayed', 'suspect', 'leased') ORDER BY id{statements.bulk.for_update_waiting}",
    )
    counts = Counter((run_id, role, phase) for run_id, role, phase in rows)
    for run_id, need in asked:
        steps = {phase: counts[run_id, "step", phase] for phase in ("leased", "delayed", "ready", "suspect")}
        delayed = steps["delayed"] + counts[run_id, "cleanup", "delayed"]
        yield run_id, need, OpenJobs(steps["leased"], delayed, steps["ready"] + steps["suspect"])
