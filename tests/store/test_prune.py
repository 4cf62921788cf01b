"""Histories that were made shorter: what is open goes on as before, and what cannot be known is not guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from queuety.inspect.workflows import workflow_status
from queuety.model import Entry, HandlerRef, Migrate, State, WorkflowStatus
from queuety.model.deltas import fold
from queuety.model.needs import NeedPast, NeedUsedSignals
from queuety.store import load, prune
from queuety.store.door import Tx
from queuety.store.facts import read_facts
from queuety.store.load import Runs
from queuety.store.past import states_at
from queuety.store.prune import Pruned, prune_history
from tests.support.databases import Database
from tests.support.hands import House, definition, single, succeeded
from tests.support.pasts import counted, end, live, tell

LARGE = {"text": "x" * 20_000}


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants: the runs here have lived without working."""
    with House(database.url) as made:
        yield made


def pruned(
    house: House,
    *,
    before_us: int | None = None,
    after_id: int | None = None,
    limit: int = 100,
    may_prune: Callable[[str], bool] = lambda _: True,
) -> Pruned:
    """One call."""
    before = house.clock.us if before_us is None else before_us
    return house.door.write(
        lambda tx: prune_history(tx, before_us=before, after_id=after_id, limit=limit, may_prune=may_prune)
    )


def passed(house: House, **more: Any) -> int:
    """One pass; how many rows are gone."""
    rows, after_id = 0, None
    while True:
        found = pruned(house, after_id=after_id, **more)
        rows, after_id = rows + found.rows, found.after_id
        if after_id is None:
            return rows


def seqs(house: House, run: int) -> tuple[int, int] | None:
    """The first and the last row of what is left, which has no holes."""
    found = [row["seq"] for row in house.rows("history", run_id=run)]
    assert found == list(range(found[0], found[-1] + 1)) if found else True
    return (found[0], found[-1]) if found else None


def states(house: House, run: int, *wanted: int) -> dict[int, State]:
    found = house.door.read(lambda tx: states_at(tx, [(run, seq) for seq in wanted]))
    return {seq: state for (_, seq), state in found.items()}


def known(house: House, run: int, upto: int) -> dict[int, State]:
    """All its states that can still be known."""
    return states(house, run, *range(upto + 1))


def foretold(payload: State, upto: int) -> dict[int, State]:
    return {seq: fold(payload, (counted(each) for each in range(1, seq + 1))) for seq in range(upto + 1)}


def without_timers(house: House) -> dict[str, Any]:
    return {name: house.rows(name) for name in ("workflows", "history", "checkpoints")}


def test_of_an_open_run_what_was_before_its_present_visit_goes(house: House) -> None:
    run = house.dispatch(definition(), {"p": 1})
    live(house, run, 20)
    live(house, run, 3, visits=False)
    before = house.row("workflows")
    house.clock.advance(1)
    assert pruned(house) == Pruned(20, None)
    assert seqs(house, run) == (21, 23)
    assert [(row["run_id"], row["seq"]) for row in house.rows("checkpoints")] == [(run, 20)]
    assert house.row("workflows") == before
    expected = foretold({"p": 1}, 23)
    assert known(house, run, 23) == {seq: expected[seq] for seq in (0, 20, 21, 22, 23)}
    assert pruned(house) == Pruned(0, None)
    live(house, run, 30)
    house.clock.advance(1)
    assert passed(house) == 33
    expected = foretold({"p": 1}, 53)
    assert known(house, run, 53) == {0: expected[0], 53: expected[53]}


def test_of_an_open_run_rows_go_that_have_changed_nothing(house: House) -> None:
    """Its snapshot is as of the start, and is right for every row since."""
    run = house.dispatch(definition(), {"p": 1})
    live(house, run, 9, change=lambda _: ({}, ()))
    kept = Runs()
    with_it = house.door.read(lambda tx: load.read(tx, kept, [run]))[run]
    kept.keep(with_it)
    house.clock.advance(1)
    assert passed(house) == 9
    row = house.row("workflows")
    assert (row["state_version"], row["version"], row["delta_bytes"]) == (9, 9, 0)
    live(house, run, 2)
    assert house.door.read(lambda tx: load.read(tx, kept, [run]))[run].workflow.state["n"] == 11
    assert known(house, run, 11).keys() == {0, 9, 10, 11}


