"""Starting runs and adding jobs: whole or not at all, once per key, as many as somebody likes, under any name."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine

from queuety import Queuety
from queuety.errors import PayloadError, QueuetyError, StoreError, StoreUnavailable
from queuety.model import ErrorInfo, Failed, Span
from queuety.store import claims, queues
from queuety.store.dialects import Limits
from queuety.worker.outcome import Unhandled
from tests.conftest import PROOF
from tests.support.databases import Database
from tests.support.hands import House, definition, new_job, pause_of, single, succeeded

ONE = definition(single())


def test_a_key_gives_one_run_whoever_asks_and_whatever_the_payload(house: House) -> None:
    first = house.dispatch(ONE, {"n": 1}, key="order-1")
    assert house.dispatch(ONE, {"n": 2}, key="order-1") == first
    assert house.state(first) == {"n": 1}
    other = house.dispatch(definition(single(), name="other"), {}, key="order-1")
    assert other != first
    house.hand().work()
    assert house.dispatch(ONE, {}, key="order-1") == first  # also once it has ended
    assert len(house.rows("workflows")) == 2
    assert {house.dispatch(ONE), house.dispatch(ONE)}.isdisjoint({first, other})


def test_of_eight_threads_with_one_key_all_get_the_same_run(database: Database, rounds: int) -> None:
    """I2, I10"""
    with House(database.url, limits=Limits(pool_size=8)) as house:
        house.definitions.ensure(house.door, ONE)
        for number in range(rounds * 2):
            gate = threading.Barrier(8)

            def ask(n: int, number: int = number, gate: threading.Barrier = gate) -> int:
                gate.wait()
                return house.dispatch(ONE, {"n": n}, key=f"k{number}")

            with ThreadPoolExecutor(8) as pool:
                got = list(pool.map(ask, range(8)))
            assert len(set(got)) == 1, got
            row = house.row("workflows", idempotency_key=f"k{number}")
            assert row["id"] == got[0]
            assert len(house.rows("jobs", workflow_id=got[0])) == 1
        assert len(house.rows("jobs")) == rounds * 2


def ask_in_a_process(url: str, gate: Any, answers: Any) -> None:
    with House(url) as house:
        house.definitions.ensure(house.door, ONE)
        gate.wait()
        answers.put([house.dispatch(ONE, key=f"p{number}") for number in range(20)])


def test_of_eight_processes_with_the_same_keys_all_get_the_same_runs(database: Database) -> None:
    context = multiprocessing.get_context("fork")
    gate, answers = context.Barrier(8), context.SimpleQueue()
    children = [context.Process(target=ask_in_a_process, args=(database.url, gate, answers)) for _ in range(8)]
    for child in children:
        child.start()
    got = [answers.get() for _ in children]
    for child in children:
        child.join()
    assert all(each == got[0] for each in got)
    with House(database.url) as house:
        assert sorted(row["id"] for row in house.rows("workflows")) == sorted(got[0])
        assert len(house.rows("jobs")) == 20


def test_a_key_that_is_taken_is_found_in_a_transaction_that_reads_an_older_state(database: Database) -> None:
    """A caller's transaction may see the database as it was before the key was taken (MySQL's usual isolation)."""
    if database.kind == "sqlite":
        pytest.skip("its transactions are serial")
    engine = create_engine(database.url, isolation_level="REPEATABLE READ")
    form = {"name": "form", "steps": [{"type": "delay", "name": "wait", "seconds": 60}]}
    with Queuety(database.url) as app, engine.connect() as theirs:
        app.dispatch_definition(form)  # so that the definition is there
        theirs.exec_driver_sql("SELECT COUNT(*) FROM queuety_workflows")
        taken = app.dispatch_definition(form, idempotency_key="k")
        try:
            got = app.dispatch_definition(form, idempotency_key="k", connection=theirs)
        except QueuetyError:
            assert database.kind == "postgresql"  # which says that it cannot be told there
        else:
            assert got == taken
        theirs.rollback()
    engine.dispose()


def test_many_are_dispatched_whole_or_not_at_all(house: House) -> None:
    runs = house.dispatch_many(ONE, [{"n": number} for number in range(500)])
    assert runs == sorted(set(runs))
    assert {row["id"]: row["payload"] for row in house.rows("workflows")} == {
        run: f'{{"n":{number}}}' for number, run in enumerate(runs)
    }
    before = house.dump(without=["ids"])
    with pytest.raises(PayloadError):
        house.dispatch_many(ONE, [{"n": 1}] * 300 + [{"_n": 1}])
    assert house.dump(without=["ids"]) == before
    assert house.dispatch_many(ONE, []) == []


def test_steps_that_are_left_at_once_are_in_the_new_run(house: House) -> None:
    run = house.dispatch(definition(pause_of(0, "a"), pause_of(0, "b"), single()), {"n": 1})
    row = house.row("workflows", id=run)
    assert (row["current_step"], row["version"], row["visit"], row["state_version"]) == (2, 2, 3, 2)
    done = house.dispatch(definition(pause_of(0)), {"n": 1})
    assert house.row("workflows", id=done)["status"] == "completed"


def test_very_many_jobs_in_one_call(database: Database) -> None:
    """E12: no limit of parameters or packets, and all of them in one transaction."""
    count = 100_000 if PROOF else 20_000
    with House(database.url, limits=Limits(patience_s=60)) as house:
        seen_while_writing: list[bool] = []

        def look(statement: str) -> None:
            if statement == "COMMIT":
                house.door.on_statement = None
                with House(database.url) as other:
                    seen_while_writing.append(other.door.read(lambda tx: claims.probe(tx, ["bulk"])).has_ready)

        jobs = [new_job(queue="bulk", payload={"n": number}) for number in range(count)]
        house.door.on_statement = look
        added = house.add(*jobs)
        assert added == sorted(set(added))
        assert (len(added), seen_while_writing) == (count, [False])
        (job,) = house.hand("bulk").claim(1)
        assert (job.id, job.payload) == (added[0], {"n": 0})
        with house.door.reading() as connection:
            table = house.door.tables.jobs
            assert connection.exec_driver_sql(f"SELECT COUNT(*), MAX(id) FROM {table.name}").one() == (count, added[-1])


# Exact identifiers (E15) and exact values (E1, E16)

LOOKALIKES = (
    "Order-1",
    "order-1",
    "order-1 ",
    " order-1",
    "é",
    "e",
    "e\u0301",
    "ß",
    "ss",
    "İ",
    "i",
    "a",
    "Ａ",
    "😀",
    "😁",
)


def test_names_that_look_alike_are_different_queues(house: House) -> None:
    by_name = dict(zip(LOOKALIKES, house.add(*(new_job(queue=name) for name in LOOKALIKES)), strict=True))
    house.door.write(lambda tx: queues.pause(tx, "order-1"))
    assert house.door.read(claims.paused_queues) == {"order-1"}
    for name in LOOKALIKES:
        assert house.door.read(lambda tx, name=name: claims.probe(tx, [name])).has_ready  # type: ignore[misc]
        if name == "order-1":
            assert house.hand(name).claim() == []
            house.door.write(lambda tx: queues.resume(tx, "order-1"))
        (job,) = house.hand(name).claim()
        assert (job.queue, job.id) == (name, by_name[name])
        assert not house.door.read(lambda tx, name=name: claims.probe(tx, [name])).has_ready  # type: ignore[misc]


def test_names_that_look_alike_are_different_keys_and_workflows(house: House) -> None:
    runs = {key: house.dispatch(ONE, key=key) for key in LOOKALIKES}
    assert len(set(runs.values())) == len(LOOKALIKES)
    assert {key: house.dispatch(ONE, key=key) for key in LOOKALIKES} == runs
    named = {name: house.dispatch(definition(single(), name=name), key="k") for name in LOOKALIKES}
    assert len(set(named.values())) == len(LOOKALIKES)


HARD: dict[str, Any] = {
    "nul": "a\x00b",
    "n\x00l": 1,
    "emoji": "👩‍👩‍👧 😀 𝕏",
    "controls": "".join(map(chr, range(32))) + "\x7f\x85\u2028\ufeff",
    "quotes": "'\"\\`%s %(x)s {} :name ?1 $1 \\u0000",
    "numbers": [0, -0.0, 2**63 - 1, -(2**63), 1e308, 5e-324, 0.1 + 0.2],
    "kinds": [None, True, False, "", [], {}, {"": {"": []}}],
    "z": 1,
    "a": 2,
    "Z": 3,
}


def test_every_value_comes_back_as_it_was(house: House) -> None:
    run = house.dispatch(definition(single("one"), single("two")), HARD)
    (plain,) = house.add(new_job(payload=HARD, config=HARD, queue="plain"))
    (job,) = house.hand("plain").claim()
    assert [repr(job.payload), repr(job.config), job.id] == [repr(HARD), repr(HARD), plain]
    hand = house.hand()
    (job,) = hand.claim()
    (work,) = hand.turn(succeeded(job, {"again": HARD}), slots=1).works
    assert repr(dict(work.state)) == repr({**HARD, "again": HARD})
    assert repr(house.state(run)) == repr({**HARD, "again": HARD})


def test_a_large_value_with_a_large_backlog_of_them(house: House) -> None:
    """One is as large as a value may be, and several of them make more than one packet of MySQL's."""
    big = {"text": "ä😀'\\" * 900_000 + "\n" * 100_000}
    runs = house.dispatch_many(definition(single("one"), single("two")), [big, big, big])
    hand = house.hand()
    jobs = hand.claim()
    made = hand.turn(*(succeeded(job, {"more": big["text"]}) for job in jobs), slots=3)
    assert [work.state["more"] == big["text"] for work in made.works] == [True] * 3
    assert house.state(runs[0]) == {**big, "more": big["text"]}


