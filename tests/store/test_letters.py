"""Letters: what is written goes out in the same transaction, what is due is taken out once, the rest stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import insert, update

from queuety.errors import StoreError
from queuety.model import (
    AddWorkflow,
    DropTimers,
    DropWork,
    Effect,
    LetterKind,
    Send,
    SetTimer,
    StartRun,
    TellWatchers,
    Watch,
    Workflow,
    WorkflowStatus,
)
from queuety.store import load, settle
from queuety.store.claims import UNREADABLE_US
from queuety.store.settle import Plan
from tests.support.databases import Database
from tests.support.hands import House, definition, single, succeeded


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants: what is written here belongs to no course of a run."""
    with House(database.url) as made:
        yield made


def put(house: House, *effects: Effect) -> None:
    house.door.write(lambda tx: settle.write(tx, Plan.of(effects), {}))


def inbox(house: House) -> list[tuple[object, ...]]:
    """Every letter, in the order of kind and address."""
    rows = sorted(house.rows("inbox"), key=lambda row: (row["kind"], row["workflow_id"], row["visit"] or 0))
    return [(row["kind"], row["workflow_id"], row["due_us"], row["visit"], row["body"]) for row in rows]


def watchers(house: House) -> list[tuple[int, int, int]]:
    return [(row["workflow_id"], row["waiter_id"], row["visit"]) for row in house.rows("watchers")]


def test_letters_and_timers_go_out_together_each_as_it_is(house: House) -> None:
    put(
        house,
        Send(7, LetterKind.SUBSCRIBE, 5, {"waiter": 8}, 3),
        SetTimer(8, 2, 6),
        Send(8, LetterKind.CHILD, 4, {"id": 9, "status": "failed", "is_clean": True}),
        Send(8, LetterKind.CANCEL, 4),
    )
    assert inbox(house) == [
        ("cancel", 8, 4, None, None),
        ("child", 8, 4, None, '{"id":9,"status":"failed","is_clean":true}'),
        ("subscribe", 7, 5, 3, '{"waiter":8}'),
        ("timer", 8, 6, 2, None),
    ]
    ids = [row["id"] for row in house.rows("inbox")]
    assert len(set(ids)) == 4
    assert max(ids) < house.row("ids")["next"]


def test_a_plan_knows_whether_it_writes_letters_that_are_due() -> None:
    late, now, end = SetTimer(1, 1, 11), Send(2, LetterKind.REVIVED, 10, {"id": 1}), TellWatchers(1, 10)
    assert not Plan.of([late]).has_due_letters(10)
    assert Plan.of([late]).has_due_letters(11)
    assert Plan.of([late, now]).has_due_letters(10)
    assert not Plan.of([now]).has_due_letters(9)
    assert Plan.of([end]).has_due_letters(10)
    assert Plan.of([Watch(1, 2, 1), end]).told == [end]
    assert not Plan.of([Watch(1, 2, 1)]).has_due_letters(10)


def test_timers_that_are_dropped_go_and_messages_stay(house: House) -> None:
    put(house, *(SetTimer(run, 1, 5) for run in (1, 2, 3)), *(Send(run, LetterKind.RETRY, 5) for run in (1, 2, 3)))
    put(house, DropTimers(1), SetTimer(1, 2, 9), DropWork(2, "over", 5))
    assert [letter[:4] for letter in inbox(house)] == [
        ("retry", 1, 5, None),
        ("retry", 2, 5, None),
        ("retry", 3, 5, None),
        ("timer", 1, 9, 2),
        ("timer", 3, 5, 1),
    ]


def test_a_timer_that_is_set_and_dropped_in_one_transaction_is_not_written(house: House) -> None:
    """A wait with a time-out is entered, and the signal comes in the same turn."""
    put(house, SetTimer(1, 1, 5), SetTimer(2, 1, 5), DropTimers(1), SetTimer(1, 2, 6))
    assert [letter[:4] for letter in inbox(house)] == [("timer", 1, 6, 2), ("timer", 2, 5, 1)]


def test_watchers_are_told_once_each_for_its_visit_and_forgotten(house: House) -> None:
    put(house, Watch(1, 8, 2), Watch(1, 9, 4), Watch(2, 8, 2), Watch(3, 9, 4))
    put(house, Watch(1, 8, 3))
    assert watchers(house) == [(1, 8, 3), (1, 9, 4), (2, 8, 2), (3, 9, 4)]
    put(house, TellWatchers(1, 50), TellWatchers(3, 60), TellWatchers(4, 70))
    assert sorted((letter[1], letter[4], *letter[2:4]) for letter in inbox(house)) == [
        (8, '{"id":1}', 50, 3),
        (9, '{"id":1}', 50, 4),
        (9, '{"id":3}', 60, 4),
    ]
    assert {letter[0] for letter in inbox(house)} == {"settled"}
    assert watchers(house) == [(2, 8, 2)]
    put(house, TellWatchers(1, 80))
    assert len(inbox(house)) == 3


