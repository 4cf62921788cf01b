"""One child of a supervisor: `python -m queuety.worker.child CONTROL STATUS`, with the ends of two pipes.

It loads the application, tells its number in the leases, works until it is told to stop, and beats all the while. When
its supervisor is gone it renews its leases itself and finishes. It ignores the terminal's interrupt: its supervisor
gets the same one and tells it what to do.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

from queuety.errors import StoreUnavailable
from queuety.model import Job
from queuety.worker.loop import Loop
from queuety.worker.maintain import Renewer
from queuety.worker.messages import BEAT_S, STOP, STOP_NOW, Lines, Order, Status
from queuety.worker.parts import AppParts, load_app
from queuety.worker.pauses import Pauses
from queuety.worker.signals import StopSignals, let_through

_log = logging.getLogger("queuety.worker")

OUTAGE_PAUSE_S: Final = (0.5, 5.0)
LAST_RESORT_S: Final = 10.0
"""How much longer than its grace time a child lives that nobody can kill any more."""
LOG_FORMAT: Final = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
EXIT_S: Final = 2.0
"""How long what the interpreter does at its end may take: a thread of the user's may never return."""


class Teller:
    """Tells the supervisor how it stands: at once when that changes, and every `BEAT_S`, from a thread of its own."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._status = Status()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._beat, name="queuety-beat", daemon=True)
        os.set_blocking(fd, False)

    def start(self) -> None:
        """Begins to beat."""
        self._thread.start()

    def tell(self, *, owner: int | None = None, retiring: str | None = None, failed: str | None = None) -> None:
        """Tells what has changed, before it returns."""
        with self._lock:
            known = self._status
            self._status = Status(owner or known.owner, retiring or known.retiring, failed or known.failed)
            self._send()

    def _beat(self) -> None:
        never = threading.Event()
        while not never.wait(BEAT_S):
            with self._lock:
                self._send()

    def _send(self) -> None:
        try:
            os.write(self._fd, self._status.line())
        except (BlockingIOError, BrokenPipeError):
            return  # the supervisor is stopped or gone: the next beat says the same, and the other pipe's end tells


class Child:
    """The child's work, from its order to its end."""

    def __init__(self, control: int, status: int) -> None:
        self._orders = Lines(control)
        self._teller = Teller(status)
        self._lock = threading.Lock()
        self._app: AppParts | None = None
        self._loop: Loop | None = None
        self._told: str | None = None
        self._has_word = threading.Event()
        self._retire_s = 0.0
        self._grace_s = 0.0
        self._lease_s = 0.0
        self._is_retiring = False

    def run(self) -> int:
        """Does it all; the exit code."""
        self._teller.start()
        lines: list[str] = []
        while not lines and not self._orders.is_at_end:
            lines = self._orders.read()
        if not lines:
            return 0
        order = Order.from_line(lines[0])
        self._retire_s = order.retire_s
        self._grace_s = order.terms.grace_s
        self._lease_s = order.terms.lease_s
        # Nothing puts the signals back: the process ends with its work.
        signals = StopSignals((signal.SIGTERM,), ignored=(signal.SIGINT,))
        signals.open()
        let_through()
        for word in lines[1:]:
            self._obey(word)
        threading.Thread(target=self._listen, args=(signals,), name="queuety-orders", daemon=True).start()
        code = self._work(order)
        self._end(code)
        return code

    def _work(self, order: Order) -> int:
        try:
            if order.path:
                sys.path[:] = order.path
            self._app = load_app(order.app, order.workflows)
            if not logging.getLogger().handlers:
                logging.basicConfig(format=LOG_FORMAT)
                logging.getLogger("queuety").setLevel(order.log_level)
            loop = self._reach(lambda app: app.worker_loop(order.terms, on_stuck=self._retire), self._app)
            if loop is None:
                return 0
            with self._lock:
                self._loop = loop
                told = self._told
            self._teller.tell(owner=loop.owner)
            if told is not None:
                loop.stop(at_once=told == STOP_NOW)
            loop.run()
        except BaseException as error:  # noqa: BLE001 - importing runs the user's module, which may raise anything
            _log.exception("worker process %d cannot work", os.getpid())
            self._teller.tell(failed=f"{type(error).__name__}: {error}")
            return 1
        return 0

    def _reach(self, make: Callable[[AppParts], Loop], app: AppParts) -> Loop | None:
        """What `make` gives, once the database can be reached; None if it is told to stop before."""
        pauses = Pauses(*OUTAGE_PAUSE_S)
        while self._told is None:
            try:
                return make(app)
            except StoreUnavailable as error:
                pause_s = pauses.after()
                _log.warning("the database cannot be reached, trying again in %.1f s: %s", pause_s, error)
                self._has_word.wait(pause_s)
        return None

    # What it is told

    def _listen(self, signals: StopSignals) -> None:
        """In a thread: obeys the control pipe and SIGTERM until the supervisor is gone."""
        fds = [self._orders.fd, signals.fd]
        while not self._orders.is_at_end:
            ready, _, _ = select.select(fds, [], [])
            if signals.fd in ready and signals.take():
                self._obey(STOP)
            if self._orders.fd in ready:
                for word in self._orders.read():
                    self._obey(word)
        self._finish_alone()

    def _obey(self, word: str) -> None:
        with self._lock:
            is_first = self._told is None
            if self._told != STOP_NOW:
                self._told = word
            loop = self._loop
        self._has_word.set()
        if loop is not None:
            loop.stop(at_once=word == STOP_NOW)
            if is_first:
                _log.info("worker process %d takes no more jobs", os.getpid())

    def _finish_alone(self) -> None:
        """The supervisor is gone: nobody renews but this process, and nobody kills it if it does not end."""
        _log.warning("worker process %d has lost its supervisor: finishing what runs", os.getpid())
        last_resort = threading.Timer(self._grace_s + LAST_RESORT_S, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()
        loop, app = self._loop, self._app
        if loop is not None and app is not None:
            Renewer(app.door, lambda: (loop.owner,), lease_s=self._lease_s).start()
        self._obey(STOP)

    def _retire(self, job: Job) -> None:
        """A handler is over its time limit and cannot be stopped: only the end of this process frees what it holds."""
        with self._lock:
            loop = self._loop
            if self._is_retiring or loop is None:
                return
            self._is_retiring = True
        self._teller.tell(retiring=f"job {job.id} ({job.handler}) is over its time limit and does not stop")
        at_once = threading.Timer(self._retire_s, loop.stop, kwargs={"at_once": True})
        at_once.daemon = True
        at_once.start()
        loop.stop()

    def _end(self, code: int) -> None:
        """Lets nothing keep the process from ending; a thread that is lost in a handler cannot be waited for."""
        if self._is_retiring:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        last_resort = threading.Timer(EXIT_S, os._exit, (code,))
        last_resort.daemon = True
        last_resort.start()


def main(arguments: Sequence[str]) -> int:
    """Runs a child on the two descriptors that its supervisor names."""
    control, status = (int(argument) for argument in arguments)
    # What handlers start must not keep these pipes open.
    os.set_inheritable(control, False)
    os.set_inheritable(status, False)
    return Child(control, status).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
