"""Looking now for the runs whose time is over, without a worker: what is due for runs is done, no handler is run."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from typing import Final

from queuety.commands.definitions import Definitions
from queuety.model import ErrorKind
from queuety.store import load
from queuety.store.door import Door
from queuety.store.rows import Lease
from queuety.worker.announce import Announcer
from queuety.worker.pauses import Pauses
from queuety.worker.turn import Order, Turn
from queuety.worker.turns import Turns
from queuety.worker.works import Defaults

_log = logging.getLogger("queuety.worker")

LOCKED_PAUSE_S: Final = (0.002, 0.1)
"""How long it waits, first and at most, when all that is left belongs to runs that others have locked."""


def fail_late_runs(door: Door, definitions: Definitions, defaults: Defaults) -> int:
    """Opens all that is due for runs when it is called; says how many runs have failed by their deadline.

    What comes due by that is left to the workers: of a loop that goes on at once there would be no end.
    A run that another transaction keeps locked for as long as the door is patient is left to the workers.
    """
    began_us = door.now_us()
    last_id = door.read(lambda tx: load.last_due(tx, began_us))
    if last_id is None:
        return 0
    turns, announcer = Turns(door, definitions, defaults), Announcer()
    pauses, nobody_rings = Pauses(*LOCKED_PAUSE_S), threading.Event()
    failed = 0
    locked_since: float | None = None
    while True:
        made = turns.make(_order())
        announcer.announce(made)
        late = [run for run in made.failed_runs if run.error_kind is ErrorKind.DEADLINE_EXCEEDED]
        failed += len(late)
        left = _left(door, began_us, last_id)
        if left is None:
            return failed
        if _has_brought_anything(made):
            locked_since = None
            pauses.reset()
            continue
        locked_since = locked_since or time.monotonic()
        if time.monotonic() - locked_since > door.limits.patience_s:
            _log.warning("something is due for workflow %d, which another transaction has locked; left", left)
            return failed
        nobody_rings.wait(pauses.after())


def _order() -> Order:
    """Open what is due; no lease will come of it."""
    return Order(outcomes=(), slots=0, lease=Lease(secrets.randbits(63), 0, 0), queues=(), looks_around=True)


def _left(door: Door, began_us: int, last_id: int) -> int | None:
    """A run for which something is due that was so when it began."""
    return door.read(lambda tx: load.due_until(tx, began_us, last_id))


def _has_brought_anything(made: Turn) -> bool:
    return bool(made.stored or made.failed_runs or made.settled)
