"""Whose turn it is to write an SQLite file, among the threads of one process. Processes meet in the file itself."""

from __future__ import annotations

import os
import threading
import time
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


def turn_for(key: str, place: str) -> Turn:
    """The one turn for this key in this process: after a fork a new one, whoever held the parent's."""
    return _turns.setdefault((os.getpid(), key), Turn(place))
