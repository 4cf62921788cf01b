"""What a process keeps of the runs that it has decoded, and that a lock passes over what others have locked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from queuety.errors import StoreError
from queuety.model import AppendHistory, Entry, SaveWorkflow, Workflow, WorkflowStatus
from queuety.store import load, settle
from queuety.store.load import Held, Runs
from queuety.store.prune import prune_history
from queuety.store.purge import purge_runs
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


class Fetched:
    """A cursor that counts what it fetches: characters of text, and rows."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.characters = 0
        self.statements: list[str] = []

    def execute(self, statement: str, parameters: Any = ()) -> Any:
        self.statements.append(statement)
        return self._cursor.execute(statement, parameters)

    def fetchall(self) -> Any:
        rows = self._cursor.fetchall()
        self.characters += sum(len(value) for row in rows for value in row if isinstance(value, str))
        return rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def loaded(house: House, runs: Runs, run: int, *, locks: bool = True) -> tuple[Held, Fetched]:
    def unit(tx: Tx) -> tuple[Held, Fetched]:
        counting = Fetched(tx.cursor)
        tx.cursor = counting
        return (load.lock if locks else load.read)(tx, runs, [run])[run], counting

    return house.door.write(unit)


LARGE = {"text": "x" * 40_000}
FOUR = definition(*(single(f"s{number}") for number in range(4)))


@pytest.mark.parametrize("locks", [True, False])
def test_of_a_kept_run_that_another_has_advanced_only_what_changed_is_read(house: House, locks: bool) -> None:
    run = house.dispatch(FOUR, LARGE)
    ours, theirs = house.hand(), house.hand()
    (job,) = ours.claim()
    (work,) = ours.turn(succeeded(job, {"n": 1}), slots=1).works
    theirs.turn(succeeded(work.job, {"n": 2, "more": "y" * 100}))
    assert house.row("workflows", id=run)["state_version"] == 0
    held, fetched = loaded(house, ours.runs, run, locks=locks)
    assert held.workflow.state == {**LARGE, "n": 2, "more": "y" * 100}
    assert (held.workflow, held.delta_bytes) == ((fresh := loaded(house, Runs(), run)[0]).workflow, fresh.delta_bytes)
    assert fetched.characters < 2000
    assert len(fetched.statements) == 3
    _, whole = loaded(house, Runs(), run)
    assert whole.characters > 40_000


def test_rows_without_a_change_cost_nothing_to_load(house: House) -> None:
    """The items of a large for-each raise the version and leave the state."""
    run = house.dispatch(FOUR, LARGE)
    ours = house.hand()
    (job,) = ours.claim()
    ours.turn(succeeded(job, {"n": 1}))
    kept = ours.runs.get(run)
    assert kept is not None

    def item(tx: Tx) -> None:
        was = load.lock(tx, Runs(), [run])[run].workflow
        now = replace(was, version=was.version + 1)
        row = AppendHistory(run, now.version, Entry.NOTED, 5, 0, visit=2)
        settle.write(tx, settle.Plan.of([row, SaveWorkflow(now, was)]), load.lock(tx, Runs(), [run]))

    house.door.write(item)
    held, fetched = loaded(house, ours.runs, run)
    assert held.workflow.version == kept.workflow.version + 1
    assert held.workflow.state is kept.workflow.state
    assert not [text for text in fetched.statements if house.door.tables.history.name in text]
    assert fetched.characters < 2000


def test_without_deltas_since_the_snapshot_the_history_is_not_read(house: House) -> None:
    run = house.dispatch(FOUR, LARGE)

    def item(tx: Tx) -> None:
        held = load.lock(tx, Runs(), [run])
        now = replace(held[run].workflow, version=1)
        row = AppendHistory(run, 1, Entry.NOTED, 5, 0, visit=1)
        settle.write(tx, settle.Plan.of([row, SaveWorkflow(now, held[run].workflow)]), held)

    house.door.write(item)
    held, fetched = loaded(house, Runs(), run)
    assert (held.workflow.version, held.state_version, held.workflow.state) == (1, 0, LARGE)
    assert len(fetched.statements) == 1


def test_a_snapshot_that_another_has_written_since_is_read(house: House) -> None:
    run = house.dispatch(FOUR, LARGE)
    ours, theirs = house.hand(), house.hand()
    (job,) = ours.claim()
    (work,) = ours.turn(succeeded(job, {"n": 1}), slots=1).works
    theirs.turn(succeeded(work.job, {"text": "z" * 50_000}))
    assert house.row("workflows", id=run)["state_version"] == 2
    held, _ = loaded(house, ours.runs, run)
    assert held.workflow.state == {"text": "z" * 50_000, "n": 1}
    assert (held.state_version, held.delta_bytes) == (2, 0)


