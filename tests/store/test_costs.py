"""What a transaction costs, counted in statements and in rows read, never in time: growth shows at once.

Counted is what speaks to Queuety's tables; beginning, committing, notifying and drawing ids are left out, which each
database does in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from queuety.commands.signals import send_signal
from queuety.model import Branch, Definition, HandlerRef, Job, StepSpec
from queuety.store import door as doors
from queuety.store.hooks import WatchedCursor
from tests.support.hands import Hand, House, definition, single, succeeded

STEP = 7
"""Of a step settled and the next one claimed: versions locked, job deleted, row of history added, run written, paused
queues read, ready jobs read, next job added."""


LOOK = 5
"""Of looking around in vain: delayed jobs, the inbox, paused queues, ready jobs, when the next thing is due."""

LETTER = 13
"""Of a turn that looks around and takes a child's letter: `LOOK`; the run locked, its letter read and taken out,
how the child stands and its state read; row of history added, run written, next job added."""

SIGNAL = 5
"""Of a signal that lets a run go on: run locked and read, earlier signals read; row of history added, run written, next
job added; it is never kept."""


@dataclass
class Cost:
    """What was said to the tables, and how many rows came back."""

    statements: list[str] = field(default_factory=list)
    rows: int = 0

    @property
    def count(self) -> int:
        return len(self.statements)


Costs = Callable[[], Any]
"""Made by the fixture: a block in which a `Cost` is counted."""


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that were read, one for each reading, while somebody looks at the statements."""
    found: list[int] = []

    class Counting(WatchedCursor):
        def fetchall(self) -> Any:
            rows = self._cursor.fetchall()
            found.append(len(rows))
            return rows

    monkeypatch.setattr(doors, "WatchedCursor", Counting)
    return found


@pytest.fixture
def costs(house: House, read: list[int]) -> Costs:
    """Counts what is said to the database inside the block."""

    @contextmanager
    def counting() -> Iterator[Cost]:
        cost = Cost()
        prefix, ids = house.door.tables.prefix, house.door.tables.ids.name

        def note(statement: str) -> None:
            if prefix in statement and ids not in statement and "pg_notify" not in statement:
                cost.statements.append(statement)

        read.clear()
        house.door.on_statement = note
        try:
            yield cost
        finally:
            house.door.on_statement = None
        cost.rows = sum(read)

    return counting


def each(**more: Any) -> StepSpec:
    settings = {"items_key": "items", "result_key": "out", "mode": "all"} | more
    return StepSpec("for_each", "each", HandlerRef("tests:item"), settings=settings)


def waiting() -> StepSpec:
    return StepSpec("wait_for_signal", "wait", settings={"names": ["go"], "mode": "all"})


def starting(child: Definition) -> StepSpec:
    settings = {"items_key": "items", "result_key": "ids", "payload_key": "item", "inherit_state": False}
    return StepSpec("start_workflows", "start", child=child, settings=settings)


def claimed(hand: Hand, count: int) -> list[Job]:
    jobs = hand.claim(count)
    assert len(jobs) == count
    return jobs


def settling(house: House, costs: Costs, what: Definition, payload: dict[str, Any], *, runs: int = 1) -> Cost:
    """The turn that settles the first job of so many runs, and claims as many again."""
    house.clear()
    hand = house.hand()
    house.dispatch_many(what, [payload] * runs)
    jobs = claimed(hand, runs)
    cost: Cost
    with costs() as cost:
        hand.turn(*map(succeeded, jobs), slots=runs)
    return cost


@pytest.mark.parametrize("runs", [1, 100])
def test_a_step_costs_seven_statements_and_so_do_a_hundred_at_once(house: House, costs: Costs, runs: int) -> None:
    cost = settling(house, costs, definition(single("a"), single("b")), {"n": 1}, runs=runs)
    assert (cost.count, cost.rows) == (STEP, runs), cost.statements


def test_a_branch_costs_what_a_step_costs(house: House, costs: Costs) -> None:
    branches = tuple(Branch(HandlerRef("tests:branch")) for _ in range(20))
    cost = settling(house, costs, definition(StepSpec("parallel", "p", branches=branches), single()), {})
    assert (cost.count, cost.rows) == (STEP, 2), cost.statements  # its run, and the next branch


@pytest.mark.parametrize("total", [200, 2_000])
@pytest.mark.parametrize("batch", [1, 100])
def test_items_cost_what_a_step_costs_however_many_there_are(
    house: House, costs: Costs, total: int, batch: int
) -> None:
    """One at a time or a hundred: the rows read are the run's version and the next jobs, never other items."""
    hand = house.hand()
    house.dispatch(definition(each(), single()), {"items": list(range(total))})
    jobs = claimed(hand, 50)
    jobs = [work.job for work in hand.turn(*map(succeeded, jobs), slots=batch).works]
    with costs() as cost:
        hand.turn(*map(succeeded, jobs), slots=batch)
    assert (cost.count, cost.rows) == (STEP, 1 + min(batch, total - 50 - batch)), cost.statements


