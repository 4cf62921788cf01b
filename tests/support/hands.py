"""Workers without threads: what a process does between two commits, one call each, through the worker's own turn.

A `House` is a database with what callers do there; a `Hand` is one worker process of it.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from sqlalchemy import Engine, select, text

from queuety.commands.definitions import Definitions
from queuety.commands.dispatch import add_jobs, start_run, start_runs
from queuety.commands.steer import steer
from queuety.define.wire import hashed
from queuety.model import (
    Command,
    Definition,
    ErrorInfo,
    Failed,
    HandlerRef,
    Job,
    NewJob,
    Options,
    Priority,
    Role,
    Span,
    State,
    StepSpec,
    Succeeded,
)
from queuety.store.dialects import Limits
from queuety.store.door import Door, Tx
from queuety.store.load import Runs
from queuety.store.rows import Lease
from queuety.store.settle import NotHeld
from queuety.worker.outcome import Outcome
from queuety.worker.turn import Order, Turn, has_landed, turn
from queuety.worker.works import Defaults

SECOND = 1_000_000
BEGIN_US = 1_767_225_600_000_000
"""The first moment of 2026, in microseconds since the epoch, UTC."""

Dump = dict[str, list[tuple[Any, ...]]]


class Clock:
    """A clock that is moved by hand; every door of a test reads the same one."""

    def __init__(self) -> None:
        self.us = BEGIN_US

    def now_us(self) -> int:
        return self.us

    def advance(self, seconds: float) -> None:
        self.us += round(seconds * SECOND)


def single(name: str = "one", **options: Any) -> StepSpec:
    """A step that runs a handler; `options` are those of `Options`."""
    return StepSpec("single", name, HandlerRef("tests:handler"), Options(**options))


def pause_of(seconds: float, name: str = "delay_0") -> StepSpec:
    """A step that waits."""
    return StepSpec("delay", name, settings={"seconds": seconds})


def definition(*steps: StepSpec, name: str = "report", **more: Any) -> Definition:
    """A definition with its hash."""
    return hashed(Definition(name, steps or (single(),), **more))


def new_job(**changes: Any) -> NewJob:
    """A plain job, ready at once unless `due_us` says otherwise; its retries come after ten seconds."""
    usual: dict[str, Any] = {
        "role": Role.JOB,
        "queue": "default",
        "priority": Priority.LOW,
        "handler": "tests:job",
        "max_attempts": 3,
        "due_us": 0,
        "payload": {},
        "options": Options(backoff=(10.0,)),
    }
    return NewJob(**(usual | changes))


def succeeded(job: Job, output: State | None = None, *, now_us: int = BEGIN_US) -> Succeeded:
    """The attempt has returned this."""
    return Succeeded(job, output or {}, Span(now_us, now_us, 7))


def failed(job: Job, message: str = "no", *, is_final: bool = False, now_us: int = BEGIN_US, **more: Any) -> Failed:
    """The attempt has raised."""
    return Failed(job, ErrorInfo(message, "builtins:ValueError"), Span(now_us, now_us, 7), is_final=is_final, **more)


class House:
    """A database, a clock, and what callers do. `limits` are those of its door."""

    def __init__(self, url: str | Engine, *, clock: Clock | None = None, limits: Limits | None = None) -> None:
        self.url = url
        self.clock = clock or Clock()
        self.door = Door.open(url, clock=self.clock, limits=limits)
        self.definitions = Definitions()

    def __enter__(self) -> House:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.door.on_statement = None
        self.door.close()

    def hand(self, *queues: str, **more: Any) -> Hand:
        """A worker process that reads these queues; `more` are `owner` and `lease_s`."""
        return Hand(self, queues or ("default",), **more)

    def dispatch(self, what: Definition, payload: State | None = None, *, key: str | None = None) -> int:
        """Starts a run."""
        self.definitions.ensure(self.door, what)

        def unit(tx: Tx) -> int:
            return start_run(tx, what, payload or {}, workflow_id=tx.reserve(1)[0], idempotency_key=key)

        return self.door.write(unit)

    def dispatch_many(self, what: Definition, payloads: Sequence[State]) -> list[int]:
        """Starts a run per payload, in one transaction."""
        self.definitions.ensure(self.door, what)
        return self.door.write(lambda tx: start_runs(tx, what, payloads))

    def add(self, *jobs: NewJob) -> list[int]:
        """Adds plain jobs in one transaction."""
        return self.door.write(lambda tx: add_jobs(tx, jobs, now_us=tx.now_us()))

    def steer(self, workflow_id: int, command: Command) -> None:
        """Somebody asks for something."""
        steer(self.door, self.definitions, workflow_id, command)

    def rows(self, table: str, **equal: Any) -> list[dict[str, Any]]:
        """The rows of a table by the name of its attribute in `Tables`, by key."""
        found = getattr(self.door.tables, table)
        statement = select(found).order_by(*found.primary_key.columns)
        for name, value in equal.items():
            statement = statement.where(found.c[name] == value)
        with self.door.reading() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]

    def row(self, table: str, **equal: Any) -> dict[str, Any]:
        """The only such row."""
        (found,) = self.rows(table, **equal)
        return found

    def state(self, workflow_id: int) -> dict[str, Any]:
        """A run's state as another process loads it."""
        from queuety.store import load

        return dict(self.door.read(lambda tx: load.read(tx, Runs(), [workflow_id]))[workflow_id].workflow.state)

    def dump(self, *, without: Sequence[str] = ()) -> Dump:
        """Every row of every table, by table."""
        with self.door.reading() as connection:
            return {
                table.name: [
                    tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))
                ]
                for table in self.door.tables.metadata.sorted_tables
                if table.name.removeprefix(self.door.tables.prefix) not in without
            }

    def clear(self) -> None:
        """Takes out all rows but the definitions and the counter of ids."""
        tables = self.door.tables
        kept = (tables.definitions, tables.ids)

        def unit(tx: Tx) -> None:
            for table in tables.metadata.sorted_tables:
                if table not in kept:
                    tx.connection.execute(text(f"DELETE FROM {table.name}"))

        self.door.write(unit)


