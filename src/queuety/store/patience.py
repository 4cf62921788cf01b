"""How long a transaction is tried again, and how long to wait between tries."""

from __future__ import annotations

import random
import threading
import time
from typing import Final

from queuety.store.dialects import Fault

LONGEST_PAUSE_S: Final = 1.0
"""Capped and jittered: a database that is slow must not be finished off by those that wait for it."""


class Patience:
    """One transaction's tries. `tries` counts those that failed."""

    def __init__(self, seconds: float, began: float, over: threading.Event) -> None:
        """`began` is when the first try began, by `time.monotonic()`; once `over` is set there is no other."""
        self.began = began
        self._over = over
        self.deadline = began + seconds
        self.tries = 0

    @property
    def spent_s(self) -> float:
        """How long it has been tried."""
        return time.monotonic() - self.began

    def another(self, fault: Fault) -> bool:
        """True after a pause if there is time for another try; False at once if there is not."""
        self.tries += 1
        left = self.deadline - time.monotonic()
        return left > 0 and not self._over.wait(min(left, pause_s(fault, self.tries, random.random())))


def pause_s(fault: Fault, tries: int, chance: float) -> float:
    """Seconds to wait after this many failed tries; `chance` in 0 … 1 spreads those that fail together.

    >>> pause_s(Fault.GONE, 1, 0.5), pause_s(Fault.GONE, 20, 1.0)
    (0.0, 1.0)
    """
    if fault is Fault.BUSY:
        return 0.0002 + 0.0038 * chance
    if fault is Fault.TRANSIENT:
        return chance * min(0.5, 0.002 * (1 << min(tries, 10)))
    if fault is Fault.FULL:
        return 0.05 + 0.2 * chance
    if tries == 1:  # a connection that died while it rested: a new one does at once
        return 0.0
    return (0.5 + chance / 2) * min(LONGEST_PAUSE_S, 0.025 * (1 << min(tries, 10)))