@pytest.mark.parametrize("total", [20, 500])
def test_the_end_of_a_for_each_reads_each_item_once_in_one_statement(house: House, costs: Costs, total: int) -> None:
    hand = house.hand()
    house.dispatch(definition(each(), single()), {"items": list(range(total))})
    hand.turn(*map(succeeded, claimed(hand, total - 1)))
    last = claimed(hand, 1)
    with costs() as cost:
        hand.turn(*map(succeeded, last), slots=1)
    assert cost.rows == 1 + total - 1
    assert cost.count <= STEP + 2, cost.statements  # PostgreSQL adds a large row by itself
    assert sum(said.startswith("SELECT run_id") for said in cost.statements) == 1


def test_another_process_settles_an_item_without_reading_the_items_again(house: House, costs: Costs) -> None:
    """What a second worker has moved on is read without its state: the list is known by then."""
    one, other = house.hand(), house.hand()
    house.dispatch(definition(each(), single()), {"items": list(range(300))})
    first, second = claimed(one, 5), claimed(other, 5)
    one.turn(*map(succeeded, first))
    with costs() as cost:
        other.turn(*map(succeeded, second), slots=5)
    assert (cost.count, cost.rows) == (STEP + 1, 2 + 5), cost.statements
    again = [said for said in cost.statements if " state," in said and said.startswith("SELECT")]
    assert again == [], "the state is not among the columns"


@pytest.mark.parametrize(("runs", "asking"), [(1, 1), (50, 1), (100, 2)])
def test_entering_a_wait_for_a_signal_asks_once_for_fifty_runs(
    house: House, costs: Costs, runs: int, asking: int
) -> None:
    cost = settling(house, costs, definition(single("a"), waiting(), single("b")), {}, runs=runs)
    # no job is added: the wait has none
    assert (cost.count, cost.rows) == (STEP - 1 + asking, runs), cost.statements


@pytest.mark.parametrize("kept", [0, 300])
def test_a_signal_costs_the_same_however_many_were_sent_before(house: House, costs: Costs, kept: int) -> None:
    """It is looked up, kept or used, and what it lets go on is added, all in one transaction."""
    run_id = house.dispatch(definition(waiting(), single("b")))
    for number in range(kept):
        send_signal(house.door, house.definitions, run_id, "other", {"n": number})
    with costs() as cost:
        send_signal(house.door, house.definitions, run_id, "go", {})
    assert (cost.count, cost.rows) == (SIGNAL, 1), cost.statements


def test_a_child_costs_two_transactions_beside_its_own_steps(house: House, costs: Costs) -> None:
    child = definition(single("c"), name="child")
    hand = house.hand()
    house.dispatch(definition(single("a"), StepSpec("run_workflow", "run", child=child), single("b")))
    jobs = claimed(hand, 1)
    with costs() as begins:
        (work,) = hand.turn(*map(succeeded, jobs), slots=1).works
    assert (begins.count, begins.rows) == (STEP + 2, 2), begins.statements  # its row, and that read for its first job
    with costs() as ends:
        hand.turn(succeeded(work.job), slots=1)
    assert (ends.count, ends.rows) == (STEP, 1), ends.statements  # no next job; a letter instead
    with costs() as goes_on:
        (work,) = hand.turn(slots=1, looks_around=True).works
    assert work.step_name == "b"
    assert (goes_on.count, goes_on.rows) == (LETTER, 5), goes_on.statements


@pytest.mark.parametrize("children", [10, 100])
def test_starting_children_costs_the_same_however_many_there_are(house: House, costs: Costs, children: int) -> None:
    child = definition(single("c"), name="child")
    what = definition(single("a"), starting(child), single("b"))
    cost = settling(house, costs, what, {"items": list(range(children))})
    assert (cost.count, cost.rows) == (STEP + 3, 2), cost.statements  # ids, their rows, and their group


@pytest.mark.parametrize("parked", [0, 1_000])
def test_looking_around_costs_the_same_whatever_is_parked(house: House, costs: Costs, parked: int) -> None:
    if parked:
        house.dispatch_many(definition(waiting(), single("b")), [{}] * parked)
    hand = house.hand()
    with costs() as cost:
        hand.turn(slots=10, looks_around=True)
    assert (cost.count, cost.rows) == (LOOK, 0), cost.statements
