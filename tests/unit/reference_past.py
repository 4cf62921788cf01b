"""What a run must know of its own past, told plainly from its rows: the answers that the worlds on paper give.

`Past` is all of a run that the answers need. Every row is looked at each time; nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from queuety.engine.replay import fold
from queuety.model import AppendHistory, Entry, HandlerRef, NewJob, Role, State, Workflow
from queuety.model.needs import (
    Belongings,
    Need,
    NeedBelongings,
    NeedPast,
    NeedUndo,
    NeedUsedSignals,
    OpenJobs,
    Signal,
    Undo,
)
from queuety.model.needs import Past as Moment

SETTLED = (Entry.COMPLETED, Entry.RESUMED, Entry.SKIPPED)
UNDOABLE = (Entry.COMPLETED, Entry.RESUMED)
AFTERWARDS = (Entry.CLEANED, Entry.UNCLEANED)

OWN = (NeedPast, NeedUndo, NeedUsedSignals, NeedBelongings)
"""The needs that are answered here."""


@dataclass(frozen=True)
class Past:
    """A run's payload, its rows in order, and what it keeps beside itself."""

    payload: State
    rows: Sequence[AppendHistory]
    workflow: Workflow
    signals: Sequence[Signal]
    groups: dict[str, tuple[int, ...]]

    def answer(self, need: Need) -> Any:
        match need:
            case NeedPast(step, is_entry):
                seq = self._entered(step) if is_entry else self._settled(step)
                return (
                    None if seq is None else Moment(seq, self.state_at(seq), self._used_by(seq), self._groups_by(seq))
                )
            case NeedUndo(before_seq, steps):
                return self._undo(before_seq, steps)
            case NeedUsedSignals(after_seq):
                return self._used_after(after_seq)
            case NeedBelongings():
                return Belongings(tuple(self.signals), tuple(sorted(self.groups.items())))
        raise AssertionError(f"{need} is not about the past")

    def state_at(self, seq: int) -> dict[str, Any]:
        return fold(self.payload, [(row.changed or {}, row.removed or ()) for row in self.rows if row.seq <= seq])

    def settled_rows(self, before_seq: int, others: tuple[Entry, ...] = ()) -> list[AppendHistory]:
        """The rows with which steps have settled, below this one, that nobody has rewound; and moves between them."""
        live: list[AppendHistory] = []
        for row in self.rows:
            if row.seq >= before_seq:
                break
            if row.entry is Entry.REWOUND:
                to_seq = (row.control or {})["_rewound"]["to_seq"]
                live = self.settled_rows(to_seq + 1, others)
            elif row.entry in (*SETTLED, *others) or row.entry is Entry.MIGRATED:
                live.append(row)
        return live

    def _present(self) -> list[AppendHistory]:
        """The rows since the run was last moved to another definition."""
        moves = [row.seq for row in self.rows if row.entry is Entry.MIGRATED]
        return [row for row in self.rows if row.seq > max(moves, default=0)]

    def _settled(self, step: int) -> int | None:
        mine = [row.seq for row in self._present() if row.entry in SETTLED and row.step_index == step]
        return max(mine, default=None)

    def _entered(self, step: int) -> int | None:
        """The row before the first one of the step's last visit."""
        run = self.workflow
        mine = [row for row in self._present() if row.step_index == step and row.entry not in AFTERWARDS]
        if run.current_step == step and not any(row.visit == run.visit for row in mine):
            return run.version
        if not mine:
            return None
        visit = mine[-1].visit or 0
        earlier = [row.seq for row in self.rows if (row.visit or 0) < visit or row.entry is Entry.MIGRATED]
        return max((seq for seq in earlier if seq < mine[-1].seq), default=0)

    def _undo(self, before_seq: int, steps: tuple[int, ...]) -> Undo | None:
        """Under an earlier definition, what undid its steps stands in the row of the next move."""
        live = self.settled_rows(before_seq)
        later = [row for row in self.rows if row.seq >= before_seq]
        for place in range(len(live) - 1, -1, -1):
            row, step = live[place], live[place].step_index
            moves = [one for one in (*live[place + 1 :], *later) if one.entry is Entry.MIGRATED]
            if row.entry not in UNDOABLE or step is None:
                continue
            if not moves and step in steps:
                return Undo(row.seq, step)
            known = (moves[0].control or {})["_migrated"]["compensations"] if moves else {}
            if str(step) in known:
                told = known[str(step)]
                return Undo(row.seq, step, HandlerRef(told["name"], told.get("config")))
        return None

    def _used_by(self, seq: int) -> tuple[int, ...]:
        """The signals that had been used by then, if the run has gone back before that since; else none."""
        rewinds = [row for row in self.rows if row.entry is Entry.REWOUND and row.seq > seq]
        if all((row.control or {})["_rewound"]["to_seq"] >= seq for row in rewinds):
            return ()
        settled = [row for row in self.settled_rows(seq + 1) if row.job is None]
        return tuple(sorted({one for row in settled for one in (row.control or {}).get("_used", ())}))

    def _groups_by(self, seq: int) -> tuple[tuple[str, tuple[int, ...] | None], ...]:
        """The groups as of then, and without ids those that only other rows tell of."""
        ever = {name: None for row in self.rows if row.job is None for name in (row.control or {}).get("_groups", {})}
        then: dict[str, tuple[int, ...]] = {}
        for row in self.settled_rows(seq + 1, (Entry.FORKED,)):
            if row.job is None:
                then |= {name: tuple(ids) for name, ids in (row.control or {}).get("_groups", {}).items()}
        return tuple(sorted({**ever, **then}.items()))

    def _used_after(self, after_seq: int) -> tuple[Signal, ...]:
        late = [row for row in self.rows if row.seq > after_seq and row.job is None and row.control]
        used = {seq for row in late for seq in (row.control or {}).get("_used", ())}
        left = used - {signal.seq for signal in self.signals}
        told = {row.seq: (row.control or {})["_signal"] for row in self.rows if row.seq in left}
        return tuple(Signal(seq, told[seq]["name"], told[seq]["payload"]) for seq in sorted(told))


def open_jobs(jobs: Iterable[tuple[NewJob, int, bool]], now_us: int) -> OpenJobs:
    """How many there are, of jobs given with their due time and whether somebody holds them.

    A cleanup that waits for its time is counted: it can be hurried.
    """
    leased = delayed = ready = 0
    for new, due_us, is_held in jobs:
        is_step = new.role is Role.STEP
        leased += is_step and is_held
        delayed += not is_held and due_us > now_us
        ready += is_step and not is_held and due_us <= now_us
    return OpenJobs(leased, delayed, ready)
