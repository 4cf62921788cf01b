"""Running here and now what is due, one handler after the other: for scripts and tests, workers beside it or not."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from typing import Final

from queuety.commands.definitions import Definitions
from queuety.errors import LeaseLost, StoreUnavailable
from queuety.store.door import Door
from queuety.store.rows import Lease
from queuety.worker.execute import Executor
from queuety.worker.maintain import Renewer
from queuety.worker.outcome import Outcome, Returned, Unhandled
from queuety.worker.pauses import Pauses
from queuety.worker.turn import Order, Turn
from queuety.worker.turns import Turns
from queuety.worker.works import Defaults

LOCKED_PAUSE_S: Final = (0.002, 0.1)
"""How long it waits, first and at most, when all that is left belongs to workflows that others have locked."""


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
        self._executor = executor
        self._owner = owner
        self._queues = queues
        self._lease_s = lease_s
        self._turns = Turns(door, definitions, defaults)
        self._locked_since: float | None = None
        self._pauses = Pauses(*LOCKED_PAUSE_S)
        self._nobody_rings = threading.Event()

    def run(self, *, time_s: float | None, most: int | None) -> int:
        """Runs handlers until nothing is due, `most` have run, or `time_s` has passed; says how many ran.

        A handler that has begun is always finished and settled. Raises `StoreUnavailable` if its run stays locked.
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
                outcomes = [*result.carried, *result.unprepared]
                self._mind_locked(result)
                if not result.works:
                    has_more = result.has_more or result.has_more_due
                    if may_go_on and not alone and not has_more:
                        alone = True  # what is left may be suspects, which run when nothing else does
                        continue
                    if outcomes or (may_go_on and has_more):
                        alone = False
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

    def _mind_locked(self, result: Turn) -> None:
        """Pauses if all that is left belongs to workflows that others have locked; raises if that lasts too long."""
        if not result.carried or result.settled or result.works:
            self._locked_since = None
            self._pauses.reset()
            return
        moment = time.monotonic()
        self._locked_since = self._locked_since or moment
        if moment - self._locked_since > self._door.limits.patience_s:
            job = result.carried[0].job
            raise StoreUnavailable(
                f"the result of job {job.id} cannot be settled: workflow {job.workflow_id} is locked by another "
                "transaction; end that one. The job is run again when its lease has ended"
            )
        self._nobody_rings.wait(self._pauses.after())

    def _turn(self, outcomes: Sequence[Outcome], *, slots: int, alone: bool) -> Turn:
        now_us = self._door.now_us()
        lease = Lease(secrets.randbits(63), self._owner, now_us + round(self._lease_s * 1_000_000))
        order = Order(
            outcomes,
            slots,
            lease,
            self._queues,
            looks_around=True,
            alone=alone and slots > 0,
        )
        return self._turns.make(order)
