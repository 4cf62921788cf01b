"""The door on every database: what a transaction leaves behind when it succeeds, fails, is broken or is repeated."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from queuety.errors import DefinitionError, SchemaError, StoreError, StoreUnavailable
from queuety.store.dialects import Limits
from queuety.store.door import Door, Tx
from tests.store.breaking import cut, driver_error
from tests.support.databases import Database

QUICK = Limits(patience_s=0.2)


@pytest.fixture
def door(fresh_database: Database) -> Iterator[Door]:
    """A door to a database with one table, `things(name)`, the name unique."""
    made = Door.open(fresh_database.url)
    made.write(lambda tx: tx.connection.execute(text("CREATE TABLE things (name VARCHAR(50) PRIMARY KEY)")))
    yield made
    made.on_statement = None
    made.close()


def add(tx: Tx, name: str = "a") -> str:
    tx.cursor.execute(f"INSERT INTO things (name) VALUES ({tx.dialect.bulk.parameter})", [name])
    return name


def has(tx: Tx, name: str = "a") -> str | None:
    tx.cursor.execute(f"SELECT name FROM things WHERE name = {tx.dialect.bulk.parameter}", [name])
    row = tx.cursor.fetchone()
    return None if row is None else str(row[0])


def names(door: Door) -> list[str]:
    with door.reading() as connection:
        return list(connection.execute(text("SELECT name FROM things ORDER BY name")).scalars())


class Break:
    """Raises each of these errors once, the next time a statement begins with `at`; counts every statement."""

    def __init__(self, door: Door, at: str, *errors: Exception) -> None:
        self.seen: list[str] = []
        self._at = at
        self._errors = list(errors)
        door.on_statement = self

    def __call__(self, statement: str) -> None:
        self.seen.append(statement)
        if statement.startswith(self._at) and self._errors:
            raise self._errors.pop(0)


def test_a_unit_is_committed_and_gives_its_result(door: Door) -> None:
    assert door.write(add) == "a"
    assert names(door) == ["a"]
    assert door.read(has) == "a"


def test_both_ways_of_speaking_share_the_transaction(door: Door) -> None:
    def unit(tx: Tx) -> list[str]:
        add(tx)
        return list(tx.connection.execute(text("SELECT name FROM things")).scalars())

    assert door.write(unit) == ["a"]


def test_an_exception_of_the_unit_rolls_back_and_passes_unchanged(door: Door) -> None:
    mine = RuntimeError("mine")

    def unit(tx: Tx) -> None:
        add(tx)
        raise mine

    with pytest.raises(RuntimeError) as caught:
        door.write(unit)
    assert caught.value is mine
    assert names(door) == []
    door.write(add)
    assert names(door) == ["a"]


def test_a_read_leaves_nothing(door: Door) -> None:
    with door.line() as line:
        door.read(lambda tx: tx.connection.execute(text("SELECT 1")).scalar(), on=line)
        assert door.write(add, on=line) == "a"
        assert door.read(has, on=line) == "a"
    assert names(door) == ["a"]


@pytest.mark.parametrize("what", ["deadlock", "lost"])
@pytest.mark.parametrize("at", ["INSERT", "SELECT", "COMMIT"])
@pytest.mark.parametrize("on_line", [False, True])
def test_the_whole_unit_is_run_again(door: Door, what: str, at: str, on_line: bool) -> None:
    tries = []

    def unit(tx: Tx) -> str:
        tries.append(1)
        add(tx)
        return has(tx) or "nothing"

    Break(door, at, *(driver_error(door.dialect.name, what) for _ in range(2)))
    line = door.line() if on_line else None
    assert door.write(unit, on=line) == "a"
    door.on_statement = None
    assert len(tries) == 3
    assert names(door) == ["a"]
    if line is not None:
        line.close()


def test_patience_ends_in_one_clear_error_and_nothing_written(fresh_database: Database, door: Door) -> None:
    impatient = Door.open(fresh_database.url, limits=QUICK)
    deadlock = driver_error(door.dialect.name, "deadlock")

    def unit(tx: Tx) -> None:
        add(tx)
        raise deadlock

    with pytest.raises(StoreUnavailable, match=r"writing failed \d+ times in 0\.\d s: ") as caught:
        impatient.write(unit)
    assert caught.value.__cause__ is deadlock
    assert names(door) == []
    impatient.close()


def test_closing_ends_the_patience_of_those_who_wait(door: Door) -> None:
    began = threading.Event()

    def unit(tx: Tx) -> None:
        began.set()
        raise driver_error(door.dialect.name, "deadlock")

    caught: list[BaseException] = []

    def run() -> None:
        try:
            door.write(unit, patience_s=60)
        except StoreUnavailable as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(10)
    door.close()
    thread.join(10)
    assert not thread.is_alive()
    assert len(caught) == 1


def test_every_statement_of_a_transaction_may_break(door: Door) -> None:
    """Before each of them in turn, COMMIT included: as before after the error, done after the retry."""

    def unit(tx: Tx) -> None:
        add(tx, "a")
        tx.connection.execute(text("INSERT INTO things (name) VALUES ('b')"))
        add(tx, "c")

    counted = Break(door, "nothing")
    door.write(unit)
    door.write(lambda tx: tx.connection.execute(text("DELETE FROM things")))
    total = counted.seen.index("COMMITTED")
    assert total >= 4
    for broken in range(total):
        left = [broken]

        def hook(statement: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise RuntimeError(statement)

        door.on_statement = hook
        with pytest.raises(RuntimeError):
            door.write(unit)
        door.on_statement = None
        assert names(door) == []
        door.write(unit)
        assert names(door) == ["a", "b", "c"]
        door.write(lambda tx: tx.connection.execute(text("DELETE FROM things")))


def test_a_commit_that_landed_is_not_done_again(door: Door) -> None:
    Break(door, "COMMITTED", driver_error(door.dialect.name, "lost"))
    units = []

    def unit(tx: Tx) -> str:
        units.append(1)
        return add(tx)

    assert door.write(unit, landed=has) == "a"
    assert len(units) == 1
    assert names(door) == ["a"]


def test_a_commit_that_did_not_land_is_done_again(door: Door) -> None:
    Break(door, "COMMIT", driver_error(door.dialect.name, "lost"))
    asked = []

    def landed(tx: Tx) -> str | None:
        asked.append(has(tx))
        return asked[-1]

    assert door.write(add, landed=landed) == "a"
    assert asked == [None]
    assert names(door) == ["a"]


def test_nobody_is_asked_when_the_outcome_is_known(door: Door) -> None:
    Break(door, "COMMIT", driver_error(door.dialect.name, "deadlock"))

    def landed(tx: Tx) -> str:
        raise AssertionError("the transaction was taken back for sure")

    assert door.write(add, landed=landed) == "a"


def test_a_commit_that_lands_during_the_retry_is_found(door: Door) -> None:
    """The lost COMMIT was still under way when it was asked about; the retry then meets its unique key."""
    Break(door, "COMMITTED", driver_error(door.dialect.name, "lost"))
    answers: list[str | None] = [None]

    def landed(tx: Tx) -> str | None:
        return answers.pop() if answers else has(tx)

    assert door.write(add, landed=landed) == "a"
    assert answers == []
    assert names(door) == ["a"]


def test_an_unknown_answer_to_commit_counts_as_unknown(door: Door) -> None:
    odd = door.dialect.driver_error("an answer that nobody knows")
    Break(door, "COMMITTED", odd)
    assert door.write(add, landed=has) == "a"
    assert names(door) == ["a"]


def test_a_taken_key_is_an_error_of_ours_and_not_repeated(door: Door) -> None:
    door.write(add)
    tries = []

    def unit(tx: Tx) -> None:
        tries.append(1)
        add(tx)

    with pytest.raises(StoreError, match="writing failed: ") as caught:
        door.write(unit)
    assert isinstance(caught.value.__cause__, door.dialect.driver_error)
    assert len(tries) == 1


@pytest.mark.parametrize("bare", [True, False])
def test_a_wrong_statement_is_an_error_of_ours(door: Door, bare: bool) -> None:
    def unit(tx: Tx) -> None:
        if bare:
            tx.cursor.execute("SELEC 1")
        else:
            tx.connection.execute(text("SELEC 1"))

    for run in (door.write, door.read):
        with pytest.raises(StoreError) as caught:
            run(unit)
        assert type(caught.value) is StoreError
    with pytest.raises(StoreError), door.reading() as connection:
        connection.execute(text("SELEC 1"))


def test_a_missing_table_says_what_to_run(door: Door) -> None:
    with pytest.raises(SchemaError, match="queuety migrate"):
        door.read(lambda tx: tx.cursor.execute("SELECT 1 FROM no_such_table"))


def test_a_cut_connection_is_replaced(door: Door) -> None:
    """Really cut, in the middle, on a connection that was kept."""
    if door.dialect.now_sql is None:
        pytest.skip("a file has no network")
    with door.line() as line:
        door.write(lambda tx: add(tx, "before"), on=line)
        once = [1]

        def unit(tx: Tx) -> str:
            add(tx)
            if once:
                once.pop()
                cut(tx.connection.connection.dbapi_connection)
            return has(tx) or "nothing"

        assert door.write(unit, on=line) == "a"
    assert names(door) == ["a", "before"]


@pytest.mark.parametrize("on_line", [False, True])
def test_a_commit_on_a_cut_connection_is_asked_about(door: Door, on_line: bool) -> None:
    if door.dialect.now_sql is None:
        pytest.skip("a file has no network")
    held: list[Any] = []

    def unit(tx: Tx) -> str:
        held.append(tx.connection.connection.dbapi_connection)
        return add(tx)

    def hook(statement: str) -> None:
        if statement == "COMMIT" and len(held) == 1:
            cut(held[0])

    door.on_statement = hook
    asked = []

    def landed(tx: Tx) -> str | None:
        asked.append(has(tx))
        return asked[-1]

    line = door.line() if on_line else None
    assert door.write(unit, landed=landed, on=line) == "a"
    assert len(asked) == 1
    door.on_statement = None
    assert names(door) == ["a"]
    if line is not None:
        line.close()


def test_connections_that_died_while_they_rested_are_replaced(door: Door) -> None:
    """A restart of the server, or `wait_timeout`: every pooled connection is dead, reading and writing go on."""
    if door.dialect.now_sql is None:
        pytest.skip("a file has no network")
    line = door.line()
    door.write(lambda tx: cut(tx.connection.connection.dbapi_connection) if has(tx) else None)
    raws: list[Any] = []
    door.read(lambda tx: raws.append(tx.connection.connection.dbapi_connection), on=line)
    for raw in raws:
        cut(raw)
    assert door.write(add, on=line) == "a"
    assert names(door) == ["a"]
    line.close()


def test_joining_commits_and_rolls_back_with_the_caller(fresh_database: Database, door: Door) -> None:
    theirs = create_engine(fresh_database.url, poolclass=NullPool)
    with theirs.connect() as connection:
        with door.joined(connection) as tx:
            add(tx, "rolled back")
        connection.rollback()
        with connection.begin(), door.joined(connection) as tx:
            add(tx, "committed")
    with Session(theirs) as session:
        session.execute(text("INSERT INTO things (name) VALUES ('theirs')"))
        with door.joined(session) as tx:
            add(tx, "ours")
        session.commit()
    assert names(door) == ["committed", "ours", "theirs"]


def test_joining_translates_and_does_not_repeat(fresh_database: Database, door: Door) -> None:
    theirs = create_engine(fresh_database.url, poolclass=NullPool)
    deadlock = driver_error(door.dialect.name, "deadlock")
    with theirs.connect() as connection, pytest.raises(StoreUnavailable) as caught, door.joined(connection):
        raise deadlock
    assert caught.value.__cause__ is deadlock


def test_joining_another_kind_of_database_is_refused(door: Door) -> None:
    other = create_engine("sqlite://") if door.dialect.name != "sqlite" else None
    if other is None:
        pytest.skip("the servers' doors refuse SQLite")
    with other.connect() as connection, pytest.raises(DefinitionError, match="connection= leads to sqlite"):
        door.joined(connection).__enter__()
    with pytest.raises(DefinitionError, match="an SQLAlchemy Connection or Session is needed"):
        door.joined("nonsense").__enter__()  # type: ignore[arg-type]


def test_an_engine_of_the_caller_is_used_and_left_alone(fresh_database: Database, door: Door) -> None:
    theirs = create_engine(fresh_database.url)
    own = Door.open(theirs)
    assert own.write(add) == "a"
    assert own.read(has) == "a"
    before = theirs.pool
    own.close()
    assert theirs.pool is before
    theirs.dispose()
    assert names(door) == ["a"]


def test_writers_in_many_threads_lose_nothing(door: Door) -> None:
    def run(number: int) -> None:
        for turn in range(20):
            door.write(lambda tx: add(tx, f"{number}-{turn}"))  # noqa: B023 - called before the loop goes on

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(door)) == 80


def in_a_fork(work: Callable[[], object]) -> str:
    """What `work` gives back, or its error, from a forked child."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            writer.send(repr(work()))
        except BaseException as error:
            writer.send(repr(error))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert reader.poll(0)
    return str(reader.recv())


