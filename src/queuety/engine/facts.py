"""What kinds of steps know beside the workflow: what was read, and what this very decision has added to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from typing import Final, TypeGuard

from queuety.engine.protocol import Run
from queuety.model import (
    AppendHistory,
    CleanupStatus,
    Effect,
    Entry,
    KeepGroup,
    KeepSignal,
    StartRun,
    State,
    UseSignals,
    WorkflowStatus,
)
from queuety.model.needs import (
    NeedGroup,
    NeedIds,
    NeedParts,
    NeedSignals,
    NeedStanding,
    NeedStates,
    NeedWatching,
    PartRow,
    Signal,
    Standing,
)

SIGNALS_AT_ONCE: Final = 50
"""Signals that are read at a time where not every one will do."""

_PARTS: Final = frozenset({Entry.BRANCH, Entry.ITEM})


def ids(run: Run, count: int) -> tuple[int, ...]:
    """New ids for runs that the current visit starts. A visit asks once."""
    found: tuple[int, ...] = run.read(NeedIds(run.workflow.visit, count)) if count else ()
    return found


def signals(run: Run, name: str, *, at_once: int = SIGNALS_AT_ONCE) -> Iterator[Signal]:
    """The unused signals of this name, first come first; `at_once` of them are read at a time."""
    used = {seq for effect in run.pending if isinstance(effect, UseSignals) for seq in effect.seqs}
    # One that a rewind has made free again may have come before any that is stored.
    added = sorted(
        (Signal(effect.seq, name, effect.payload) for effect in run.pending if _keeps(effect, name)),
        key=lambda signal: signal.seq,
    )
    found = merge(_stored(run, name, at_once), added, key=lambda signal: signal.seq)
    return (signal for signal in found if signal.seq not in used)


def _stored(run: Run, name: str, at_once: int) -> Iterator[Signal]:
    after_seq = 0
    while True:
        page: tuple[Signal, ...] = run.read(NeedSignals(name, after_seq, at_once))
        yield from page
        if len(page) < at_once:
            return
        after_seq = page[-1].seq


def _keeps(effect: Effect, name: str) -> TypeGuard[KeepSignal]:
    return isinstance(effect, KeepSignal) and effect.name == name


def expect_signals(run: Run, names: Iterable[str], *, at_once: int) -> None:
    """Has the first signals of all these names read at once."""
    run.expect(NeedSignals(name, 0, at_once) for name in names)


def standing(run: Run, of: tuple[int, ...]) -> dict[int, Standing]:
    """How these runs stand; those that are not there are left out. A run that is only being started is running."""
    started = {effect.workflow_id for effect in run.pending if isinstance(effect, StartRun)}
    asked = tuple(workflow_id for workflow_id in of if workflow_id not in started)
    found: Mapping[int, Standing] = run.read(NeedStanding(asked)) if asked else {}
    new = dict.fromkeys(started.intersection(of), Standing(WorkflowStatus.RUNNING, CleanupStatus.NONE))
    return {**found, **new}


def states(run: Run, of: tuple[int, ...]) -> Mapping[int, State]:
    """The public states of these runs; those that are not there are left out."""
    found: Mapping[int, State] = run.read(NeedStates(of)) if of else {}
    return found


def group(run: Run, name: str) -> tuple[int, ...] | None:
    """The ids of the runs that a step has started under this name, or None."""
    for effect in reversed(run.pending):
        if isinstance(effect, KeepGroup) and effect.name == name:
            return effect.ids
    found: tuple[int, ...] | None = run.read(NeedGroup(name))
    return found


def watching(run: Run, of: tuple[int, ...]) -> frozenset[int]:
    """Which of these runs will tell this one, in its present visit, when they end."""
    found: frozenset[int] = run.read(NeedWatching(of, run.workflow.visit)) if of else frozenset()
    return found


def parts(run: Run, *, after_seq: int) -> list[PartRow]:
    """How the jobs of the current visit have ended for good, in the order in which they did."""
    visit = run.workflow.visit
    found: list[PartRow] = list(run.read(NeedParts(visit, after_seq)))
    for effect in run.pending:
        if isinstance(effect, AppendHistory) and effect.visit == visit and effect.job is not None:
            part = _part(effect)
            found += [part] if part else []
    return found


def _part(row: AppendHistory) -> PartRow | None:
    job = row.job
    if job is None or job.branch is None:
        return None
    if row.entry in _PARTS:
        return PartRow(row.seq, row.entry, job.branch, job.id, output=(row.control or {}).get("_output"))
    if row.entry is Entry.FAILED and row.is_final:
        return PartRow(row.seq, row.entry, job.branch, job.id, error=row.error.message if row.error else None)
    return None
