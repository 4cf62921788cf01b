"""The one place where user code runs: a pipeline over one value, from a claimed job to its outcome.

    submit -> resolve -> begin -> call -> outcome -> report

Every return and every raise is an outcome before anybody writes anything; no SQL here, and no decision about what an
outcome leads to. An attempt is reported once at most: whoever settles it first (its own end, its time limit, the loss
of its lease) wins, and what comes later is dropped.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context as Variables
from queue import SimpleQueue
from typing import Final

from queuety.define.call import Plan
from queuety.errors import HandlerNotFound, InvalidStateError, LeaseLost
from queuety.model import HandlerRef, Job, Json
from queuety.worker import context, faults, outcome
from queuety.worker.artifacts import Keeper, Shelf
from queuety.worker.aside import Aside
from queuety.worker.attempt import Attempt
from queuety.worker.beats import Beats
from queuety.worker.coroutines import Coroutines
from queuety.worker.inputs import Inputs
from queuety.worker.limits import Watchdog
from queuety.worker.outcome import Outcome, Returned, Unhandled, Work
from queuety.worker.plans import Planning, Plans
from queuety.worker.streaming import Chunks, Streams
from queuety.worker.threads import Crew

_log = logging.getLogger("queuety.worker")

STOP_PATIENCE_S: Final = 1.0
"""How long a handler that was asked to stop may take before its process is called stuck."""
_WRITERS: Final = 8
"""Threads at most that write what coroutines have to say."""
_CLEANUP_PATIENCE: Final = 10
"""A coroutine that was asked and still cleans up holds nobody else up: it may take this many times longer."""


class Executor:
    """Runs handlers: `def` in threads, `async def` on an event loop, at most `concurrency` of either at a time.

    `report` gets every outcome, from any thread, and must be quick; `heartbeat` renews an attempt's lease and keeps its
    progress, or raises `LeaseLost`; `chunks` keeps what streaming steps yield, which fail without, and `artifacts` what
    handlers put aside. `now_us` is the database's time, `owner` the process's number in spans. `on_stuck` gets the job
    of a handler that is over its time limit and does not stop: only the end of the process frees what it holds. The
    caller submits no more than `free`; what is above it waits.
    """

    def __init__(
        self,
        registry: Planning,
        *,
        concurrency: int,
        report: Callable[[Outcome], None],
        heartbeat: Callable[[Job, Mapping[str, Json] | None], None],
        now_us: Callable[[], int],
        owner: int,
        max_value_bytes: int,
        chunks: Chunks | None = None,
        artifacts: Keeper | None = None,
        on_stuck: Callable[[Job], None] | None = None,
        stop_patience_s: float = STOP_PATIENCE_S,
    ) -> None:
        self._plans = Plans(registry)
        self._concurrency = concurrency
        self._report = report
        self._now_us = now_us
        self._owner = owner
        self._max_value_bytes = max_value_bytes
        self._on_stuck = on_stuck
        self._stop_patience_s = stop_patience_s
        self._lock = threading.Lock()
        self._emptied = threading.Condition(self._lock)
        self._in_hand: dict[int, Attempt] = {}
        self._slots_taken = 0
        self._is_stopping = False
        self._watchdog = Watchdog(self._limit_reached)
        self._inputs = Inputs()
        self._aside = Aside(limit=min(concurrency, _WRITERS), name="queuety-aside")
        self._pulse = Beats(heartbeat, self._aside, give_up=self._give_up, max_bytes=max_value_bytes)
        self._shelf = Shelf(artifacts, self._aside, give_up=self._give_up, max_bytes=max_value_bytes)
        self._streams = Streams(chunks, self._aside, self._inputs, give_up=self._give_up, max_bytes=max_value_bytes)
        self._crew = Crew(self._run_in_thread, limit=concurrency, name="queuety-handler")
        self._coroutines = Coroutines(
            self._run_on_loop,
            on_end=self._task_ended,
            limit=concurrency,
            name="queuety-async",
            goodbye_s=stop_patience_s,
        )

    @property
    def running(self) -> list[Job]:
        """The jobs in hand, queued or started, whose outcome has not been reported: their leases are to be renewed."""
        with self._lock:
            return [attempt.work.job for attempt in self._in_hand.values()]

    @property
    def free(self) -> int:
        """How many more jobs could start at once. It has grown when an outcome is reported, not after."""
        return max(0, self._concurrency - self._slots_taken)

    def submit(self, works: Iterable[Work]) -> None:
        """Have the works run; one call for a whole batch. Raises `InvalidStateError` after `stop`."""
        self._submit([self._attempt(work, self._report) for work in works])

    def run_here(self, work: Work) -> Outcome:
        """Run one work and wait for its outcome, which is not reported.

        It runs in a thread or on the loop like any other, so that its time limit holds. Raises `LeaseLost` if it was
        given up meanwhile.
        """
        box: SimpleQueue[Outcome | None] = SimpleQueue()
        attempt = self._attempt(work, box.put)
        attempt.on_drop = lambda: box.put(None)
        try:
            self._submit([attempt])
            result = box.get()
        except BaseException:  # an exception of a signal: nobody waits for the outcome any more
            self._give_up(attempt)
            raise
        if result is None:
            raise LeaseLost(f"attempt {work.job.attempt} of job {work.job.id} was given up; nothing of it was kept")
        return result

    def cancel(self, job_id: int) -> None:
        """The job's lease is lost: tell its code to stop, and drop whatever comes of it."""
        with self._lock:
            attempt = self._in_hand.get(job_id)
        if attempt is not None:
            self._give_up(attempt)

    def take_back(self) -> list[Job]:
        """The jobs that had not been started; they are no longer in hand."""
        waiting = [*self._crew.take_back(), *self._coroutines.take_back()]
        return [attempt.work.job for attempt in waiting if self._give_up(attempt)]

    def abandon(self) -> list[Job]:
        """The jobs that were still in hand, started or not; their code is told to stop, their outcomes are dropped."""
        with self._lock:
            attempts = list(self._in_hand.values())
        return [attempt.work.job for attempt in attempts if self._give_up(attempt)]

    def stop(self, grace_s: float = 0.0) -> list[Job]:
        """End: start nothing more, wait at most `grace_s` for what runs, tell the rest to stop.

        Returns the jobs that have no outcome and will have none. May be called again, with a shorter grace.
        """
        with self._lock:
            self._is_stopping = True
        jobs = self.take_back()
        with self._lock:
            self._emptied.wait_for(lambda: not self._in_hand, timeout=grace_s)
        jobs += self.abandon()
        self._crew.stop()
        self._coroutines.stop()
        self._aside.stop()
        self._watchdog.stop()
        return jobs

    # The pipeline

    def _attempt(self, work: Work, report: Callable[[Outcome], object]) -> Attempt:
        return Attempt(work, report=report, pulse=self._pulse, shelf=self._shelf, trace_bytes=self._max_value_bytes)

    def _submit(self, attempts: list[Attempt]) -> None:
        if not attempts:
            return
        with self._lock:
            if self._is_stopping:
                raise InvalidStateError("the executor has been stopped; it takes no more jobs")
            self._slots_taken += len(attempts)
            for attempt in attempts:
                self._in_hand[attempt.work.job.id] = attempt
        blocking: list[Attempt] = []
        awaited: list[Attempt] = []
        for attempt in attempts:
            # A handler that is new here is looked up in a thread: that may import a module, which can take seconds.
            attempt.plan = self._plans.known(_ref(attempt.work), attempt.work.use)
            (awaited if attempt.plan is not None and attempt.plan.is_async else blocking).append(attempt)
        if blocking:
            self._hand_over(blocking, self._crew)
        if awaited:
            self._hand_over(awaited, self._coroutines)

    def _hand_over(self, attempts: list[Attempt], to: Crew[Attempt] | Coroutines[Attempt]) -> None:
        try:
            to.put(attempts)
        except RuntimeError:
            _log.exception("the system allows no thread that could run handlers; their jobs go back")
            for attempt in to.take_back():
                self._settle(attempt, Returned(attempt.work.job))

    def _run_in_thread(self, attempt: Attempt) -> bool:
        """Run what the crew hands out; False if the thread was given up meanwhile."""
        plan = None if attempt.is_settled else attempt.plan or self._resolve(attempt)
        if plan is not None and plan.is_async:
            self._hand_over([attempt], self._coroutines)
        elif plan is not None and self._begin(attempt):
            self._end(attempt, Variables().run(self._call, attempt, plan))
        return not attempt.is_late

    def _resolve(self, attempt: Attempt) -> Plan | None:
        """The handler's plan; None if this process cannot find it, and the attempt is settled so."""
        ref = _ref(attempt.work)
        try:
            attempt.plan = self._plans.find(ref, attempt.work.use)
        except HandlerNotFound as exc:
            self._settle(attempt, Unhandled(attempt.work.job, faults.message_of(exc)))
        except BaseException as exc:  # noqa: BLE001 - importing runs the user's module, which may raise anything
            reason = f"{faults.type_name(type(exc))}: {faults.message_of(exc)}"
            self._settle(attempt, Unhandled(attempt.work.job, f"{ref.name} cannot be loaded here: {reason}"))
        return attempt.plan

    def _begin(self, attempt: Attempt) -> bool:
        """Start the attempt's time; False if it was given up before, or its time could not be told."""
        try:
            now_us = self._now_us()
        except Exception as exc:  # noqa: BLE001 - the caller's clock; the thread has other attempts to run
            self._settle(attempt, self._raised(attempt, exc))
            return False
        with self._lock:
            if attempt.is_settled:
                return False
            attempt.start(now_us)
        if attempt.work.timeout_s is not None:
            self._watchdog.watch(attempt, attempt.started_s + attempt.work.timeout_s)
        return True

    def _call(self, attempt: Attempt, plan: Plan) -> Outcome:
        """Run a blocking handler."""
        context.enter(context.Context(attempt))
        value, chunks = None, None
        try:
            if plan.stream is None:
                value = plan.call(*self._inputs.of(attempt.work))
            else:
                value, chunks = self._streams.run(attempt, plan)
        except BaseException as exc:  # noqa: BLE001 - user code: a sys.exit() in a handler must not end the worker
            return self._raised(attempt, exc)
        return self._returned(attempt, plan, value, chunks)

    async def _run_on_loop(self, attempt: Attempt) -> None:
        """Run an `async def` handler, in its task."""
        plan = attempt.plan
        if plan is None or not self._begin(attempt):
            return
        context.enter(context.Context(attempt))
        value, chunks = None, None
        try:
            if plan.stream is None:
                value = plan.call(*self._inputs.of(attempt.work))
                if inspect.isawaitable(value):
                    value = await value
            else:
                value, chunks = await self._streams.run_async(attempt, plan)
            result = self._returned(attempt, plan, value, chunks)
        except BaseException as exc:  # noqa: BLE001 - user code: a SystemExit that leaves a task would end the loop
            result = self._raised(attempt, exc)
        self._end(attempt, result)

    def _returned(self, attempt: Attempt, plan: Plan, value: object, chunks: tuple[Json, ...] | None) -> Outcome:
        span = attempt.span(self._owner)
        return outcome.returned(
            attempt.work, plan, value, span, max_bytes=self._max_value_bytes, chunks=chunks, trace=attempt.trace
        )

    def _raised(self, attempt: Attempt, exc: BaseException) -> Outcome:
        return outcome.raised(attempt.work, exc, attempt.span(self._owner), attempt.trace)

    def _timed_out(self, attempt: Attempt, note: str = "") -> Outcome:
        return outcome.timed_out(attempt.work, attempt.span(self._owner), attempt.trace, note=note)

    def _task_ended(self, attempt: Attempt) -> None:
        if not attempt.has_ended:  # given up before its code began
            self._end(attempt, Returned(attempt.work.job))

    # How attempts end

    def _end(self, attempt: Attempt, result: Outcome) -> None:
        """The attempt's code has returned."""
        if attempt.work.timeout_s is not None:
            self._watchdog.forget(attempt)
            if attempt.is_late:
                result = self._timed_out(attempt)
        with self._lock:
            attempt.has_ended = True
        self._settle(attempt, result)

    def _settle(self, attempt: Attempt, result: Outcome) -> None:
        """Report the outcome, if the attempt has none yet."""
        with self._lock:
            is_dropped = attempt.is_settled
            attempt.is_settled = True
            self._free_slot(attempt)
        try:
            if not is_dropped:
                attempt.report(result)
            elif attempt.on_drop is not None:
                attempt.on_drop()
        except Exception:  # noqa: BLE001 - the thread has other attempts to run
            _log.exception("the outcome of job %d could not be reported", attempt.work.job.id)
        with self._lock:
            self._let_go(attempt)

    def _give_up(self, attempt: Attempt) -> bool:
        """Tell the attempt's code to stop and drop its outcome; False if it has one already."""
        with self._lock:
            if attempt.is_settled:
                return False
            attempt.is_settled = attempt.is_cancelled = True
            self._let_go(attempt)
            if not attempt.has_started:
                attempt.has_ended = True
                self._free_slot(attempt)
        if not attempt.has_started and attempt.on_drop is not None:
            attempt.on_drop()
        if attempt.has_started and attempt.plan is not None and attempt.plan.is_async:
            self._coroutines.cancel(attempt)
        return True

    def _free_slot(self, attempt: Attempt) -> None:
        if attempt.has_slot:
            attempt.has_slot = False
            self._slots_taken -= 1

    def _let_go(self, attempt: Attempt) -> None:
        """The attempt's job is no longer in hand; another attempt of it may be."""
        job_id = attempt.work.job.id
        if self._in_hand.get(job_id) is attempt:
            del self._in_hand[job_id]
            if self._is_stopping and not self._in_hand:
                self._emptied.notify_all()

    # Time limits, on the watchdog's thread; each returns when to look again, in seconds of the monotonic clock

    def _limit_reached(self, attempt: Attempt) -> float | None:
        with self._lock:
            if attempt.has_ended:
                return None
            is_first = not attempt.is_late
            attempt.is_late = attempt.is_cancelled = True
        if attempt.plan is not None and attempt.plan.is_async:
            return self._late_on_loop(attempt, is_first=is_first)
        return self._late_in_thread(attempt, is_first=is_first)

    def _late_in_thread(self, attempt: Attempt, *, is_first: bool) -> float | None:
        """Blocking code cannot be stopped: its thread is written off, and another takes its place."""
        if not is_first:
            self._stuck(attempt)
            return None
        self._crew.replace_one()
        self._settle_late(attempt)
        return time.monotonic() + self._stop_patience_s

    def _late_on_loop(self, attempt: Attempt, *, is_first: bool) -> float | None:
        """A coroutine is asked to stop, and written off if it does not or if the loop is blocked."""
        if is_first:
            self._coroutines.cancel(attempt, delivered=attempt.tell)
            return time.monotonic() + self._stop_patience_s
        # Who blocks the loop is stuck; who only waits behind another is late, no more.
        is_innocent = attempt.is_told or self._coroutines.is_held_by(attempt) is False
        if attempt.has_slot:
            self._coroutines.give_up(attempt)
            self._settle_late(attempt, note="" if attempt.is_told else "; the event loop was blocked")
        elif attempt.is_told:
            is_innocent = False
        if not is_innocent:
            self._stuck(attempt)
            return None
        return time.monotonic() + _CLEANUP_PATIENCE * self._stop_patience_s

    def _settle_late(self, attempt: Attempt, *, note: str = "") -> None:
        self._settle(attempt, self._timed_out(attempt, note))

    def _stuck(self, attempt: Attempt) -> None:
        job = attempt.work.job
        _log.error("job %d (%s) is over its time limit and does not stop", job.id, job.handler)
        if self._on_stuck is not None:
            self._on_stuck(job)


def _ref(work: Work) -> HandlerRef:
    return work.ref or HandlerRef(work.job.handler, work.job.config)
