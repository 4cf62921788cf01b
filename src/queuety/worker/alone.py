"""A worker inside somebody's own process: no supervisor, a thread renews.

Code that holds the interpreter lock for longer than a lease keeps that thread from renewing, and its attempt is fenced;
a handler that is over its time limit and cannot be stopped keeps its thread until it returns, another takes its place.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from queuety.errors import StoreUnavailable
from queuety.model import Job
from queuety.worker.loop import Loop
from queuety.worker.maintain import Renewer
from queuety.worker.parts import AppParts
from queuety.worker.pauses import Pauses
from queuety.worker.signals import SignalThread, StopSignals
from queuety.worker.terms import Terms

_log = logging.getLogger("queuety.worker")

OUTAGE_PAUSE_S: Final = (0.5, 5.0)


class Alone:
    """Works in this process until `stop` is called, or, in the main thread, until SIGTERM or SIGINT.

    A second signal stops it at once.
    """

    def __init__(self, app: AppParts, terms: Terms) -> None:
        self._app = app
        self._terms = terms
        self._lock = threading.Lock()
        self._loop: Loop | None = None
        self._is_stopped = threading.Event()
        self._at_once = False

    def run(self) -> None:
        """Works until it is stopped; then everything is settled or given back, and signals do what they did before."""
        with StopSignals() as signals, SignalThread(signals, lambda count: self.stop(at_once=count > 1)):
            loop = self._reach(lambda: self._app.worker_loop(self._terms, on_stuck=_note_stuck))
            if loop is None:
                return
            renewer = Renewer(self._app.door, lambda: (loop.owner,), lease_s=self._terms.lease_s)
            renewer.start()
            try:
                with self._lock:
                    self._loop = loop
                if self._is_stopped.is_set():
                    loop.stop(at_once=self._at_once)
                loop.run()
            finally:
                renewer.stop()
                with self._lock:
                    self._loop = None

    def stop(self, *, at_once: bool = False) -> None:
        """Has `run` finish what can be finished within the grace time and return; `at_once`: give everything back now.

        May be called from any thread, before `run` too.
        """
        with self._lock:
            self._at_once = self._at_once or at_once
            self._is_stopped.set()
            loop = self._loop
        if loop is not None:
            loop.stop(at_once=at_once)

    def _reach(self, make: Callable[[], Loop]) -> Loop | None:
        """What `make` gives, once the database can be reached; None if it is told to stop before."""
        pauses = Pauses(*OUTAGE_PAUSE_S)
        while not self._is_stopped.is_set():
            try:
                return make()
            except StoreUnavailable as error:
                pause_s = pauses.after()
                _log.warning("the database cannot be reached, trying again in %.1f s: %s", pause_s, error)
                self._is_stopped.wait(pause_s)
        return None


def _note_stuck(job: Job) -> None:
    _log.error("job %d (%s) keeps its thread until it returns; another thread takes its place", job.id, job.handler)
