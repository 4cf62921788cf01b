"""What goes by its age: runs that are over for good, finished plain jobs, old history. A batch at a time.

Every worker does it beside its work, some rows at a look and each look in a transaction of its own, so that neither the
loop nor the database is held up. What others have locked is passed over; a batch that is lost is taken again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from queuety.commands.definitions import Definitions
from queuety.errors import DefinitionError, NotFoundError
from queuety.model import JobStatus, WorkflowStatus
from queuety.store import purge
from queuety.store.door import Door, Line, Tx

DAY_US: Final = 86_400_000_000
EVERY_S: Final = 60.0
"""How often is looked for what has grown too old, once all that had is gone."""
HISTORY_EVERY_S: Final = 600.0
"""The same for old history: it takes a look at every run that is there."""
FIRST_S: Final = (5.0, 15.0)
"""When a loop looks first, chosen at random: a worker that is restarted every minute purges too, and many that start
together do not look together."""
PAUSE_S: Final = 0.05
SHARE: Final = 4
"""After a full batch the next one waits for so many times as long as that one took, and for `PAUSE_S` at least: at most
a fifth of a loop's time goes into it."""
BRISK_S: Final = 0.01
LONG_S: Final = 0.05
"""A batch that took less, or more, than that is followed by a larger or a smaller one: a run may have three rows of
history or 50,000, so that no number of runs would do."""
LEAST, FIRST, MOST = 1, 16, 512

OVER: Final = (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED)
"""The runs that go by themselves. Those that have failed stay until somebody says so: they may be retried."""
FINISHED: Final = (JobStatus.COMPLETED,)
"""The plain jobs that go by themselves; the buried stay for the same reason."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction has deleted, and from where the next one goes on: None where nothing is left."""

    count: int
    after: Any = None


Deleting = Callable[[Tx, Any, int], Batch]
"""Deletes at most so many, beginning after where the last batch ended (None: from the start)."""


def runs_ended(before_us: int, statuses: Sequence[WorkflowStatus]) -> Deleting:
    """Deletes the runs that have ended so before that moment, with all that is theirs; a batch is a number of runs."""

    return _RunsEnded(before_us, statuses)


@dataclass(frozen=True, slots=True)
class _RunsEnded:
    """Deletes runs; what a pass must know of all runs it reads before the first transaction that deletes."""

    before_us: int
    statuses: Sequence[WorkflowStatus]

    def __call__(self, tx: Tx, after: Any, limit: int) -> Batch:
        found = purge.purge_runs(tx, before_us=self.before_us, statuses=self.statuses, after=after, limit=limit)
        return Batch(found.count, found.after)

    def read_ahead(self, tx: Tx) -> Any:
        return purge.read_ahead(tx, before_us=self.before_us, statuses=self.statuses)


def jobs_ended(before_us: int, statuses: Sequence[JobStatus]) -> Deleting:
    """Deletes the plain jobs that have ended so before that moment; a batch is a number of jobs looked at."""

    def delete(tx: Tx, after: Any, limit: int) -> Batch:
        found = purge.purge_plain_jobs(tx, before_us=before_us, statuses=statuses, after=after, limit=limit)
        return Batch(found.count, found.after)

    return delete


def history_before(before_us: int, definitions: Definitions) -> Deleting:
    """Deletes the rows of histories that are older than that moment and that nothing needs; a batch is a number of runs
    that are looked at, its count one of rows."""

    def delete(tx: Tx, after: Any, limit: int) -> Batch:
        found = purge.prune_history(
            tx, before_us=before_us, after_id=after, limit=limit, may_prune=partial(_may_prune, tx, definitions)
        )
        return Batch(found.rows, found.after_id)

    return delete


def _may_prune(tx: Tx, definitions: Definitions, definition_hash: str) -> bool:
    """False for runs that may still need old states to undo their steps, and where nobody here can tell."""
    try:
        return not definitions.get(tx, definition_hash).compensated
    except (DefinitionError, NotFoundError):
        return False


