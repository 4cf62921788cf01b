"""Signals and groups: kept beside a run, read by name and in order of arrival, gone once used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuety.model import Effect, KeepGroup, KeepSignal, UseSignals
from queuety.model.needs import NeedGroup, NeedSignals, Signal
from queuety.store import settle
from queuety.store.facts import read_facts
from queuety.store.settle import Plan
from tests.support.databases import Database
from tests.support.hands import House


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants: what is written here belongs to no course of a run."""
    with House(database.url) as made:
        yield made


def put(house: House, *effects: Effect) -> None:
    house.door.write(lambda tx: settle.write(tx, Plan.of(effects), {}))


def kept(house: House) -> list[tuple[int, int, str, str, int]]:
    return [
        (row["workflow_id"], row["seq"], row["name"], row["payload"], row["at_us"]) for row in house.rows("signals")
    ]


def test_a_signal_is_kept_as_it_was_sent_until_it_is_used(house: House) -> None:
    put(
        house,
        KeepSignal(1, 4, "approve", {"by": "Zoë", "_x": [1, None]}, 50),
        KeepSignal(1, 5, "approve", {}, 51),
        KeepSignal(2, 4, "Approve", {"n": 2}, 52),
    )
    assert kept(house) == [
        (1, 4, "approve", '{"by":"Zoë","_x":[1,null]}', 50),
        (1, 5, "approve", "{}", 51),
        (2, 4, "Approve", '{"n":2}', 52),
    ]
    put(house, UseSignals(1, (4,)), UseSignals(2, (5, 6)), UseSignals(3, ()))
    assert [row[:2] for row in kept(house)] == [(1, 5), (2, 4)]


def test_what_many_runs_use_goes_by_run_and_number(house: House) -> None:
    put(house, *(KeepSignal(run, seq, "s", {}, 1) for run in range(1, 31) for seq in range(1, 6)))
    put(house, *(UseSignals(run, (run % 5 + 1, 1)) for run in range(1, 31)))
    left = {(run, seq) for run in range(1, 31) for seq in range(1, 6)} - {
        (run, seq) for run in range(1, 31) for seq in (run % 5 + 1, 1)
    }
    assert {row[:2] for row in kept(house)} == left


def test_a_signal_that_is_used_in_the_transaction_in_which_it_comes_is_never_kept(house: House) -> None:
    put(house, KeepSignal(1, 4, "a", {}, 50))
    put(house, KeepSignal(1, 6, "b", {}, 51), KeepSignal(1, 7, "b", {}, 52), UseSignals(1, (4, 6)))
    assert [row[:3] for row in kept(house)] == [(1, 7, "b")]


def test_signals_are_read_by_name_in_order_of_arrival_a_page_at_a_time(house: House) -> None:
    put(
        house,
        *(KeepSignal(1, seq, "go" if seq % 2 else "Go", {"n": seq}, seq) for seq in range(1, 12)),
        KeepSignal(2, 1, "go", {"n": 1}, 1),
    )
    first, later, other, none = (
        NeedSignals("go", 0, 3),
        NeedSignals("go", 5, 50),
        NeedSignals("Go", 0, 1),
        NeedSignals("gone", 0, 50),
    )
    found = house.door.read(lambda tx: read_facts(tx, {1: [first, later, other, none], 2: [first], 3: [first]}))
    assert [signal.seq for signal in found[1][first]] == [1, 3, 5]
    assert [signal.seq for signal in found[1][later]] == [7, 9, 11]
    assert found[1][other] == (Signal(2, "Go", {"n": 2}),)
    assert found[1][none] == found[3][first] == ()
    assert found[2][first] == (Signal(1, "go", {"n": 1}),)


def test_the_signals_of_many_runs_cost_a_few_statements(house: House) -> None:
    put(house, *(KeepSignal(run, 1, "go", {"n": run}, 1) for run in range(1, 121)))
    need = NeedSignals("go", 0, 1)
    said: list[str] = []
    house.door.on_statement = said.append
    found = house.door.read(lambda tx: read_facts(tx, {run: [need] for run in range(1, 121)}))
    house.door.on_statement = None
    assert len([text for text in said if "queuety_signals" in text]) == 3
    assert {run: found[run][need][0].payload for run in found} == {run: {"n": run} for run in range(1, 121)}


def test_a_group_is_replaced_by_a_later_one_of_its_name(house: House) -> None:
    put(house, KeepGroup(1, "a", (3, 1, 2)), KeepGroup(1, "A", ()), KeepGroup(2, "a", (9,)))
    put(house, KeepGroup(1, "a", (4,)), KeepGroup(1, "a", (5, 6)))
    lower, upper, none = NeedGroup("a"), NeedGroup("A"), NeedGroup("b")
    found = house.door.read(lambda tx: read_facts(tx, {1: [lower, upper, none], 2: [lower, upper]}))
    assert found == {1: {lower: (5, 6), upper: (), none: None}, 2: {lower: (9,), upper: None}}


def test_a_group_of_fifty_thousand_runs_comes_back_as_it_was(house: House) -> None:
    ids = tuple(range(10**9, 10**9 + 50_000))
    put(house, KeepGroup(1, "all", ids))
    found = house.door.read(lambda tx: read_facts(tx, {1: [NeedGroup("all")]}))
    assert found[1][NeedGroup("all")] == ids
