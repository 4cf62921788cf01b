"""What a run is told of its own past, and of what it keeps beside itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import update

from queuety.model import Entry, HandlerRef, Job, KeepGroup, KeepSignal, Priority, Role, Watch
from queuety.model.needs import (
    Belongings,
    NeedBelongings,
    NeedOpenJobs,
    NeedPast,
    NeedUndo,
    NeedUsedSignals,
    NeedWatching,
    OpenJobs,
    Past,
    Signal,
    Undo,
)
from queuety.store import settle
from queuety.store.facts import read_facts
from tests.support.databases import Database
from tests.support.hands import House, definition, new_job, single
from tests.support.pasts import live, tell

FIVE = definition(*(single(f"s{number}") for number in range(5)))


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants: what is told here belongs to no course of a run."""
    with House(database.url) as made:
        yield made


def ask(house: House, run: int, need: Any) -> Any:
    return house.door.read(lambda tx: read_facts(tx, {run: [need]}))[run][need]


def settled(step: int, visit: int, **more: Any) -> dict[str, Any]:
    """A row with which a step has settled; it leaves its visit in the state."""
    return {"entry": Entry.RESUMED, "step_index": step, "visit": visit, "changed": {f"s{step}": visit}} | more


def row(entry: Entry, step: int, visit: int, **more: Any) -> dict[str, Any]:
    return {"entry": entry, "step_index": step, "visit": visit, **more}


def job_of(number: int) -> Job:
    return Job(number, Role.STEP, "default", Priority.LOW, "tests:handler", 1, 3, number, 0, 0)


def rewound(to_step: int, to_seq: int, visit: int, **more: Any) -> dict[str, Any]:
    return (
        row(
            Entry.REWOUND,
            9,
            visit,
            control={"_by": {"actor": "me"}, "_rewound": {"to_step": to_step, "to_seq": to_seq}},
        )
        | more
    )


def migrated(visit: int, *, step: int = 9, **compensations: dict[str, Any]) -> dict[str, Any]:
    told = {name.removeprefix("s"): handler for name, handler in compensations.items()}
    return row(Entry.MIGRATED, step, visit, control={"_migrated": {"compensations": told}})


# Where the run stood


def test_the_past_of_a_step_is_the_state_with_which_it_settled_last(house: House) -> None:
    run = house.dispatch(FIVE, {"p": 0})
    tell(
        house,
        run,
        settled(0, 1),
        row(Entry.FAILED, 1, 2),
        settled(1, 2, entry=Entry.COMPLETED),
        settled(0, 3),
        row(Entry.PAUSED, 1, 4),
        settled(1, 4, entry=Entry.SKIPPED, changed={}),
        row(Entry.SIGNALLED, 1, 4),
        current_step=2,
        visit=5,
    )
    assert ask(house, run, NeedPast(0)) == Past(4, {"p": 0, "s0": 3, "s1": 2})
    assert ask(house, run, NeedPast(1)) == Past(6, {"p": 0, "s0": 3, "s1": 2})
    assert ask(house, run, NeedPast(2)) is None
    assert ask(house, 10**9, NeedPast(0)) is None


def test_the_entry_of_a_step_is_the_state_before_the_first_row_of_its_last_visit(house: House) -> None:
    run = house.dispatch(FIVE, {"p": 0})
    tell(
        house,
        run,
        settled(0, 1),
        row(Entry.PAUSED, 1, 2),
        row(Entry.SIGNALLED, 1, 2),
        row(Entry.PATCHED, 1, 2, changed={"p": 1}),
        settled(1, 2),
        settled(0, 3),
        row(Entry.ITEM, 1, 4),
        row(Entry.NOTED, 1, 4),
        settled(1, 4),
        row(Entry.WAITING, 2, 5),
        row(Entry.CLEANED, 1, 5),
        row(Entry.UNCLEANED, 0, 5),
        current_step=2,
        visit=5,
    )
    before = {"p": 1, "s0": 3, "s1": 2}
    assert ask(house, run, NeedPast(1, is_entry=True)) == Past(6, before)
    assert ask(house, run, NeedPast(0, is_entry=True)) == Past(5, {**before, "s0": 1})
    assert ask(house, run, NeedPast(2, is_entry=True)) == Past(9, {**before, "s1": 4})
    assert ask(house, run, NeedPast(3, is_entry=True)) is None
    assert ask(house, 10**9, NeedPast(0, is_entry=True)) is None


