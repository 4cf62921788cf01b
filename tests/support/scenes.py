"""A door that is broken before any statement of a transaction, and a worker that goes through it.

A `Scene` is one database seen twice: by those whom nothing disturbs, and through the broken door.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import event

from queuety import Queuety
from queuety.model import Job
from queuety.store.dialects import Limits
from queuety.store.door import Door
from queuety.store.settle import NotHeld
from queuety.worker.outcome import Outcome
from queuety.worker.turn import Order, Turn
from tests.store.breaking import cut, driver_error
from tests.support.databases import Database
from tests.support.hands import Dump, Hand, House

PATIENT = Limits(patience_s=20)
IMPATIENT = Limits(patience_s=0)


class Scene:
    """A house to look at, and the same database through a door that is broken; `patient` ones try again."""

    def __init__(self, url: str, *, patient: bool) -> None:
        self.seen = House(url)
        self.house = House(url, clock=self.seen.clock, limits=PATIENT if patient else IMPATIENT)
        self._raw: list[Any] = []
        event.listen(self.house.door.engine, "checkout", self._note)

    def _note(self, raw: Any, _record: Any, proxy: Any) -> None:
        """Ids are drawn beside a transaction, on a connection apart: cut instead, it would break nothing."""
        if proxy._pool is self.house.door.engine.pool:
            self._raw.append(raw)

    @property
    def door(self) -> Door:
        """The door that is broken."""
        return self.house.door

    def be(self, *, patient: bool) -> None:
        """Whether what goes through the broken door is tried again, from now on."""
        self.door.limits = PATIENT if patient else IMPATIENT

    def break_at(self, point: int | str) -> list[str]:
        """Breaks the connection once, before the statement of this number, or the first of this text.

        Gives back the statements as they come.
        """
        said: list[str] = []
        kind = self.door.dialect.name

        def hook(statement: str) -> None:
            said.append(statement)
            if len(said) - 1 != point if isinstance(point, int) else said.count(point) != 1 or statement != point:
                return
            if kind == "sqlite" or statement == "COMMITTED" or not self._raw:
                raise driver_error(kind, "lost")
            cut(self._raw[-1])  # the driver finds out by itself

        self.door.on_statement = hook
        return said

    def close(self) -> None:
        self.door.on_statement = None
        self.house.door.close()
        self.seen.door.close()


Action = Callable[[], Any]
"""Makes the transaction; may be called again after it has failed."""


class Worker:
    """A process that makes turns through the broken door, as its loop does: what could not be settled is carried."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.hand: Hand = scene.house.hand()
        self.works: list[Job] = []
        self.settled: list[Outcome] = []
        self.lost: list[Outcome] = []

    def claimed(self, *, slots: int = 100) -> list[Job]:
        """Jobs that it holds already, through the door that nothing breaks."""
        made = self.hand.make(self.hand.order(slots=slots, looks_around=True), door=self._scene.seen.door)
        return [work.job for work in made.works]

    def turning(self, *outcomes: Outcome, **more: Any) -> Action:
        """Makes this turn until it has settled everything; a connection's end leaves locks for a moment."""
        left = list(outcomes)

        def act() -> None:
            until = time.monotonic() + 10
            while True:
                made = self._turn(self.hand.order(left, **more))
                self.works += [work.job for work in made.works]
                self.settled += made.settled
                self.lost += made.lost
                left[:] = made.carried
                if not left:
                    return
                assert time.monotonic() < until

        return act

    def _turn(self, order: Order) -> Turn:
        try:
            return self.hand.make(order)
        except NotHeld:
            return self.hand.make(replace(order, careful=True))

    def until_claimed(self, count: int, act: Action) -> Action:
        """The same turn again until it has claimed so many: rows that a dying connection holds are passed over."""

        def again() -> None:
            act()
            until = time.monotonic() + 10
            while len(self.works) < count:
                assert time.monotonic() < until, self.works
                made = self._turn(self.hand.order(slots=count - len(self.works), looks_around=True))
                self.works += [work.job for work in made.works]

        return again


@contextmanager
def scene_of(database: Database, *, patient: bool) -> Iterator[Scene]:
    scene = Scene(database.url, patient=patient)
    try:
        yield scene
    finally:
        scene.close()


def dump(scene: Scene) -> Dump:
    """Everything but the counter of ids, which rises in transactions of its own, and definitions, which stay."""
    return scene.seen.dump(without=("ids", "definitions"))


def app_of(scene: Scene) -> Queuety:
    """An application that goes through the broken door."""
    app = Queuety(scene.seen.url, clock=scene.seen.clock)
    app._door = scene.door
    app._is_migrated = True
    return app