class Hand:
    """One worker process: turn after turn, each one transaction. What a turn claims is in its `works`."""

    _owners = itertools.count(100)

    def __init__(
        self, house: House, queues: Sequence[str] | None, *, owner: int | None = None, lease_s: float = 30.0
    ) -> None:
        self.owner = next(self._owners) if owner is None else owner
        self.runs = Runs()
        self._house = house
        self._queues = queues
        self._lease_s = lease_s

    def order(self, outcomes: Sequence[Outcome] = (), slots: int = 0, **more: Any) -> Order:
        """What a turn is to do; `more` are fields of `Order`."""
        until_us = self._house.clock.us + round(self._lease_s * SECOND)
        lease = Lease(secrets.randbits(63), self.owner, until_us)
        return replace(Order(tuple(outcomes), slots, lease, self._queues), **more)

    def turn(self, *outcomes: Outcome, slots: int = 0, **more: Any) -> Turn:
        """A turn that settles these and claims as many as there are slots, as the loop makes it."""
        order = self.order(outcomes, slots, **more)
        try:
            return self.make(order)
        except NotHeld:
            return self.make(replace(order, careful=True))

    def make(self, order: Order, *, door: Door | None = None) -> Turn:
        """One transaction. Raises `NotHeld` as `turn` does."""
        made: list[Turn] = []

        def unit(tx: Tx) -> Turn:
            made.clear()
            result = turn(
                tx,
                order,
                runs=self.runs,
                definitions=self._house.definitions,
                defaults=Defaults(timeout_s=None, handler_grace_us=3600 * SECOND),
            )
            made.append(result)
            return result

        def landed(tx: Tx) -> Turn | None:
            return made[0] if made and has_landed(tx, order, made[0]) else None

        result = (door or self._house.door).write(unit, landed=landed)
        for held in result.stored.values():
            self.runs.keep(held)
        return result

    def claim(self, slots: int = 100) -> list[Job]:
        """The jobs that it gets when it asks for that many."""
        return [work.job for work in self.turn(slots=slots).works]

    def work(self, run: Callable[[Job], Outcome] = succeeded, *, turns: int = 1000, slots: int = 10) -> int:
        """Works until nothing is left; says how many attempts it made. `run` says what comes of each."""
        outcomes: list[Outcome] = []
        attempts = 0
        for _ in range(turns):
            made = self.turn(*outcomes, slots=slots, looks_around=True)
            outcomes = list(made.carried) + [run(work.job) for work in made.works]
            attempts += len(made.works)
            if not outcomes and not made.has_more:
                return attempts
        raise AssertionError(f"still not done after {turns} turns")