def test_watchers_of_a_failed_run_are_told_and_kept(house: House) -> None:
    put(house, Watch(1, 8, 2), Watch(2, 8, 2), Watch(3, 8, 2))
    put(house, TellWatchers(1, 50, forgets=False), TellWatchers(2, 50))
    assert [letter[4] for letter in inbox(house)] == ['{"id":1}', '{"id":2}']
    assert watchers(house) == [(1, 8, 2), (3, 8, 2)]
    put(house, TellWatchers(1, 60, forgets=False), TellWatchers(1, 60))  # retried, and completed in the same turn
    assert [letter[4] for letter in inbox(house)] == ['{"id":1}', '{"id":2}', '{"id":1}']
    assert watchers(house) == [(3, 8, 2)]


def test_who_comes_to_watch_a_run_in_the_transaction_that_ends_it_is_told_too(house: House) -> None:
    put(house, Watch(1, 8, 2), Watch(2, 8, 2), TellWatchers(1, 50))
    assert [letter[1] for letter in inbox(house)] == [8]
    assert watchers(house) == [(2, 8, 2)]


def test_who_watches_a_run_that_has_ended_and_goes_on_is_not_told_of_the_first_end(house: House) -> None:
    put(house, Watch(1, 7, 2))
    put(house, TellWatchers(1, 50), Watch(1, 8, 2))
    assert [letter[1] for letter in inbox(house)] == [7]
    assert watchers(house) == [(1, 8, 2)]


def test_a_thousand_watchers_are_told_in_a_few_statements(house: House) -> None:
    put(house, *(Watch(1, 10_000 + number, number) for number in range(1000)))
    said: list[str] = []
    house.door.on_statement = said.append
    put(house, TellWatchers(1, 50))
    house.door.on_statement = None
    assert len([text for text in said if "queuety_inbox" in text or "queuety_watchers" in text]) <= 4
    rows = house.rows("inbox")
    assert sorted((row["workflow_id"], row["visit"]) for row in rows) == [(10_000 + n, n) for n in range(1000)]


def test_an_ordinary_step_touches_none_of_the_tables_that_it_does_not_need(house: House) -> None:
    house.dispatch(definition(single("one"), single("two"), single("three")))
    hand = house.hand()
    (job,) = hand.claim()
    said: list[str] = []
    house.door.on_statement = said.append
    (work,) = hand.turn(succeeded(job, {"a": 1}), slots=1).works
    hand.turn(succeeded(work.job, {"a": 2}), slots=1)
    house.door.on_statement = None
    assert any("queuety_history" in text for text in said)
    others = ("signals", "groups", "watchers", "chunks", "inbox")
    assert [text for text in said if any(f"queuety_{name}" in text for name in others)] == []


def test_runs_that_are_started_are_written_with_their_payload(house: House) -> None:
    def new(number: int, **more: object) -> Workflow:
        return Workflow(number, "child", "f" * 64, WorkflowStatus.RUNNING, 0, 1, 1, 0, {"n": number}, 5, **more)  # type: ignore[arg-type]

    advanced = Workflow(
        3, "child", "f" * 64, WorkflowStatus.RUNNING, 1, 2, 2, 1, {"n": 3, "made": True}, 5, loops={"0": 2}
    )
    put(
        house,
        AddWorkflow(new(1, parent_id=9, parent_step=4), {"n": 1}),
        AddWorkflow(new(2, is_watched=True), {"n": 2}),
        AddWorkflow(advanced, {"n": 3}),
    )
    rows = {row["id"]: row for row in house.rows("workflows")}
    assert [(rows[run]["payload"], rows[run]["state"], rows[run]["state_version"]) for run in (1, 2, 3)] == [
        ('{"n":1}', '{"n":1}', 0),
        ('{"n":2}', '{"n":2}', 0),
        ('{"n":3}', '{"n":3,"made":true}', 1),
    ]
    found = house.door.read(lambda tx: load.read(tx, load.Runs(), [1, 2, 3]))
    assert (found[1].workflow.parent_id, found[1].workflow.parent_step) == (9, 4)
    assert [found[run].workflow.is_watched for run in (1, 2, 3)] == [False, True, False]
    assert found[3].workflow == advanced


def test_a_run_that_nobody_has_decided_how_to_start_is_refused(house: House) -> None:
    with pytest.raises(StoreError, match="workflow 5 is to be started"):
        put(house, Send(1, LetterKind.RETRY, 5), StartRun(5, definition(), {}))
    assert house.rows("inbox") == []


