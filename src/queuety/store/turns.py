"""Whose turn it is to write an SQLite file, among the threads of one process. Processes meet in the file itself."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Final

from queuety.errors import StoreError, StoreUnavailable


class Turn:
    """A lock that knows its holder. Raises instead of waiting for itself."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._holder: int | None = None

    def is_mine(self) -> bool:
        """True if this thread holds it."""
        return self._holder == threading.get_ident()

    def take(self, deadline: float) -> None:
        """Waits for it until `deadline` (`time.monotonic()`). Raises `StoreUnavailable`; `StoreError` if it is ours."""
        if not self._lock.acquire(blocking=False):
            if self.is_mine():
                raise StoreError(
                    f"{self._place}: a write was begun inside another transaction of this thread; end that one first"
                )
            if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                raise StoreUnavailable(
                    f"{self._place}: another thread of this process is still writing; end its transaction, or try again"
                )
        self._holder = threading.get_ident()

    def give(self) -> None:
        """Lets the next one have it."""
        self._holder = None
        self._lock.release()


_turns: Final[dict[tuple[int, str], Turn]] = {}

FORK_WAIT_S: Final = 5.0
"""How long a fork waits for a writing transaction of another thread to end."""


def turn_for(key: str, place: str) -> Turn:
    """The one turn for this key in this process: after a fork a new one, whoever held the parent's."""
    return _turns.setdefault((os.getpid(), key), Turn(place))


# SQLite keeps in the process's memory which locks it holds. A child that is forked inside another thread's transaction
# would inherit that note and find the file locked for ever, so a fork waits until nobody writes.
_held_by_fork: Final[list[Turn]] = []


def _before_fork() -> None:
    deadline = time.monotonic() + FORK_WAIT_S
    for (pid, _), turn in list(_turns.items()):
        if pid == os.getpid() and not turn.is_mine():
            with suppress(StoreUnavailable):  # the child will say that it cannot write
                turn.take(deadline)
                _held_by_fork.append(turn)


def _after_fork_in_parent() -> None:
    while _held_by_fork:
        _held_by_fork.pop().give()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_held_by_fork.clear)
