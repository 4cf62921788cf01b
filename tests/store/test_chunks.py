"""Chunks of streaming steps: written only by who holds the lease, read in order, gone with the step."""

from __future__ import annotations

from dataclasses import replace

from queuety.model import ClearChunks
from queuety.store import chunks, settle
from queuety.store.settle import Plan
from queuety.store.tx import Tx
from tests.support.hands import SECOND, House, definition, new_job, single, succeeded


def test_chunks_are_kept_in_order_and_each_extends_the_lease(house: House) -> None:
    run = house.dispatch(definition())
    hand = house.hand(lease_s=10)
    (job,) = hand.claim()
    for number, text in enumerate(['"a"', '{"b":[1]}', "null"]):
        house.clock.advance(5)
        until_us = house.clock.us + 10 * SECOND
        assert house.door.write(
            lambda tx, number=number, text=text, until_us=until_us: chunks.append(  # type: ignore[misc]
                tx, job, number, text, now_us=tx.now_us(), until_us=until_us
            )
        )
        assert house.row("jobs", id=job.id)["wake_us"] == until_us
    assert house.door.read(lambda tx: chunks.existing(tx, run, 1, None)) == ["a", {"b": [1]}, None]
    assert [(row["branch"], row["number"], row["at_us"] > 0) for row in house.rows("chunks")] == [
        (-1, 0, True),
        (-1, 1, True),
        (-1, 2, True),
    ]
    assert house.door.read(lambda tx: chunks.existing(tx, run, 2, None)) == []
    assert house.door.read(lambda tx: chunks.existing(tx, run, 1, 0)) == []


def test_an_attempt_that_has_lost_its_lease_writes_no_chunk(house: House) -> None:
    house.dispatch(definition())
    hand = house.hand()
    (job,) = hand.claim()
    before = house.dump()

    def append(tx: Tx) -> bool:
        return chunks.append(tx, replace(job, token=job.token + 1), 0, "1", now_us=tx.now_us(), until_us=10**18)

    assert not house.door.write(append)
    assert house.dump() == before


def test_a_job_without_a_run_has_no_chunks(house: House) -> None:
    house.add(new_job())
    (job,) = house.hand().claim()
    assert not house.door.write(lambda tx: chunks.append(tx, job, 0, "1", now_us=1, until_us=10**18))
    assert house.rows("chunks") == []


def test_a_chunk_that_is_said_twice_is_kept_once(house: House) -> None:
    """The connection is lost while committing, and nobody knows whether it was done."""
    run = house.dispatch(definition())
    (job,) = house.hand().claim()
    for _ in range(2):
        assert house.door.write(lambda tx: chunks.append(tx, job, 0, '"a"', now_us=1, until_us=10**18))
    assert house.door.read(lambda tx: chunks.existing(tx, run, 1, None)) == ["a"]


def test_a_step_takes_its_own_chunks_with_it(house: House) -> None:
    first, second = house.dispatch_many(definition(single("one"), single("two")), [{}, {}])
    jobs = {job.workflow_id: job for job in house.hand().claim()}

    def unit(tx: Tx) -> None:
        for run in (first, second):
            for number in range(3):
                chunks.append(tx, jobs[run], number, "1", now_us=1, until_us=10**18)
            chunks.append(tx, replace(jobs[run], branch=4), 0, "1", now_us=1, until_us=10**18)

    house.door.write(unit)
    assert len(house.rows("chunks")) == 8
    clear = [ClearChunks(first, 1, None), ClearChunks(second, 1, 4), ClearChunks(second, 2, None)]
    house.door.write(lambda tx: settle.write(tx, Plan.of(clear), {}))
    assert [(row["workflow_id"], row["branch"]) for row in house.rows("chunks")] == [(first, 4)] + [(second, -1)] * 3


def test_the_chunks_of_a_completed_step_stand_in_its_history(house: House) -> None:
    run = house.dispatch(definition(single("one"), single("two")))
    hand = house.hand()
    (job,) = hand.claim()
    house.door.write(lambda tx: chunks.append(tx, job, 0, '"a"', now_us=1, until_us=10**18))
    hand.turn(replace(succeeded(job, {"text": "a"}), chunks=("a",)))
    assert house.rows("chunks") == []
    assert house.row("history", run_id=run)["control"] == '{"_chunks":["a"]}'
