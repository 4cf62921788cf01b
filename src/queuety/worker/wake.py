"""How a sleeping loop learns that there is work: by a ring in the process, by what its database can tell, by asking.

Asking is always enough; everything else only shortens the wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from queuety.store.door import Door

FIRST_POLL_S: Final = 0.01
"""How soon a worker that has just been busy asks again where nothing tells it of news."""
POLL_GROWTH: Final = 1.25
"""How much later each time it found nothing; one second is reached after about five."""
NAP_S: Final = 0.03
"""From this pause on, asking the database to wake us is cheaper than asking it for work."""
WATCH_S: Final = 0.015
"""How often a file is looked at for news: a `stat`, no query. At 8 ms an idle process took 0.9 % of a core."""
ECHOES_S: Final = (0.02, 0.1, 0.4)
"""When the database is asked again after its file has changed. What was written can be read only once it has been
synced, so the first question may come too early: one dispatch in ten was then seen a whole poll later."""


LISTEN_AGAIN_S: Final = (0.5, 15.0)
"""How long a listener that was cut off waits, first and at most, before it tries again."""

_log = logging.getLogger("queuety.worker")


@dataclass(frozen=True, slots=True)
class News:
    """Why a wait ended: rung by this process, or told from outside (`is_foreign`), or simply over."""

    is_rung: bool
    is_foreign: bool


class Wakes:
    """One loop's ears. `ring` may be called from any thread."""

    def __init__(self, *, idle_poll_s: float, mark: Callable[[], object] | None = None) -> None:
        self._idle_poll_s = idle_poll_s
        self._mark = mark
        self._seen = mark() if mark else None
        self._echoes: list[float] = []
        self._bell = threading.Event()
        self._is_foreign = False
        self._poll_s = min(FIRST_POLL_S, idle_poll_s)
        self.is_listening = False
        """True while the database could tell of work elsewhere."""
        self.is_asleep = False
        """True while it has been asked to, so that asking often would be waste."""

    @property
    def poll_s(self) -> float:
        """How long to wait before asking the database."""
        return self._idle_poll_s if self._mark or (self.is_listening and self.is_asleep) else self._poll_s

    @property
    def may_fall_asleep(self) -> bool:
        """True when there has been nothing to do for a while, and the database can wake us."""
        return self.is_listening and not self.is_asleep and self._poll_s >= NAP_S

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

    def wait_blindly(self, timeout_s: float) -> bool:
        """Waits until rung, at most `timeout_s`, whatever changes elsewhere; True if it was rung."""
        rung = self._bell.wait(timeout_s)
        self._bell.clear()
        return rung

    def _watch(self, timeout_s: float) -> bool:
        """The same, also looking at the mark of a file that others write."""
        assert self._mark is not None
        end = time.monotonic() + timeout_s
        while True:
            mark, now = self._mark(), time.monotonic()
            if mark != self._seen:
                self._seen = mark
                self._echoes = [now + pause_s for pause_s in ECHOES_S]
                self._is_foreign = True
                return True
            if self._echoes and self._echoes[0] <= now:
                del self._echoes[0]
                self._is_foreign = True
                return True
            left = end - now
            if left <= 0:
                return False
            if self._bell.wait(min(left, WATCH_S)):
                return True


class Ear:
    """Listens for what the database tells, in a thread of its own, and begins again when the connection is lost."""

    def __init__(self, door: Door, wakes: Wakes) -> None:
        self._door = door
        self._wakes = wakes
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queuety-listen", daemon=True)

    def start(self) -> None:
        """Starts listening, where the database tells anything."""
        if self._door.dialect.tells:
            self._thread.start()

    def stop(self) -> None:
        """Stops within about a second; does not wait for it."""
        self._end.set()

    def _run(self) -> None:
        pause_s = LISTEN_AGAIN_S[0]
        while not self._end.is_set():
            began = time.monotonic()
            try:
                self._door.dialect.listen(self._door.engine, self._door.tables.prefix, self._heard, self._end.is_set)
            except Exception as error:  # noqa: BLE001 - whatever the driver says, asking goes on without being told
                _log.info("not listening for work (%s); asking for it instead", error)
            self._wakes.is_listening = False
            pause_s = LISTEN_AGAIN_S[0] if time.monotonic() - began > 60 else min(pause_s * 2, LISTEN_AGAIN_S[1])
            self._end.wait(pause_s)

    def _heard(self) -> None:
        self._wakes.is_listening = True
        self._wakes.tell()
