"""What goes by its age: runs that are over for good, finished plain jobs, old history. A batch at a time.

Every worker does it beside its work, some rows at a look and each look in a transaction of its own, so that neither the
loop nor the database is held up. What others have locked is passed over; a batch that is lost is taken again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from queuety.commands.definitions import Definitions
from queuety.errors import DefinitionError, NotFoundError
from queuety.model import JobStatus, WorkflowStatus
from queuety.store.door import Door, Line, Tx

DAY_US: Final = 86_400_000_000
EVERY_S: Final = 60.0
"""How often is looked for what has grown too old, once all that had is gone."""
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

    def delete(tx: Tx, after: Any, limit: int) -> Batch:
        from queuety.store import purge

        found = purge.purge_runs(tx, before_us=before_us, statuses=statuses, after=after, limit=limit)
        return Batch(found.count, found.after)

    return delete


def jobs_ended(before_us: int, statuses: Sequence[JobStatus]) -> Deleting:
    """Deletes the plain jobs that have ended so before that moment; a batch is a number of jobs."""

    def delete(tx: Tx, _after: Any, limit: int) -> Batch:
        from queuety.store import purge

        count = purge.purge_jobs(tx, before_us=before_us, statuses=statuses, limit=limit)
        return Batch(count, True if count >= limit else None)

    return delete


def history_before(before_us: int, definitions: Definitions) -> Deleting:
    """Deletes the rows of histories that are older than that moment and that nothing needs; a batch is a number of runs
    that are looked at, its count one of rows."""

    def delete(tx: Tx, after: Any, limit: int) -> Batch:
        from queuety.store import purge

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


def count_all(door: Door, deleting: Deleting) -> int:
    """How many `delete_all` would delete: batch after batch is deleted and taken back, so that one rule holds."""

    def unit(tx: Tx) -> None:
        raise _TakenBack(deleting(tx, after, MOST))

    count, after = 0, None
    while True:
        try:
            door.write(unit)
        except _TakenBack as told:
            count, after = count + told.batch.count, told.batch.after
        if after is None:
            return count


def _delete(door: Door, deleting: Deleting, after: Any, limit: int, on: Line | None = None) -> tuple[Batch, int]:
    """One batch, and how large the next one should be."""
    began = time.monotonic()
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
    due_s: float
    after: Any = None
    limit: int = FIRST


@dataclass(slots=True)
class Retention:
    """One loop's share of the work. An age of None keeps, and costs no question."""

    door: Door
    definitions: Definitions
    retention_days: float | None
    history_days: float | None
    _chores: list[_Chore] = field(init=False)

    def __post_init__(self) -> None:
        first_s = time.monotonic() + EVERY_S
        self._chores = []
        if self.retention_days is not None:
            age_us = round(self.retention_days * DAY_US)
            self._chores += [
                _Chore(age_us, lambda before_us: runs_ended(before_us, OVER), first_s),
                _Chore(age_us, lambda before_us: jobs_ended(before_us, FINISHED), first_s),
            ]
        if self.history_days is not None:
            age_us = round(self.history_days * DAY_US)
            self._chores.append(_Chore(age_us, lambda before_us: history_before(before_us, self.definitions), first_s))

    @property
    def pause_s(self) -> float:
        """How long nothing is to be done here."""
        if not self._chores:
            return EVERY_S
        return max(min(chore.due_s for chore in self._chores) - time.monotonic(), 0.0)

    def look(self, line: Line) -> int:
        """Deletes one batch, if one is due; says how many."""
        moment = time.monotonic()
        chore = min(self._chores, key=lambda chore: chore.due_s, default=None)
        if chore is None or moment < chore.due_s:
            return 0
        chore.due_s = moment + EVERY_S  # also if it fails
        deleting = chore.deleting(self.door.now_us() - chore.age_us)
        batch, chore.limit = _delete(self.door, deleting, chore.after, chore.limit, on=line)
        chore.after = batch.after
        if batch.after is not None:
            now = time.monotonic()
            chore.due_s = now + max(PAUSE_S, SHARE * (now - moment))
        return batch.count
