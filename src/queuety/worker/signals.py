"""Signals as bytes in a pipe: whoever waits for something anyway waits for them too; a handler does nothing else."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

ECHO_S: Final = 0.2
"""Within this time the same signal again is the same wish, and not the second that stops at once: timeout(1) signals
its child and then its whole group, and launchers hand on the Ctrl-C that the terminal has already sent to all."""


class StopSignals:
    """While the context is open, `counted` signals are counted and `ignored` ones do nothing; then all is as it was.

    The same signal again within `ECHO_S` is not counted. Only the main thread can have it so; elsewhere no signal is
    touched and none arrives. `fd` is readable when one has. An ignored signal gets a handler that does nothing: what a
    process truly ignores, the programs it starts ignore too. A forked child counts nothing: a stopping signal does
    there what it did before.
    """

    def __init__(self, counted: Iterable[signal.Signals] = STOPPING, *, ignored: Iterable[signal.Signals] = ()) -> None:
        self._counted = tuple(counted)
        self._ignored = tuple(ignored)
        self._before: dict[signal.Signals, Any] = {}
        self._noted: dict[int, float] = {}
        self.fd = -1
        self._write = -1

    def open(self) -> None:
        """Begins to count."""
        self.fd, self._write = os.pipe()
        _open.add(self)
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        if threading.current_thread() is threading.main_thread():
            for one in self._counted:
                self._before[one] = signal.signal(one, self._note)
            for one in self._ignored:
                self._before[one] = signal.signal(one, _nothing)

    def close(self) -> None:
        """Has all as it was."""
        _open.discard(self)
        for one, handler in self._before.items():
            # None: it was installed by C code, and cannot be put back from here.
            if handler is not None:
                signal.signal(one, handler)
        self._before.clear()
        write, self._write = self._write, -1
        if write >= 0:
            os.close(write)
        os.close(self.fd)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def take(self) -> int:
        """How many have arrived since it was last asked; does not wait."""
        try:
            return len(os.read(self.fd, 4096))
        except BlockingIOError:
            return 0

    def let_go(self) -> None:
        """In a forked child: the pipe leads to the parent, which must not take the child's signals for its own.

        Otherwise `terminate()` of a `multiprocessing` process, a pool's end too, stopped the worker instead of it.
        """
        self._write = -1
        for one in self._counted:
            if (handler := self._before.get(one)) is not None:
                signal.signal(one, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self._write < 0:
            return
        now = time.monotonic()
        if now - self._noted.get(number, -ECHO_S) < ECHO_S:
            return
        self._noted[number] = now
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            return  # full of signals already


_open: Final[weakref.WeakSet[StopSignals]] = weakref.WeakSet()
_masks: Final = threading.local()


def _before_fork() -> None:
    # One that arrives in the child before it can be let go would be counted by nobody.
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING if _open else ())


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _after_fork_in_child() -> None:
    for signals in list(_open):
        signals.let_go()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """What an ignored signal does."""


@contextmanager
def held_back() -> Iterator[None]:
    """While it is open, stopping signals wait; a process that is started meanwhile has them wait until it is ready."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """Has the signals arrive that `held_back` made wait in this process's parent."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


class SignalThread:
    """Calls `on_signal(count)`, with how many have come so far, in a thread, for every signal that arrives."""

    def __init__(self, signals: StopSignals, on_signal: Callable[[int], None]) -> None:
        self._signals = signals
        self._on_signal = on_signal
        self._end_read, self._end_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="queuety-signals", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._end_write)
        self._thread.join()
        os.close(self._end_read)

    def _run(self) -> None:
        count = 0
        while True:
            ready, _, _ = select.select([self._signals.fd, self._end_read], [], [])
            if self._end_read in ready:
                return
            for _ in range(self._signals.take()):
                count += 1
                self._on_signal(count)
