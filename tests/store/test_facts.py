"""What steps ask for before they decide, answered for several runs at once from what was committed last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import update

from queuety.errors import StoreError
from queuety.model import AppendHistory, Cancel, CleanupStatus, Entry, ErrorInfo, Job, Priority, Role, WorkflowStatus
from queuety.model.needs import (
    NeedGroup,
    NeedIds,
    NeedParts,
    NeedSignals,
    NeedStanding,
    NeedStates,
    PartRow,
    Standing,
)
from queuety.store import settle
from queuety.store.facts import read_facts
from queuety.store.settle import Plan
from tests.conftest import PROOF
from tests.support.databases import Database
from tests.support.hands import House, definition, failed, single, succeeded


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants: some of what is written here belongs to no course of a run."""
    with House(database.url) as made:
        yield made


def read(house: House, asked: Any, **more: Any) -> Any:
    return house.door.read(lambda tx: read_facts(tx, asked, **more))


def count(house: House, asked: Any) -> int:
    """How many statements on our tables the answer takes."""
    said: list[str] = []
    house.door.on_statement = said.append
    read(house, asked)
    house.door.on_statement = None
    return len([text for text in said if "queuety_" in text])


def test_new_ids_ascend_and_belong_to_nobody_else(house: House) -> None:
    asked = {1: [NeedIds(1, 3), NeedIds(2, 1)], 2: [NeedIds(1, 2), NeedIds(2, 0)]}
    found = house.door.write(lambda tx: read_facts(tx, asked))
    assert [len(found[run][need]) for run, needs in asked.items() for need in needs] == [3, 1, 2, 0]
    drawn = [number for run, needs in asked.items() for need in needs for number in found[run][need]]
    assert drawn == sorted(set(drawn))
    assert house.door.write(lambda tx: tx.reserve(1))[0] > drawn[-1]


def test_how_other_runs_stand_and_those_that_are_not_there(house: House) -> None:
    going, done, lost, cancelled = house.dispatch_many(definition(), [{}] * 4)
    hand = house.hand()
    jobs = {job.workflow_id: job for job in hand.claim()}
    hand.turn(succeeded(jobs[done]), failed(jobs[lost], "no ink", is_final=True))
    house.steer(cancelled, Cancel())
    all_, some = NeedStanding((going, done, lost, cancelled, 10**9)), NeedStanding((done, 10**9 + 1))
    found = read(house, {1: [all_], 2: [some, NeedStanding(())]})
    none = CleanupStatus.NONE
    assert found[1][all_] == {
        going: Standing(WorkflowStatus.RUNNING, none),
        done: Standing(WorkflowStatus.COMPLETED, none),
        lost: Standing(WorkflowStatus.FAILED, none, "no ink"),
        cancelled: Standing(WorkflowStatus.CANCELLED, none),
    }
    assert found[2] == {some: {done: Standing(WorkflowStatus.COMPLETED, none)}, NeedStanding(()): {}}
    assert count(house, {1: [all_], 2: [some]}) == 1


def test_the_states_of_other_runs_are_folded(house: House) -> None:
    big, small = house.dispatch_many(definition(single("a"), single("b")), [{"text": "x" * 3000}, {"n": 0}])
    hand = house.hand()
    jobs = {job.workflow_id: job for job in hand.claim()}
    hand.turn(succeeded(jobs[big], {"n": 1, "_secret": 2}), succeeded(jobs[small], {"n": 2}))
    assert house.row("workflows", id=big)["state_version"] == 0
    need, other = NeedStates((small, big, 10**9)), NeedStates((small,))
    found = read(house, {1: [need], 2: [other]}, runs=hand.runs)
    assert found[1][need] == {small: {"n": 2}, big: {"text": "x" * 3000, "n": 1}}
    assert list(found[1][need]) == [small, big]
    assert found[2][other] == {small: {"n": 2}}


def test_what_another_has_not_committed_is_not_seen_and_nobody_is_waited_for(house: House) -> None:
    if house.door.dialect.writer_key() is not None:
        pytest.skip("one writer at a time: there is nothing uncommitted beside it")
    (run,) = house.dispatch_many(definition(), [{}])
    need = NeedStanding((run,))
    table = house.door.tables.workflows
    with House(house.url) as other, other.door.engine.connect() as theirs, other.door.joined(theirs) as tx:
        tx.connection.execute(update(table).values(status="completed"))

        def unit(ours: Any) -> list[WorkflowStatus]:
            """One transaction, read twice: what is committed in between is seen."""
            before = read_facts(ours, {1: [need]})[1][need][run].status
            theirs.commit()
            return [before, read_facts(ours, {1: [need]})[1][need][run].status]

        assert house.door.write(unit) == [WorkflowStatus.RUNNING, WorkflowStatus.COMPLETED]


