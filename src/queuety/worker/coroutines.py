"""The event loop on which `async def` handlers run: one per executor, in a thread of its own, started when needed.

Whatever a handler or a task that it left behind does to the loop (stop it, raise `SystemExit` through it), the loop
goes on; only blocking it stops it, and that the caller sees: `is_held_by`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

_log = logging.getLogger("queuety.worker")

ItemT = TypeVar("ItemT", bound=Hashable)


class Coroutines(Generic[ItemT]):
    """Runs `run(item)` as a task in a context of its own, at most `limit` at a time.

    `on_end(item)` is called on the loop when the task is over, also when it was cancelled before its first step. At the
    end, tasks have `goodbye_s` to clean up.
    """

    def __init__(
        self,
        run: Callable[[ItemT], Coroutine[Any, Any, None]],
        *,
        on_end: Callable[[ItemT], None],
        limit: int,
        name: str,
        goodbye_s: float,
    ) -> None:
        self._run = run
        self._on_end = on_end
        self._limit = limit
        self._name = name
        self._goodbye_s = goodbye_s
        self._lock = threading.Lock()
        self._waiting: deque[ItemT] = deque()
        self._tasks: dict[ItemT, asyncio.Task[None]] = {}
        self._given_up: dict[ItemT, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_pumping = False
        self._is_stopped = False

    def put(self, items: Iterable[ItemT]) -> None:
        """Have the items run. The loop is woken once for all. Raises `RuntimeError` if its thread cannot start."""
        with self._lock:
            self._waiting.extend(items)
            if self._is_pumping or self._is_stopped:
                return
            loop = self._loop or self._start()
            self._is_pumping = True
        loop.call_soon_threadsafe(self._pump)

    def take_back(self) -> list[ItemT]:
        """The items that have not been started; they are no longer the loop's."""
        with self._lock:
            items = list(self._waiting)
            self._waiting.clear()
        return items

    def cancel(self, item: ItemT, *, delivered: Callable[[], None] | None = None) -> None:
        """Ask the item's task to stop; `delivered` is called on the loop once it has been asked."""
        self._call(self._cancel, item, delivered)

    def give_up(self, item: ItemT) -> None:
        """Give the place of a task that does not end when asked to the next one."""
        self._call(self._give_up, item)

    def is_held_by(self, item: ItemT) -> bool | None:
        """Whether the item's task is what runs on the loop right now; None if that is no task of ours."""
        if self._loop is None:
            return None
        current = asyncio.current_task(self._loop)
        if current is None:
            return None
        ours = [*self._tasks.items(), *self._given_up.items()]
        holder = next((held for held, task in ours if task is current), None)
        return None if holder is None else holder is item

    def stop(self) -> None:
        """Cancel what still runs and end the loop; one that is blocked is left to itself."""
        with self._lock:
            self._is_stopped = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._call(loop.stop)
        if thread is not threading.current_thread():
            thread.join(3 * self._goodbye_s)

    def _call(self, action: Callable[..., object], *arguments: object) -> None:
        if self._loop is None or self._loop.is_closed():
            return
        try:
            self._loop.call_soon_threadsafe(action, *arguments)
        except RuntimeError:  # closed since we looked: nothing runs there any more
            _log.debug("the event loop has ended meanwhile")

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(loop,), name=self._name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            loop.close()
            raise
        self._loop = loop
        return loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._is_stopped:
            try:
                loop.run_forever()
            except BaseException:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a task that user code left behind
                _log.exception("a task that a handler left behind raised through the event loop; the loop goes on")
        try:
            loop.run_until_complete(_say_goodbye(loop, within_s=self._goodbye_s))
        except BaseException:  # noqa: BLE001 - the same, on the way out
            _log.exception("a task raised through the event loop while it was ending")
        finally:
            loop.close()

    def _pump(self) -> None:
        with self._lock:
            self._is_pumping = False
            room = self._limit - len(self._tasks)
            items = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        loop = asyncio.get_running_loop()
        for item in items:
            task = loop.create_task(self._run(item), context=contextvars.Context())
            self._tasks[item] = task
            task.add_done_callback(partial(self._ended, item))

    def _ended(self, item: ItemT, task: asyncio.Task[None]) -> None:
        self._given_up.pop(item, None)
        self._tasks.pop(item, None)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("an attempt could not be settled", exc_info=failure)
        self._on_end(item)
        if self._waiting:
            self._pump()

    def _cancel(self, item: ItemT, delivered: Callable[[], None] | None) -> None:
        task = self._tasks.get(item) or self._given_up.get(item)
        if task is not None:
            task.cancel()
        if delivered is not None:
            delivered()

    def _give_up(self, item: ItemT) -> None:
        task = self._tasks.pop(item, None)
        if task is not None:
            self._given_up[item] = task
            self._pump()


async def _say_goodbye(loop: asyncio.AbstractEventLoop, *, within_s: float) -> None:
    """Cancel all tasks and close all asynchronous generators, with so much time for each of the two."""
    others = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=within_s)
    try:
        await asyncio.wait_for(loop.shutdown_asyncgens(), within_s)
    except TimeoutError:
        _log.warning("asynchronous generators of handlers did not close in time")
