"""Turns as transactions: what a stale result, one that cannot be written or a lost answer to COMMIT makes necessary."""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace

from queuety.commands.definitions import Definitions
from queuety.errors import StoreUnavailable
from queuety.store.door import Door, Line, Tx
from queuety.store.load import Runs
from queuety.store.settle import NotHeld
from queuety.worker.outcome import broken
from queuety.worker.turn import Order, Turn, has_landed, turn
from queuety.worker.works import Defaults

_log = logging.getLogger("queuety.worker")


class Turns:
    """Makes turns for one loop. `runs` are the workflows that it has decoded so far."""

    def __init__(self, door: Door, definitions: Definitions, defaults: Defaults) -> None:
        self.runs = Runs()
        self._door = door
        self._definitions = definitions
        self._defaults = defaults

    def make(self, order: Order, *, on: Line | None = None) -> Turn:
        """What came of the order, committed. Raises `StoreUnavailable`: then nothing of it was done."""
        try:
            return self._make(order, on)
        except NotHeld:
            return self.make(
                replace(order, careful=True, lease=replace(order.lease, token=secrets.randbits(63))), on=on
            )
        except StoreUnavailable:
            raise
        except Exception as error:
            if not order.outcomes:
                raise
            _log.warning("a turn of %d results failed (%s); settling them one by one", len(order.outcomes), error)
            return self._one_by_one(order, on)

    def _make(self, order: Order, on: Line | None) -> Turn:
        made: list[Turn] = []

        def unit(tx: Tx) -> Turn:
            made.clear()
            made.append(turn(tx, order, runs=self.runs, definitions=self._definitions, defaults=self._defaults))
            return made[0]

        def landed(tx: Tx) -> Turn | None:
            return made[0] if made and has_landed(tx, order, made[0]) else None

        result = self._door.write(unit, landed=landed, on=on)
        for held in result.stored.values():
            self.runs.keep(held)
        return result

    def _one_by_one(self, order: Order, on: Line | None) -> Turn:
        """Settles each outcome in a transaction of its own; one that cannot be written becomes a failure that can."""
        whole = Turn(has_more=True)
        for outcome in order.outcomes:
            single = replace(order, outcomes=[outcome], slots=0, looks_around=False, alone=False, careful=True)
            try:
                part = self._make(single, on)
            except StoreUnavailable:
                whole.carried.append(outcome)
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, only this outcome is guilty
                _log.exception("the result of job %d cannot be stored", outcome.job.id)
                failure = broken(outcome, error, now_us=self._door.now_us())
                part = self._settle_failure(replace(single, outcomes=[failure]), on)
            whole.settled += part.settled
            whole.carried += part.carried
            whole.lost += part.lost
            whole.retried |= part.retried
            whole.failed_runs += part.failed_runs
        return whole

    def _settle_failure(self, order: Order, on: Line | None) -> Turn:
        """Settles what an outcome became that could not be written; else it comes back when its lease ends."""
        try:
            return self._make(order, on)
        except StoreUnavailable:
            return Turn(carried=list(order.outcomes))
        except Exception:  # noqa: BLE001 - the others must go on
            job = order.outcomes[0].job
            _log.exception("job %d cannot be settled at all; it comes back when its lease ends", job.id)
            return Turn()