def test_a_run_that_moves_on_between_its_version_and_its_row_is_read_as_it_is_then(house: House) -> None:
    """Only where nothing is locked; a snapshot newer than what was kept is not folded over."""
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    run = house.dispatch(FOUR, LARGE)
    ours, theirs = house.hand(), house.hand()
    (job,) = ours.claim()
    (work,) = ours.turn(succeeded(job, {"n": 1}), slots=1).works
    (work,) = theirs.turn(succeeded(work.job, {"n": 2}), slots=1).works

    class Slow(Fetched):
        def execute(self, statement: str, parameters: Any = ()) -> Any:
            if "NULL" in statement and self.statements and not self.statements[-1].startswith("late"):
                self.statements.append("late")
                theirs.turn(succeeded(work.job, {"text": "z" * 50_000}))
            return super().execute(statement, parameters)

    def unit(tx: Tx) -> tuple[Held, list[str]]:
        slow = Slow(tx.cursor)
        tx.cursor = slow
        return load.read(tx, ours.runs, [run])[run], slow.statements

    held, said = house.door.read(unit)
    assert "late" in said
    assert held.workflow.version == 3
    assert held.workflow.state == {"text": "z" * 50_000, "n": 2}


@pytest.mark.parametrize("is_purged", [False, True], ids=["pruned", "purged"])
def test_a_run_whose_history_goes_between_its_row_and_its_deltas_is_not_read_by_halves(
    house: House, is_purged: bool
) -> None:
    """A wait merged the state of a run without the last steps, for good. Only where nothing is locked."""
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    run = house.dispatch(FOUR, LARGE)
    hand = house.hand()
    hand.work(lambda job: succeeded(job, {f"k{job.step_index}": 1}))
    whole = house.state(run)
    assert house.row("workflows")["delta_bytes"] > 0
    house.clock.advance(1)
    us = house.clock.us
    gone: list[object] = []

    def go(tx: Tx) -> object:
        if is_purged:
            return purge_runs(tx, before_us=us, statuses=[WorkflowStatus.COMPLETED], after=None, limit=1)
        return prune_history(tx, before_us=us, after_id=None, limit=1, may_prune=lambda _: True)

    class Late(Fetched):
        def execute(self, statement: str, parameters: Any = ()) -> Any:
            if house.door.tables.history.name in statement and not gone:
                gone.append(house.door.write(go))
            return super().execute(statement, parameters)

    def unit(tx: Tx) -> dict[int, Held]:
        tx.cursor = Late(tx.cursor)
        return load.read(tx, Runs(), [run])

    found = house.door.read(unit)
    assert gone
    assert {key: held.workflow.state for key, held in found.items()} == ({} if is_purged else {run: whole})


def test_a_run_that_lacks_rows_is_not_read_as_if_it_had_them(house: House) -> None:
    run = house.dispatch(FOUR, LARGE)
    hand = house.hand()
    (job,) = hand.claim()
    hand.turn(succeeded(job, {"n": 1}))
    house.door.write(lambda tx: tx.cursor.execute(f"DELETE FROM {tx.statements.history}"))
    with pytest.raises(StoreError, match=f"workflow {run} cannot be read: rows of its history are missing"):
        house.state(run)
    strange: dict[int, str] = {}
    assert house.door.read(lambda tx: load.read(tx, Runs(), [run], strange=strange)) == {}
    assert strange == {run: "rows of its history are missing"}
    house.clear()


def test_what_a_run_remembers_comes_back(house: House) -> None:
    run = house.dispatch(FOUR)

    def unit(tx: Tx) -> None:
        held = load.lock(tx, Runs(), [run])
        now = replace(held[run].workflow, version=1, loops={"2": 7}, is_watched=True)
        row = AppendHistory(run, 1, Entry.NOTED, 5, 0, visit=1)
        settle.write(tx, settle.Plan.of([row, SaveWorkflow(now, held[run].workflow)]), held)

    house.door.write(unit)
    held, _ = loaded(house, Runs(), run)
    assert (held.workflow.loops, held.workflow.is_watched) == ({"2": 7}, True)
    hand = house.hand()
    (job,) = hand.claim()
    hand.turn(succeeded(job))
    row = house.row("workflows", id=run)
    assert (row["loops"], row["watched"]) == ('{"2":7}', 1)
