"""Time limits: one thread that sleeps until the next one is reached. What then happens is its caller's affair.

An attempt registers on its way into user code, so both calls must cost next to nothing: a dictionary's entry, and a
comparison that wakes the thread only for a limit earlier than the one it sleeps towards.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

_log = logging.getLogger("queuety.worker")

_NEVER: Final = float("inf")
_LONGEST_WAIT_S: Final = threading.TIMEOUT_MAX
# Without it every short attempt on an idle worker started a thread of its own: 300 µs from submit to report, not 26.
_LINGER_S: Final = 10.0

ItemT = TypeVar("ItemT", bound=Hashable)


class Watchdog(Generic[ItemT]):
    """Calls `on_due(item)` once the item's limit has passed; what it returns is the item's next limit, or None.

    Limits are seconds of `time.monotonic()`. The thread lives while there are any, and a little longer.
    """

    def __init__(self, on_due: Callable[[ItemT], float | None], *, linger_s: float = _LINGER_S) -> None:
        self._on_due = on_due
        self._linger_s = linger_s
        self._limits: dict[ItemT, float] = {}
        self._changed = threading.Condition(threading.Lock())
        self._wakes_at = _NEVER
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def watch(self, item: ItemT, limit: float) -> None:
        """Have `on_due(item)` called at `limit`, unless it is forgotten before."""
        self._limits[item] = limit
        if limit < self._wakes_at:
            self._wake_for(limit)

    def forget(self, item: ItemT) -> None:
        """Drop the item's limit; `on_due` may be on its way already."""
        self._limits.pop(item, None)

    def stop(self) -> None:
        """Forget all limits and let the thread end."""
        with self._changed:
            self._is_stopped = True
            self._limits.clear()
            self._changed.notify()

    def _wake_for(self, limit: float) -> None:
        with self._changed:
            if self._is_stopped or limit >= self._wakes_at:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._keep_watch, name="queuety-limits", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    _log.exception("the system allows no thread that watches time limits; the next handler tries again")
                    return
                self._thread = thread
            self._wakes_at = limit
            self._changed.notify()

    def _keep_watch(self) -> None:
        while (due := self._next_due()) is not None:
            for item in due:
                try:
                    limit = self._on_due(item)
                except Exception:  # noqa: BLE001 - a hook of the caller's: the other limits must still be kept
                    _log.exception("a time limit was reached, and telling of it failed")
                    continue
                if limit is not None:
                    self._limits[item] = limit

    def _next_due(self) -> list[ItemT] | None:
        """The items whose limits have passed, once there are some; None when nothing is left to watch."""
        with self._changed:
            was_empty = False
            while True:
                # Never: whoever registers from here on comes to the lock, and so is not overlooked by the copy below.
                self._wakes_at = _NEVER
                limits = list(self._limits.items())
                if self._is_stopped or (was_empty and not limits):
                    self._thread = None
                    return None
                now = time.monotonic()
                due = [item for item, limit in limits if limit <= now and self._limits.pop(item, None) is not None]
                if due:
                    return due
                was_empty = not limits
                self._wakes_at = min((limit for _, limit in limits), default=now + self._linger_s)
                self._changed.wait(min(self._wakes_at - now, _LONGEST_WAIT_S))
