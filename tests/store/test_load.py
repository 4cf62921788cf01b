"""What a process keeps of the runs that it has decoded, and that a lock passes over what others have locked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queuety.model import Workflow, WorkflowStatus
from queuety.store import load
from queuety.store.load import Held, Runs
from queuety.store.tx import Tx
from tests.support.hands import House, definition, single, succeeded


def held(number: int, *, characters: int = 10, status: WorkflowStatus = WorkflowStatus.RUNNING) -> Held:
    workflow = Workflow(number, "report", "", status, 0, 1, 1, 0, {}, 0)
    return Held(workflow, characters, 0, 0)


def test_what_a_process_keeps_is_bounded_in_number_and_size() -> None:
    runs = Runs(most=3, most_bytes=100)
    for number in range(5):
        runs.keep(held(number))
    assert [number for number in range(5) if runs.get(number)] == [2, 3, 4]
    runs.keep(held(2))  # used again, so it is not the oldest any more
    runs.keep(held(5))
    assert [number for number in range(6) if runs.get(number)] == [2, 4, 5]
    runs.keep(held(6, characters=95))
    assert [number for number in range(7) if runs.get(number)] == [6]
    runs.keep(held(7, characters=1000))
    assert [number for number in range(8) if runs.get(number)] == [7]  # one is always kept
    runs.keep(held(8))
    assert len(runs) == 1


def test_a_run_that_has_ended_is_forgotten() -> None:
    runs = Runs()
    runs.keep(held(1))
    runs.keep(held(1, status=WorkflowStatus.COMPLETED))
    assert len(runs) == 0
    runs.forget(1)


def test_a_lock_passes_over_what_another_has_locked(house: House) -> None:
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    free, taken = house.dispatch_many(definition(single()), [{}, {}])
    with House(house.url) as other, other.door.engine.connect() as theirs:
        with other.door.joined(theirs) as tx:
            assert list(load.lock(tx, Runs(), [taken])) == [taken]
            assert list(house.door.write(lambda tx: load.lock(tx, Runs(), [taken, free]))) == [free]
            assert sorted(house.door.read(lambda tx: load.read(tx, Runs(), [taken, free]))) == [free, taken]
            assert house.door.read(lambda tx: load.existing(tx, [taken, free, 10**9])) == {taken, free}
            hand = house.hand()
            jobs = {job.workflow_id: job for job in hand.claim()}
            made = hand.turn(succeeded(jobs[taken]), succeeded(jobs[free]))
            assert [outcome.job.workflow_id for outcome in made.carried] == [taken]
            assert [outcome.job.workflow_id for outcome in made.settled] == [free]
        theirs.rollback()
    assert hand.turn(*made.carried).carried == []
    assert {row["status"] for row in house.rows("workflows")} == {"completed"}


def test_timers_of_a_run_that_is_locked_elsewhere_stay(house: House) -> None:
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    from tests.support.hands import pause_of

    run = house.dispatch(definition(pause_of(5), single()))
    house.clock.advance(6)
    hand = house.hand()
    with House(house.url) as other, other.door.engine.connect() as theirs:
        with other.door.joined(theirs) as tx:
            load.lock(tx, Runs(), [run])
            assert hand.turn(slots=1, looks_around=True).works == []
        theirs.rollback()
    assert len(house.rows("inbox")) == 1
    assert len(hand.turn(slots=1, looks_around=True).works) == 1


def test_the_key_of_a_run_is_found_by_name_and_key(house: House) -> None:
    run = house.dispatch(definition(single()), key="k")
    house.dispatch(definition(single()))
    assert house.door.read(lambda tx: load.id_of_key(tx, "report", "k")) == run
    assert house.door.read(lambda tx: load.id_of_key(tx, "report", "K")) is None
    assert house.door.read(lambda tx: load.id_of_key(tx, "other", "k")) is None


def statements_of(house: House, unit: Callable[[Tx], object]) -> list[str]:
    said: list[str] = []
    house.door.write(unit)  # whatever is done once has been done
    house.door.on_statement = said.append
    try:
        house.door.write(unit)
    finally:
        house.door.on_statement = None
    return [text for text in said if text.startswith(("SELECT", "UPDATE", "INSERT", "DELETE"))]


def test_the_states_of_many_runs_that_another_process_advanced_cost_a_few_statements(house: House) -> None:
    """Of those whose state is a snapshot and deltas since it."""
    runs = house.dispatch_many(definition(single("a"), single("b")), [{"text": "x" * 3000}] * 130)
    hand = house.hand()
    hand.turn(*(succeeded(job, {"n": number}) for number, job in enumerate(hand.claim(200))))
    said = statements_of(house, lambda tx: load.read(tx, Runs(), runs))
    assert len(said) <= 4, said
    found = house.door.read(lambda tx: load.read(tx, Runs(), runs))
    assert sorted(found[run].workflow.state["n"] for run in runs) == list(range(130))
