"""The hand-off to threads, and the thread that watches time limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from queuety.worker.limits import Watchdog
from queuety.worker.threads import Crew
from tests.support.executing import PATIENCE_S, wait

NAME = "test-crew"


@pytest.fixture
def crews():
    made: list[Crew] = []

    def make(run: Callable[[object], bool], *, limit: int = 4) -> Crew:
        made.append(Crew(run, limit=limit, name=NAME))
        return made[-1]

    yield make
    for crew in made:
        crew.stop()


def test_one_thread_takes_items_in_order(crews) -> None:
    done: SimpleQueue[int] = SimpleQueue()
    crew = crews(lambda item: done.put(item) or True, limit=1)
    crew.put(range(200))
    crew.put(range(200, 300))
    assert [done.get(timeout=PATIENCE_S) for _ in range(300)] == list(range(300))


def test_items_that_block_each_have_a_thread_at_once(crews) -> None:
    together = threading.Barrier(9)
    crew = crews(lambda _: together.wait(PATIENCE_S) >= 0, limit=8)
    crew.put(range(8))
    together.wait(PATIENCE_S)  # breaks unless all eight run at the same time


def test_idle_threads_are_used_again_and_block_together(crews) -> None:
    together = threading.Barrier(5)
    idents: set[int] = set()

    def run(item: object) -> bool:
        idents.add(threading.get_ident())
        return together.wait(PATIENCE_S) >= 0

    crew = crews(run, limit=4)
    for _ in range(10):
        crew.put(range(4))
        together.wait(PATIENCE_S)
    assert len(idents) == 4


def test_no_more_threads_than_the_limit(crews) -> None:
    lock, running, most = threading.Lock(), 0, 0
    done: SimpleQueue[int] = SimpleQueue()
    full, go = threading.Barrier(4), threading.Event()

    def run(item: int) -> bool:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if item < 3:
            full.wait(PATIENCE_S)
            wait(go)
        with lock:
            running -= 1
        done.put(item)
        return True

    crew = crews(run, limit=3)
    crew.put(range(50))
    full.wait(PATIENCE_S)
    go.set()
    assert sorted(done.get(timeout=PATIENCE_S) for _ in range(50)) == list(range(50))
    assert most == 3


def test_what_has_not_been_taken_can_be_taken_back(crews) -> None:
    started, go = threading.Event(), threading.Event()
    done: SimpleQueue[int] = SimpleQueue()

    def run(item: int) -> bool:
        started.set()
        wait(go)
        done.put(item)
        return True

    crew = crews(run, limit=1)
    crew.put([1, 2, 3])
    wait(started)
    assert crew.take_back() == [2, 3]
    go.set()
    crew.put([4])
    assert [done.get(timeout=PATIENCE_S) for _ in range(2)] == [1, 4]


def test_a_lost_thread_is_replaced_and_ends_when_it_comes_back(crews) -> None:
    started, go = threading.Event(), threading.Event()
    done: SimpleQueue[str] = SimpleQueue()
    lost: list[threading.Thread] = []

    def run(item: str) -> bool:
        if item == "blocks":
            lost.append(threading.current_thread())
            started.set()
            wait(go)
            return False
        done.put(item)
        return True

    crew = crews(run, limit=1)
    crew.put(["blocks", "next"])
    wait(started)
    crew.replace_one()
    assert done.get(timeout=PATIENCE_S) == "next"
    go.set()
    lost[0].join(PATIENCE_S)
    assert not lost[0].is_alive()
    crew.put(["after"])
    assert done.get(timeout=PATIENCE_S) == "after"


def no_threads(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_without_a_single_thread_the_caller_hears_of_it(crews, monkeypatch: pytest.MonkeyPatch) -> None:
    done: SimpleQueue[int] = SimpleQueue()
    crew = crews(lambda item: done.put(item) or True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_threads)
        with pytest.raises(RuntimeError):
            crew.put([1])
    assert crew.take_back() == [1]
    crew.put([2])
    assert done.get(timeout=PATIENCE_S) == 2


def test_with_too_few_threads_those_that_live_do_the_work(crews, monkeypatch: pytest.MonkeyPatch) -> None:
    done: SimpleQueue[int] = SimpleQueue()
    crew = crews(lambda item: done.put(item) or True)
    crew.put([0])
    assert done.get(timeout=PATIENCE_S) == 0
    monkeypatch.setattr(threading.Thread, "start", no_threads)
    crew.put(range(1, 50))
    assert sorted(done.get(timeout=PATIENCE_S) for _ in range(49)) == list(range(1, 50))


def test_a_lost_thread_that_nobody_could_replace_goes_on(crews, monkeypatch: pytest.MonkeyPatch) -> None:
    started, go = threading.Event(), threading.Event()
    done: SimpleQueue[str] = SimpleQueue()

    def run(item: str) -> bool:
        if item == "blocks":
            started.set()
            wait(go)
            return False
        done.put(item)
        return True

    crew = crews(run, limit=1)
    crew.put(["blocks", "next"])
    wait(started)
    monkeypatch.setattr(threading.Thread, "start", no_threads)
    crew.replace_one()
    go.set()
    assert done.get(timeout=PATIENCE_S) == "next"


def test_stopping_ends_idle_threads_and_takes_no_more(crews) -> None:
    threads: SimpleQueue[threading.Thread] = SimpleQueue()
    crew = crews(lambda _: threads.put(threading.current_thread()) or True, limit=1)
    crew.put([1])
    thread = threads.get(timeout=PATIENCE_S)
    crew.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    crew.put([2])
    assert crew.take_back() == [2]


# Time limits


@pytest.fixture
def dogs():
    made: list[Watchdog] = []

    def make(on_due: Callable[[str], float | None], *, linger_s: float = 10.0) -> Watchdog:
        made.append(Watchdog(on_due, linger_s=linger_s))
        return made[-1]

    yield make
    for dog in made:
        dog.stop()


def test_limits_are_told_in_their_order_and_never_early(dogs) -> None:
    told: SimpleQueue[tuple[str, float]] = SimpleQueue()
    dog = dogs(lambda item: told.put((item, time.monotonic())))
    now = time.monotonic()
    dog.watch("far", now + 3600)
    dog.watch("second", now + 0.06)
    dog.watch("first", now + 0.02)
    first, second = told.get(timeout=PATIENCE_S), told.get(timeout=PATIENCE_S)
    assert (first[0], second[0]) == ("first", "second")
    assert first[1] >= now + 0.02
    assert second[1] >= now + 0.06


def test_what_is_forgotten_is_not_told(dogs) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    dog = dogs(told.put)
    now = time.monotonic()
    dog.watch("forgotten", now + 0.02)
    dog.watch("kept", now + 0.04)
    dog.forget("forgotten")
    assert told.get(timeout=PATIENCE_S) == "kept"
    assert told.empty()


def test_a_limit_can_be_followed_by_another(dogs) -> None:
    told: SimpleQueue[float] = SimpleQueue()

    def on_due(item: str) -> float | None:
        now = time.monotonic()
        told.put(now)
        return now + 0.03 if told.qsize() < 2 else None

    dogs(on_due).watch("item", time.monotonic())
    first, second = told.get(timeout=PATIENCE_S), told.get(timeout=PATIENCE_S)
    assert second >= first + 0.03


def test_a_hook_that_raises_leaves_the_other_limits_alone(dogs) -> None:
    told: SimpleQueue[str] = SimpleQueue()

    def on_due(item: str) -> None:
        if item == "bad":
            raise ValueError("hook")
        told.put(item)

    dog = dogs(on_due)
    dog.watch("bad", time.monotonic())
    dog.watch("good", time.monotonic() + 0.02)
    assert told.get(timeout=PATIENCE_S) == "good"


def test_the_thread_ends_when_there_is_nothing_left_and_comes_back(dogs) -> None:
    threads: SimpleQueue[threading.Thread] = SimpleQueue()
    dog = dogs(lambda _: threads.put(threading.current_thread()), linger_s=0.01)
    for _ in range(2):
        dog.watch("item", time.monotonic())
        thread = threads.get(timeout=PATIENCE_S)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_short_attempts_do_not_start_a_thread_each(dogs, monkeypatch: pytest.MonkeyPatch) -> None:
    started = 0
    start = threading.Thread.start

    def counting(self: threading.Thread) -> None:
        nonlocal started
        started += 1
        start(self)

    monkeypatch.setattr(threading.Thread, "start", counting)
    told: SimpleQueue[str] = SimpleQueue()
    dog = dogs(told.put)
    for number in range(50):
        dog.watch(str(number), time.monotonic())
        assert told.get(timeout=PATIENCE_S) == str(number)
    assert started == 1


def test_an_earlier_limit_wakes_the_thread_that_sleeps_towards_a_later_one(dogs) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    dog = dogs(told.put)
    dog.watch("far", time.monotonic() + 3600)
    for number in range(50):
        dog.watch(str(number), time.monotonic() + 0.001)
        assert told.get(timeout=PATIENCE_S) == str(number)