def test_what_is_due_is_taken_out_in_order_and_the_rest_stays(house: House) -> None:
    put(
        house,
        Send(1, LetterKind.SETTLED, 5, {"id": 4}, 2),
        SetTimer(1, 2, 3),
        SetTimer(1, 2, 9),
        SetTimer(2, 1, 5),
        Send(3, LetterKind.CANCEL, 5),
    )
    opened = house.door.write(lambda tx: load.open_letters(tx, [1, 2], 5))
    assert [(one.workflow_id, one.kind, one.visit, one.body) for one in opened] == [
        (1, LetterKind.TIMER, 2, None),
        (2, LetterKind.TIMER, 1, None),
        (1, LetterKind.SETTLED, 2, {"id": 4}),
    ]
    assert house.door.write(lambda tx: load.open_letters(tx, [1, 2], 5)) == []
    assert [letter[:3] for letter in inbox(house)] == [("cancel", 3, 5), ("timer", 1, 9)]


def test_no_more_are_taken_out_than_asked_for_and_the_earliest_first(house: House) -> None:
    put(house, SetTimer(1, 3, 3), SetTimer(1, 1, 1), SetTimer(2, 2, 2))
    opened = house.door.write(lambda tx: load.open_letters(tx, [1, 2], 5, limit=2))
    assert [(one.workflow_id, one.visit) for one in opened] == [(1, 1), (2, 2)]
    assert [(one.visit) for one in house.door.write(lambda tx: load.open_letters(tx, [1, 2], 5))] == [3]


def test_a_letter_of_a_kind_that_only_a_newer_version_knows_waits_for_it(house: House) -> None:
    put(house, SetTimer(1, 2, 3), Send(1, LetterKind.REVIVED, 3, {"id": 4}))
    inbox_table = house.door.tables.inbox
    newer = update(inbox_table).where(inbox_table.c.kind == "revived").values(kind="applause", body="[1")
    house.door.write(lambda tx: tx.connection.execute(newer))
    (opened,) = house.door.write(lambda tx: load.open_letters(tx, [1], 10))
    assert opened.kind is LetterKind.TIMER
    assert inbox(house) == [("applause", 1, 10 + UNREADABLE_US, None, "[1")]
    assert house.door.write(lambda tx: load.open_letters(tx, [1], 11)) == []
    assert inbox(house) == [("applause", 1, 10 + UNREADABLE_US, None, "[1")]
    assert house.door.write(lambda tx: load.letters_of_missing(tx, [1])) == []
    assert inbox(house) == [("applause", 1, house.clock.us + UNREADABLE_US, None, "[1")]


def test_letters_to_runs_that_are_not_there_are_taken_out_whatever_their_time(house: House) -> None:
    put(
        house,
        Send(5, LetterKind.SUBSCRIBE, house.clock.us, {"waiter": 1}, 2),
        SetTimer(5, 1, house.clock.us + 10),
        Send(6, LetterKind.CANCEL, house.clock.us, {"parent": 1}),
        Send(7, LetterKind.CANCEL, house.clock.us, {"parent": 1}),
    )
    taken = house.door.write(lambda tx: load.letters_of_missing(tx, [5, 6]))
    assert sorted((one.workflow_id, one.kind.value, one.visit, str(one.body)) for one in taken) == [
        (5, "subscribe", 2, "{'waiter': 1}"),
        (5, "timer", 1, "None"),
        (6, "cancel", None, "{'parent': 1}"),
    ]
    assert [letter[:2] for letter in inbox(house)] == [("cancel", 7)]
    assert house.door.write(lambda tx: load.letters_of_missing(tx, [])) == []


def test_two_processes_answer_for_a_missing_run_once(house: House) -> None:
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    put(house, Send(5, LetterKind.SUBSCRIBE, house.clock.us, {"waiter": 1}, 2))
    with House(house.url) as other, other.door.engine.connect() as theirs:
        with other.door.joined(theirs) as tx:
            assert len(load.letters_of_missing(tx, [5])) == 1
            assert house.door.write(lambda tx: load.letters_of_missing(tx, [5])) == []
        theirs.commit()
    assert house.rows("inbox") == []


def test_an_inbox_row_of_the_first_version_is_a_timer(house: House) -> None:
    row = {"id": 1, "workflow_id": 2, "due_us": 3, "kind": "timer", "visit": 4, "body": None}
    house.door.write(lambda tx: tx.connection.execute(insert(tx.tables.inbox).values(**row)))
    (opened,) = house.door.write(lambda tx: load.open_letters(tx, [2], 3))
    assert opened == load.Letter(1, 2, LetterKind.TIMER, 4, None)
