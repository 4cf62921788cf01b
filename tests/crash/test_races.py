"""Two that want something of one run at the same moment: the end is one that either order of them allows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuety.errors import InvalidStateError
from queuety.model import Cancel, Command, HandlerRef, Job, Pause, Resume, RetryRun
from queuety.store import queues
from queuety.worker.maintain import give_back_of_dead, recover, renew
from queuety.worker.outcome import Outcome, Returned
from tests.support.databases import Database
from tests.support.hands import Hand, House, definition, failed, new_job, pause_of, single, succeeded
from tests.support.invariants import check

CHAIN = definition(single("one", backoff=(0.0,)), single("two", backoff=(0.0,)))
TIDY = definition(single("one"), single("two"), name="tidy", on_cancel=HandlerRef("tests:clean"))


class Arena:
    """One house for each side, each with connections of its own; all read one clock."""

    def __init__(self, url: str) -> None:
        self.house = House(url)
        self._sides: list[House] = []

    def side(self) -> House:
        """A process of its own, as far as the database can tell."""
        made = House(self.house.url, clock=self.house.clock)
        made.door.write(lambda tx: tx.reserve(1))  # connected, and with ids in hand
        self._sides.append(made)
        return made

    def clash(self, *acts: Callable[[], Any]) -> list[Any]:
        """What each gives back or raises when they begin in the same instant."""
        gate = threading.Barrier(len(acts))
        results: list[Any] = [None] * len(acts)

        def run(number: int) -> None:
            gate.wait()
            try:
                results[number] = acts[number]()
            except Exception as error:
                results[number] = error

        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def close(self) -> None:
        for house in (*self._sides, self.house):
            house.door.close()


@pytest.fixture
def arena(database: Database) -> Iterator[Arena]:
    made = Arena(database.url)
    yield made
    check(made.house.door)
    made.close()


def settle(hand: Hand, *outcomes: Outcome, slots: int = 0) -> tuple[list[Outcome], list[Job]]:
    """Turns until all is settled or refused; gives back what was refused, and what was claimed."""
    left, lost, jobs = list(outcomes), [], []
    while True:
        made = hand.turn(*left, slots=slots)
        lost += made.lost
        jobs += [work.job for work in made.works]
        left = list(made.carried)
        if not left:
            return lost, jobs


def steering(house: House, run: int, command: Command) -> Callable[[], None]:
    return lambda: house.steer(run, command)


def unexpected(results: list[Any], *expected: type[Exception]) -> list[Any]:
    return [result for result in results if isinstance(result, Exception) and not isinstance(result, expected)]


def test_cancel_against_the_end(arena: Arena, rounds: int) -> None:
    """H1: what cancel answers is what the run's status says."""
    ours, theirs = arena.side(), arena.side()
    for number in range(rounds * 4):
        run = arena.house.dispatch(definition(single()) if number % 2 else TIDY)
        hand = ours.hand()
        (job,) = hand.claim()
        results = arena.clash(
            lambda hand=hand, job=job: settle(hand, succeeded(job, {"a": 1}), slots=1),  # type: ignore[misc]
            steering(theirs, run, Cancel()),
        )
        assert unexpected(results, InvalidStateError) == []
        status = arena.house.row("workflows", id=run)["status"]
        if results[1] is None:
            assert status == "cancelled"
        else:
            assert status == "completed"
        check(arena.house.door)
        arena.house.clear()


def test_pause_against_a_settled_step(arena: Arena, rounds: int) -> None:
    ours, theirs = arena.side(), arena.side()
    for _ in range(rounds * 4):
        run = arena.house.dispatch(CHAIN)
        hand = ours.hand()
        (job,) = hand.claim()
        results = arena.clash(
            lambda hand=hand, job=job: settle(hand, succeeded(job, {"a": 1}), slots=1),  # type: ignore[misc]
            steering(theirs, run, Pause()),
        )
        assert unexpected(results) == []
        check(arena.house.door)
        row = arena.house.row("workflows", id=run)
        assert (row["status"], row["current_step"], row["version"]) == ("paused", 1, 2)
        arena.house.steer(run, Resume())
        check(arena.house.door)
        assert hand.work(slots=1) + len(results[0][1]) >= 1
        arena.house.clear()


