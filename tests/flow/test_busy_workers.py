"""Workers that are never idle, or never free: they still hear of what others do, and do not ask in vain."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import Queuety, Settings, current, job, step
from queuety.store import workers
from queuety.store.door import Tx
from tests.store.breaking import driver_error
from tests.support.databases import Database
from tests.support.flowing import note, notes, until, working
from tests.support.invariants import check

State = dict[str, Any]

let_go = threading.Event()


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    let_go.clear()
    yield
    let_go.set()


@step
def around(state: State) -> State:
    """Comes back to itself, quicker than any pause between two questions to the database."""
    return {} if let_go.is_set() else {"_next_step": "around"}


@job
def note_word(word: str) -> None:
    note(word)


@job
def note_time(number: int) -> None:
    note((number, time.monotonic()))


@job
def wait(number: int) -> None:
    note(number)
    let_go.wait(30)


@job
def note_neighbours(number: int) -> None:
    note(current().job_id)
    let_go.wait(30)


def test_a_worker_with_always_one_thing_in_hand_sees_what_comes_due_and_what_is_paused(database: Database) -> None:
    with Queuety(database.url) as app, Queuety(database.url) as elsewhere:
        with working(app, "default,other"):
            app.workflow("w").then(around, name="around").dispatch()
            elsewhere.dispatch(note_word, {"word": "due"}, delay=0.3)
            until(lambda: notes == ["due"], within_s=5)
            elsewhere.pause("other")
            statements: list[str] = []
            app.door.on_statement = statements.append
            until(lambda: any("paused_us IS NOT NULL" in text for text in statements), within_s=5)
            app.door.on_statement = None
            let_go.set()
        check(app.door)


@pytest.mark.serial
def test_a_worker_without_a_free_place_does_not_ask_for_more_work_in_vain(database: Database) -> None:
    with Queuety(database.url) as app, working(app, concurrency=1, grace_s=0):
        for number in range(4):
            app.dispatch(wait, {"number": number})
        until(lambda: notes)
        threading.Event().wait(2.0)
        statements: list[str] = []
        app.door.on_statement = statements.append
        threading.Event().wait(2.0)
        app.door.on_statement = None
        assert notes == [0]
    asked = [text for text in statements if not text.startswith(("BEGIN", "SET", "COMMIT", "ROLLBACK", "PRAGMA"))]
    assert len(asked) <= 12, asked


@pytest.mark.serial
def test_what_comes_due_at_short_intervals_is_begun_in_time(database: Database) -> None:
    with Queuety(database.url) as app, Queuety(database.url) as elsewhere, working(app):
        due: list[float] = []
        for number in range(4):
            delay = 1.5 + number * 0.2
            elsewhere.dispatch(note_time, {"number": number}, delay=delay)
            due.append(time.monotonic() + delay)
        until(lambda: len(notes) == 4)
    late = sorted(at - due[number] for number, at in notes)
    assert late[2] < 0.3, late


def put_under_suspicion(app: Queuety, job_id: int) -> None:
    """As if it had been in hand, with others, when a process died."""

    def unit(tx: Tx) -> None:
        p = tx.statements.parameter
        tx.cursor.execute(f"UPDATE {tx.statements.jobs} SET phase = 'suspect' WHERE id = {p}", [job_id])

    app.door.write(unit)


def test_a_process_that_is_there_for_suspects_takes_nothing_else(database: Database) -> None:
    with Queuety(database.url) as app:
        first = app.dispatch(note_neighbours, {"number": 1})
        put_under_suspicion(app, first)
        for number in (2, 3):
            app.dispatch(note_neighbours, {"number": number})
        terms = app.terms("default", 1, is_supervised=True, takes_suspects_only=True)
        loop = app.worker_loop(terms)
        thread = threading.Thread(target=loop.run)
        thread.start()
        until(lambda: notes)
        until(lambda: not loop._has_suspects)  # it has looked, and there is no other
        let_go.set()
        thread.join(30)
        assert not thread.is_alive()
        assert notes == [first]


def test_nothing_else_is_begun_beside_a_suspect(database: Database) -> None:
    with Queuety(database.url) as app:
        first = app.dispatch(note_neighbours, {"number": 1})
        put_under_suspicion(app, first)
        with working(app, grace_s=0):
            until(lambda: notes)
            app.dispatch(note_neighbours, {"number": 2})
            threading.Event().wait(0.5)
            assert notes == [first]
            let_go.set()
            until(lambda: len(notes) == 2)


def test_a_suspect_does_not_stop_a_worker_that_has_something_in_hand(database: Database) -> None:
    """It waits for a moment in which it can be alone, and not the others for it, at first."""
    with Queuety(database.url) as app, working(app, grace_s=0):
        app.dispatch(wait, {"number": 1})
        until(lambda: notes == [1])
        put_under_suspicion(app, app.dispatch(wait, {"number": 3}, delay=600))
        until(lambda: app.dispatch(note_word, {"word": "beside"}) and "beside" in notes)
        assert 3 not in notes
        let_go.set()
        until(lambda: 3 in notes)


def test_a_worker_that_others_took_for_dead_while_it_was_cut_off_enters_the_register_again(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with Queuety(database.url, settings=Settings(patience_seconds=0.05)) as app, working(app):
        until(lambda: app.door.read(workers.registered))
        app.door.write(lambda tx: workers.forget_dead(tx, tx.now_us() + 1))
        broken = threading.Event()

        def lose(text: str) -> None:
            if not broken.is_set():
                raise driver_error(database.kind, "lost")

        app.door.on_statement = lose
        (wakes,) = app._listeners
        wakes.tell()
        until(lambda: "the database is lost" in caplog.text)
        broken.set()
        until(lambda: app.door.read(workers.registered))
        app.door.on_statement = None