def delete_all(door: Door, deleting: Deleting) -> int:
    """Deletes batch after batch until nothing is left; says how many."""
    count, limit, after = 0, FIRST, None
    while True:
        batch, limit = _delete(door, deleting, after, limit)
        count, after = count + batch.count, batch.after
        if after is None:
            return count


class _TakenBack(Exception):
    """Rolls a transaction back that was only to tell what it would do."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self.batch = batch


def count_runs(door: Door, before_us: int, statuses: Sequence[WorkflowStatus]) -> int:
    """How many runs would be deleted: batch after batch is deleted and taken back, so that one rule holds.

    What is left over of runs that have gone already is deleted on the way.
    """
    deleting = runs_ended(before_us, statuses)

    def unit(tx: Tx) -> None:
        raise _TakenBack(deleting(tx, after, MOST))

    count, after = 0, None
    while True:
        delete_all(door, runs_ended(before_us, ()))
        try:
            door.write(unit)
        except _TakenBack as told:
            count, after = count + told.batch.count, told.batch.after
        if after is None:
            return count


def _delete(door: Door, deleting: Deleting, after: Any, limit: int, on: Line | None = None) -> tuple[Batch, int]:
    """One batch, and how large the next one should be."""
    began = time.monotonic()
    if after is None and isinstance(deleting, _RunsEnded):
        after = door.read(deleting.read_ahead, on=on)
    batch = door.write(lambda tx: deleting(tx, after, limit), on=on)
    took_s = time.monotonic() - began
    if took_s < BRISK_S:
        limit *= 2
    elif took_s > LONG_S:
        limit //= 2
    return batch, min(max(limit, LEAST), MOST)


@dataclass(slots=True)
class _Chore:
    """Something that grows too old. `deleting` makes what deletes it, given the moment before which it is that."""

    age_us: int
    deleting: Callable[[int], Deleting]
    every_s: float
    due_s: float
    after: Any = None
    limit: int = FIRST


class Retention:
    """One loop's share of the work. An age of None keeps, and costs no question; `monotonic` tells seconds."""

    def __init__(
        self,
        door: Door,
        definitions: Definitions,
        *,
        retention_days: float | None,
        history_days: float | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._door = door
        self._monotonic = monotonic
        self._chores: list[_Chore] = []
        first_s = monotonic() + min(random.uniform(*FIRST_S), EVERY_S)
        if retention_days is not None:
            age_us = round(retention_days * DAY_US)
            self._chores += [
                _Chore(age_us, lambda before_us: runs_ended(before_us, OVER), EVERY_S, first_s),
                _Chore(age_us, lambda before_us: jobs_ended(before_us, FINISHED), EVERY_S, first_s),
            ]
        if history_days is not None:
            age_us = round(history_days * DAY_US)
            self._chores.append(
                _Chore(age_us, lambda before_us: history_before(before_us, definitions), HISTORY_EVERY_S, first_s)
            )

    @property
    def pause_s(self) -> float:
        """How long nothing is to be done here; for ever if nothing ever is."""
        first_s = min((chore.due_s for chore in self._chores), default=float("inf"))
        return max(first_s - self._monotonic(), 0.0)

    def look(self, line: Line | None = None) -> int:
        """Deletes one batch, if one is due; says how many."""
        began_s = self._monotonic()
        chore = min(self._chores, key=lambda chore: chore.due_s, default=None)
        if chore is None or began_s < chore.due_s:
            return 0
        chore.due_s = began_s + chore.every_s  # also if it fails
        deleting = chore.deleting(max(self._door.now_us() - chore.age_us, 0))
        batch, chore.limit = _delete(self._door, deleting, chore.after, chore.limit, line)
        chore.after = batch.after
        if batch.after is not None:
            ended_s = self._monotonic()
            chore.due_s = ended_s + max(PAUSE_S, SHARE * (ended_s - began_s))
        return batch.count