def test_a_claim_against_cancel(arena: Arena, rounds: int) -> None:
    ours, theirs = arena.side(), arena.side()
    for _ in range(rounds * 4):
        run = arena.house.dispatch(TIDY)
        hand = ours.hand()
        results = arena.clash(lambda hand=hand: hand.claim(1), steering(theirs, run, Cancel()))  # type: ignore[misc]
        assert unexpected(results) == []
        check(arena.house.door)
        for job in results[0]:
            if job.role == "step":
                before = arena.house.dump()
                settle(hand, succeeded(job, {"late": True}))
                assert arena.house.dump() == before
        arena.house.clear()


def test_a_failure_against_cancel_and_retry(arena: Arena, rounds: int) -> None:
    ours, one, other = arena.side(), arena.side(), arena.side()
    for _ in range(rounds * 2):
        run = arena.house.dispatch(CHAIN)
        hand = ours.hand()
        (job,) = hand.claim()
        results = arena.clash(
            lambda hand=hand, job=job: settle(hand, failed(job, is_final=True)),  # type: ignore[misc]
            steering(one, run, Cancel()),
            steering(other, run, RetryRun()),
        )
        assert unexpected(results, InvalidStateError) == []
        assert results[1] is None
        check(arena.house.door)
        assert arena.house.row("workflows", id=run)["status"] in ("cancelled", "failed")
        arena.house.clear()


def test_the_same_command_many_times_at_once_is_done_once(arena: Arena, rounds: int) -> None:
    sides = [arena.side() for _ in range(4)]
    for _ in range(rounds):
        run = arena.house.dispatch(TIDY)
        for command, status in ((Pause(), "paused"), (Resume(), "running"), (Cancel(), "cancelled")):
            results = arena.clash(*(steering(side, run, command) for side in sides))
            assert sorted(type(result).__name__ for result in results) == ["InvalidStateError"] * 3 + ["NoneType"]
            assert arena.house.row("workflows", id=run)["status"] == status
            check(arena.house.door)
        arena.house.clear()


def test_a_result_against_two_that_recover(arena: Arena, rounds: int) -> None:
    ours, one, other = arena.side(), arena.side(), arena.side()
    for number in range(rounds * 2):
        runs = arena.house.dispatch_many(CHAIN, [{}] * (1 + number % 3))
        hand = ours.hand(lease_s=5)
        jobs = hand.claim()
        arena.house.clock.advance(6)
        results = arena.clash(
            lambda hand=hand, jobs=jobs: settle(hand, *(succeeded(job, {"who": "late"}) for job in jobs)),  # type: ignore[misc]
            lambda: recover(one.door, one.definitions),
            lambda: recover(other.door, other.definitions),
        )
        assert unexpected(results) == []
        check(arena.house.door)
        late = {outcome.job.workflow_id for outcome in results[0][0]}
        for run in runs:
            assert bool(arena.house.state(run)) == (run not in late)
        arena.house.clock.advance(6)
        recover(arena.house.door, arena.house.definitions)
        check(arena.house.door)
        finish(arena)
        arena.house.clear()


def test_a_renewal_against_the_result_and_recovery(arena: Arena, rounds: int) -> None:
    """A29: a renewal that comes after the end brings nothing back."""
    ours, one, other = arena.side(), arena.side(), arena.side()
    for _ in range(rounds * 2):
        arena.house.dispatch(CHAIN)
        arena.house.add(new_job())
        hand = ours.hand(lease_s=5)
        jobs = hand.claim()
        arena.house.clock.advance(6)
        results = arena.clash(
            lambda hand=hand, jobs=jobs: settle(hand, *(succeeded(job) for job in jobs)),  # type: ignore[misc]
            lambda hand=hand: renew(one.door, [hand.owner], lease_s=30),  # type: ignore[misc]
            lambda: recover(other.door, other.definitions),
        )
        assert unexpected(results) == []
        check(arena.house.door)
        arena.house.clock.advance(60)
        recover(arena.house.door, arena.house.definitions)
        finish(arena)
        arena.house.clear()


def test_giving_back_against_the_supervisor_that_gives_back(arena: Arena, rounds: int) -> None:
    ours, theirs = arena.side(), arena.side()
    for _ in range(rounds * 2):
        arena.house.dispatch_many(CHAIN, [{}, {}, {}])
        hand = ours.hand()
        jobs = hand.claim()
        results = arena.clash(
            lambda hand=hand, jobs=jobs: settle(hand, *(Returned(job) for job in jobs)),  # type: ignore[misc]
            lambda hand=hand: give_back_of_dead(theirs.door, theirs.definitions, hand.owner),  # type: ignore[misc]
        )
        assert unexpected(results) == []
        assert {row["attempts"] for row in arena.house.rows("jobs")} == {0}
        check(arena.house.door)
        finish(arena)
        arena.house.clear()


