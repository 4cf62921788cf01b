"""Leases: who may renew, what an expired one still allows, and who pays when a process dies."""

from __future__ import annotations

import threading

import pytest

from queuety.model import Job, Priority
from queuety.store import claims, leases
from queuety.store.rows import Lease
from queuety.worker.maintain import give_back_of_dead, recover, renew
from tests.support.databases import Database
from tests.support.hands import SECOND, House, definition, failed, new_job, single, succeeded
from tests.support.invariants import check

CHAIN = definition(single("one", backoff=(0.0,)), single("two", backoff=(0.0,)))


def ends(house: House) -> dict[int, int]:
    """When each lease ends, in seconds from now."""
    return {row["id"]: (row["wake_us"] - house.clock.us) // SECOND for row in house.rows("jobs", phase="leased")}


def test_a_process_renews_all_that_it_holds_and_nothing_else(house: House) -> None:
    mine, others, free, late = house.add(*(new_job() for _ in range(3)), new_job(due_us=house.clock.us + 5 * SECOND))
    house.hand(owner=1, lease_s=30).claim(1)
    house.hand(owner=2, lease_s=30).claim(1)
    house.clock.advance(10)
    assert renew(house.door, [1], lease_s=30) == 1
    assert ends(house) == {mine: 30, others: 20}
    assert renew(house.door, [1, 2, 3], lease_s=40) == 2
    assert ends(house) == {mine: 40, others: 40}
    assert renew(house.door, [], lease_s=30) == 0
    rows = {row["id"]: row for row in house.rows("jobs")}
    assert (rows[free]["wake_us"], rows[late]["phase"]) == (None, "delayed")


def test_a_lease_that_has_ended_and_was_not_taken_over_can_be_renewed(house: House) -> None:
    house.add(new_job())
    house.hand(owner=1, lease_s=5).claim()
    house.clock.advance(60)
    assert renew(house.door, [1], lease_s=30) == 1
    assert recover(house.door, house.definitions) == 0


def test_a_job_that_was_taken_over_is_not_renewed(house: House) -> None:
    house.add(new_job(options=None))
    house.hand(owner=1, lease_s=5).claim()
    house.clock.advance(6)
    assert recover(house.door, house.definitions) == 1
    assert renew(house.door, [1], lease_s=30) == 0


def test_a_heartbeat_extends_only_its_own_attempt(house: House) -> None:
    house.add(new_job(), new_job())
    hand = house.hand(lease_s=30)
    first, second = hand.claim()

    def beat(job: Job, progress: str | None = None) -> bool:
        return house.door.write(lambda tx: claims.beat(tx, job, until_us=tx.now_us() + 50 * SECOND, progress=progress))

    assert beat(first, '{"page":3}')
    assert ends(house) == {first.id: 50, second.id: 30}
    assert house.row("jobs", id=first.id)["progress"] == '{"page":3}'
    assert beat(first)
    assert house.row("jobs", id=first.id)["progress"] == '{"page":3}'
    hand.turn(succeeded(first), failed(second))
    assert not beat(first)
    assert not beat(second)


def test_a_result_is_taken_after_the_lease_has_ended_if_nobody_took_over(house: House) -> None:
    run = house.dispatch(CHAIN)
    hand = house.hand(lease_s=5)
    (job,) = hand.claim()
    house.clock.advance(3600)
    made = hand.turn(succeeded(job, {"a": 1}))
    assert made.lost == []
    assert house.state(run) == {"a": 1}


def test_a_result_is_refused_once_another_took_over(house: House) -> None:
    run = house.dispatch(CHAIN)
    (plain,) = house.add(new_job(options=None, priority=Priority.HIGH))
    hand = house.hand(lease_s=5)
    jobs = hand.claim()
    house.clock.advance(6)
    assert recover(house.door, house.definitions) == 2
    made = hand.turn(*(succeeded(job, {"a": 1}) for job in jobs))
    assert len(made.lost) == 2
    assert house.state(run) == {}
    assert house.row("jobs", id=plain)["phase"] == "suspect"


def test_of_several_that_were_held_together_none_pays_and_each_runs_alone(house: House) -> None:
    runs = house.dispatch_many(CHAIN, [{}, {}, {}])
    hand = house.hand(lease_s=5)
    assert [job.attempt for job in hand.claim()] == [1, 1, 1]
    house.clock.advance(6)
    assert recover(house.door, house.definitions) == 3
    assert {(row["phase"], row["attempts"]) for row in house.rows("jobs")} == {("suspect", 0)}
    assert house.rows("history") == []
    other = house.hand()
    assert other.claim() == []
    for run in runs:
        (work,) = other.turn(alone=True).works
        assert (work.job.workflow_id, work.job.attempt) == (run, 1)
        other.turn(succeeded(work.job))
    assert len(other.claim()) == 3  # their second steps are no suspects


def test_one_that_was_held_alone_pays_its_attempt(house: House) -> None:
    run = house.dispatch(CHAIN)
    (job,) = house.hand(lease_s=5).claim()
    house.clock.advance(6)
    assert recover(house.door, house.definitions) == 1
    row = house.row("jobs")
    assert (row["id"], row["phase"], row["attempts"]) == (job.id, "ready", 1)
    entry = house.row("history", run_id=run)
    assert (entry["entry"], entry["attempt"], entry["final"]) == ("failed", 1, 0)
    assert "StaleWorker" in entry["error"]
    (again,) = house.hand().claim()
    assert (again.attempt, again.token != job.token) == (2, True)


def test_a_step_that_always_kills_its_process_fails_its_run_and_buries_no_innocent(house: House) -> None:
    house.dispatch(definition(single("killer", max_attempts=2, backoff=(0.0,)), name="bad"))
    house.dispatch_many(CHAIN, [{}] * 20)
    killed = 0
    for _ in range(400):
        hand = house.hand(lease_s=5)
        made = hand.turn(slots=7, looks_around=True)
        if not made.works:
            made = hand.turn(alone=True)
        if not made.works:
            break
        if any(work.workflow_name == "bad" for work in made.works):
            killed += 1
            assert give_back_of_dead(house.door, house.definitions, hand.owner) == len(made.works)
            check(house.door)
            continue
        hand.turn(*(succeeded(work.job) for work in made.works))
    assert killed == 3  # once in company, at no cost, then alone as often as it may
    rows = house.rows("workflows")
    assert [row["error_kind"] for row in rows if row["name"] == "bad"] == ["StaleWorker"]
    assert {row["status"] for row in rows if row["name"] != "bad"} == {"completed"}
    assert {row["attempt"] for row in house.rows("history") if row["entry"] == "completed"} == {1}


def test_the_rest_of_what_a_process_held_does_not_count_as_held_alone(house: House) -> None:
    """Leases of one process may end one after the other; the last one was not alone for that."""
    first, second = house.add(new_job(priority=Priority.HIGH), new_job())
    hand = house.hand(owner=5)
    house.door.write(
        lambda tx: claims.claim(tx, ["default"], 1, Lease(11, 5, tx.now_us() + 5 * SECOND), now_us=tx.now_us())
    )
    hand.claim()
    house.clock.advance(6)
    assert recover(house.door, house.definitions) == 1
    assert house.row("jobs", id=first)["phase"] == "suspect"
    house.clock.advance(60)
    assert recover(house.door, house.definitions) == 1
    row = house.row("jobs", id=second)
    assert (row["phase"], row["attempts"], row["suspect"]) == ("suspect", 0, 0)


def test_a_dead_process_gives_back_at_once_what_its_leases_would_keep(house: House) -> None:
    house.add(new_job(), new_job())
    hand, other = house.hand(owner=1), house.hand(owner=2)
    (mine,), (theirs,) = hand.claim(1), other.claim(1)
    assert give_back_of_dead(house.door, house.definitions, 1) == 1
    assert give_back_of_dead(house.door, house.definitions, 1) == 0
    assert house.row("jobs", id=mine.id)["phase"] == "delayed"
    assert house.row("jobs", id=theirs.id)["token"] == theirs.token


def test_recovery_needs_no_worker_row(house: House) -> None:
    """A2: leases stand with the job."""
    run = house.dispatch(CHAIN)
    house.hand(lease_s=5).claim()
    assert house.rows("workers") == []
    house.clock.advance(6)
    assert recover(house.door, house.definitions) == 1
    house.hand().work()
    assert house.row("workflows", id=run)["status"] == "completed"


def test_what_was_settled_is_never_recovered(house: House) -> None:
    """A22, A14: a job that is done has no lease."""
    house.dispatch(CHAIN)
    house.add(new_job(), new_job(max_attempts=1))
    hand = house.hand(lease_s=5)
    jobs = hand.claim()
    fallen = house.door.read(lambda tx: leases.held_by(tx, hand.owner))
    hand.turn(*(failed(job) if job.max_attempts == 1 else succeeded(job) for job in jobs))
    before = house.dump()
    house.clock.advance(3600)
    assert recover(house.door, house.definitions) == 0
    assert len(fallen) == 3
    assert house.door.write(lambda tx: leases.suspect(tx, fallen, ended_by_us=None)) == 0
    for one in fallen:
        assert house.door.write(lambda tx, one=one: leases.take_over(tx, one, 1, now_us=0, ended_by_us=None)) is None  # type: ignore[misc]
    assert house.dump() == before


def test_a_lease_that_was_renewed_meanwhile_is_not_taken(house: House) -> None:
    house.add(new_job())
    hand = house.hand(owner=3, lease_s=5)
    (job,) = hand.claim()
    house.clock.advance(6)
    now_us = house.clock.us
    (fallen,) = house.door.read(lambda tx: leases.ended(tx, now_us=now_us, limit=10))
    renew(house.door, [3], lease_s=30)
    assert house.door.write(lambda tx: leases.take_over(tx, fallen, 1, now_us=now_us, ended_by_us=now_us)) is None
    assert house.door.write(lambda tx: leases.suspect(tx, [fallen], ended_by_us=now_us)) == 0
    assert house.row("jobs")["token"] == job.token


def test_a_lease_of_ten_years_does_not_end_at_once(house: House) -> None:
    """G15: no moment is kept in fewer bits than it needs."""
    house.add(new_job())
    house.hand(lease_s=10 * 365.25 * 86_400).claim()
    assert recover(house.door, house.definitions) == 0
    house.clock.advance(9 * 365.25 * 86_400)
    assert recover(house.door, house.definitions) == 0
    house.clock.advance(366 * 86_400)
    assert recover(house.door, house.definitions) == 1


def test_more_than_one_batch_is_recovered(house: House) -> None:
    house.add(*(new_job() for _ in range(450)))
    house.hand(lease_s=5).claim(450)
    house.clock.advance(6)
    assert recover(house.door, house.definitions) == 450
    assert {row["phase"] for row in house.rows("jobs")} == {"suspect"}


def test_a_run_that_is_locked_elsewhere_is_recovered_later(house: House) -> None:
    if house.door.dialect.writer_key() is not None:
        pytest.skip("nobody else can write meanwhile")
    from queuety.store import load
    from queuety.store.load import Runs

    run = house.dispatch(CHAIN)
    hand = house.hand(lease_s=5)
    (job,) = hand.claim()
    house.clock.advance(6)
    with House(house.url, clock=house.clock) as other, other.door.engine.connect() as theirs:
        with other.door.joined(theirs) as tx:
            load.lock(tx, Runs(), [run])
            assert recover(house.door, house.definitions) == 1
        theirs.rollback()
    row = house.row("jobs")
    assert (row["phase"], row["token"] != job.token) == ("leased", True)
    assert len(hand.turn(succeeded(job)).lost) == 1
    house.clock.advance(1)
    assert recover(house.door, house.definitions) == 1
    assert house.row("jobs")["phase"] == "ready"
    assert len(house.rows("history", run_id=run)) == 1


@pytest.mark.parametrize("together", [False, True])
def test_of_two_that_recover_at_once_exactly_one_wins(database: Database, together: bool, rounds: int) -> None:
    with House(database.url) as house:
        for _ in range(rounds):
            house.clear()
            runs = house.dispatch_many(CHAIN, [{}] * (3 if together else 1))
            late = house.hand(lease_s=5)
            jobs = late.claim()
            house.clock.advance(6)
            gate = threading.Barrier(3)
            counts: list[int] = []
            lost: list[int] = []

            def reap() -> None:
                with House(house.url, clock=house.clock) as own:
                    own.door.now_us()
                    gate.wait()  # noqa: B023
                    counts.append(recover(own.door, own.definitions))  # noqa: B023

            def settle() -> None:
                gate.wait()  # noqa: B023
                made = late.turn(*(succeeded(job, {"who": "late"}) for job in jobs))  # noqa: B023
                while made.carried:
                    made = late.turn(*made.carried)  # noqa: B023
                lost.append(len(made.lost))  # noqa: B023

            threads = [threading.Thread(target=each) for each in (reap, reap, settle)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(counts) == 2
            assert len(lost) == 1
            check(house.door)
            settled = len([run for run in runs if house.state(run)])
            if not together:
                # Whoever came first has it, and the other nothing.
                assert sum(counts) + settled == 1, (counts, lost, settled)
            house.clock.advance(1)
            recover(house.door, house.definitions)  # a run that the late result had locked just then waits for this
            stale = [row for row in house.rows("history") if row["entry"] == "failed"]
            assert len(stale) == (0 if together else 1 - settled)
