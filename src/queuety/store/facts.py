"""Answers to what steps must know before they can decide, for several runs in few statements. Nothing is locked.

What a run asks about its own past is answered in `recall`.

A run that is asked for is read as last committed: every statement here sees that on each database (READ COMMITTED; on
SQLite whoever writes sees it all). What a run keeps for itself cannot change meanwhile: whoever asks holds its lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from queuety.codec import decode
from queuety.errors import ConstraintViolation, StoreError
from queuety.model import CleanupStatus, Entry, State, WorkflowStatus
from queuety.model.needs import (
    Need,
    NeedGroup,
    NeedIds,
    NeedParts,
    NeedSignals,
    NeedStanding,
    NeedStates,
    PartRow,
    Signal,
    Standing,
)
from queuety.store import load, recall
from queuety.store.load import Runs
from queuety.store.tx import Tx

STATES_AT_ONCE: Final = 64 * 1024 * 1024
"""Characters of other runs' states that one run may ask for: 300 of 1 MB took 1.2 GB of memory, to be refused then."""

FEW_STATES: Final = 8
"""So many are read without asking for their sizes: each is at most as large as a value may be."""

_OF_ENDED: Final = tuple(
    f"CASE WHEN status IN ('{WorkflowStatus.FAILED}', '{WorkflowStatus.CANCELLED}') THEN {column} END"
    for column in ("runtime", "ledger")
)
"""What tells how far an ended run is; of one that goes on, which may keep much, nothing of it is read."""

N = TypeVar("N", bound=Need)

Asked = Sequence[tuple[int, N]]
"""Needs of one kind, each with the run that has it."""

Answers = Iterable[tuple[int, Need, Any]]


def read_facts(
    tx: Tx,
    asked: Mapping[int, Collection[Need]],
    *,
    runs: Runs | None = None,
    strange: dict[int, str] | None = None,
) -> dict[int, dict[Need, Any]]:
    """By run and need, the answer as the need describes it. `runs` is what the process has decoded of others.

    A run that needs to know of one which this version cannot read is left out and goes into `strange`, with the
    reason; without it, `StoreError` is raised.
    """
    pairs = [(run_id, need) for run_id, needs in asked.items() for need in needs]
    found: dict[int, dict[Need, Any]] = {run_id: {} for run_id in asked}
    illegible: dict[int, str] = {}
    for run_id, need, answer in (
        *_ids(tx, _of(pairs, NeedIds)),
        *_signals(tx, _of(pairs, NeedSignals)),
        *_standing(tx, _of(pairs, NeedStanding), illegible),
        *_states(tx, _of(pairs, NeedStates), runs or Runs(), illegible),
        *_groups(tx, _of(pairs, NeedGroup)),
        *_parts(tx, _of(pairs, NeedParts)),
        *recall.answers(tx, pairs),
    ):
        found[run_id][need] = answer
    if illegible:
        for run_id, need in pairs:
            if isinstance(need, NeedStanding | NeedStates) and (about := illegible.keys() & need.ids):
                other = min(about)
                reason = f"workflow {other}, of which it needs to know, cannot be read: {illegible[other]}"
                if strange is None:
                    raise StoreError(f"workflow {run_id}: {reason}; upgrade this process")
                strange[run_id] = reason
                found.pop(run_id, None)
    return found


def _of(pairs: Iterable[tuple[int, Need]], kind: type[N]) -> list[tuple[int, N]]:
    return [(run_id, need) for run_id, need in pairs if isinstance(need, kind)]


def _ids(tx: Tx, asked: Asked[NeedIds]) -> Answers:
    new = iter(tx.reserve(sum(need.count for _, need in asked)))
    for run_id, need in asked:
        yield run_id, need, tuple(next(new) for _ in range(need.count))


def _signals(tx: Tx, asked: Asked[NeedSignals]) -> Answers:
    if not asked:
        return
    p = tx.statements.parameter
    part = (
        f"SELECT * FROM (SELECT workflow_id, seq, name, payload FROM {tx.statements.signals} WHERE workflow_id = {p} "
        f"AND name = {p} AND seq > {p} ORDER BY seq LIMIT {p}) AS first_ones"
    )
    ranges = ((run_id, need.name, need.after_seq, need.limit) for run_id, need in asked)
    kept: dict[int, dict[int, Signal]] = {}
    for run_id, seq, name, payload in tx.statements.select_ranges(tx.cursor, part, ranges):
        kept.setdefault(run_id, {})[seq] = Signal(seq, name, decode(payload))
    for run_id, need in asked:
        own = kept.get(run_id, {})
        fitting = [own[seq] for seq in sorted(own) if seq > need.after_seq and own[seq].name == need.name]
        yield run_id, need, tuple(fitting[: need.limit])