def test_a_step_that_is_current_and_has_no_row_yet_was_entered_now(house: House) -> None:
    run = house.dispatch(FIVE, {"p": 0})
    need = NeedPast(0, is_entry=True)
    assert ask(house, run, need) == Past(0, {"p": 0})
    tell(house, run, settled(0, 1), settled(1, 2), current_step=0, visit=3)
    assert ask(house, run, need) == Past(2, {"p": 0, "s0": 1, "s1": 2})
    tell(house, run, row(Entry.FAILED, 0, 3), row(Entry.FAILED, 0, 3))
    assert ask(house, run, need) == Past(2, {"p": 0, "s0": 1, "s1": 2})
    assert ask(house, run, NeedPast(1, is_entry=True)) == Past(1, {"p": 0, "s0": 1})
    tell(house, run, migrated(3, step=0), current_step=1)
    assert ask(house, run, need) is None
    assert ask(house, run, NeedPast(1, is_entry=True)) == Past(5, {"p": 0, "s0": 1, "s1": 2})
    tell(house, run, row(Entry.FAILED, 1, 3))
    assert ask(house, run, NeedPast(1, is_entry=True)) == Past(5, {"p": 0, "s0": 1, "s1": 2})


def test_what_was_before_a_move_to_another_definition_does_not_count(house: House) -> None:
    run = house.dispatch(FIVE)
    tell(house, run, settled(0, 1), settled(1, 2), migrated(3), settled(2, 3), settled(1, 4), current_step=3, visit=5)
    assert ask(house, run, NeedPast(0)) is None
    assert ask(house, run, NeedPast(1)) == Past(5, {"s0": 1, "s1": 4, "s2": 3})
    assert ask(house, run, NeedPast(0, is_entry=True)) is None
    assert ask(house, run, NeedPast(2, is_entry=True)) == Past(3, {"s0": 1, "s1": 2})


def test_a_past_that_was_pruned_is_not_to_be_had(house: House) -> None:
    run = house.dispatch(FIVE, {"p": 0})
    live(house, run, 3, step_index=0)
    live(house, run, 3, step_index=1)
    live(house, run, 1, step_index=2, visits=False)
    house.door.write(lambda tx: tx.connection.execute(update(tx.tables.workflows).values(current_step=2)))
    asked = [NeedPast(0), NeedPast(1), NeedPast(0, is_entry=True), NeedPast(2, is_entry=True), NeedPast(2)]

    def seqs() -> list[int | None]:
        found = (ask(house, run, need) for need in asked)
        return [None if past is None else past.seq for past in found]

    assert seqs() == [3, 6, 2, 6, 7]

    def prune(upto: int) -> None:
        state = house.door.read(lambda tx: settle_state(tx, run, upto))
        house.door.write(lambda tx: tx.statements.keep_checkpoints(tx.cursor, [(run, upto, state)]))
        house.door.write(lambda tx: tx.cursor.execute(f"DELETE FROM {tx.statements.history} WHERE seq <= {upto}"))

    prune(2)
    # nobody knows whether the third row is the first one of its visit
    assert seqs() == [3, 6, None, 6, 7]
    prune(6)
    assert seqs() == [None, None, None, 6, 7]
    found = ask(house, run, NeedPast(2, is_entry=True))
    assert found.state["n"] == 6


def settle_state(tx: Any, run: int, seq: int) -> str:
    from queuety.codec import encode
    from queuety.store.past import states_at

    return encode(states_at(tx, [(run, seq)])[run, seq])


# What can be undone


