"""The executor: user code does what it likes, and every attempt has exactly one outcome or none."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from queue import SimpleQueue

import pytest

from queuety.errors import Fail, InvalidStateError, LeaseLost, Retry
from queuety.model import Failed, Options, Role, Succeeded
from queuety.worker.context import current
from queuety.worker.outcome import Outcome, Returned, Unhandled
from tests.support.executing import NOW_US, PATIENCE_S, Rig, wait


@pytest.fixture
def rig():
    with Rig() as made:
        yield made


def greet(state):
    return {"greeting": f"hello {state.get('name', 'you')}"}


async def greet_async(state):
    await asyncio.sleep(0)
    return greet(state)


both = pytest.mark.parametrize("handler", [greet, greet_async], ids=["sync", "async"])


# The plain way


@both
def test_a_handler_gets_the_state_and_its_return_is_the_output(rig: Rig, handler) -> None:
    result = rig.run(handler, state={"name": "Ada"})
    assert isinstance(result, Succeeded)
    assert result.output == {"greeting": "hello Ada"}
    assert result.span.started_us == NOW_US
    assert result.span.owner == 9


@both
def test_a_batch_brings_one_outcome_each(rig: Rig, handler) -> None:
    works = rig.submit(*[handler] * 300)
    found = {rig.outcome().job.id for _ in range(300)}
    assert found == {work.job.id for work in works}
    assert not rig.has_report()


def test_threads_and_the_loop_share_a_batch(rig: Rig) -> None:
    rig.run(greet)
    rig.run(greet_async)
    rig.submit(*[greet, greet_async] * 50)
    assert all(isinstance(rig.outcome(), Succeeded) for _ in range(100))


def test_async_handlers_run_at_the_same_time() -> None:
    with Rig(concurrency=100) as rig:
        arrived = 0
        everybody: list[asyncio.Event] = []

        async def meets(state):
            nonlocal arrived
            if not everybody:
                everybody.append(asyncio.Event())
            arrived += 1
            if arrived == 100:
                everybody[0].set()
            await everybody[0].wait()

        rig.submit(*[meets] * 100)
        assert all(isinstance(rig.outcome(), Succeeded) for _ in range(100))


def test_no_more_coroutines_than_the_concurrency() -> None:
    with Rig(concurrency=3) as rig:
        running, most = 0, 0
        everybody: asyncio.Event | None = None

        async def counts(state):
            nonlocal running, most, everybody
            running += 1
            most = max(most, running)
            everybody = everybody or asyncio.Event()
            if most == 3:
                everybody.set()
            await asyncio.wait_for(everybody.wait(), 10)  # the others may still be being submitted
            for _ in range(5):
                await asyncio.sleep(0)
            running -= 1

        rig.run(greet_async)
        rig.submit(*[counts] * 30)
        assert all(isinstance(rig.outcome(), Succeeded) for _ in range(30))
        assert most == 3


def test_changing_the_state_changes_nothing(rig: Rig) -> None:
    def changes(state):
        state["items"].append(2)
        state["new"] = True

    state = {"items": [1]}
    assert rig.run(changes, state=state).output == {}
    assert state == {"items": [1]}


def test_a_plain_job_gets_its_payload(rig: Rig) -> None:
    seen = []

    def notes(payload):
        seen.append(payload)

    rig.run(notes, role=Role.JOB, payload={"to": "ada"}, state={"no": 1})
    assert seen == [{"to": "ada"}]


def test_bound_configurations_are_kept_apart(rig: Rig) -> None:
    def scores(state, least, most=10):
        return {"least": least, "most": most}

    for _ in range(2):
        assert rig.run(scores, config={"least": 1}).output == {"least": 1, "most": 10}
        assert rig.run(scores, config={"least": 1, "most": 2}).output == {"least": 1, "most": 2}
    assert "least" in rig.run(scores).error.message


def test_durations_are_those_of_the_monotonic_clock() -> None:
    times = iter([NOW_US, NOW_US - 5_000_000_000])
    with Rig(now_us=lambda: next(times)) as rig:  # the host's clock jumps back while the handler runs
        started, go = threading.Event(), threading.Event()

        def waits(state):
            started.set()
            wait(go)

        rig.submit(waits)
        wait(started)
        before = time.monotonic()
        while time.monotonic() - before < 0.002:
            pass
        go.set()
        span = rig.outcome().span  # type: ignore[union-attr]
    assert span.started_us == NOW_US
    assert span.finished_us >= NOW_US + 2_000


# What user code can raise


def raises(exc):
    def handler(state):
        raise exc

    return handler


def raises_async(exc):
    async def handler(state):
        await asyncio.sleep(0)
        raise exc

    return handler


@pytest.mark.parametrize("make", [raises, raises_async], ids=["sync", "async"])
@pytest.mark.parametrize(
    "kind",
    [
        ValueError,
        StopIteration,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        asyncio.CancelledError,
        MemoryError,
        TimeoutError,
    ],
)
def test_whatever_is_raised_is_a_failed_attempt_and_the_worker_lives(rig: Rig, make, kind) -> None:
    exc = kind("x")
    result = rig.run(make(exc), timeout_s=3600)
    assert isinstance(result, Failed)
    assert result.error.type_name in {f"{type(exc).__module__}:{type(exc).__qualname__}", "builtins:RuntimeError"}
    assert "in handler" in str(result.error.traceback)
    assert "worker/" not in str(result.error.traceback)
    assert isinstance(rig.run(greet), Succeeded)
    assert isinstance(rig.run(greet_async), Succeeded)


def test_sys_exit_is_told_as_such(rig: Rig) -> None:
    assert rig.run(lambda _: sys.exit(3)).error.message == "the handler called sys.exit(3)"


def test_endless_recursion_is_a_failed_attempt(rig: Rig) -> None:
    def dives(state):
        return dives(state)

    assert rig.run(dives).error.type_name == "builtins:RecursionError"


def test_retry_and_fail_and_the_options_reach_the_outcome(rig: Rig) -> None:
    assert rig.run(raises(Retry(after=2))).retry_after_us == 2_000_000
    assert rig.run(raises(Fail("no"))).is_final
    assert rig.run(raises(KeyError()), options=Options(give_up_on=("builtins:LookupError",))).is_final


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, ValueError])
def test_a_task_that_is_left_behind_cannot_end_the_loop(rig: Rig, kind) -> None:
    kept = []
    leaves = kind("left behind")

    async def leaves_a_task(state):
        async def later():
            await asyncio.sleep(0)
            raise leaves

        kept.append(asyncio.get_running_loop().create_task(later()))

    assert isinstance(rig.run(leaves_a_task), Succeeded)
    for _ in range(3):
        assert isinstance(rig.run(greet_async), Succeeded)
    assert kept[0].exception() is leaves


def test_a_handler_that_stops_the_loop_does_not_stop_the_others(rig: Rig) -> None:
    async def stops(state):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)

    assert isinstance(rig.run(stops), Succeeded)
    assert isinstance(rig.run(greet_async), Succeeded)


def test_a_report_that_raises_does_not_end_the_thread() -> None:
    got: SimpleQueue[Outcome] = SimpleQueue()

    def report(outcome: Outcome) -> None:
        got.put(outcome)
        raise ValueError("full")

    with Rig(report=report, concurrency=1) as rig:
        for _ in range(3):
            rig.submit(greet)
            assert isinstance(got.get(timeout=PATIENCE_S), Succeeded)


def test_a_clock_that_fails_is_a_failed_attempt() -> None:
    def no_clock() -> int:
        raise OSError("no clock")

    with Rig(now_us=no_clock) as rig:
        assert rig.run(greet).error.message == "no clock"
        assert rig.run(greet_async).error.message == "no clock"


# Handlers that this process does not have


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "not registered"),
        (ImportError("No module named 'torch'"), "No module named 'torch'"),
        (SystemExit(1), "sys.exit(1)"),
        (SyntaxError("bad"), "bad"),
    ],
    ids=["unknown", "import", "exit", "syntax"],
)
def test_an_unknown_handler_costs_no_attempt(rig: Rig, found, words: str) -> None:
    work = rig.work(greet)
    known = rig.handlers.pop("app:greet")
    if found is not None:
        rig.handlers["app:greet"] = found
    rig.executor.submit([work])
    result = rig.outcome()
    assert isinstance(result, Unhandled)
    assert words in result.message
    assert rig.executor.free == 4
    rig.handlers["app:greet"] = known
    rig.submit(greet)  # known by now: failures are not kept
    assert isinstance(rig.outcome(), Succeeded)


def test_without_threads_jobs_go_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_threads(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_threads)
        rig.submit(greet, greet)
        assert [type(rig.outcome()) for _ in range(2)] == [Returned, Returned]
    assert rig.executor.free == 4
    assert isinstance(rig.run(greet), Succeeded)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_threads)
        rig.submit(greet_async)
        assert isinstance(rig.outcome(), Returned)
    assert isinstance(rig.run(greet_async), Succeeded)


# The context


def test_there_is_no_context_outside_a_handler() -> None:
    with pytest.raises(InvalidStateError):
        current()


def facts():
    found = current()
    return {
        "job_id": found.job_id,
        "workflow_id": found.workflow_id,
        "step_index": found.step_index,
        "step_name": found.step_name,
        "attempt": found.attempt,
        "iteration": found.iteration,
        "key": found.idempotency_key,
        "cancelled": found.cancelled,
    }


WANTED = {
    "job_id": 77,
    "workflow_id": 41,
    "step_index": 2,
    "step_name": "fetch",
    "attempt": 3,
    "iteration": None,
    "key": "41-5",
    "cancelled": False,
}


def test_the_context_tells_what_is_running(rig: Rig) -> None:
    async def asks(state):
        await asyncio.sleep(0)
        return facts()

    assert rig.run(lambda _: facts(), job_id=77, attempt=3).output == WANTED
    assert rig.run(asks, job_id=77, attempt=3).output == WANTED


def test_threads_and_tasks_of_a_handler_see_its_context(rig: Rig) -> None:
    async def asks_in_a_thread(state):
        return await asyncio.to_thread(facts)

    async def asks_in_a_task(state):
        async def inner():
            return facts()

        return await asyncio.create_task(inner())

    def asks_in_its_own_thread(state):
        found: list[dict[str, object]] = []
        run = contextvars.copy_context().run
        thread = threading.Thread(target=lambda: found.append(run(facts)))
        thread.start()
        thread.join()
        return found[0]

    for handler in (asks_in_a_thread, asks_in_a_task, asks_in_its_own_thread):
        assert rig.run(handler, job_id=77, attempt=3).output == WANTED


def test_the_idempotency_key_is_that_of_the_visit(rig: Rig) -> None:
    def key(**changes):
        return rig.run(lambda _: {"key": current().idempotency_key}, **changes).output["key"]

    assert key(attempt=1, job_id=5) == key(attempt=2, job_id=5) == key(attempt=3, job_id=6) == key(step_index=3)
    keys = [
        key(),
        key(visit=6),
        key(workflow_id=42),
        key(branch=0),
        key(branch=1),
    ]
    assert len(set(keys)) == len(keys)


def test_jobs_and_cleanup_handlers_have_keys_of_their_own(rig: Rig) -> None:
    seen: list[str] = []

    def notes(payload):
        seen.append(current().idempotency_key)

    rig.run(notes, role=Role.JOB, job_id=77, payload={})
    rig.run(notes, role=Role.CLEANUP, step_index=None, visit=None)
    assert seen == ["77", "41-cleanup"]


def test_variables_do_not_leak_from_one_attempt_to_the_next() -> None:
    leak: contextvars.ContextVar[str] = contextvars.ContextVar("leak", default="clean")

    def soils(state):
        found = leak.get()
        leak.set("soiled")
        return {"found": found}

    async def soils_too(state):
        return soils(state)

    def all_start_clean():
        leak.set("soiled by who submits")
        with Rig(concurrency=1) as rig:
            for handler in (soils, soils, *[soils_too] * 20):
                assert rig.run(handler).output == {"found": "clean"}

    contextvars.copy_context().run(all_start_clean)


def test_a_heartbeat_carries_a_copy_of_the_progress(rig: Rig) -> None:
    def beats(state):
        progress = {"done": [1]}
        current().heartbeat(progress)
        progress["done"].append(2)
        current().heartbeat()

    job = rig.run(beats).job
    assert rig.beats == [(job, {"done": [1]}), (job, None)]


def test_progress_that_is_not_json_fails_in_the_handler(rig: Rig) -> None:
    result = rig.run(lambda _: current().heartbeat({"at": {1, 2}}))
    assert "progress.at" in result.error.message
    assert rig.beats == []


def test_a_heartbeat_without_a_lease_drops_the_attempt() -> None:
    def lost(job, progress):
        raise LeaseLost("gone")

    with Rig(heartbeat=lost) as rig:
        seen = []

        def beats(state):
            try:
                current().heartbeat()
            except LeaseLost:
                seen.append(current().cancelled)
            return {"late": True}

        rig.submit(beats)
        result = rig.run(greet)
        assert result.job.handler == "app:greet"
        assert rig.executor.stop(PATIENCE_S) == []
        assert seen == [True]
        assert not rig.has_report()


def test_nobody_can_beat_for_an_attempt_that_has_ended(rig: Rig) -> None:
    kept = []
    rig.run(lambda _: kept.append(current()))
    rig.executor.stop(PATIENCE_S)
    with pytest.raises(LeaseLost):
        kept[0].heartbeat()
    assert rig.beats == []


# In hand


def test_what_is_in_hand_and_what_is_free() -> None:
    with Rig(concurrency=2) as rig:
        started = threading.Event()

        def holds(state):
            started.set()
            wait(rig.release)

        assert rig.executor.free == 2
        works = rig.submit(holds, holds, holds)
        wait(started)
        assert rig.executor.free == 0
        assert rig.executor.running == [work.job for work in works]
        rig.release.set()
        for _ in range(3):
            rig.outcome()
        assert rig.executor.stop(PATIENCE_S) == []
        assert rig.executor.running == []


def test_the_slot_is_free_when_the_outcome_is_reported() -> None:
    free = []
    rig = Rig(concurrency=1, report=lambda outcome: (free.append(rig.executor.free), rig.reports.put(outcome)))
    with rig:
        rig.run(greet)
        rig.run(greet_async)
    assert free == [1, 1]


def test_a_job_is_in_hand_until_its_outcome_is_reported() -> None:
    held = []
    rig = Rig(report=lambda outcome: (held.append(rig.executor.running), rig.reports.put(outcome)))
    with rig:
        job = rig.run(greet).job
    assert held == [[job]]


def test_the_same_job_can_come_again_while_its_report_is_under_way() -> None:
    started = threading.Event()

    def holds(state):
        started.set()
        wait(rig.release)

    def report(outcome):
        if outcome.job.attempt == 1:
            rig.submit(holds, job_id=outcome.job.id, attempt=2)
        rig.reports.put(outcome)

    rig = Rig(report=report, concurrency=1)
    with rig:
        assert rig.run(greet, job_id=5, attempt=1).job.attempt == 1
        wait(started)  # in the only thread, so the first attempt is over and done with
        assert [job.attempt for job in rig.executor.running] == [2]
        rig.release.set()
        assert rig.outcome().job.attempt == 2


# Losing the lease


def test_a_cancelled_blocking_handler_sees_the_flag_and_is_dropped() -> None:
    with Rig(concurrency=1) as rig:
        started, go = threading.Event(), threading.Event()
        seen = []

        def polls(state):
            started.set()
            wait(go)
            seen.append(current().cancelled)
            return {"late": True}

        job = rig.submit(polls)[0].job
        wait(started)
        rig.executor.cancel(job.id)
        assert rig.executor.running == []
        assert rig.executor.free == 0  # its thread is still taken
        go.set()
        assert rig.run(greet).job.handler == "app:greet"
        assert seen == [True]
        assert rig.executor.free == 1
        assert not rig.has_report()


def test_a_cancelled_coroutine_is_cancelled_and_dropped(rig: Rig) -> None:
    started, ended = threading.Event(), threading.Event()

    async def sleeps(state):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    job = rig.submit(sleeps)[0].job
    wait(started)
    rig.executor.cancel(job.id)
    wait(ended)
    assert rig.run(greet_async).job.handler == "app:greet_async"
    assert not rig.has_report()
    assert rig.executor.free == 4


@both
def test_a_job_that_is_cancelled_in_the_queue_never_runs(handler) -> None:
    with Rig(concurrency=1) as rig:
        rig.run(handler)
        started, loop_go = threading.Event(), threading.Event()

        def holds(state):
            started.set()
            wait(loop_go)

        async def holds_async(state):
            holds(state)

        ran = []

        def marks(state):
            ran.append(1)

        async def marks_async(state):
            ran.append(1)

        is_async = handler is greet_async
        rig.run(marks_async if is_async else marks)
        ran.clear()
        rig.submit(holds_async if is_async else holds)
        wait(started)
        job = rig.submit(marks_async if is_async else marks)[0].job
        rig.executor.cancel(job.id)
        assert job not in rig.executor.running
        loop_go.set()
        rig.outcome()
        rig.run(handler)
        assert ran == []
        assert not rig.has_report()
        assert rig.executor.free == 1


def test_cancelling_a_job_that_is_not_there_is_nothing(rig: Rig) -> None:
    rig.executor.cancel(4711)
    assert isinstance(rig.run(greet), Succeeded)


def test_a_job_that_was_lost_and_claimed_again_has_its_own_outcome(rig: Rig) -> None:
    started = threading.Event()

    def holds(state):
        started.set()
        wait(rig.release)
        return {"attempt": current().attempt}

    rig.submit(holds, job_id=5, attempt=1)
    wait(started)
    rig.executor.cancel(5)
    rig.submit(holds, job_id=5, attempt=2)
    rig.release.set()
    assert rig.outcome().output == {"attempt": 2}  # type: ignore[union-attr]
    rig.executor.stop(PATIENCE_S)
    assert not rig.has_report()


# Here and now


@both
def test_a_work_can_be_run_here(rig: Rig, handler) -> None:
    result = rig.executor.run_here(rig.work(handler))
    assert isinstance(result, Succeeded)
    assert result.output == {"greeting": "hello you"}
    assert not rig.has_report()


def test_what_is_run_here_has_its_time_limit(rig: Rig) -> None:
    def blocks(state):
        wait(rig.release)

    result = rig.executor.run_here(rig.work(blocks, timeout_s=0.03))
    assert isinstance(result, Failed)
    assert result.error.type_name == "queuety.errors:JobTimeout"


def test_what_is_run_here_and_loses_its_lease_says_so() -> None:
    def lost(job, progress):
        raise LeaseLost("gone")

    with Rig(heartbeat=lost) as rig:
        for _ in range(2):
            with pytest.raises(LeaseLost):
                rig.executor.run_here(rig.work(lambda _: current().heartbeat()))

        async def beats(state):
            current().heartbeat()

        with pytest.raises(LeaseLost):
            rig.executor.run_here(rig.work(beats))


def test_an_interrupt_while_waiting_gives_the_attempt_up(rig: Rig) -> None:
    import _thread

    started = threading.Event()

    def interrupts(state):
        started.set()
        _thread.interrupt_main()
        wait(rig.release)

    with pytest.raises(KeyboardInterrupt):
        rig.executor.run_here(rig.work(interrupts))
    assert started.is_set()
    assert rig.executor.running == []


# Stopping


def test_what_has_not_started_can_be_taken_back() -> None:
    with Rig(concurrency=1) as rig:
        rig.run(greet_async)
        started: SimpleQueue[int] = SimpleQueue()

        def holds(state):
            started.put(1)
            wait(rig.release)

        async def holds_async(state):
            holds(state)

        rig.release.set()
        rig.run(holds_async)
        started.get()
        rig.release.clear()
        rig.submit(holds)
        started.get(timeout=PATIENCE_S)
        rig.submit(holds_async)
        started.get(timeout=PATIENCE_S)
        waiting = rig.submit(greet, greet, greet_async)
        assert rig.executor.take_back() == [work.job for work in waiting]
        assert len(rig.executor.running) == 2
        rig.release.set()
        assert {rig.outcome().job.handler, rig.outcome().job.handler} == {"app:holds", "app:holds_async"}


def test_stopping_waits_for_what_runs() -> None:
    with Rig(concurrency=1) as rig:
        started = threading.Event()

        def finishes(state):
            started.set()
            wait(rig.release)

        rig.submit(finishes)
        wait(started)
        queued = rig.submit(greet)[0].job
        timer = threading.Timer(0.03, rig.release.set)
        timer.start()
        before = time.monotonic()
        assert rig.executor.stop(PATIENCE_S) == [queued]
        assert time.monotonic() - before < PATIENCE_S / 2
        assert isinstance(rig.outcome(), Succeeded)
        timer.join()


def test_stopping_gives_back_what_does_not_end_in_time(rig: Rig) -> None:
    started: SimpleQueue[int] = SimpleQueue()
    cancelled = threading.Event()
    flags = []

    def blocks(state):
        context = current()
        started.put(1)
        wait(rig.release)
        flags.append(context.cancelled)

    async def sleeps(state):
        started.put(1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    works = rig.submit(blocks, sleeps)
    for _ in range(2):
        started.get(timeout=PATIENCE_S)
    assert rig.executor.stop(0.02) == [work.job for work in works]
    wait(cancelled)
    assert rig.executor.stop() == []
    assert not rig.has_report()


def test_after_stopping_nothing_is_taken(rig: Rig) -> None:
    rig.executor.stop()
    with pytest.raises(InvalidStateError):
        rig.submit(greet)
    assert rig.executor.running == []


def test_abandoning_leaves_the_executor_ready(rig: Rig) -> None:
    started = threading.Event()

    def holds(state):
        started.set()
        wait(rig.release)

    job = rig.submit(holds)[0].job
    wait(started)
    assert rig.executor.abandon() == [job]
    assert isinstance(rig.run(greet), Succeeded)


def test_an_idle_executor_starts_no_thread() -> None:
    before = threading.active_count()
    with Rig() as rig:
        assert rig.executor.free == 4
        assert threading.active_count() == before


def test_the_executor_leaves_no_open_loop_behind() -> None:
    loops = []

    async def notes(state):
        loops.append(asyncio.get_running_loop())

    with Rig() as rig:
        rig.run(notes)
    assert loops[0].is_closed()