@pytest.mark.parametrize("need_of", [NeedStanding, NeedStates])
def test_a_run_that_needs_to_know_of_one_that_only_a_newer_version_can_read_is_left_to_that(
    house: House, need_of: Any
) -> None:
    musing, plain = house.dispatch_many(definition(), [{}, {}])
    table = house.door.tables.workflows
    house.door.write(
        lambda tx: tx.connection.execute(update(table).where(table.c.id == musing).values(status="musing"))
    )
    asked = {1: [need_of((plain, musing)), NeedGroup("a")], 2: [need_of((plain,))]}
    strange: dict[int, str] = {}
    found = read(house, asked, strange=strange)
    assert found.keys() == {2}
    assert strange.keys() == {1}
    assert f"workflow {musing}" in strange[1]
    assert "musing" in strange[1]
    with pytest.raises(StoreError, match=rf"workflow 1: workflow {musing}, .* upgrade this process"):
        read(house, asked)


def job(job_id: int, branch: int | None) -> Job:
    return Job(job_id, Role.STEP, "default", Priority.LOW, "tests:item", 1, 3, job_id, 0, 0, branch=branch)


def entry(run: int, seq: int, kind: Entry, branch: int | None, *, visit: int = 1, **more: Any) -> AppendHistory:
    return AppendHistory(run, seq, kind, 5, seq, job(100 + seq, branch), None, 0, visit, **more)


def append(house: House, rows: Sequence[AppendHistory]) -> None:
    house.door.write(lambda tx: settle.write(tx, Plan.of(rows), {}))


def test_the_parts_of_a_visit_are_those_that_have_ended_for_good(house: House) -> None:
    error = ErrorInfo("no ink", "builtins:ValueError")
    append(
        house,
        [
            entry(1, 1, Entry.ITEM, 0, control={"_output": {"n": 1}, "_other": 2}),
            entry(1, 2, Entry.FAILED, 1, error=error),
            entry(1, 3, Entry.FAILED, 1, error=error, is_final=True),
            entry(1, 4, Entry.BRANCH, 2, changed={"a": 1}),
            entry(1, 5, Entry.COMPLETED, None),
            entry(1, 6, Entry.FAILED, None, error=error, is_final=True),
            AppendHistory(1, 7, Entry.NOTED, 5, 0, visit=1),
            entry(1, 8, Entry.ITEM, 3, visit=2, control={"_output": {}}),
            entry(1, 9, Entry.COMPLETED, 4),
            entry(2, 1, Entry.ITEM, 7),
        ],
    )
    whole, late, next_, other = NeedParts(1, 0), NeedParts(1, 3), NeedParts(2, 0), NeedParts(3, 0)
    found = read(house, {1: [late, whole, next_, other], 2: [whole]})
    assert found[1][whole] == (
        PartRow(1, Entry.ITEM, 0, 101, output={"n": 1}),
        PartRow(3, Entry.FAILED, 1, 103, error="no ink"),
        PartRow(4, Entry.BRANCH, 2, 104),
    )
    assert found[1][late] == found[1][whole][2:]
    assert found[1][next_] == (PartRow(8, Entry.ITEM, 3, 108, output={}),)
    assert found[1][other] == ()
    assert found[2][whole] == (PartRow(1, Entry.ITEM, 7, 101),)


def test_very_many_items_are_read_at_once(house: House) -> None:
    items = 50_000 if PROOF else 10_000
    append(
        house,
        [entry(1, seq, Entry.ITEM, seq - 1, control={"_output": {"n": seq}}) for seq in range(1, items + 1)],
    )
    need = NeedParts(1, 0)
    assert count(house, {1: [need]}) == 1
    found = read(house, {1: [need]})[1][need]
    assert len(found) == items
    assert [(row.seq, row.branch, row.output) for row in (found[0], found[-1])] == [
        (1, 0, {"n": 1}),
        (items, items - 1, {"n": items}),
    ]


def test_all_kinds_of_needs_of_a_hundred_runs_cost_a_few_statements(house: House) -> None:
    runs = house.dispatch_many(definition(), [{"n": number} for number in range(100)])
    needs = [
        NeedSignals("go", 0, 50),
        NeedStanding(tuple(runs[:50])),
        NeedStates(tuple(runs[50:])),
        NeedGroup("a"),
        NeedParts(1, 0),
    ]
    # Signals and parts are ranges of their own, fifty in a statement; of so many states the sizes are read first.
    assert count(house, dict.fromkeys(runs, needs)) == 2 + 1 + 2 + 1 + 2


def test_who_needs_nothing_costs_nothing(house: House) -> None:
    assert count(house, {}) == 0
    assert read(house, {1: [], 2: []}) == {1: {}, 2: {}}
