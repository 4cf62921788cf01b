"""A run that has gone round thousands of times costs no more per step than one that has just begun.

Counted are statements and the rows that they bring, never time. Beginning, committing, notifying and drawing ids are
left out, which each database does in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from queuety.engine.course import STEPS_AT_ONCE
from queuety.model import (
    Cancel,
    Command,
    CompleteStep,
    Definition,
    Guards,
    HandlerRef,
    Job,
    PatchState,
    Pause,
    Resume,
    Rewind,
    StepSpec,
)
from queuety.store import door as doors
from queuety.store.hooks import WatchedCursor
from tests.support.databases import Database
from tests.support.hands import Hand, House, definition, single, succeeded
from tests.support.invariants import check

STEPS = 10_000
MEASURED = 20
"""Steps whose cost is taken together: a checkpoint or a snapshot may fall to any of them."""

LARGE = {"large": "x" * 3_000}


@dataclass
class Cost:
    """What was said to the tables, and how many rows came back."""

    statements: int = 0
    rows: list[int] = field(default_factory=list)

    @property
    def both(self) -> tuple[int, int]:
        return self.statements, sum(self.rows)


Costs = Callable[[], Any]


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    with House(database.url) as made:
        yield made


@pytest.fixture
def costs(house: House, monkeypatch: pytest.MonkeyPatch) -> Costs:
    """Counts what is said to the database inside a block."""
    counting: list[Cost] = []

    class Counting(WatchedCursor):
        def fetchall(self) -> Any:
            rows = self._cursor.fetchall()
            counting[-1].rows.append(len(rows))
            return rows

        def fetchone(self) -> Any:
            row = self._cursor.fetchone()
            counting[-1].rows.append(0 if row is None else 1)
            return row

    monkeypatch.setattr(doors, "WatchedCursor", Counting)
    prefix, ids = house.door.tables.prefix, house.door.tables.ids.name

    @contextmanager
    def counted() -> Iterator[Cost]:
        cost = Cost()
        counting.append(cost)

        def note(statement: str) -> None:
            if prefix in statement and ids not in statement and "pg_notify" not in statement:
                cost.statements += 1

        house.door.on_statement = note
        try:
            yield cost
        finally:
            house.door.on_statement = None

    return counted


def ticks() -> tuple[StepSpec, StepSpec]:
    """A loop without a handler, which goes round until somebody says that it is done."""
    back = StepSpec("repeat", "back", settings={"until": True, "target": "tick", "state_key": "done", "expected": True})
    return StepSpec("delay", "tick", settings={"seconds": 0}), back


def rich() -> Definition:
    """A loop, then steps with all that is counted, kept and looked back at."""
    undo = HandlerRef("tests:undo")
    work = StepSpec("single", "work", HandlerRef("tests:handler"), compensation=undo)
    guards = Guards(max_transitions=10**6, max_state_bytes=10**6, max_cost_units=10**6, max_started_workflows=10)
    steps = (*ticks(), work, single("again"), single("end"))
    return definition(*steps, guards=guards, prune_after=1, deadline_s=10.0**6, compensates_on_failure=True)


def gone_round(house: House, run: int, hand: Hand, costs: Costs) -> list[Cost]:
    """What each transaction has cost in which the run has settled so many steps; it stands at `work` then."""
    found: list[Cost] = []
    for _ in range(STEPS // STEPS_AT_ONCE):
        with costs() as cost:
            hand.turn(looks_around=True)
        found.append(cost)
    assert house.row("workflows", id=run)["transitions"] >= STEPS
    house.steer(run, PatchState({"done": True}))
    while house.row("workflows", id=run)["current_step"] < 2:
        hand.turn(looks_around=True)
    return found


def laps(hand: Hand, job: Job, count: int) -> Job:
    """So many turns, each of which settles the step and claims it again."""
    for number in range(count):
        (work,) = hand.turn(succeeded(job, {"lap": number, "_next_step": "work"}), slots=1).works
        job = work.job
    return job


def test_a_step_costs_the_same_after_ten_thousand_as_after_none(house: House, costs: Costs) -> None:
    found: dict[str, list[Any]] = {"young": [], "old": []}
    for age, payload in (("young", {"done": True}), ("old", {})):
        house.clear()
        hand = house.hand()
        run = house.dispatch(rich(), {**payload, **LARGE})
        if age == "old":
            for counts in zip(*(cost.both for cost in gone_round(house, run, hand, costs)[1:]), strict=True):
                assert max(counts) - min(counts) <= 2, "a checkpoint and a snapshot now and then"
            assert len(house.rows("checkpoints", run_id=run)) == STEPS // 256
        (job,) = hand.claim()
        job = laps(hand, job, 3)
        with costs() as cost:
            job = laps(hand, job, MEASURED)
        found[age].append(cost.both)
        with costs() as cost:
            held = house.hand()  # who has not seen the run yet reads it once
            house.steer(run, Pause())
            house.steer(run, Resume())
            held.turn(succeeded(job, {"_next_step": "again"}))
        found[age].append(cost.statements)
        assert max(cost.rows) <= 260, "the deltas since the last checkpoint"
        commands: list[Command] = [PatchState({"x": 1}), Rewind("work"), CompleteStep({"x": 2}), Cancel()]
        for command in commands:
            with costs() as cost:
                house.steer(run, command)
            found[age].append((type(command).__name__, cost.statements))
            assert max(cost.rows) <= 260
        check(house.door)
    young, old = found["young"], found["old"]
    (statements, rows), (statements_then, rows_then) = young[0], old[0]
    # A checkpoint, or a snapshot, is one statement more for one of so many steps.
    assert abs(statements_then - statements) <= 1
    assert abs(rows_then - rows) <= 3, "ids are drawn in blocks"
    assert old[1:] == young[1:]


def test_ten_thousand_steps_with_a_handler_cost_the_same_at_the_end(house: House, costs: Costs, rounds: int) -> None:
    hand = house.hand()
    house.dispatch(rich(), {"done": True, **LARGE})
    (job,) = hand.claim()
    found = []
    for _ in range((STEPS if rounds > 3 else 300) // 100):
        with costs() as cost:
            job = laps(hand, job, 100)
        found.append(cost.both)
    for counts in zip(*found[1:], strict=True):
        assert max(counts) - min(counts) <= 3, "two checkpoints and a snapshot at most among a hundred steps"
