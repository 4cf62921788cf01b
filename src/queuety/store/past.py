"""What states runs had: as of a row of their history, folded from the nearest state that is kept at or below it.

Kept are the payload (as of 0), a checkpoint now and then, and the snapshot in the run's own row. Where the first rows
of a history were pruned, nothing below what stands for them is to be had. Nothing is locked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from queuety.codec import decode
from queuety.model import State
from queuety.model.deltas import Delta, fold
from queuety.store.settle import CHECKPOINT_EVERY
from queuety.store.tx import Tx

Moment = tuple[int, int]
"""A run, and the `seq` of a row of its history; 0 is the start."""

_LOOKS: Final = 3
"""How often a state is looked for whose base goes away between two statements."""


def states_at(tx: Tx, wanted: Iterable[Moment]) -> dict[Moment, State]:
    """The public states of runs as of rows of their history, by run and `seq` as asked for.

    Left out are runs and rows that are not there, and states that pruning has made unknowable. A few statements for
    many; all the states stand in memory at once.
    """
    left = set(wanted)
    found: dict[Moment, State] = {}
    for _ in range(_LOOKS):
        if not left:
            break
        bases = _bases(tx, left)
        texts = _texts(tx, bases)
        deltas = _deltas(tx, {moment: bases[moment][1] for moment in texts})
        found |= {moment: fold(decode(texts[moment]), own) for moment, own in deltas.items()}
        left = bases.keys() - found.keys()
    return found


class _Kept(Enum):
    """Where a state is kept."""

    PAYLOAD = 0
    CHECKPOINT = 1
    SNAPSHOT = 2


_Base = tuple[_Kept, int]
"""What is folded over, and the row that it is as of."""


def _bases(tx: Tx, wanted: Iterable[Moment]) -> dict[Moment, _Base]:
    """The nearest base of each that may be had at all."""
    statements = tx.statements
    moments = sorted(wanted)
    ids = sorted({run_id for run_id, _ in moments})
    columns = ("id", "version", "state_version")
    rows = statements.select_among(tx.cursor, columns, statements.workflows, "id", ids)
    versions = {row[0]: (row[1], row[2]) for row in rows}
    bases: dict[Moment, _Base] = {}
    further: list[Moment] = []
    for run_id, seq in moments:
        version, state_version = versions.get(run_id, (-1, 0))
        if not 0 <= seq <= version:
            continue
        if seq == 0:
            bases[run_id, seq] = _Kept.PAYLOAD, 0
            continue
        if state_version <= seq:
            bases[run_id, seq] = _Kept.SNAPSHOT, state_version
        if not 0 <= seq - state_version <= CHECKPOINT_EVERY:
            further.append((run_id, seq))
    p = statements.parameter
    part = (
        f"SELECT * FROM (SELECT run_id, seq FROM {statements.checkpoints} WHERE run_id = {p} AND seq <= {p} "
        f"ORDER BY seq DESC LIMIT 1) AS nearest"
    )
    checkpoints: dict[int, list[int]] = defaultdict(list)
    for run_id, seq in statements.select_ranges(tx.cursor, part, further):
        checkpoints[run_id].append(seq)
    for run_id, seq in further:
        below = max((each for each in checkpoints[run_id] if each <= seq), default=0)
        other = bases.get((run_id, seq), (_Kept.PAYLOAD, 0))
        bases[run_id, seq] = (_Kept.CHECKPOINT, below) if below > other[1] else other
    return bases


def _texts(tx: Tx, bases: Mapping[Moment, _Base]) -> dict[Moment, str]:
    """The texts of these bases; of those that are there no longer there is none."""
    statements = tx.statements
    texts: dict[tuple[int, _Base], str] = {}
    for kept, columns in (
        (_Kept.PAYLOAD, ("id", "0", "payload")),
        (_Kept.SNAPSHOT, ("id", "state_version", "state")),
    ):
        ids = sorted({run_id for (run_id, _), (where, _) in bases.items() if where is kept})
        rows = statements.select_among(tx.cursor, columns, statements.workflows, "id", ids) if ids else []
        texts |= {(run_id, (kept, as_of)): text for run_id, as_of, text in rows}
    p = statements.parameter
    part = f"SELECT run_id, seq, state FROM {statements.checkpoints} WHERE run_id = {p} AND seq = {p}"
    keys = sorted({(run_id, seq) for (run_id, _), (where, seq) in bases.items() if where is _Kept.CHECKPOINT})
    for run_id, seq, text in statements.select_ranges(tx.cursor, part, keys):
        texts[run_id, (_Kept.CHECKPOINT, seq)] = text
    return {moment: texts[key] for moment, base in bases.items() if (key := (moment[0], base)) in texts}


def _deltas(tx: Tx, bases: Mapping[Moment, int]) -> dict[Moment, list[Delta]]:
    """What has been set and removed after the base of each, in order; those whose first row is gone are left out."""
    statements = tx.statements
    p = statements.parameter
    # The first row is read whatever it holds: it tells that all of them are there, since a history is pruned from its
    # start.
    part = (
        f"SELECT run_id, seq, changed, removed FROM {statements.history} WHERE run_id = {p} AND seq > {p} "
        f"AND seq <= {p} AND (changed IS NOT NULL OR removed IS NOT NULL OR seq = {p})"
    )
    ranges = ((run_id, base, seq, base + 1) for (run_id, seq), base in bases.items() if base < seq)
    rows: dict[int, dict[int, Delta]] = defaultdict(dict)
    for run_id, seq, changed, removed in statements.select_ranges(tx.cursor, part, ranges):
        rows[run_id][seq] = (decode(changed) if changed else {}, decode(removed) if removed else [])
    found: dict[Moment, list[Delta]] = {}
    for (run_id, seq), base in bases.items():
        own = rows[run_id]
        if base == seq or base + 1 in own:
            found[run_id, seq] = [own[each] for each in sorted(own) if base < each <= seq]
    return found