def test_rows_that_are_not_old_enough_stay(house: House) -> None:
    run = house.dispatch(definition())
    live(house, run, 5)
    house.clock.advance(10)
    live(house, run, 5)
    house.clock.advance(10)
    assert passed(house, before_us=house.clock.us - 30_000_000) == 0
    assert passed(house, before_us=house.clock.us - 15_000_000) == 5
    assert seqs(house, run) == (6, 10)
    assert passed(house) == 5
    assert house.state(run) == foretold({}, 10)[10]


def test_a_run_that_goes_on_in_another_process_is_not_disturbed(house: House) -> None:
    """What a process keeps of it stays right: the snapshot is not touched, nor are the rows since."""
    run = house.dispatch(definition(*(single(f"s{number}") for number in range(12))), LARGE)
    hand = house.hand()
    (job,) = hand.claim()
    for number in range(5):
        (work,) = hand.turn(succeeded(job, {f"k{number}": number}), slots=1).works
        job = work.job
    live(house, run, 400)  # the snapshot is as of the last checkpoint, for that deltas are small
    house.clock.advance(1)
    row = house.row("workflows")
    assert row["state_version"] == 305
    assert passed(house) == row["state_version"]
    other = house.door.read(lambda tx: load.read(tx, Runs(), [run]))[run]
    assert other.workflow.state == {**LARGE, **{f"k{number}": number for number in range(5)}, "n": 405, "odd": 405}


def test_a_large_state_is_not_written_for_a_few_rows(house: House) -> None:
    run = house.dispatch(definition(), LARGE)
    live(house, run, 1, change=lambda _: ({"text": "y" * 20_001}, ()))  # a new snapshot
    live(house, run, 5, change=lambda _: ({"text": "z" * 20_001}, ()))
    house.clock.advance(1)
    assert house.row("workflows")["state_version"] > 1
    assert passed(house) == 0
    assert house.rows("checkpoints") == []
    end(house, [run])
    house.clock.advance(1)
    assert passed(house) == 6
    assert house.rows("checkpoints") == []
    assert house.state(run) == {"text": "z" * 20_001}


