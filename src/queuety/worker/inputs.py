"""What a handler is given: copies of its own, except of what is too large to be copied for every job."""

from __future__ import annotations

import threading
from typing import Any, Final

from queuety.codec import SharedList, copy_json
from queuety.model import Json, Role
from queuety.worker.outcome import Work

_MOST: Final = 4
"""Shared lists kept; each is the list of one for-each step, as this process has last read it."""


class Inputs:
    """Makes what handlers are called with. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[int, tuple[list[Json], SharedList]] = {}

    def of(self, work: Work) -> tuple[Any, ...]:
        """The arguments of the call: the payload of a plain job, or the state and what else the use gives."""
        if work.job.role is Role.JOB:
            return (copy_json(work.job.payload or {}),)
        if not work.arguments:
            return (self.state_of(work),)
        return (self.state_of(work), *map(copy_json, work.arguments))

    def state_of(self, work: Work) -> dict[str, Json]:
        """The state for the handler; it may change all of it but the shared list.

        With 50,000 items a job costs what it costs with ten (3 µs); copied, the list alone would be 2 to 25 ms a job.
        """
        state: Any = work.state
        items = None if work.shared is None else state.get(work.shared)
        if type(items) is not list:
            copied: dict[str, Json] = copy_json(state)
            return copied
        shared = self._shared_of(items)
        return {key: shared if key == work.shared else copy_json(value) for key, value in state.items()}

    def _shared_of(self, items: list[Json]) -> SharedList:
        """The list as handlers share it, made once for each list that was read."""
        found = self._shared.get(id(items))
        if found is not None and found[0] is items:
            return found[1]
        with self._lock:
            while len(self._shared) >= _MOST:
                del self._shared[next(iter(self._shared))]
            shared = SharedList(items)
            self._shared[id(items)] = (items, shared)
        return shared