def undone(house: House, run: int, before: int, *steps: int) -> list[tuple[int, int, str | None]]:
    """What is to be undone, one after the other."""
    found: list[tuple[int, int, str | None]] = []
    while True:
        undo: Undo | None = ask(house, run, NeedUndo(before, steps))
        if undo is None:
            return found
        found.append((undo.seq, undo.step, undo.handler.name if undo.handler else None))
        before = undo.seq


def test_steps_are_undone_in_the_reverse_order_of_their_completion(house: House) -> None:
    run = house.dispatch(FIVE)
    tell(
        house,
        run,
        settled(0, 1),
        settled(1, 2, entry=Entry.COMPLETED),
        row(Entry.BRANCH, 2, 3),
        row(Entry.ITEM, 2, 3),
        settled(2, 3),
        settled(0, 4),
        settled(1, 5, entry=Entry.SKIPPED),
        row(Entry.FAILED, 3, 6),
        row(Entry.CLEANED, 0, 6),
    )
    assert undone(house, run, 99, 0, 1, 2, 3) == [(6, 0, None), (5, 2, None), (2, 1, None), (1, 0, None)]
    assert undone(house, run, 6, 0, 2) == [(5, 2, None), (1, 0, None)]
    assert undone(house, run, 99) == []
    assert undone(house, run, 1, 0) == []


def test_what_was_rewound_is_not_undone_and_what_was_rewound_to_is(house: House) -> None:
    """A rewind goes back to what an earlier one had given up, too."""
    run = house.dispatch(FIVE)
    tell(
        house,
        run,
        settled(0, 1),
        settled(1, 2),
        settled(2, 3),
        rewound(0, 1, 4),
        settled(1, 5),
        rewound(2, 3, 6),
        settled(3, 7),
        row(Entry.COMPLETED, 4, 8, job=job_of(5), control={"_rewound": {"to_seq": 0}}),
    )
    steps = (0, 1, 2, 3, 4)
    assert [seq for seq, *_ in undone(house, run, 99, *steps)] == [8, 7, 3, 2, 1]
    assert [seq for seq, *_ in undone(house, run, 6, *steps)] == [5, 1]


def test_what_settled_under_an_earlier_definition_is_undone_as_that_one_said(house: House) -> None:
    run = house.dispatch(FIVE)
    tell(
        house,
        run,
        settled(0, 1),
        settled(1, 2),
        migrated(3, s0={"name": "first:undo_0", "config": {"a": 1}}),
        settled(0, 3),
        settled(2, 4),
        migrated(5, s2={"name": "second:undo_2", "config": None}, s0={"name": "second:undo_0"}),
        settled(2, 5),
        settled(1, 6),
        ledger={"moved": True},
    )
    assert undone(house, run, 99, 1) == [
        (8, 1, None),
        (5, 2, "second:undo_2"),
        (4, 0, "second:undo_0"),
        (1, 0, "first:undo_0"),
    ]
    assert ask(house, run, NeedUndo(4, ())) == Undo(1, 0, HandlerRef("first:undo_0", {"a": 1}))


def test_of_a_long_history_two_rows_are_read(house: House) -> None:
    run = house.dispatch(FIVE)
    tell(house, run, settled(0, 1))
    live(house, run, 600, step_index=1)
    said: list[str] = []
    house.door.on_statement = said.append
    assert ask(house, run, NeedUndo(10**6, (0,))) == Undo(1, 0)
    house.door.on_statement = None
    assert len([text for text in said if "queuety_" in text]) == 2


# Signals


