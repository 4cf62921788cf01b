"""An executor with handlers made on the spot, and a queue of what it reports."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from queuety.define.call import Plan, prepare
from queuety.define.handlers import Handler, handler_of
from queuety.define.marks import HandlerKind
from queuety.errors import HandlerNotFound, LeaseLost
from queuety.model import HandlerRef, Job, Json, Options, Priority, Role, Use
from queuety.worker.execute import Executor
from queuety.worker.outcome import Outcome, Work

PATIENCE_S = 20.0
NOW_US = 1_700_000_000_000_000


def claimed(handler: str = "app:step", *, job_id: int = 1, role: Role = Role.STEP, **changes: Any) -> Job:
    """A job as it is claimed."""
    fields: dict[str, Any] = {
        "queue": "default",
        "priority": Priority.NORMAL,
        "attempt": 1,
        "max_attempts": 3,
        "token": 7,
        "due_us": 0,
        "created_us": 0,
    }
    if role is not Role.JOB:
        fields |= {"workflow_id": 41, "step_index": 2, "visit": 5}
    return Job(id=job_id, role=role, handler=handler, **(fields | changes))


class Book:
    """Keeps chunks in memory, by workflow, visit and branch; after `loses_from` is set, it refuses them from there."""

    def __init__(self) -> None:
        self.pages: dict[tuple[int | None, int | None, int | None], list[Json]] = {}
        self.loses_from: int | None = None
        self.threads: list[str] = []
        self.gate: threading.Event | None = None
        self.arrived = threading.Event()

    def existing(self, job: Job) -> list[Json]:
        """What the visit has yielded so far."""
        return list(self.pages.get((job.workflow_id, job.visit, job.branch), ()))

    def append(self, job: Job, number: int, content: Json) -> None:
        """Keep one, or raise `LeaseLost`; with a gate, wait at it first."""
        self.threads.append(threading.current_thread().name)
        self.arrived.set()
        if self.gate is not None:
            wait(self.gate)
        if self.loses_from is not None and number >= self.loses_from:
            raise LeaseLost(f"chunk {number} was refused")
        page = self.pages.setdefault((job.workflow_id, job.visit, job.branch), [])
        assert number == len(page), "chunks are numbered without a gap"
        page.append(content)


class Rig:
    """Runs functions as handlers; `outcome()` waits for the next report."""

    def __init__(self, *, concurrency: int = 4, now_us: Callable[[], int] = lambda: NOW_US, **options: Any) -> None:
        self.handlers: dict[str, Any] = {}
        self.reports: SimpleQueue[Outcome] = SimpleQueue()
        self.stuck: SimpleQueue[Job] = SimpleQueue()
        self.beats: list[tuple[Job, Mapping[str, Json] | None]] = []
        self.book = Book()
        self.release = threading.Event()
        self._last_id = 0
        usual: dict[str, Any] = {
            "report": self.reports.put,
            "heartbeat": lambda job, progress: self.beats.append((job, progress)),
            "on_stuck": self.stuck.put,
            "chunks": self.book,
            "max_value_bytes": 8 * 1024 * 1024,
            "stop_patience_s": 0.05,
        }
        self.executor = Executor(self, concurrency=concurrency, now_us=now_us, owner=9, **(usual | options))

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release.set()
        self.executor.stop()

    def plan(self, name: str, config: Mapping[str, Json] | None = None, use: Use = Use.STEP) -> Plan:
        """How to call the handler of this name, like the registry."""
        if name not in self.handlers:
            raise HandlerNotFound(f"{name} is not registered")
        found = self.handlers[name]
        if isinstance(found, BaseException):
            raise found
        return prepare(found, config, use)

    def work(
        self,
        function: Callable[..., Any],
        *,
        state: Mapping[str, Json] | None = None,
        timeout_s: float | None = None,
        options: Options = Options(),
        config: Mapping[str, Json] | None = None,
        use: Use = Use.STEP,
        arguments: tuple[Json, ...] = (),
        shared: str | None = None,
        **changes: Any,
    ) -> Work:
        """The work of running the function."""
        name = f"app:{function.__name__}"
        while name in self.handlers and self.handlers[name].target is not function:
            name += "_"
        self.handlers[name] = handler_made_of(function, name, job=changes.get("role") is Role.JOB)
        self._last_id += 1
        return Work(
            job=claimed(name, **({"job_id": self._last_id} | changes)),
            ref=HandlerRef(name, config),
            state=state or {},
            timeout_s=timeout_s,
            options=options,
            step_name="fetch",
            use=use,
            arguments=arguments,
            shared=shared,
        )

    def submit(self, *functions: Callable[..., Any], **changes: Any) -> list[Work]:
        """Submit them in one batch."""
        works = [self.work(function, **changes) for function in functions]
        self.executor.submit(works)
        return works

    def outcome(self) -> Outcome:
        """The next report."""
        return self.reports.get(timeout=PATIENCE_S)

    def run(self, function: Callable[..., Any], **changes: Any) -> Any:
        """Submit one and wait for its report."""
        self.submit(function, **changes)
        return self.outcome()

    def has_report(self) -> bool:
        """True if something has been reported that nobody has taken."""
        return not self.reports.empty()

    def next_stuck(self) -> Job | None:
        """The next job called stuck, None if there is none soon."""
        try:
            return self.stuck.get(timeout=PATIENCE_S)
        except Empty:
            return None


def handler_made_of(function: Callable[..., Any], name: str, *, job: bool = False) -> Handler:
    """The handler that the function, or the class, would be if it were marked and stood in a module."""
    if isinstance(function, type):
        return handler_of(function, name)
    kind = HandlerKind.JOB if job else HandlerKind.STEP
    is_async = inspect.iscoroutinefunction(function)
    return Handler(name, function, kind, False, is_async, Options(), inspect.signature(function), {})


def wait(event: threading.Event) -> None:
    """Wait for a named moment, or fail."""
    assert event.wait(PATIENCE_S), "what was waited for did not happen"
