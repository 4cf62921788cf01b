"""Blocking calls for coroutines: beside the event loop, in threads whose end nobody waits for when the process ends."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from queuety.worker.threads import Crew

_log = logging.getLogger("queuety.worker")

T = TypeVar("T")


class Aside:
    """Runs functions beside the event loop of whoever asks: short ones in a few threads, user code in its own."""

    def __init__(self, *, limit: int, name: str) -> None:
        self._name = name
        self._crew = Crew[_Errand[Any]](_Errand.run, limit=limit, name=name)

    async def short(self, function: Callable[[], T]) -> T:
        """What a function gives back that waits for the database at most; if the task is cancelled, it goes on."""
        errand = _Errand(function)
        self._crew.put([errand])
        return (await errand.done).unwrapped()

    async def long(self, function: Callable[[], T]) -> T:
        """What user code gives back, run in the task's context; a cancelled task waits for its end, as it must."""
        errand = _Errand(function)
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(errand.run,), name=f"{self._name}-own", daemon=True).start()
        cancelled: asyncio.CancelledError | None = None
        while not errand.done.done():
            try:
                await asyncio.wait([errand.done])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return errand.done.result().unwrapped()

    def stop(self) -> None:
        """Let the threads end."""
        self._crew.stop()


class _Result(Generic[T]):
    """What a function gave back or raised: a future takes no `StopIteration`, and a task no `SystemExit`."""

    __slots__ = ("_error", "_value")

    def __init__(self, function: Callable[[], T]) -> None:
        self._value: list[T] = []
        self._error: BaseException | None = None
        try:
            self._value.append(function())
        except BaseException as error:  # noqa: BLE001 - user code: whoever waits gets it
            self._error = error

    def unwrapped(self) -> T:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._value[0]


class _Errand(Generic[T]):
    """A function on its way, and the future of whoever waits."""

    __slots__ = ("_function", "_loop", "done")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[_Result[T]] = self._loop.create_future()

    def run(self) -> bool:
        """Run it, in a thread; its thread is still wanted."""
        result = _Result(self._function)
        try:
            self._loop.call_soon_threadsafe(self._deliver, result)
        except RuntimeError:  # the loop is closed: nobody waits any more
            _log.debug("the event loop has ended meanwhile")
        return True

    def _deliver(self, result: _Result[T]) -> None:
        if not self.done.done():
            self.done.set_result(result)
