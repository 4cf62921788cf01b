"""Pausing queues."""

from __future__ import annotations

from queuety.store import claims, queues
from tests.support.hands import House, new_job, succeeded


def test_pausing_twice_is_pausing_once(house: House) -> None:
    def pauses() -> int:
        return house.door.read(lambda tx: claims.probe(tx, ["a"])).pauses

    house.door.write(lambda tx: queues.resume(tx, "a"))
    assert (house.door.read(claims.paused_queues), pauses()) == (frozenset(), 0)
    house.door.write(lambda tx: queues.pause(tx, "a"))
    house.clock.advance(1)
    house.door.write(lambda tx: queues.pause(tx, "a"))
    assert house.row("queues", name="a")["paused_us"] == house.clock.us - 1_000_000
    assert pauses() == 1
    house.door.write(lambda tx: queues.pause(tx, "b"))
    assert (house.door.read(claims.paused_queues), pauses()) == (frozenset("ab"), 2)
    house.door.write(lambda tx: queues.resume(tx, "a"))
    house.door.write(lambda tx: queues.resume(tx, "a"))
    assert (house.door.read(claims.paused_queues), pauses()) == (frozenset("b"), 3)


def test_nothing_of_a_queue_starts_once_pause_has_returned(house: House) -> None:
    """A busy worker had known of a pause only 50 ms later: in 4 of 60 tries a job of the paused queue still ran."""
    hand = house.hand("mail")
    first, second = house.add(new_job(queue="mail"), new_job(queue="mail"))
    (work,) = hand.turn(slots=1).works
    assert work.job.id == first
    house.door.write(lambda tx: queues.pause(tx, "mail"))
    assert hand.turn(succeeded(work.job), slots=1).works == []
    house.door.write(lambda tx: queues.resume(tx, "mail"))
    (work,) = hand.turn(slots=1).works
    assert work.job.id == second
