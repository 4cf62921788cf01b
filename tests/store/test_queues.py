"""Pausing queues."""

from __future__ import annotations

from queuety.store import claims, queues
from tests.support.hands import House


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
