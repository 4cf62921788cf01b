"""How a sleeping loop learns that there is work: by a ring in the process, by what its database can tell, by asking.

Asking is always enough; everything else only shortens the wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FIRST_POLL_S: Final = 0.01
"""How soon a worker that has just been busy asks again where nothing tells it of news."""
POLL_GROWTH: Final = 1.25
"""How much later each time it found nothing; one second is reached after about five."""
WATCH_S: Final = 0.008
"""How often a file is looked at for news: a `stat`, no query; 0.2 % of a core."""


@dataclass(frozen=True, slots=True)
class News:
    """Why a wait ended: rung by this process, or told from outside (`is_foreign`), or simply over."""

    is_rung: bool
    is_foreign: bool


class Wakes:
    """One loop's ears. `ring` may be called from any thread and from signal handlers."""

    def __init__(self, *, idle_poll_s: float, mark: Callable[[], object] | None = None) -> None:
        self._idle_poll_s = idle_poll_s
        self._mark = mark
        self._seen = mark() if mark else None
        self._bell = threading.Event()
        self._is_foreign = False
        self._poll_s = min(FIRST_POLL_S, idle_poll_s)
        self.is_told = False
        """True while something tells of every change elsewhere, so that asking often would be waste."""

    @property
    def poll_s(self) -> float:
        """How long to wait before asking the database."""
        return self._idle_poll_s if self.is_told or self._mark else self._poll_s

    def ring(self) -> None:
        """Ends the present or the next wait."""
        self._bell.set()

    def tell(self) -> None:
        """Ends the present or the next wait: something has changed in the database."""
        self._is_foreign = True
        self._bell.set()

    def found(self, *, something: bool) -> None:
        """Asks sooner or later next time."""
        if something:
            self._poll_s = min(FIRST_POLL_S, self._idle_poll_s)
        else:
            self._poll_s = min(self._poll_s * POLL_GROWTH, self._idle_poll_s)

    def wait(self, timeout_s: float) -> News:
        """Waits until rung or told, at most `timeout_s`."""
        if self._mark is None:
            rung = self._bell.wait(timeout_s)
        else:
            rung = self._watch(timeout_s)
        self._bell.clear()
        foreign, self._is_foreign = self._is_foreign, False
        return News(rung, foreign)

    def wait_blindly(self, timeout_s: float) -> None:
        """Waits until rung, at most `timeout_s`, whatever changes elsewhere."""
        self._bell.wait(timeout_s)
        self._bell.clear()

    def _watch(self, timeout_s: float) -> bool:
        """The same, also looking at the mark of a file that others write."""
        assert self._mark is not None
        end = time.monotonic() + timeout_s
        while True:
            mark = self._mark()
            if mark != self._seen:
                self._seen = mark
                self._is_foreign = True
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            if self._bell.wait(min(left, WATCH_S)):
                return True