@pytest.mark.parametrize("payload", [{"p": 1}, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("status", [WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED])
def test_of_a_run_that_is_over_everything_goes_but_its_last_state(
    house: House, status: WorkflowStatus, payload: State
) -> None:
    run = house.dispatch(definition(), payload)
    live(house, run, 270)
    end(house, [run], status)
    house.clock.advance(1)
    assert passed(house) == 270
    assert (seqs(house, run), house.rows("checkpoints")) == (None, [])
    expected = foretold(payload, 270)
    assert house.state(run) == expected[270]
    assert known(house, run, 270) == {0: expected[0], 270: expected[270]}
    row = house.row("workflows")
    assert (row["state_version"], row["delta_bytes"], row["state_bytes"]) == (270, 0, len(row["state"]))


def test_a_long_history_goes_in_parts(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "MOST_ROWS", 100)
    monkeypatch.setattr(prune, "FEWEST_ROWS", 100)
    monkeypatch.setattr(prune, "FEW_ROWS", 30)
    runs = house.dispatch_many(definition(), [{}, LARGE, {}, {}])
    for run, rows in zip(runs, (20, 330, 50, 50), strict=True):
        live(house, run, rows)
    end(house, runs[:2])
    house.clock.advance(1)
    expected = foretold(LARGE, 330)
    seen: list[Pruned] = []
    after_id: int | None = None
    while not seen or after_id is not None:
        seen.append(pruned(house, after_id=after_id, limit=3))
        after_id = seen[-1].after_id
        assert house.state(runs[1])["n"] == 330
        assert states(house, runs[1], 99, 100, 250, 299, 300, 330).items() <= expected.items()
    assert [found.rows for found in seen] == [100, 100, 100, 100, 50]
    assert [seqs(house, run) for run in runs] == [None, None, None, None]
    assert [row["run_id"] for row in house.rows("checkpoints")] == runs[2:]


def test_runs_that_can_be_undone_or_are_being_keep_their_rows(house: House) -> None:
    plain, undoable = definition(name="plain"), definition(name="undoable")
    table = house.door.tables.workflows
    runs = [house.dispatch(each) for each in (plain, undoable, undoable, undoable, undoable, undoable)]
    for run in runs:
        live(house, run, 2)
    end(house, runs[2:3])
    end(house, runs[3:], WorkflowStatus.CANCELLED)
    for run, change in ((runs[4], {"cleanup": "pending"}), (runs[5], {"runtime": '{"child":7,"awaits":true}'})):
        house.door.write(
            lambda tx, r=run, c=change: tx.connection.execute(update(table).where(table.c.id == r).values(c))
        )
    house.clock.advance(1)
    asked: list[str] = []

    def may_prune(definition_hash: str) -> bool:
        asked.append(definition_hash)
        return definition_hash == plain.hash

    assert passed(house, may_prune=may_prune) == 4
    assert [seqs(house, run) is None for run in runs] == [True, False, False, True, False, False]
    assert asked == [plain.hash, undoable.hash, undoable.hash]


def test_a_run_that_was_moved_from_what_could_undo_its_steps_keeps_its_rows(house: House) -> None:
    """Its present definition undoes nothing; what an earlier one did, that one still undoes."""
    first, second = definition(replace(single(), compensation=HandlerRef("tests:undo"))), definition()
    house.definitions.ensure(house.door, second)
    run = house.dispatch(first)
    live(house, run, 2)
    house.steer(run, Migrate(second, {}))
    live(house, run, 2)
    house.clock.advance(1)
    assert house.row("workflows")["definition_hash"] == second.hash
    assert passed(house, may_prune=lambda one: one == second.hash) == 0
    assert seqs(house, run) == (1, 5)


def test_who_looks_at_a_run_while_it_is_pruned_sees_its_whole_state(house: House) -> None:
    run = house.dispatch(definition(), LARGE)
    live(house, run, 3)
    end(house, [run])
    house.clock.advance(1)
    state = house.state(run)
    gone: list[Pruned] = []

    def late(statement: str) -> None:
        if "changed" in statement and not gone:
            gone.append(Pruned(0, None))
            with House(house.url, clock=house.clock) as other:
                gone[0] = pruned(other)

    house.door.on_statement = late
    with house.door.reading() as connection:
        found = workflow_status(connection, house.door.tables, run)
    house.door.on_statement = None
    assert gone == [Pruned(3, None)]
    assert found is not None
    assert found.state == state


def test_of_a_failed_run_what_a_retry_needs_stays(house: House) -> None:
    run = house.dispatch(definition())
    live(house, run, 4)
    live(house, run, 6, visits=False, entry=Entry.ITEM)
    end(house, [run], WorkflowStatus.FAILED)
    house.clock.advance(1)
    assert passed(house) == 4
    assert seqs(house, run) == (5, 10)


def test_a_signal_that_a_row_which_stays_has_used_stays_too(house: House) -> None:
    run = house.dispatch(definition())

    def signalled(name: str) -> dict[str, Any]:
        return {"entry": Entry.SIGNALLED, "control": {"_signal": {"name": name, "payload": {}}}}

    def used(*numbers: int) -> dict[str, Any]:
        return {"entry": Entry.RESUMED, "control": {"_used": list(numbers)}, "changed": {"u": numbers[0]}}

    tell(house, run, signalled("a"), used(1), signalled("b"), signalled("c"), used(3), signalled("d"), visit=2)
    house.clock.advance(10)
    tell(house, run, used(4), visit=3)
    tell(house, run, used(6), visit=4)
    house.clock.advance(10)
    # 4 was used by 7, which stays, so 5 must stay too, and so must 3, which 5 has used
    assert passed(house, before_us=house.clock.us - 15_000_000) == 2
    assert seqs(house, run) == (3, 8)
    need = NeedUsedSignals(6)
    found = house.door.read(lambda tx: read_facts(tx, {run: [need]}))[run][need]
    assert [signal.seq for signal in found] == [4, 6]
    assert passed(house) == 6


def test_the_present_visit_can_be_forked_and_the_pruned_ones_cannot(house: House) -> None:
    run = house.dispatch(definition(single("a"), single("b")))
    live(house, run, 3)
    tell(house, run, current_step=1)
    live(house, run, 2, visits=False)
    house.clock.advance(1)
    assert passed(house) == 3

    def past(step: int, *, is_entry: bool) -> int | None:
        need = NeedPast(step, is_entry=is_entry)
        found = house.door.read(lambda tx: read_facts(tx, {run: [need]}))[run][need]
        return None if found is None else found.seq

    assert (past(0, is_entry=False), past(0, is_entry=True)) == (None, None)
    assert (past(1, is_entry=False), past(1, is_entry=True)) == (5, 3)


def test_who_has_nothing_old_costs_one_read(house: House) -> None:
    runs = house.dispatch_many(definition(), [{}] * 60)
    for run in runs[:3]:
        live(house, run, 2)
    said: list[str] = []
    house.door.on_statement = said.append
    assert pruned(house, before_us=house.clock.us) == Pruned(0, None)
    house.door.on_statement = None
    assert len([text for text in said if "queuety_" in text]) == 1


def test_a_run_that_is_locked_is_left_to_the_next_pass(house: House) -> None:
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    one, two = house.dispatch_many(definition(), [{}, {}])
    for run in (one, two):
        live(house, run, 2)
    house.clock.advance(1)
    with House(house.url) as other, other.door.engine.connect() as theirs:
        with other.door.joined(theirs) as tx:
            load.lock(tx, Runs(), [one])
            assert pruned(house) == Pruned(2, None)
        theirs.rollback()
    assert (seqs(house, one), seqs(house, two)) == ((1, 2), None)
    assert pruned(house) == Pruned(2, None)


@pytest.mark.parametrize("is_over", [False, True])
def test_what_breaks_off_anywhere_has_done_nothing(house: House, is_over: bool) -> None:
    run = house.dispatch(definition(), {"text": "x" * 2_000})
    live(house, run, 270)
    if is_over:
        end(house, [run])
    house.clock.advance(1)
    before = without_timers(house)

    class Broken(Exception):
        pass

    number = 0
    while True:
        left = [number]

        def hook(statement: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1 and statement != "COMMITTED":
                raise Broken(statement)

        house.door.on_statement = hook
        try:
            pruned(house)
        except Broken:
            house.door.on_statement = None
            assert without_timers(house) == before, number
            number += 1
            continue
        finally:
            house.door.on_statement = None
        break
    assert number > 8
    assert without_timers(house) != before
    assert house.state(run)["n"] == 270


def test_the_rows_of_signals_that_nobody_has_used_may_go(house: House) -> None:
    """Their payload stands where they wait."""
    run = house.dispatch(definition())

    def unit(tx: Tx) -> None:
        from queuety.model import KeepSignal
        from queuety.store import settle

        settle.write(tx, settle.Plan.of([KeepSignal(run, 1, "go", {"a": 1}, 5)]), {})

    tell(house, run, {"entry": Entry.SIGNALLED, "control": {"_signal": {"name": "go", "payload": {"a": 1}}}}, visit=2)
    house.door.write(unit)
    house.clock.advance(1)
    assert passed(house) == 1
    assert [(row["seq"], row["payload"]) for row in house.rows("signals")] == [(1, '{"a":1}')]
