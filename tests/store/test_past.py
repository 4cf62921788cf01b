"""The states that a run had: folded from whatever is nearest, the same whichever that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queuety.codec import decode
from queuety.model import State
from queuety.model.deltas import fold
from queuety.store.past import Moment, states_at
from queuety.store.tx import Tx
from tests.support.databases import Database
from tests.support.hands import House, definition
from tests.support.pasts import Change, counted, live

LARGE = {"text": "x" * 40_000}


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants: the runs here have lived without working."""
    with House(database.url) as made:
        yield made


def ask(house: House, *wanted: Moment) -> dict[Moment, State]:
    return house.door.read(lambda tx: states_at(tx, wanted))


def foretold(payload: State, seq: int) -> State:
    return fold(payload, (counted(each) for each in range(1, seq + 1)))


def count(house: House, *wanted: Moment) -> int:
    said: list[str] = []
    house.door.on_statement = said.append
    ask(house, *wanted)
    house.door.on_statement = None
    return len([text for text in said if "queuety_" in text])


@pytest.mark.parametrize("payload", [{"p": 1}, LARGE], ids=["small", "large"])
def test_every_state_of_a_long_run_is_known_from_wherever_is_nearest(house: House, payload: State) -> None:
    """A small state is a snapshot at every boundary, a large one as of the start."""
    run = house.dispatch(definition(), payload)
    live(house, run, 600)
    wanted = [0, 1, 2, 199, 200, 255, 256, 257, 299, 300, 511, 512, 513, 599, 600]
    found = ask(house, *((run, seq) for seq in wanted))
    assert {seq: found[run, seq] for seq in wanted} == {seq: foretold(payload, seq) for seq in wanted}
    assert found[run, 600] == house.state(run)


@pytest.mark.parametrize("payload", [{}, LARGE], ids=["small", "large"])
def test_a_run_of_six_hundred_steps_has_two_checkpoints(house: House, payload: State) -> None:
    run = house.dispatch(definition(), payload)
    live(house, run, 255)
    assert house.rows("checkpoints") == []
    live(house, run, 1)
    live(house, run, 344, at_once=43)
    rows = house.rows("checkpoints")
    assert [row["run_id"] for row in rows] == [run, run]
    assert [row["seq"] // 256 for row in rows] == [1, 2]
    assert [decode(row["state"]) for row in rows] == [foretold(payload, row["seq"]) for row in rows]


def test_a_checkpoint_costs_the_others_of_a_batch_nothing(house: House) -> None:
    run = house.dispatch(definition(), {})
    live(house, run, 254)
    said: list[str] = []
    house.door.on_statement = said.append
    live(house, run, 1, at_once=1)
    before = [text for text in said if "checkpoints" in text]
    live(house, run, 1, at_once=1)
    house.door.on_statement = None
    assert before == []
    assert len([text for text in said if "checkpoints" in text]) == 1


def test_few_rows_are_read_however_many_there_are(house: House) -> None:
    run = house.dispatch(definition(), LARGE)
    live(house, run, 1000)

    def rows_read(tx: Tx) -> int:
        plain = tx.cursor
        read = [0]

        class Counting:
            def fetchall(self) -> Any:
                rows = plain.fetchall()
                read[0] += len(rows)
                return rows

            def __getattr__(self, name: str) -> Any:
                return getattr(plain, name)

        tx.cursor = Counting()
        states_at(tx, [(run, 700)])
        tx.cursor = plain
        return read[0]

    assert house.door.read(rows_read) < 256 + 10


def test_many_states_cost_a_few_statements(house: House) -> None:
    runs = house.dispatch_many(definition(), [{"n": number} for number in range(40)])
    for run in runs:
        live(house, run, 3)
    wanted = [(run, seq) for run in runs for seq in (0, 3)]
    assert ask(house, *wanted).keys() == set(wanted)
    assert count(house, *wanted) == 3  # the rows, the payloads, the snapshots
    assert count(house, *((run, 2) for run in runs)) == 4  # the rows, checkpoints, payloads, deltas
    assert count(house) == 0


def test_what_is_not_there_is_left_out(house: House) -> None:
    run = house.dispatch(definition(), {"p": 1})
    live(house, run, 3)
    assert ask(house, (run, 4), (run, -1), (10**9, 0), (10**9, 5), (run, 0)) == {(run, 0): {"p": 1}}


def test_below_what_was_pruned_nothing_is_to_be_had(house: House) -> None:
    run = house.dispatch(definition(), LARGE)
    live(house, run, 300)
    (kept,) = house.rows("checkpoints")
    upto = kept["seq"]
    house.door.write(lambda tx: tx.cursor.execute(f"DELETE FROM {tx.statements.history} WHERE seq <= {upto}"))
    found = ask(house, (run, 0), (run, 1), (run, upto - 1), (run, upto), (run, upto + 1), (run, 300))
    assert found == {(run, seq): foretold(LARGE, seq) for seq in (0, upto, upto + 1, 300) if seq <= 300}


def test_rows_that_change_nothing_are_not_read(house: House) -> None:
    def nothing(_: int) -> Change:
        return {}, ()

    run = house.dispatch(definition(), {"p": 1})
    live(house, run, 5, change=nothing)
    live(house, run, 1)
    assert ask(house, (run, 3), (run, 6)) == {(run, 3): {"p": 1}, (run, 6): {"p": 1, "n": 6}}


@pytest.mark.parametrize("moves", [1, 5])
def test_a_snapshot_that_moves_on_meanwhile_is_looked_at_again(house: House, moves: int) -> None:
    """Between the statements of one reading transaction others commit, except on SQLite."""
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever reads sees the database as it was when it began")
    run = house.dispatch(definition(), {"p": 1})
    live(house, run, 4)
    left = [moves]

    def unit(tx: Tx) -> dict[Moment, State]:
        plain = tx.cursor

        class Slow:
            def execute(self, statement: str, parameters: Any = ()) -> Any:
                if "state_version, state" in statement and left[0]:
                    left[0] -= 1
                    live(house, run, 1)
                return plain.execute(statement, parameters)

            def __getattr__(self, name: str) -> Any:
                return getattr(plain, name)

        tx.cursor = Slow()
        return states_at(tx, [(run, 4)])

    assert house.door.read(unit) == {(run, 4): foretold({"p": 1}, 4)}
