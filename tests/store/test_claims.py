"""Which jobs a claim takes, in which order and under which token; what makes jobs claimable, what gives them back."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from queuety.model import Job, NewJob, Priority
from queuety.store import claims, queues
from queuety.store.dialects import Limits
from queuety.worker.outcome import Returned, Unhandled
from tests.support.databases import Database
from tests.support.hands import SECOND, House, definition, failed, new_job, single, succeeded


def ids(house: House, *jobs: NewJob) -> list[int]:
    return house.add(*jobs)


def test_the_order_is_queue_as_listed_then_priority_then_due_time_then_id(house: House) -> None:
    now = house.clock.us
    shuffled = ids(
        house,
        new_job(queue="b", priority=Priority.URGENT, due_us=0),
        new_job(queue="a", priority=Priority.LOW, due_us=now - 2),
        new_job(queue="a", priority=Priority.LOW, due_us=now - 3),
        new_job(queue="a", priority=Priority.HIGH, due_us=now),
        new_job(queue="a", priority=Priority.LOW, due_us=now - 3),
        new_job(queue="c", priority=Priority.URGENT, due_us=0),
        new_job(queue="a", priority=Priority.URGENT, due_us=now - 1),
        new_job(queue="b", priority=Priority.NORMAL, due_us=0),
    )
    wanted = [shuffled[place] for place in (6, 3, 2, 4, 1, 0, 7)]
    assert [job.id for job in house.hand("a", "b").claim(100)] == wanted
    assert [job.id for job in house.hand("c").claim(100)] == [shuffled[5]]


def test_the_same_order_holds_when_jobs_are_claimed_one_by_one(house: House) -> None:
    now = house.clock.us
    added = ids(
        house,
        *(new_job(priority=Priority(place % 4), due_us=now - place % 3, queue="ab"[place % 2]) for place in range(24)),
    )
    rows = {row["id"]: row for row in house.rows("jobs")}
    hand = house.hand("b", "a")
    claimed = [hand.claim(1)[0].id for _ in added]
    assert claimed == sorted(
        added,
        key=lambda one: ("ba".index(rows[one]["queue"]), rows[one]["priority_rank"], rows[one]["due_us"], one),
    )
    assert hand.claim(1) == []


def test_a_claim_takes_no_more_than_its_limit_and_leaves_the_rest_ready(house: House) -> None:
    first, second, third = ids(house, new_job(), new_job(), new_job())
    hand = house.hand()
    assert [job.id for job in hand.claim(2)] == [first, second]
    assert [job.id for job in hand.claim(0)] == []
    assert [row["phase"] for row in house.rows("jobs")] == ["leased", "leased", "ready"]
    assert [job.id for job in hand.claim(2)] == [third]


def test_a_claim_counts_the_attempt_and_writes_a_fresh_token_and_an_expiry(house: House) -> None:
    ids(house, new_job(), new_job())
    hand = house.hand(lease_s=12)
    (one,), (other,) = hand.claim(1), hand.claim(1)
    assert one.token != other.token
    assert (one.attempt, one.entries, one.payload) == (1, 0, {})
    row = house.row("jobs", id=one.id)
    assert (row["phase"], row["token"], row["owner"]) == ("leased", one.token, hand.owner)
    assert (row["attempts"], row["started_us"]) == (1, house.clock.us)
    assert row["wake_us"] == house.clock.us + 12 * SECOND


def test_a_job_is_claimed_as_it_was_added(house: House) -> None:
    given = new_job(
        queue="mail",
        priority=Priority.HIGH,
        handler="shop.mail:send",
        max_attempts=7,
        payload={"to": ["ä@b", None], "n": 2**63 - 1},
        config={"tone": "kind"},
        due_us=house.clock.us - 5,
    )
    (job_id,) = ids(house, given)
    (job,) = house.hand("mail").claim()
    assert (job.id, job.role, job.queue, job.priority, job.handler) == (job_id, given.role, *_of(given))
    assert (job.max_attempts, job.due_us, job.created_us) == (7, given.due_us, house.clock.us)
    assert (job.payload, job.config, job.options) == (given.payload, given.config, given.options)
    assert (job.workflow_id, job.step_index, job.visit, job.branch) == (None, None, None, None)


def _of(job: NewJob) -> tuple[str, Priority, str]:
    return job.queue, job.priority, job.handler


def test_the_step_that_follows_is_born_leased_if_it_comes_first(house: House) -> None:
    run = house.dispatch(definition(single("one"), single("two", priority=Priority.HIGH)))
    hand = house.hand()
    (first,) = hand.claim()
    (waiting,) = ids(house, new_job(priority=Priority.NORMAL))
    made = hand.turn(succeeded(first), slots=1)
    (work,) = made.works
    assert (work.job.workflow_id, work.job.step_index, work.job.attempt) == (run, 1, 1)
    row = house.row("jobs", id=work.job.id)
    assert (row["phase"], row["token"], row["attempts"]) == ("leased", work.job.token, 1)
    assert house.row("jobs", id=waiting)["phase"] == "ready"
    assert made.has_more


def test_the_step_that_follows_waits_its_turn_if_others_come_first(house: House) -> None:
    run = house.dispatch(definition(single("one"), single("two")))
    hand = house.hand()
    (first,) = hand.claim()
    urgent, low = ids(house, new_job(priority=Priority.URGENT), new_job(due_us=0))
    made = hand.turn(succeeded(first), slots=2)
    assert [work.job.id for work in made.works] == [urgent, low]  # low is due for longer
    assert [row["phase"] for row in house.rows("jobs", workflow_id=run)] == ["ready"]
    assert made.has_more


def test_the_step_that_follows_may_belong_to_others(house: House) -> None:
    run = house.dispatch(definition(single("one"), single("two", queue="elsewhere")))
    hand = house.hand()
    (first,) = hand.claim()
    made = hand.turn(succeeded(first), slots=5)
    assert made.works == []
    assert made.wakes_others
    assert house.row("jobs", workflow_id=run)["phase"] == "ready"
    assert [job.workflow_id for job in house.hand("elsewhere").claim()] == [run]


def test_a_step_with_a_delay_is_not_born_leased(house: House) -> None:
    house.dispatch(definition(single("one"), single("two", delay_s=60)))
    hand = house.hand()
    (first,) = hand.claim()
    made = hand.turn(succeeded(first), slots=5)
    assert made.works == []
    assert made.next_us == house.clock.us + 60 * SECOND
    assert house.row("jobs")["phase"] == "delayed"


def test_a_paused_queue_gives_nothing_and_loses_nothing(house: House) -> None:
    run = house.dispatch(definition(single("one"), single("two")))
    ids(house, new_job(queue="other"))
    hand = house.hand("default", "other")
    (first,) = [job for job in hand.claim(1) if job.workflow_id == run]
    house.door.write(lambda tx: queues.pause(tx, "default"))
    made = hand.turn(succeeded(first), slots=5)
    assert made.paused is not None
    assert set(made.paused) == {"default"}
    assert [work.job.queue for work in made.works] == ["other"]
    assert house.row("jobs", workflow_id=run)["phase"] == "ready"
    house.door.write(lambda tx: queues.resume(tx, "default"))
    assert [job.workflow_id for job in hand.claim()] == [run]


def test_without_queues_every_queue_is_read_alike(house: House) -> None:
    low, high, gone = ids(
        house,
        new_job(queue="a"),
        new_job(queue="b", priority=Priority.HIGH),
        new_job(queue="c", priority=Priority.URGENT),
    )
    hand = house.hand()
    house.door.write(lambda tx: queues.pause(tx, "c"))
    order = hand.order(slots=5, queues=None)
    assert [work.job.id for work in hand.make(order).works] == [high, low]
    assert house.row("jobs", id=gone)["phase"] == "ready"


def test_a_delayed_job_is_not_claimed_before_it_is_promoted_when_due(house: House) -> None:
    (job_id,) = ids(house, new_job(due_us=house.clock.us + 10 * SECOND))
    hand = house.hand()
    assert hand.turn(slots=1, looks_around=True).works == []
    house.clock.advance(9.999999)
    assert hand.turn(slots=1, looks_around=True).works == []
    house.clock.advance(0.000001)
    assert hand.turn(slots=1).works == []  # it has not looked
    made = hand.turn(slots=1, looks_around=True)
    assert [work.job.id for work in made.works] == [job_id]


def test_promotion_takes_the_earliest_first_up_to_its_limit(house: House) -> None:
    late, early, soon = ids(
        house, *(new_job(due_us=house.clock.us + seconds * SECOND, max_attempts=1) for seconds in (30, 10, 40))
    )
    house.clock.advance(35)
    assert house.door.write(lambda tx: claims.promote(tx, now_us=tx.now_us(), limit=1)) == 1
    assert {row["id"]: row["phase"] for row in house.rows("jobs")} == {late: "delayed", early: "ready", soon: "delayed"}
    assert house.door.write(lambda tx: claims.promote(tx, now_us=tx.now_us(), limit=10)) == 1
    assert house.row("jobs", id=soon)["phase"] == "delayed"


def test_promotion_leaves_leases_that_have_ended(house: House) -> None:
    ids(house, new_job())
    house.hand(lease_s=1).claim()
    house.clock.advance(100)
    assert house.door.write(lambda tx: claims.promote(tx, now_us=tx.now_us(), limit=10)) == 0
    assert house.row("jobs")["phase"] == "leased"


def test_giving_back_costs_no_attempt(house: House) -> None:
    run = house.dispatch(definition(single(max_attempts=2)))
    hand = house.hand()
    for _ in range(5):
        (job,) = hand.claim()
        assert job.attempt == 1
        assert hand.turn(Returned(job)).wakes_others
        row = house.row("jobs")
        assert (row["phase"], row["attempts"], row["token"], row["started_us"]) == ("ready", 0, None, None)
    assert house.rows("history", run_id=run) == []


def test_many_jobs_of_one_claim_are_given_back_in_one_statement(house: House) -> None:
    ids(house, *[new_job() for _ in range(40)])
    jobs = house.hand().claim()
    said: list[str] = []
    house.door.on_statement = said.append
    count = house.door.write(lambda tx: claims.give_back(tx, [(job.id, job.token) for job in jobs]))
    house.door.on_statement = None
    assert count == 40
    assert sum(text.startswith("UPDATE") for text in said) == 1


def test_a_job_that_another_holds_is_not_given_back(house: House) -> None:
    ids(house, new_job())
    hand = house.hand()
    (job,) = hand.claim()
    hand.turn(Returned(job))
    (again,) = house.hand().claim()
    hand.turn(Returned(job))
    row = house.row("jobs")
    assert (row["phase"], row["token"], row["attempts"]) == ("leased", again.token, 1)


def test_an_unknown_handler_is_put_off_visibly_at_no_cost_until_its_grace_time_is_over(house: House) -> None:
    run = house.dispatch(definition(single(max_attempts=1)))
    hand = house.hand()
    began = house.clock.us
    for waited_s in (0, 1, 8, 100, 3599):
        house.clock.us = began + waited_s * SECOND
        (work,) = hand.turn(slots=1, looks_around=True).works
        assert work.job.attempt == 1
        made = hand.turn(Unhandled(work.job, "no module named shop"), slots=1)
        assert made.works == []
        row = house.row("jobs")
        assert (row["phase"], row["attempts"], row["unknown_since_us"]) == ("delayed", 0, began)
        assert row["error_message"] == "no module named shop"
        assert (row["wake_us"] - house.clock.us) / SECOND == min(max(waited_s / 4, 1), 15)
    house.clock.advance(15)
    (work,) = hand.turn(slots=1, looks_around=True).works
    hand.turn(Unhandled(work.job, "no module named shop"))
    row = house.row("workflows", id=run)
    assert (row["status"], row["error_kind"]) == ("failed", "HandlerNotFound")
    assert "no module named shop" in row["error_message"]


def test_a_known_handler_forgets_that_it_was_unknown(house: House) -> None:
    ids(house, new_job())
    hand = house.hand()
    (job,) = hand.claim()
    hand.turn(Unhandled(job, "no module named shop"))
    house.clock.advance(60)
    (work,) = hand.turn(slots=1, looks_around=True).works
    assert work.job.unknown_since_us is not None
    hand.turn(failed(work.job))
    assert house.row("jobs")["unknown_since_us"] is None


def test_a_suspect_is_claimed_only_alone(house: House) -> None:
    first, second = ids(house, new_job(), new_job())
    house.hand(lease_s=1, owner=9).claim()
    from queuety.worker.maintain import give_back_of_dead

    assert give_back_of_dead(house.door, house.definitions, 9) == 2
    hand = house.hand()
    assert hand.claim() == []
    for job_id in (first, second):
        (work,) = hand.turn(alone=True, slots=4).works
        assert (work.job.id, work.job.attempt) == (job_id, 1)
        hand.turn(succeeded(work.job))
    assert hand.turn(alone=True).works == []


def test_a_probe_tells_what_there_is(house: House) -> None:
    def probe(*queues_read: str, paused: tuple[str, ...] = ()) -> claims.Probe:
        return house.door.read(lambda tx: claims.probe(tx, queues_read, paused=paused))

    nothing = probe("default")
    assert (nothing.has_ready, nothing.has_suspect, nothing.next_us) == (False, False, None)
    ids(house, new_job(queue="b"), new_job(due_us=house.clock.us + 7))
    assert not probe("default").has_ready
    assert probe("default", "b").has_ready
    assert not probe("default", "b", paused=("b",)).has_ready
    assert not probe("b", paused=("b",)).has_ready
    assert probe("b").next_us == house.clock.us + 7
    house.door.write(lambda tx: queues.pause(tx, "b"))
    assert probe("b").pauses > nothing.pauses


@pytest.mark.parametrize("claimers", [16])
def test_no_job_is_claimed_twice_by_many_claimers_at_once(database: Database, claimers: int, rounds: int) -> None:
    with House(database.url, limits=Limits(pool_size=claimers, patience_s=60)) as house:
        count = 40 * rounds
        house.add(*(new_job(queue="ab"[number % 2], priority=Priority(number % 4)) for number in range(count)))
        got: list[list[int]] = [[] for _ in range(claimers)]
        gate = threading.Barrier(claimers)

        def work(number: int) -> None:
            hand = house.hand(*("ab" if number % 2 else "ba"))
            gate.wait()
            held: list[Job] = []
            for _ in range(10_000):
                made = hand.turn(*(succeeded(job) for job in held), slots=1 + number % 7)
                held = [work.job for work in made.works]
                got[number].extend(job.id for job in held)
                if not held and not house.door.read(lambda tx: claims.probe(tx, "ab")).has_ready:
                    return
            raise AssertionError("never done")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(claimers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = Counter(job_id for each in got for job_id in each)
        assert [job_id for job_id, times in taken.items() if times > 1] == []
        assert len(taken) == count
        assert {row["phase"] for row in house.rows("jobs")} == {"completed"}