def _standing(tx: Tx, asked: Asked[NeedStanding], illegible: dict[int, str]) -> Answers:
    ids = sorted({other for _, need in asked for other in need.ids})
    rows: list[tuple[Any, ...]] = []
    if ids:
        columns = ("id", "status", "cleanup", "error_message", *_OF_ENDED)
        rows = tx.statements.select_among(tx.cursor, columns, tx.statements.workflows, "id", ids)
        if len(rows) < len(ids) and tx.catch_up():
            rows = tx.statements.select_among(tx.cursor, columns, tx.statements.workflows, "id", ids)
    standing: dict[int, Standing] = {}
    for workflow_id, status, cleanup, message, *kept in rows:
        runtime, ledger = (None if text is None else decode(text) for text in kept)
        try:
            standing[workflow_id] = Standing.of(
                WorkflowStatus(status), CleanupStatus(cleanup), message, runtime, ledger
            )
        except ValueError as error:  # one that only a newer version has
            illegible[workflow_id] = str(error)
    for run_id, need in asked:
        yield run_id, need, {other: standing[other] for other in need.ids if other in standing}


def _states(tx: Tx, asked: Asked[NeedStates], runs: Runs, illegible: dict[int, str]) -> Answers:
    sizes = _sizes(tx, asked)
    fitting: list[tuple[int, NeedStates]] = []
    for run_id, need in asked:
        size = sum(sizes.get(other, 0) for other in need.ids)
        if size <= STATES_AT_ONCE:
            fitting.append((run_id, need))
        else:
            yield run_id, need, _too_large(need, size)
    held = load.read(tx, runs, (other for _, need in fitting for other in need.ids), strange=illegible)
    for run_id, need in fitting:
        states: dict[int, State] = {other: held[other].workflow.state for other in need.ids if other in held}
        yield run_id, need, states


def _sizes(tx: Tx, asked: Asked[NeedStates]) -> dict[int, int]:
    """How many characters the states of these runs have, where so many are asked for that it could be too much."""
    many = sorted({other for _, need in asked if len(need.ids) > FEW_STATES for other in need.ids})
    if not many:
        return {}
    columns, statements = ("id", "state_bytes + delta_bytes"), tx.statements
    return {row[0]: row[1] for row in statements.select_among(tx.cursor, columns, statements.workflows, "id", many)}


def _too_large(need: NeedStates, size: int) -> ConstraintViolation:
    return ConstraintViolation(
        f"the states of the {len(need.ids)} workflows that it takes over have {size:,} characters, more than "
        f"{STATES_AT_ONCE:,}; keep what they hold elsewhere and return references"
    )


def _groups(tx: Tx, asked: Asked[NeedGroup]) -> Answers:
    if not asked:
        return
    names = sorted({need.name for _, need in asked})
    statements = tx.statements
    rows = statements.select_among(
        tx.cursor,
        ("workflow_id", "name", "ids"),
        statements.groups,
        "workflow_id",
        sorted({run_id for run_id, _ in asked}),
        f" AND name IN ({', '.join([statements.parameter] * len(names))})",
        *names,
    )
    groups = {(run_id, name): ids for run_id, name, ids in rows}
    for run_id, need in asked:
        ids = groups.get((run_id, need.name))
        yield run_id, need, None if ids is None else tuple(decode(ids))


def _parts(tx: Tx, asked: Asked[NeedParts]) -> Answers:
    if not asked:
        return
    p = tx.statements.parameter
    part = (
        f"SELECT run_id, seq, visit, entry, branch, job_id, control, error FROM {tx.statements.history} "
        f"WHERE run_id = {p} AND seq > {p} AND visit = {p} AND branch IS NOT NULL AND job_id IS NOT NULL "
        f"AND (entry IN ('{Entry.BRANCH}', '{Entry.ITEM}') OR (entry = '{Entry.FAILED}' AND final = 1))"
    )
    ranges = ((run_id, need.after_seq, need.visit) for run_id, need in asked)
    ended: dict[tuple[int, int], dict[int, PartRow]] = {}
    for run_id, seq, visit, *rest in tx.statements.select_ranges(tx.cursor, part, ranges):
        ended.setdefault((run_id, visit), {})[seq] = _part(seq, *rest)
    for run_id, need in asked:
        own = ended.get((run_id, need.visit), {})
        yield run_id, need, tuple(own[seq] for seq in sorted(own) if seq > need.after_seq)


def _part(seq: int, entry: str, branch: int, job_id: int, control: str | None, error: str | None) -> PartRow:
    if entry == Entry.FAILED:
        return PartRow(seq, Entry.FAILED, branch, job_id, error=decode(error)["message"] if error else None)
    output = decode(control).get("_output") if control else None
    return PartRow(seq, Entry(entry), branch, job_id, output=output)
