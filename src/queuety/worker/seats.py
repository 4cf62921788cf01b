"""The places that a supervisor keeps filled with children, and when each may be filled again. No processes here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from queuety.worker.pauses import Pauses
from queuety.worker.proc import Proc

HOPELESS_STARTS: Final = 5
"""After so many failed starts of one seat, as long as no child has ever worked, there is nothing to wait for."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long a supervisor waits, in seconds.

    A child that is replaced because it died waits `first_pause_s`, doubling to `longest_pause_s` while none lives for
    `steady_s`. One that sends no beat for `silent_s` is asked after; one that holds nothing then and stays silent for
    `lifeless_s` is replaced. A retiring child has `retire_s` for what else it runs, and every child `margin_s` beyond
    the time that it was given; `at_once_s` is all that a second signal leaves it.
    """

    first_pause_s: float = 0.1
    longest_pause_s: float = 30.0
    steady_s: float = 60.0
    silent_s: float = 3.0
    lifeless_s: float = 30.0
    retire_s: float = 5.0
    margin_s: float = 3.0
    at_once_s: float = 2.0
    farewell_s: float = 5.0


class Seat:
    """One place. `free_from` is the moment of the monotonic clock from which it may be filled."""

    def __init__(self, times: Times) -> None:
        self._pauses = Pauses(times.first_pause_s, times.longest_pause_s, steady_s=times.steady_s)
        self.proc: Proc | None = None
        self.free_from = 0.0
        self.failed_starts = 0

    def leave(self, now: float) -> None:
        """Its child retires: it may be filled at once."""
        self.proc = None
        self.free_from = now

    def lose(self, lived_s: float, now: float) -> float:
        """Its child died: gives back the pause in seconds until it may be filled."""
        self.proc = None
        pause_s = self._pauses.after(lived_s)
        self.free_from = now + pause_s
        return pause_s
