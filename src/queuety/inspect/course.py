"""The states of a run along its history, and the definitions that it had: of the time, not of now.

Nothing of it is stored. A reader begins at a state that is known, goes through the rows in order and is told, row by
row, how the state was; so a page of events costs one pass over the deltas that lead to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from queuety.codec import decode
from queuety.inspect.outline import Outline, outlines
from queuety.model import Entry, Json
from queuety.model.deltas import Delta, fold
from queuety.store.queries import Record, past
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Course:
    """The state of a run as of the row that was passed last; None where pruning has made it unknowable.

    What is given out is shared: whoever wants to change it copies it.
    """

    def __init__(self, state: dict[str, Json] | None) -> None:
        self.state = state
        self._visit: int | None = None
        self._entered = state
        self._changes: list[tuple[int | None, Delta]] = []  # what this visit has changed so far, and when if beside it

    def given(self, visit: int, started_us: int) -> dict[str, Json] | None:
        """The state that an attempt of this visit saw which began then; its row is passed next.

        What happened beside it since (another branch has ended, somebody has changed the state) is not in it. Nothing
        else is judged by its time: clocks differ a little, and what follows from a row begins after it.
        """
        self._turn_to(visit)
        seen = [delta for at_us, delta in self._changes if at_us is None or at_us <= started_us]
        if self._entered is None or len(seen) == len(self._changes):
            return self.state
        return fold(self._entered, seen)

    def take(self, row: Record) -> None:
        """Passes a row."""
        self._turn_to(row["visit"])
        delta = delta_of(row)
        if delta is None or self.state is None:
            return
        self._changes.append((row["at_us"] if row["entry"] in _BESIDE else None, delta))
        self.state = fold(self.state, (delta,))

    def _turn_to(self, visit: int) -> None:
        if visit != self._visit:
            self._visit, self._entered, self._changes = visit, self.state, []


_BESIDE: Final = (Entry.BRANCH, Entry.PATCHED)
"""What may happen while an attempt of the same visit is being made."""


def delta_of(row: Record) -> Delta | None:
    """What the row has changed in the state; None for nothing."""
    changed = decode(row["changed"]) if row["changed"] else {}
    removed = decode(row["removed"]) if row["removed"] else []
    return (changed, removed) if changed or removed else None


def states_as_of(
    connection: Connection, tables: Tables, run_id: int, seqs: Iterable[int]
) -> dict[int, dict[str, Json]]:
    """The states as of these rows of one run, in one pass; without those that pruning has made unknowable."""
    wanted = sorted(set(seqs))
    base = past.kept_below(connection, tables, run_id, wanted[0]) if wanted else None
    if base is None:
        return {} if len(wanted) < 2 else states_as_of(connection, tables, run_id, wanted[1:])
    rows = past.deltas(connection, tables, run_id, after_seq=base.seq, upto_seq=wanted[-1])
    state: dict[str, Json] = decode(base.text)
    found: dict[int, dict[str, Json]] = {}
    below = base.seq
    for seq in wanted:
        own = [delta for row in rows if below < row["seq"] <= seq and (delta := delta_of(row)) is not None]
        found[seq] = state = fold(state, own) if own else state
        below = seq
    return found


class Eras:
    """The definitions that runs have had, by the rows of their histories."""

    def __init__(self, connection: Connection, tables: Tables) -> None:
        self._connection = connection
        self._tables = tables
        self._present: dict[int, str] = {}
        self._moves: dict[int, dict[int, str]] = {}  # by run, where it left which definition
        self._outlines: dict[str, Outline] = {}

    def know(self, present: Mapping[int, str]) -> None:
        """These runs have these definitions now."""
        self._present |= present

    def note(self, run_id: int, seq: int, control: str | None) -> None:
        """The run changed its definition at this row."""
        left = moved(control).get("from")
        if isinstance(left, str):
            self._moves.setdefault(run_id, {})[seq] = left

    def look(self, firsts: Mapping[int, int]) -> None:
        """Finds where these runs changed their definition, each from the row given for it on."""
        for row in past.migrations(self._connection, self._tables, firsts):
            self.note(row["run_id"], row["seq"], row["control"])

    def outline(self, run_id: int, seq: int) -> Outline:
        """What the run was to do at this row; an empty outline where that is not there to be read."""
        moves = self._moves.get(run_id)
        later = min((at for at in moves if at >= seq), default=None) if moves else None
        hash_ = self._present.get(run_id) if later is None else self._moves[run_id][later]
        if hash_ is None:
            return Outline()
        if hash_ not in self._outlines:
            known = [*self._present.values(), *(left for moves in self._moves.values() for left in moves.values())]
            missing = {each for each in known if each not in self._outlines}
            self._outlines |= outlines(self._connection, self._tables, missing)
        return self._outlines[hash_]


def moved(control: str | None) -> Mapping[str, Any]:
    """What a row says of a change of definition; empty for nothing."""
    told: Any = decode(control).get("_migrated") if control else None
    return told if isinstance(told, dict) else {}