def test_a_timer_against_cancel_and_another_worker(arena: Arena, rounds: int) -> None:
    ours, others, theirs = arena.side(), arena.side(), arena.side()
    for number in range(rounds * 2):
        run = arena.house.dispatch(definition(pause_of(5), single()))
        arena.house.clock.advance(6)
        hands = ours.hand(), others.hand()
        acts = [lambda hand=hand: hand.turn(slots=1, looks_around=True) for hand in hands]
        results = arena.clash(*acts, steering(theirs, run, Cancel() if number % 2 else Pause()))
        assert unexpected(results) == []
        check(arena.house.door)
        claimed = [work.job for made in results[:2] for work in made.works]
        assert len(claimed) <= 1
        arena.house.clear()


def test_dispatch_against_a_paused_queue(arena: Arena, rounds: int) -> None:
    ours, theirs = arena.side(), arena.side()
    for number in range(rounds):
        name = f"q{number}"
        results = arena.clash(
            lambda name=name: ours.add(new_job(queue=name)),  # type: ignore[misc]
            lambda name=name: theirs.door.write(lambda tx: queues.pause(tx, name)),  # type: ignore[misc]
            lambda name=name: arena.house.door.write(lambda tx: queues.pause(tx, name)),  # type: ignore[misc]
        )
        assert unexpected(results) == []
        assert arena.house.row("queues", name=name)["changes"] == 1
        hand = ours.hand(name)
        assert hand.turn(slots=1).works == []
        arena.house.door.write(lambda tx, name=name: queues.resume(tx, name))  # type: ignore[misc]
        assert len(hand.claim()) == 1


def test_many_workers_callers_and_reapers_at_once(arena: Arena, rounds: int) -> None:
    """B1: no deadlock reaches anybody, every run ends, and each step was merged once."""
    runs = arena.house.dispatch_many(CHAIN, [{"n": number} for number in range(6 * rounds)])
    plain = arena.house.add(*(new_job() for _ in range(6 * rounds)))
    workers, stop = [arena.side() for _ in range(4)], threading.Event()
    more: list[int] = []

    def work(side: House, number: int) -> None:
        hand, outcomes, idle = side.hand(), list[Outcome](), 0
        while idle < 20:
            made = hand.turn(*outcomes, slots=1 + number, looks_around=True)
            outcomes = list(made.carried)
            for count, work in enumerate(made.works):
                outcomes.append(
                    Returned(work.job) if count % 5 == 4 else succeeded(work.job, {f"s{work.job.step_index}": 1})
                )
            idle = 0 if outcomes or made.has_more else idle + 1
        stop.set()

    def reap(side: House) -> None:
        while not stop.is_set():
            recover(side.door, side.definitions)
            renew(side.door, [1, 2, 3], lease_s=30)

    def call(side: House) -> None:
        for number in range(3 * rounds):
            run = side.dispatch(TIDY)
            more.append(run)
            if number % 3 == 0:
                side.steer(run, Pause())
                side.steer(run, Resume())

    acts: list[Callable[[], Any]] = [
        lambda side=side, number=number: work(side, number)  # type: ignore[misc]
        for number, side in enumerate(workers)
    ]
    reaper, caller = arena.side(), arena.side()
    results = arena.clash(*acts, lambda: reap(reaper), lambda: call(caller))
    unexpected_ones = unexpected(results, InvalidStateError)
    assert unexpected_ones == []
    finish(arena)
    check(arena.house.door)
    rows = {row["id"]: row for row in arena.house.rows("workflows")}
    assert {rows[run]["status"] for run in (*runs, *more)} == {"completed"}
    assert {row["phase"] for row in arena.house.rows("jobs") if row["id"] in plain} == {"completed"}
    assert {row["attempt"] for row in arena.house.rows("history") if row["entry"] == "completed"} == {1}


def finish(arena: Arena) -> None:
    """Workers alone end everything that is open (I12)."""
    hand = arena.house.hand()
    hand.work()
    while True:
        made = hand.turn(alone=True)
        if not made.works:
            break
        settle(hand, *(succeeded(work.job) for work in made.works))
        hand.work()
    check(arena.house.door)
    assert {row["status"] for row in arena.house.rows("workflows")} <= {"completed", "cancelled", "failed"}
