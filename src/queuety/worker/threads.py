"""Threads that take one item after the other from a shared queue. What an item is, the caller knows.

The hand-off is made for batches of short items: waking a thread for each of a hundred empty steps costs more than the
steps (every wake is a fight for the interpreter lock). So at most one thread is on its way at any time, and whoever
takes an item while more are waiting wakes the next one first: if the item blocks, the next thread takes over; if it
does not, the one woken finds nothing left and lies down again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

_log = logging.getLogger("queuety.worker")

ItemT = TypeVar("ItemT")


class _Bed:
    """Where one idle thread sleeps."""

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def sleep(self) -> None:
        self._gate.acquire()

    def wake(self) -> None:
        self._gate.release()


class Crew(Generic[ItemT]):
    """At most `limit` threads, started when they are needed, that call `run(item)` for every item put in.

    `run` returns whether its thread is still wanted: one that was given up by `replace_one` while it ran says False.
    """

    def __init__(self, run: Callable[[ItemT], bool], *, limit: int, name: str) -> None:
        self._run = run
        self._limit = limit
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[ItemT] = deque()
        self._idle: list[_Bed] = []
        self._threads = 0
        self._started = 0
        self._is_waking = False
        self._is_stopped = False

    def put(self, items: Iterable[ItemT]) -> None:
        """Have the items run, started in this order. Raises `RuntimeError` if no thread can start."""
        with self._lock:
            self._waiting.extend(items)
        self._wake_one()

    def take_back(self) -> list[ItemT]:
        """The items that no thread has taken yet; they are no longer the crew's."""
        with self._lock:
            items = list(self._waiting)
            self._waiting.clear()
        return items

    def replace_one(self) -> None:
        """Stop counting a thread that is lost in user code; another may take its place at once."""
        with self._lock:
            self._threads -= 1
        try:
            self._wake_one()
        except RuntimeError:
            _log.warning("no thread could be started in place of one that is over its time limit")

    def stop(self) -> None:
        """Let idle threads end now and the others after their item."""
        with self._lock:
            self._is_stopped = True
            beds, self._idle = self._idle, []
        for bed in beds:
            bed.wake()

    def _wake_one(self) -> None:
        """Send one more thread for what is waiting, unless one is on its way already."""
        bed: _Bed | None = None
        number = 0
        with self._lock:
            if self._is_waking or self._is_stopped or not self._waiting:
                return
            if self._idle:
                bed = self._idle.pop()
            elif self._threads < self._limit:
                self._threads += 1
                self._started += 1
                number = self._started
            else:
                return
            self._is_waking = True
        if bed is not None:
            bed.wake()
        else:
            self._start(number)

    def _start(self, number: int) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system's limit of threads: those that live go on with what waits
            with self._lock:
                self._threads -= 1
                self._is_waking = False
                is_alone = self._threads == 0
            if is_alone:
                raise
            _log.warning("the system allows no more threads; %d are at work", self._threads)

    def _work(self) -> None:
        bed = _Bed()
        was_woken = True
        while True:
            item: ItemT | None = None
            must_wake = False
            with self._lock:
                if was_woken:
                    self._is_waking = was_woken = False
                if self._is_stopped:
                    self._threads -= 1
                    return
                if self._waiting:
                    item = self._waiting.popleft()
                    is_more_help = bool(self._idle) or self._threads < self._limit
                    must_wake = is_more_help and bool(self._waiting) and not self._is_waking
                else:
                    self._idle.append(bed)
            if item is None:
                bed.sleep()
                was_woken = True
                continue
            if must_wake:
                self._wake_one()
            if not self._run(item) and not self._rejoins():
                return

    def _rejoins(self) -> bool:
        """True if the place of this thread, which was given up, has not been taken."""
        with self._lock:
            if self._threads >= self._limit or not self._waiting:
                return False
            self._threads += 1
            return True
