"""What scenarios share: a place where handlers note that they ran, a worker beside the test, waiting for the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from queuety import Queuety, WorkflowState
from queuety.worker.alone import Alone

T = TypeVar("T")

PATIENCE_S = 30.0
"""How long a test waits for what must happen."""

notes: list[Any] = []
"""What handlers have noted in this process since the test began."""


def note(word: Any) -> None:
    """Called by handlers."""
    notes.append(word)


def until(ask: Callable[[], T], *, within_s: float = PATIENCE_S) -> T:
    """What `ask` gives once it is true; for what happens in another thread or process. Raises `AssertionError`."""
    end = time.monotonic() + within_s
    pause = threading.Event()
    while not (found := ask()):
        assert time.monotonic() < end, f"{ask} was not true within {within_s:g} s"
        pause.wait(0.002)
    return found


@contextmanager
def working(app: Queuety, queues: str = "default", concurrency: int = 4, *, grace_s: float = 5.0) -> Iterator[Alone]:
    """A worker in a thread of this process while the block runs; it must end when it is stopped."""
    worker = app.worker(queues, concurrency, grace_seconds=grace_s)
    failure: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="the worker beside the test")
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the worker does not stop"
    if failure:
        raise failure[0]


def status_of(app: Queuety, workflow_id: int) -> WorkflowState:
    """The run as it is now; it must be there."""
    state = app.workflow_status(workflow_id)
    assert state is not None
    return state
