"""Handlers that run longer than they may: the attempt fails at its limit, and the worker gets its capacity back."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from queuety.errors import LeaseLost
from queuety.model import Failed, Options, Succeeded
from queuety.worker.context import current
from tests.support.executing import PATIENCE_S, Rig, wait

LIMIT_S = 0.03


@pytest.fixture
def rig():
    with Rig(concurrency=1) as made:
        yield made


def quick(state):
    return {}


async def quick_async(state):
    return {}


def assert_timed_out(result: object, *, job_id: int) -> None:
    assert isinstance(result, Failed)
    assert result.job.id == job_id
    assert result.error.type_name == "queuety.errors:JobTimeout"
    assert "time limit of 0.03 s" in result.error.message
    assert result.span.finished_us - result.span.started_us >= LIMIT_S * 1_000_000
    assert not result.is_final


# Blocking code


def test_a_blocked_thread_fails_its_attempt_and_gives_its_slot_back(rig: Rig) -> None:
    threads: list[threading.Thread] = []

    def blocks(state):
        threads.append(threading.current_thread())
        wait(rig.release)
        return {"late": True}

    job = rig.submit(blocks, timeout_s=LIMIT_S)[0].job
    waiting = rig.submit(quick)[0].job  # behind it, in a crew of one
    results = {result.job.id: result for result in (rig.outcome(), rig.outcome())}
    assert_timed_out(results[job.id], job_id=job.id)
    assert isinstance(results[waiting.id], Succeeded)
    assert rig.executor.free == 1
    assert rig.next_stuck() == job
    rig.release.set()
    threads[0].join(PATIENCE_S)
    assert not threads[0].is_alive()
    assert not rig.has_report()  # the late result is dropped
    assert rig.executor.free == 1
    assert rig.executor.stop(PATIENCE_S) == []


def test_many_blocked_threads_do_not_eat_the_capacity(rig: Rig) -> None:
    def blocks(state):
        wait(rig.release)

    for _ in range(10):
        rig.run(blocks, timeout_s=LIMIT_S)
        assert isinstance(rig.run(quick), Succeeded)


def test_code_that_minds_the_flag_is_not_stuck() -> None:
    with Rig(concurrency=1, stop_patience_s=PATIENCE_S) as rig:
        stopped = threading.Event()

        def polls(state):
            while not current().cancelled:
                pass
            with pytest.raises(LeaseLost):
                current().heartbeat()
            stopped.set()

        job = rig.submit(polls, timeout_s=LIMIT_S)[0].job
        assert_timed_out(rig.outcome(), job_id=job.id)
        wait(stopped)
        assert isinstance(rig.run(quick), Succeeded)
        assert rig.stuck.empty()


def test_a_handler_within_its_limit_is_left_alone(rig: Rig) -> None:
    assert isinstance(rig.run(quick, timeout_s=0.001 + PATIENCE_S), Succeeded)
    assert isinstance(rig.run(quick_async, timeout_s=0.001 + PATIENCE_S), Succeeded)


def test_the_limit_counts_from_the_start_and_not_from_the_queue(rig: Rig) -> None:
    started = threading.Event()

    def holds(state):
        started.set()
        before = time.monotonic()
        while time.monotonic() < before + 2 * LIMIT_S:
            pass

    rig.submit(holds)
    wait(started)
    rig.submit(quick, timeout_s=LIMIT_S)
    assert [type(rig.outcome()) for _ in range(2)] == [Succeeded, Succeeded]


def test_give_up_on_a_time_limit(rig: Rig) -> None:
    def blocks(state):
        wait(rig.release)

    options = Options(give_up_on=("queuety.errors:JobTimeout",))
    assert rig.run(blocks, timeout_s=LIMIT_S, options=options).is_final


def test_a_lost_lease_frees_the_slot_at_the_limit_without_a_report(rig: Rig) -> None:
    started = threading.Event()

    def blocks(state):
        started.set()
        wait(rig.release)

    job = rig.submit(blocks, timeout_s=LIMIT_S)[0].job
    wait(started)
    rig.executor.cancel(job.id)
    assert rig.next_stuck() == job
    assert rig.executor.free == 1
    assert isinstance(rig.run(quick), Succeeded)
    assert not rig.has_report()


# Coroutines


@pytest.fixture
def patient():
    with Rig(concurrency=1, stop_patience_s=PATIENCE_S) as made:
        yield made


def test_a_coroutine_is_cancelled_at_its_limit(patient: Rig) -> None:
    rig = patient
    cancelled = threading.Event()

    async def sleeps(state):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    job = rig.submit(sleeps, timeout_s=LIMIT_S)[0].job
    assert_timed_out(rig.outcome(), job_id=job.id)
    assert cancelled.is_set()
    assert rig.executor.free == 1
    assert isinstance(rig.run(quick_async), Succeeded)
    assert rig.stuck.empty()


def test_returning_something_after_the_limit_does_not_help(patient: Rig) -> None:
    rig = patient

    async def swallows(state):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"late": True}

    job = rig.submit(swallows, timeout_s=LIMIT_S)[0].job
    assert_timed_out(rig.outcome(), job_id=job.id)


def test_a_coroutine_that_goes_on_after_its_limit_is_written_off_and_then_stuck() -> None:
    with Rig(concurrency=1, stop_patience_s=0.02) as rig:

        async def stubborn(state):
            while not rig.release.is_set():
                try:
                    await asyncio.sleep(0.005)
                except asyncio.CancelledError:
                    continue

        rig.release.set()
        rig.run(quick_async)
        rig.run(stubborn)  # both are known from here on, and so keep their order
        rig.release.clear()
        job = rig.submit(stubborn, timeout_s=LIMIT_S)[0].job
        waiting = rig.submit(quick_async)[0].job  # behind it, for its place on the loop
        results = {result.job.id: result for result in (rig.outcome(), rig.outcome())}
        assert_timed_out(results[job.id], job_id=job.id)
        assert isinstance(results[waiting.id], Succeeded)
        assert rig.executor.free == 1
        assert rig.next_stuck() == job
        assert not rig.has_report()


def test_a_coroutine_that_cleans_up_for_a_while_is_not_stuck() -> None:
    with Rig(concurrency=1, stop_patience_s=0.1) as rig:
        cleaned = threading.Event()

        async def cleans(state):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.15)
                cleaned.set()

        job = rig.submit(cleans, timeout_s=LIMIT_S)[0].job
        assert_timed_out(rig.outcome(), job_id=job.id)
        wait(cleaned)
        assert isinstance(rig.run(quick_async), Succeeded)
        assert rig.stuck.empty()


def test_a_coroutine_that_blocks_the_loop_is_stuck(rig: Rig) -> None:
    async def blocks(state):
        wait(rig.release)

    job = rig.submit(blocks, timeout_s=LIMIT_S)[0].job
    result = rig.outcome()
    assert_timed_out(result, job_id=job.id)
    assert "the event loop was blocked" in result.error.message  # type: ignore[union-attr]
    assert rig.next_stuck() == job
    assert rig.executor.free == 1
    assert isinstance(rig.run(quick), Succeeded)  # threads go on
    rig.release.set()
    assert isinstance(rig.run(quick_async), Succeeded)


def test_a_task_of_a_coroutine_that_blocks_the_loop_is_stuck_too(rig: Rig) -> None:
    async def blocks_in_a_task(state):
        async def inner():
            wait(rig.release)

        await asyncio.create_task(inner())

    job = rig.submit(blocks_in_a_task, timeout_s=LIMIT_S)[0].job
    assert_timed_out(rig.outcome(), job_id=job.id)
    assert rig.next_stuck() == job


def test_who_waits_behind_a_blocker_is_late_but_not_stuck() -> None:
    with Rig(concurrency=2) as rig:
        waits, go = threading.Event(), threading.Event()

        async def innocent(state):
            waits.set()
            await asyncio.Event().wait()

        async def blocks(state):
            wait(go)

        rig.run(quick_async)
        late = rig.submit(innocent, timeout_s=LIMIT_S)[0].job
        wait(waits)
        blocker = rig.submit(blocks, timeout_s=3600)[0].job
        assert_timed_out(rig.outcome(), job_id=late.id)
        go.set()
        assert rig.outcome().job == blocker
        assert rig.stuck.empty()


def test_stopping_does_not_wait_long_for_a_blocked_loop() -> None:
    rig = Rig(concurrency=1)
    started = threading.Event()

    async def blocks(state):
        started.set()
        wait(rig.release)

    job = rig.submit(blocks)[0].job
    wait(started)
    before = time.monotonic()
    assert rig.executor.stop() == [job]
    assert time.monotonic() - before < PATIENCE_S / 2
    rig.release.set()