def test_a_fork_has_connections_of_its_own(door: Door) -> None:
    with door.line() as line:
        door.write(lambda tx: add(tx, "parent"), on=line)
        door.write(lambda tx: add(tx, "pool"))
        assert in_a_fork(lambda: (door.write(add), door.write(lambda tx: add(tx, "line"), on=line))) == "('a', 'line')"
        assert door.write(lambda tx: add(tx, "after"), on=line) == "after"
    assert names(door) == ["a", "after", "line", "parent", "pool"]


def test_a_fork_while_another_thread_writes_can_write(door: Door) -> None:
    """What the thread holds at that moment must not be held for ever in the child."""
    over = threading.Event()
    written = []

    def keep_writing() -> None:
        while not over.is_set():
            written.append(door.write(lambda tx: add(tx, f"thread-{len(written)}")))

    thread = threading.Thread(target=keep_writing)
    thread.start()
    try:
        for number in range(5):
            assert in_a_fork(lambda: door.write(lambda tx: add(tx, f"child-{number}"))) == f"'child-{number}'"  # noqa: B023
    finally:
        over.set()
        thread.join()
    assert len(names(door)) == len(written) + 5


def test_the_clock_is_the_database_s_and_steady(door: Door) -> None:
    first = door.now_us()
    told: list[int] = []

    def ask(tx: Tx) -> None:
        if tx.dialect.now_sql is not None:
            tx.cursor.execute(tx.dialect.now_sql)
            told.append(int(tx.cursor.fetchone()[0]))

    door.read(ask)
    last = door.now_us()
    assert first <= last
    for value in told:
        assert first - 50_000 <= value <= last + 50_000


@pytest.mark.parametrize("prefix", ["", "Upper_", "1st_", "a-b", "a" * 33, "ä_", 'x"; DROP TABLE y; --'])
def test_a_prefix_that_would_need_quotes_is_refused(prefix: str) -> None:
    with pytest.raises(DefinitionError, match="table_prefix"):
        Door.open("sqlite://", table_prefix=prefix)