def test_signals_that_were_used_come_back_unless_they_stand_there_again(house: House) -> None:
    run = house.dispatch(FIVE)

    def signalled(name: str) -> dict[str, Any]:
        told = {"_by": {}, "_signal": {"name": name, "payload": {"name": name}}}
        return row(Entry.SIGNALLED, 0, 1, control=told)

    tell(
        house,
        run,
        signalled("a"),
        signalled("b"),
        settled(0, 1, control={"_used": [1]}),
        signalled("c"),
        settled(1, 2, control={"_used": [4, 2]}),
        row(Entry.COMPLETED, 2, 3, job=job_of(5), control={"_used": [1]}),
        row(Entry.SIGNALLED, 3, 4, control={"_signal": {"name": "d", "payload": {"_used": ["d"]}}}),
        settled(3, 4, control={"_used": [2, 99]}),
    )
    a, b, c = (Signal(seq, name, {"name": name}) for seq, name in ((1, "a"), (2, "b"), (4, "c")))
    assert ask(house, run, NeedUsedSignals(0)) == (a, b, c)
    assert ask(house, run, NeedUsedSignals(2)) == (a, b, c)
    assert ask(house, run, NeedUsedSignals(3)) == (b, c)
    assert ask(house, run, NeedUsedSignals(5)) == (b,)
    assert ask(house, run, NeedUsedSignals(8)) == ()
    write(house, KeepSignal(run, 2, "b", {"name": "b"}, 1))
    assert ask(house, run, NeedUsedSignals(3)) == (c,)
    assert ask(house, run, NeedUsedSignals(5)) == ()


def write(house: House, *effects: Any) -> None:
    house.door.write(lambda tx: settle.write(tx, settle.Plan.of(effects), {}))


# What is kept beside


def test_what_a_run_keeps_beside_itself(house: House) -> None:
    one, two, three = house.dispatch_many(FIVE, [{}, {}, {}])
    write(
        house,
        KeepSignal(one, 5, "b", {"n": 5}, 1),
        KeepSignal(one, 3, "c", {"n": 3}, 1),
        KeepSignal(two, 1, "a", {}, 1),
        KeepGroup(one, "y", (7, 8)),
        KeepGroup(one, "x", ()),
    )
    need = NeedBelongings()
    found = house.door.read(lambda tx: read_facts(tx, {run: [need] for run in (one, two, three)}))
    assert found[one][need] == Belongings(
        (Signal(3, "c", {"n": 3}), Signal(5, "b", {"n": 5})), (("x", ()), ("y", (7, 8)))
    )
    assert found[two][need] == Belongings((Signal(1, "a", {}),), ())
    assert found[three][need] == Belongings((), ())


def test_the_open_jobs_of_a_run_by_what_holds_them_back(house: House) -> None:
    run, other = house.dispatch_many(FIVE, [{}, {}])
    need = NeedOpenJobs()
    assert ask(house, run, need) == OpenJobs(0, 0, 1)
    later = house.clock.us + 5
    mine = {"workflow_id": run, "step_index": 0, "visit": 1}
    house.add(
        *(new_job(role=Role.STEP, **mine) for _ in range(5)),
        *(new_job(role=Role.STEP, due_us=later, **mine) for _ in range(2)),
        new_job(role=Role.CLEANUP, due_us=later, **mine),
        new_job(role=Role.CLEANUP, **mine),
        new_job(),
    )
    jobs = house.door.tables.jobs

    def age(tx: Any) -> None:
        first, second, third, fourth = [row["id"] for row in house.rows("jobs", workflow_id=run)][:4]
        for ids, phase in (((first,), "buried"), ((second, third), "suspect"), ((fourth,), "leased")):
            tx.connection.execute(update(jobs).where(jobs.c.id.in_(ids)).values(phase=phase))

    house.door.write(age)
    assert ask(house, run, need) == OpenJobs(1, 3, 4)
    assert ask(house, other, need) == OpenJobs(0, 0, 1)
    assert ask(house, 10**9, need) == OpenJobs(0, 0, 0)


def test_which_runs_will_tell_this_one(house: House) -> None:
    write(house, Watch(5, 900, 1), Watch(6, 900, 2), Watch(7, 901, 1), Watch(8, 900, 1))
    assert ask(house, 900, NeedWatching((5, 6, 7, 99), 1)) == {5}
    assert ask(house, 900, NeedWatching((5, 6, 8), 2)) == {6}
    assert ask(house, 900, NeedWatching((), 1)) == frozenset()