def test_a_value_that_does_not_fit_the_server_s_packet_is_refused_and_not_taken_for_an_outage(house: House) -> None:
    """MySQL hangs up on it: tried again and again, it would look as if the database were lost."""
    if house.door.dialect.name != "mysql":
        pytest.skip("the others take it")
    house.dispatch(definition(single("one"), single("two")))
    hand = house.hand()
    (job,) = hand.claim()
    before = house.dump()
    with pytest.raises(StoreError, match="max_allowed_packet") as caught:
        hand.turn(succeeded(job, {"text": "'" * 17_000_000}))
    assert not isinstance(caught.value, StoreUnavailable)
    assert house.dump() == before


def test_an_error_s_message_is_kept_whatever_it_says(house: House) -> None:
    message = "no: 'quote' \\ % 😀 " + "x" * 70_000
    house.add(new_job(max_attempts=1), new_job())
    hand = house.hand()
    bad, unknown = hand.claim()
    hand.turn(
        Failed(bad, ErrorInfo(message, "builtins:ValueError", traceback="at 😀"), Span(0, 0, 7)),
        Unhandled(unknown, message),
    )
    assert [row["error_message"] for row in house.rows("jobs")] == [message, message]


def test_definitions_are_stored_once_per_hash(house: House) -> None:
    what = definition(single("ä😀"), version="1.0")
    for _ in range(2):
        with House(house.url) as other:
            other.dispatch(what)
    assert len(house.rows("definitions", hash=what.hash)) == 1
    loaded = house.door.read(lambda tx: house.definitions.get(tx, what.hash))
    assert loaded == what
    with pytest.raises(QueuetyError):
        house.door.read(lambda tx: house.definitions.get(tx, "0" * 64))
