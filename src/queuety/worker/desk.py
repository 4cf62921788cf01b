"""What a supervisor does in the database: it renews, gives back what the dead held, looks at what the silent hold.

Each function is one transaction that may be repeated. When and why is the supervisor's affair.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol

from queuety.errors import DefinitionError, NotFoundError, StoreUnavailable
from queuety.model import Job, Span
from queuety.store import claims, leases, load, watch, workers
from queuety.store.door import Tx
from queuety.store.leases import Fallen
from queuety.store.load import Runs
from queuety.store.rows import Lease
from queuety.worker.maintain import Renewer, give_back_of_dead
from queuety.worker.outcome import Outcome, Work, timed_out
from queuety.worker.parts import AppParts
from queuety.worker.terms import Terms
from queuety.worker.turn import Order, turn
from queuety.worker.works import Defaults, work_of

MOST_SUSPECTS: Final = 4
LATE_MARGIN_S: Final = 1.0
"""A handler's own process notices its time limit first, if it can; the claim is a little older than the start."""
_SPARED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Hands:
    """What a process has in hand: how many jobs, which of them are over their time limit, when the next one will be."""

    count: int
    late: tuple[int, ...] = ()
    next_late_s: float | None = None


class Desk(Protocol):
    """What a supervisor asks of the database. Everything raises `StoreError` while it is away."""

    def open(self, owners: Callable[[], Collection[int]]) -> None:
        """Reaches the database and begins to renew what these processes hold."""

    def close(self) -> None:
        """Stops renewing."""

    def end_dead(self, owner: int) -> None:
        """Takes back what a process held that died: it may be the fault of one of its jobs."""

    def end_killed(self, owner: int, late: Collection[int]) -> None:
        """Takes back what a process held that its supervisor killed: only the jobs in `late` pay for it."""

    def count_suspects(self) -> int:
        """How many suspects wait, at most `MOST_SUSPECTS`."""

    def hands_of(self, owner: int) -> Hands:
        """What this process has in hand."""


class AppDesk:
    """The desk of one application's workers."""

    def __init__(self, app: AppParts, terms: Terms) -> None:
        self._app = app
        self._terms = terms
        self._renewer: Renewer | None = None
        self._spared: dict[int, None] = {}

    def open(self, owners: Callable[[], Collection[int]]) -> None:
        """Reaches the database and begins to renew what these processes hold."""
        if self._renewer is None:
            self._renewer = Renewer(self._app.door, owners, lease_s=self._terms.lease_s)
            self._renewer.start()

    def close(self) -> None:
        """Stops renewing."""
        if self._renewer is not None:
            self._renewer.stop()

    def end_dead(self, owner: int) -> None:
        """Takes back what a process held that died: it may be the fault of one of its jobs."""
        give_back_of_dead(self._app.door, self._app.definitions, owner)

    def end_killed(self, owner: int, late: Collection[int]) -> None:
        """Takes back what a process held that its supervisor killed: only the jobs in `late` pay for it.

        The others go back at no cost. One that was beside a late one for the second time becomes a suspect, still at no
        cost, and runs alone: it may be what held the interpreter while the others ran over their limits.
        """

        def unit(tx: Tx) -> list[Fallen]:
            return self._end_killed(tx, owner, late)

        spared = self._app.door.write(unit)
        if late:
            self._spared.update(dict.fromkeys(one.job.id for one in spared))
        for job_id in list(self._spared)[: max(0, len(self._spared) - _SPARED)]:
            del self._spared[job_id]

    def count_suspects(self) -> int:
        """How many suspects wait, at most `MOST_SUSPECTS`."""
        return self._app.door.read(lambda tx: watch.count_suspects(tx, self._terms.queues, most=MOST_SUSPECTS))

    def hands_of(self, owner: int) -> Hands:
        """What this process has in hand."""

        def unit(tx: Tx) -> Hands:
            now_us = tx.now_us()
            running = watch.running(tx, owner)
            limits_us = self._limits_us(tx, [one.held.job for one in running])
            late: list[int] = []
            next_us: int | None = None
            for one in running:
                limit_us = limits_us[one.held.job.id]
                if limit_us is None:
                    continue
                due_us = one.started_us + limit_us + round(LATE_MARGIN_S * 1_000_000)
                if due_us <= now_us:
                    late.append(one.held.job.id)
                elif next_us is None or due_us < next_us:
                    next_us = due_us
            return Hands(len(running), tuple(late), None if next_us is None else (next_us - now_us) / 1_000_000)

        return self._app.door.read(unit)

    def _limits_us(self, tx: Tx, jobs: Collection[Job]) -> dict[int, int | None]:
        works = {work.job.id: work.timeout_s for work in self._works(tx, jobs)}
        return {job_id: None if limit is None else round(limit * 1_000_000) for job_id, limit in works.items()}

    def _works(self, tx: Tx, jobs: Collection[Job]) -> list[Work]:
        """The jobs with their effective options; one whose definition cannot be read has those of its row."""
        ids = {job.workflow_id for job in jobs if job.workflow_id is not None}
        runs = load.read(tx, Runs(), ids, strange={})
        works: list[Work] = []
        for job in jobs:
            workflow, definition = None, None
            if job.workflow_id is not None and job.workflow_id in runs:
                workflow = runs[job.workflow_id].workflow
                try:
                    definition = self._app.definitions.get(tx, workflow.definition_hash)
                except (DefinitionError, NotFoundError):
                    workflow = None
            works.append(work_of(job, workflow, definition, self._terms.defaults))
        return works

    def _end_killed(self, tx: Tx, owner: int, late: Collection[int]) -> list[Fallen]:
        """Does it; gives back those that were spared."""
        now_us = tx.now_us()
        held = watch.running(tx, owner)
        workers.leave(tx, owner)
        others = [one.held for one in held if one.held.job.id not in late]
        again = [one for one in others if late and one.job.id in self._spared]
        spared = [one for one in others if one not in again]
        claims.give_back(tx, [(one.job.id, one.job.token) for one in spared])
        if again:
            leases.suspect(tx, again, ended_by_us=None)
        outcomes: list[Outcome] = []
        token = secrets.randbits(63)
        for one in held:
            if one.held.job.id not in late:
                continue
            job = leases.take_over(tx, one.held, token, now_us=now_us, ended_by_us=None)
            if job is not None:
                (work,) = self._works(tx, [job])
                outcomes.append(timed_out(work, Span(one.started_us, now_us, owner), note=_NOTE))
        if outcomes:
            self._settle(tx, outcomes)
        if held:
            tx.dialect.notify(tx.cursor, tx.tables.prefix)
        return spared

    def _settle(self, tx: Tx, outcomes: Collection[Outcome]) -> None:
        lease = Lease(token=secrets.randbits(63), owner=0, until_us=0)
        order = Order(outcomes=list(outcomes), slots=0, lease=lease, queues=(), careful=True)
        made = turn(tx, order, runs=Runs(), definitions=self._app.definitions, defaults=Defaults())
        if made.carried:
            raise StoreUnavailable("a workflow whose step ran over its time limit is locked by another transaction")


_NOTE: Final = "; it held its process, which was killed"
