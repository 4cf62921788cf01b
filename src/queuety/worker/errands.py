"""A supervisor's errands to the database, run one after the other in a thread, so that it never waits for a database.

What must be written (a dead child's jobs go back) is kept until it is: while the database is away it is tried again
with growing pauses.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from queuety.errors import StoreError
from queuety.worker.pauses import Pauses

_log = logging.getLogger("queuety.worker")

PAUSE_S: Final = (0.1, 5.0)


@dataclass(frozen=True, slots=True)
class Errand:
    """One thing to be done; `does` raises `StoreError` if it is to be tried again. `what` says it to people.

    `gave_up` is called if it failed for good. One that `is_owed` is waited for at the end.
    """

    what: str
    does: Callable[[], None]
    gave_up: Callable[[], None] | None = None
    is_owed: bool = False


class Errands:
    """The queue and its thread."""

    def __init__(self) -> None:
        self._waiting: deque[Errand] = deque()
        self._changed = threading.Condition()
        self._is_ended = False
        self._lost_since: float | None = None
        self._pauses = Pauses(*PAUSE_S, steady_s=float("inf"))
        self._thread = threading.Thread(target=self._run, name="queuety-errands", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def add(self, errand: Errand) -> None:
        """Has it done after those that wait."""
        with self._changed:
            self._waiting.append(errand)
            self._changed.notify_all()

    def end(self, *, within_s: float) -> list[Errand]:
        """Waits at most so long until all that is owed is done, then ends; gives back what of it was not done."""
        with self._changed:
            # The first one may be at work: it stays where its thread looks for it.
            for errand in list(self._waiting)[1:]:
                if not errand.is_owed:
                    self._waiting.remove(errand)
            self._changed.wait_for(lambda: not self._owed(), timeout=within_s)
            self._is_ended = True
            self._changed.notify_all()
            return self._owed()

    def _owed(self) -> list[Errand]:
        return [errand for errand in self._waiting if errand.is_owed]

    def _run(self) -> None:
        while (errand := self._next()) is not None:
            is_done = self._do(errand)
            with self._changed:
                if is_done:
                    self._waiting.popleft()
                else:
                    self._waiting.rotate(-1)
                self._changed.notify_all()
                if not is_done:
                    self._changed.wait_for(lambda: self._is_ended, timeout=self._pauses.after())

    def _next(self) -> Errand | None:
        """The first errand, which stays in the queue until it is done; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_ended)
            if self._is_ended:
                return None
            return self._waiting[0]

    def _do(self, errand: Errand) -> bool:
        """True if it is not to be tried again."""
        try:
            errand.does()
        except StoreError as error:
            if self._lost_since is None:
                self._lost_since = time.monotonic()
                _log.warning("%s failed and is tried again until it succeeds: %s", errand.what, error)
            return False
        except Exception:  # noqa: BLE001 - a fault of ours in one errand must not keep the others from being done
            _log.exception("%s failed; what it was about comes back when its lease ends", errand.what)
            if errand.gave_up is not None:
                errand.gave_up()
            return True
        if self._lost_since is not None:
            _log.warning("the supervisor has the database back after %.1f s", time.monotonic() - self._lost_since)
            self._lost_since = None
        self._pauses.reset()
        return True
