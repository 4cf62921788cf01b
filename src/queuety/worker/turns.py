"""Turns as transactions: what a stale result, one that cannot be written or a lost answer to COMMIT makes necessary."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace

from queuety.commands.definitions import Definitions
from queuety.errors import StoreUnavailable
from queuety.store import load
from queuety.store.claims import UNREADABLE_US
from queuety.store.door import Door, Line, Tx
from queuety.store.load import Runs
from queuety.store.settle import NotHeld
from queuety.worker.outcome import broken
from queuety.worker.turn import LETTERS, Order, Turn, has_landed, turn
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
            runs = self._with_letters(on) if order.looks_around else []
            if not order.outcomes and not runs:
                raise
            _log.warning(
                "a turn of %d results and the letters of %d runs failed (%s); doing them one by one",
                len(order.outcomes),
                len(runs),
                error,
            )
            whole = self._one_by_one(order, on)
            self._open_one_by_one(whole, runs, order, on)
            return whole

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
            _join(whole, part)
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

    def _with_letters(self, on: Line | None) -> list[int]:
        """The runs for which something is due."""
        now_us = self._door.now_us()
        return self._door.read(lambda tx: load.due_workflows(tx, now_us, LETTERS), on=on)

    def _open_one_by_one(self, whole: Turn, runs: Sequence[int], order: Order, on: Line | None) -> None:
        """Opens each run's letters in a transaction of its own; a run fails if what they lead to cannot be written."""
        for workflow_id in runs:
            single = replace(order, outcomes=(), slots=0, looks_around=False, alone=False, letters_of=workflow_id)
            try:
                part = self._make(single, on)
            except StoreUnavailable:
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, only this run is guilty
                part = self._fail_run(workflow_id, replace(single, fault=error), on)
            _join(whole, part)

    def _fail_run(self, workflow_id: int, order: Order, on: Line | None) -> Turn:
        """Fails the run; if not even that can be written, its letters come due again later."""
        try:
            return self._make(order, on)
        except StoreUnavailable:
            return Turn()
        except Exception:  # noqa: BLE001 - the others must go on
            _log.exception("what is due for workflow %d cannot be done at all; it is put off", workflow_id)
        now_us = self._door.now_us()
        until_us = now_us + UNREADABLE_US
        self._door.write(lambda tx: load.postpone_letters(tx, [workflow_id], now_us=now_us, until_us=until_us), on=on)
        return Turn()


def _join(whole: Turn, part: Turn) -> None:
    whole.settled += part.settled
    whole.carried += part.carried
    whole.lost += part.lost
    whole.retried |= part.retried
    whole.failed_runs += part.failed_runs
