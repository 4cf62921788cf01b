"""Running here and now what is due, one handler after the other: for scripts and tests, workers beside it or not."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from queuety.commands.definitions import Definitions
from queuety.errors import LeaseLost, StoreUnavailable
from queuety.store import claims
from queuety.store.door import Door, Tx
from queuety.store.load import Runs
from queuety.store.rows import Lease
from queuety.store.settle import NotHeld
from queuety.worker.execute import Executor
from queuety.worker.maintain import Renewer
from queuety.worker.outcome import Outcome, Returned, Unhandled, broken
from queuety.worker.turn import Order, Turn, has_landed, turn
from queuety.worker.works import Defaults

_log = logging.getLogger("queuety.worker")


class Drain:
    """Runs what is due in this process, in claim order."""

    def __init__(
        self,
        door: Door,
        definitions: Definitions,
        executor: Executor,
        *,
        owner: int,
        queues: Sequence[str] | None,
        lease_s: float,
        defaults: Defaults,
    ) -> None:
        self._door = door
        self._definitions = definitions
        self._executor = executor
        self._owner = owner
        self._queues = queues
        self._lease_s = lease_s
        self._defaults = defaults
        self._runs = Runs()

    def run(self, *, time_s: float | None, most: int | None) -> int:
        """Runs handlers until nothing is due, `most` have run, or `time_s` has passed; says how many ran.

        A handler that has begun is always finished and settled.
        """
        end = None if time_s is None else time.monotonic() + time_s
        renewer = Renewer(self._door, lambda: [self._owner], lease_s=self._lease_s)
        renewer.start()
        ran = 0
        outcomes: list[Outcome] = []
        alone = False
        try:
            while True:
                may_go_on = (most is None or ran < most) and (end is None or time.monotonic() < end)
                result = self._turn(outcomes, slots=1 if may_go_on else 0, alone=alone)
                outcomes = list(result.carried)
                if not result.works:
                    has_more = result.has_more or result.has_more_due
                    if may_go_on and not alone and not has_more:
                        alone = True  # what is left may be suspects, which run when nothing else does
                        continue
                    if outcomes or (may_go_on and has_more):
                        continue
                    return ran
                alone = False
                for work in result.works:
                    try:
                        outcome = self._executor.run_here(work)
                    except LeaseLost:
                        continue
                    ran += not isinstance(outcome, Unhandled | Returned)
                    outcomes.append(outcome)
        finally:
            renewer.stop()

    def _turn(self, outcomes: Sequence[Outcome], *, slots: int, alone: bool) -> Turn:
        now_us = self._door.now_us()
        lease = Lease(secrets.randbits(63), self._owner, now_us + round(self._lease_s * 1_000_000))
        paused = self._door.read(claims.paused_queues)
        order = Order(
            outcomes,
            slots,
            lease,
            self._queues,
            paused=paused,
            looks_around=True,
            alone=alone and slots > 0,
        )
        try:
            return self._attempt(order)
        except NotHeld:
            return self._attempt(replace(order, careful=True, alone=False))
        except StoreUnavailable:
            raise
        except Exception as error:
            if not outcomes:
                raise
            _log.warning("a turn of %d results failed (%s); settling them one by one", len(outcomes), error)
            return self._one_by_one(order)

    def _one_by_one(self, order: Order) -> Turn:
        """Settles each outcome in a transaction of its own; one that cannot be written becomes a failure that can."""
        whole = Turn(has_more=True)
        for outcome in order.outcomes:
            single = replace(order, outcomes=[outcome], slots=0, looks_around=False, alone=False, careful=True)
            try:
                part = self._attempt(single)
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, only this outcome is guilty
                _log.exception("the result of job %d cannot be stored", outcome.job.id)
                part = self._attempt(replace(single, outcomes=[broken(outcome, error, now_us=self._door.now_us())]))
            whole.carried += part.carried
        return whole

    def _attempt(self, order: Order) -> Turn:
        made: list[Turn] = []

        def unit(tx: Tx) -> Turn:
            made[:] = [
                turn(
                    tx,
                    order,
                    runs=self._runs,
                    definitions=self._definitions,
                    defaults=self._defaults,
                )
            ]
            return made[0]

        def landed(tx: Tx) -> Turn | None:
            return made[0] if made and has_landed(tx, order, made[0]) else None

        result = self._door.write(unit, landed=landed)
        for held in result.stored.values():
            self._runs.keep(held)
        return result
