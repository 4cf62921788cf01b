"""The invariants find what they are there to find: each row here breaks one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import insert, update

from queuety.model import StepSpec
from tests.support.databases import Database
from tests.support.hands import House, definition, failed, single, succeeded
from tests.support.invariants import check, problems

GONE = 10**9


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    with House(database.url) as made:
        yield made


def add(house: House, table: str, **values: Any) -> None:
    found = getattr(house.door.tables, table)
    house.door.write(lambda tx: tx.connection.execute(insert(found).values(**values)))


def change(house: House, run: int, **values: Any) -> None:
    found = house.door.tables.workflows
    house.door.write(lambda tx: tx.connection.execute(update(found).where(found.c.id == run).values(**values)))


def row_of(table: str, run: int, **more: Any) -> dict[str, Any]:
    usual: dict[str, dict[str, Any]] = {
        "signals": {"seq": 1, "name": "go", "payload": "{}", "at_us": 1},
        "groups": {"name": "a", "ids": "[1]"},
        "watchers": {"waiter_id": 900, "visit": 1},
        "chunks": {"visit": 1, "branch": -1, "number": 0, "content": "1", "at_us": 1},
        "inbox": {"id": 0, "due_us": 1, "kind": "cancel", "visit": None, "body": '{"parent":1}'},
        "tags": {"tag": "red"},
        "artifacts": {"name": "a", "kind": "text", "metadata": "{}", "created_us": 1, "updated_us": 1},
        "checkpoints": {"seq": 1, "state": "{}"},
        "history": {"seq": 1, "entry": "noted", "at_us": 1, "token": 0, "final": 0},
    }
    owner = "run_id" if table in ("checkpoints", "history") else "workflow_id"
    return {**usual[table], owner: run, **more}


EVERYWHERE = ["signals", "groups", "watchers", "chunks", "inbox", "tags", "artifacts", "checkpoints", "history"]


@pytest.mark.parametrize("table", EVERYWHERE)
def test_what_is_kept_for_a_run_that_is_not_there_is_found(house: House, table: str) -> None:
    check(house.door)
    add(house, table, **row_of(table, GONE))
    assert f"workflow {GONE} is not there, but something waits for it" in list(problems(house.door))


def test_what_is_left_of_a_long_run_that_is_being_purged_is_nothing_wrong(house: House) -> None:
    for table in ("history", "chunks", "signals"):
        add(house, table, **row_of(table, GONE))
    assert list(problems(house.door))
    add(house, "checkpoints", **row_of("checkpoints", -GONE, seq=0, state=""))
    check(house.door)


def test_a_state_that_is_not_what_the_history_gives_is_found(house: House) -> None:
    run = house.dispatch(definition(single("one"), single("two"), single("three")))
    hand = house.hand()
    (job,) = hand.claim()
    (work,) = hand.turn(succeeded(job, {"a": 1}), slots=1).works
    hand.turn(succeeded(work.job, {"b": 2}))
    add(house, "checkpoints", **row_of("checkpoints", run, state='{"a":1}'))
    check(house.door)
    said = f"workflow {run} (running): the state kept as of row 1 is not what its history gives"
    for wrong in ('{"a":2}', "{}"):
        house.door.write(lambda tx, w=wrong: tx.connection.execute(update(tx.tables.checkpoints).values(state=w)))
        assert list(problems(house.door)) == [said]
    house.door.write(lambda tx: tx.connection.execute(update(tx.tables.checkpoints).values(seq=3)))
    assert f"workflow {run} (running): a state is kept as of row 3, which is of no use" in list(problems(house.door))


def test_a_history_without_its_beginning_needs_a_state_to_begin_with(house: House) -> None:
    run = house.dispatch(definition(single("one"), single("two"), single("three")), {"text": "x" * 3000})
    hand = house.hand()
    (job,) = hand.claim()
    (work,) = hand.turn(succeeded(job, {"a": 1}), slots=1).works
    hand.turn(succeeded(work.job, {"b": 2}))
    house.door.write(lambda tx: tx.cursor.execute(f"DELETE FROM {tx.statements.history} WHERE seq = 1"))
    begins = f"workflow {run} (running): the history begins with row 2, and no state is kept that the rows before"
    assert [line for line in problems(house.door) if line.startswith(begins)]
    text = '{"text":"' + "x" * 3000 + '","a":1}'
    change(house, run, state=text, state_version=1, state_bytes=len(text), delta_bytes=len('{"b":2}'))
    check(house.door)
    add(house, "checkpoints", **row_of("checkpoints", run, state='{"a":1}'))
    assert list(problems(house.door))


def test_a_question_to_a_run_that_never_was_is_nothing_wrong(house: House) -> None:
    add(house, "inbox", **row_of("inbox", GONE, kind="subscribe", body='{"waiter":1}', visit=1))
    check(house.door)


def test_who_was_not_told_is_found(house: House) -> None:
    going, done = house.dispatch_many(definition(), [{}, {}])
    hand = house.hand()
    jobs = {job.workflow_id: job for job in hand.claim()}
    hand.turn(succeeded(jobs[done]))
    change(house, going, watched=1)
    change(house, done, watched=1)
    add(house, "watchers", **row_of("watchers", going))
    check(house.door)
    add(house, "watchers", **row_of("watchers", done))
    assert list(problems(house.door)) == [f"workflow {done} has ended, and 900 was not told"]
    change(house, done, status="failed")  # it may be retried
    assert not [line for line in problems(house.door) if "told" in line]
    change(house, done, status="completed")
    change(house, going, watched=0)
    assert f"workflow {going} does not know that 900 watches it" in list(problems(house.door))


def test_chunks_that_their_step_has_left_behind_are_found(house: House) -> None:
    run = house.dispatch(definition(single("one"), single("two")))
    add(house, "chunks", **row_of("chunks", run))
    check(house.door)
    hand = house.hand()
    (job,) = hand.claim()
    (work,) = hand.turn(succeeded(job), slots=1).works
    assert list(problems(house.door)) == [f"workflow {run} (running) is at visit 2 and has chunks of visit 1"]
    house.door.write(lambda tx: tx.connection.execute(update(tx.tables.chunks).values(visit=2, number=1)))
    assert list(problems(house.door)) == [f"workflow {run}, visit 2, branch -1: the chunks are [1]"]
    house.door.write(lambda tx: tx.connection.execute(update(tx.tables.chunks).values(number=0)))
    check(house.door)
    hand.turn(succeeded(work.job))
    assert list(problems(house.door)) == [f"workflow {run} (completed) is at visit 2 and has chunks of visit 2"]


def test_a_signal_of_which_no_history_tells_is_found(house: House) -> None:
    run = house.dispatch(definition())
    add(house, "signals", **row_of("signals", run))
    assert list(problems(house.door)) == [f"workflow {run} keeps signal 1, of which its history does not tell"]


def test_a_wait_that_nobody_will_end_is_found(house: House) -> None:
    waiting, other = house.dispatch_many(definition(), [{}, {}])
    house.hand().claim()
    house.door.write(lambda tx: tx.cursor.execute(f"DELETE FROM {tx.statements.jobs} WHERE workflow_id = {waiting}"))
    change(house, waiting, status="waiting_for_workflows", runtime=f'{{"ids":[{other}]}}')
    said = f"workflow {waiting} (waiting_for_workflows): nobody will tell it of the end of the runs [{other}]"
    assert list(problems(house.door)) == [said]
    change(house, other, watched=1)
    add(house, "watchers", **row_of("watchers", other, waiter_id=waiting, visit=7))
    assert list(problems(house.door)) == [said]
    house.door.write(lambda tx: tx.connection.execute(update(tx.tables.watchers).values(visit=1)))
    check(house.door)


def test_a_wait_that_is_decided_and_goes_on_waiting_is_found(house: House) -> None:
    first, second = house.dispatch_many(definition(), [{}, {}])
    settings = {"workflows": [first, second], "mode": "any", "keyed": True}
    waiting = house.dispatch(definition(StepSpec("wait_for_workflows", "wait", settings=settings)))
    hand = house.hand()
    jobs = {job.workflow_id: job for job in hand.claim()}
    hand.turn(looks_around=True)
    hand.turn(failed(jobs[first], is_final=True))
    hand.turn(looks_around=True)
    check(house.door)
    change(house, second, status="failed", error_message="no", error_kind="StepFailed", failed_step=0, failed_us=1)
    said = f"workflow {waiting} (waiting_for_workflows): its wait for the runs [{first}, {second}] is decided (I4)"
    assert said in list(problems(house.door))


def test_a_run_that_is_parked_on_one_that_has_ended_is_found(house: House) -> None:
    parent, child = house.dispatch_many(definition(), [{}, {}])
    hand = house.hand()
    jobs = {job.workflow_id: job for job in hand.claim()}
    house.door.write(lambda tx: tx.cursor.execute(f"DELETE FROM {tx.statements.jobs} WHERE workflow_id = {parent}"))
    change(house, parent, runtime=f'{{"child":{child}}}')
    check(house.door)
    hand.turn(succeeded(jobs[child]))
    assert list(problems(house.door)) == [
        f"workflow {parent} (running): it is parked on workflow {child}, which has ended"
    ]
    body = f'{{"id":{child},"status":"completed","is_clean":true}}'
    add(house, "inbox", **row_of("inbox", parent, kind="child", body=body))
    check(house.door)
