"""Runs made through the store and the engine, without workers: what they have written is then looked at."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from queuety.codec import encode
from queuety.define.wire import definition_to_json, hashed
from queuety.engine.decide import decide_all, start
from queuety.engine.jobs import decide_job
from queuety.model import (
    AddJob,
    Command,
    Commanded,
    Definition,
    Due,
    ErrorInfo,
    Event,
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
from queuety.store import claims, definitions, load, settle
from queuety.store.door import Door, Tx
from queuety.store.load import Runs
from queuety.store.rows import Lease
from queuety.store.settle import Plan

SECOND = 1_000_000
BEGIN_US = 1_767_225_600_000_000
"""The first moment of 2026, in microseconds since the epoch, UTC."""


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.us = BEGIN_US

    def now_us(self) -> int:
        return self.us

    def advance(self, seconds: float) -> None:
        self.us += round(seconds * SECOND)


def step(name: str, handler: str | None = "tests:handler", kind: str = "single", **more: Any) -> StepSpec:
    """A step; `more` are `options` or `settings`."""
    return StepSpec(kind, name, HandlerRef(handler) if handler else None, **more)


class Scene:
    """A database, a clock, and what a worker and a caller do, one transaction each."""

    def __init__(self, url: str) -> None:
        self.clock = Clock()
        self.door = Door.open(url, clock=self.clock)
        self.tables = self.door.tables
        self._definitions: dict[str, Definition] = {}
        self._numbers = itertools.count(1)

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.door.close()

    def define(self, *steps: StepSpec, name: str = "report", **more: Any) -> Definition:
        """A definition that is in the database."""
        definition = hashed(Definition(name, steps, **more))
        self._definitions[definition.hash] = definition
        self.door.write(
            lambda tx: definitions.add(
                tx,
                definition_hash=definition.hash,
                name=name,
                version=definition.version,
                body=encode(definition_to_json(definition)),
                now_us=tx.now_us(),
            )
        )
        return definition

    def start(self, definition: Definition, payload: State | None = None, **more: Any) -> int:
        """A new run; `more` are `parent_id`, `parent_step` or `idempotency_key`."""
        return self.start_many(definition, [payload or {}], **more)[0]

    def start_many(self, definition: Definition, payloads: Sequence[State], **more: Any) -> list[int]:
        """New runs, in one transaction."""

        def unit(tx: Tx) -> list[int]:
            ids = tx.reserve(len(payloads))
            begun = [
                start(id_, definition, payload, now_us=tx.now_us(), **more)
                for id_, payload in zip(ids, payloads, strict=True)
            ]
            settle.add_workflows(
                tx, [(decision.workflow, encode(payload)) for decision, payload in zip(begun, payloads, strict=True)]
            )
            self._write(tx, [effect for decision in begun for effect in decision.effects], {})
            return ids

        return self.door.write(unit)

    def add_job(self, handler: str = "tests:job", payload: State | None = None, **more: Any) -> int:
        """A plain job; `more` are fields of `NewJob`."""
        given: dict[str, Any] = {
            "role": Role.JOB,
            "queue": "default",
            "priority": Priority.LOW,
            "max_attempts": 3,
            "due_us": self.clock.us,
            "options": Options(backoff=(10.0,)),
        }
        job = NewJob(handler=handler, payload=payload or {}, **{**given, **more})
        return self.door.write(lambda tx: settle.add_jobs(tx, [job], now_us=tx.now_us()))[0]

    def claim(self, *queues: str, limit: int = 100, lease_s: float = 30, owner: int = 7) -> list[Job]:
        """What a worker takes that has room for `limit` jobs."""
        token = next(self._numbers)

        def unit(tx: Tx) -> list[Job]:
            claims.promote(tx, now_us=tx.now_us(), limit=1000)
            lease = Lease(token, owner, tx.now_us() + round(lease_s * SECOND))
            return list(claims.claim(tx, queues or ("default",), limit, lease, now_us=tx.now_us()).jobs)

        return self.door.write(unit)

    def succeed(self, job: Job, output: State | None = None, *, took_s: float = 0.25) -> None:
        """The attempt returns after `took_s`."""
        began = self.clock.us
        self.clock.advance(took_s)
        self.settle(Succeeded(job, output or {}, Span(began, self.clock.us, 7)))

    def fail(self, job: Job, message: str = "no", *, is_final: bool = False, took_s: float = 0.25) -> None:
        """The attempt raises after `took_s`."""
        began = self.clock.us
        self.clock.advance(took_s)
        error = ErrorInfo(message, "ValueError", "Traceback …")
        self.settle(Failed(job, error, Span(began, self.clock.us, 7), is_final=is_final))

    def settle(self, event: Succeeded | Failed) -> None:
        """What an attempt led to."""
        if event.job.workflow_id is not None:
            self._happen(event.job.workflow_id, event)
        else:
            self.door.write(lambda tx: self._write(tx, decide_job(event, now_us=tx.now_us()), {}))

    def command(self, workflow_id: int, command: Command) -> None:
        """Somebody asks for something."""
        self._happen(workflow_id, Commanded(command, next(self._numbers)))

    def fire(self, workflow_id: int) -> None:
        """The run's timers go off."""

        def unit(tx: Tx) -> list[int]:
            letters = load.open_letters(tx, [workflow_id], tx.now_us())
            return [letter.visit for letter in letters if letter.visit is not None]

        for visit in self.door.write(unit):
            self._happen(workflow_id, Due(visit))

    def run(self, workflow_id: int, *outputs: State) -> None:
        """Step after step of the only open run, each returning what is given."""
        for output in outputs:
            (job,) = self.claim()
            assert job.workflow_id == workflow_id
            self.succeed(job, output)

    def _happen(self, workflow_id: int, event: Event) -> None:
        def unit(tx: Tx) -> None:
            held = load.lock(tx, Runs(), [workflow_id], waiting=True)
            workflow = held[workflow_id].workflow
            definition = self._definitions[workflow.definition_hash]
            self._write(tx, decide_all(workflow, definition, [event], now_us=tx.now_us()), held)

        self.door.write(unit)

    def _write(self, tx: Tx, effects: Iterable[Any], held: dict[int, load.Held]) -> None:
        effects = list(effects)
        settle.write(tx, Plan.of(effects), held)
        settle.add_jobs(tx, [effect.job for effect in effects if isinstance(effect, AddJob)], now_us=tx.now_us())
