"""Tables in use that are brought up to date: who writes goes on, and several may try at the same time."""

from __future__ import annotations

import itertools
import multiprocessing
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from queuety.store import migrate
from queuety.store.door import Door, Tx
from queuety.store.migrate import CHAIN, Chain, Standing, standing
from tests.store.test_migrate import differences, start
from tests.support.databases import Database


@pytest.fixture
def door(fresh_database: Database) -> Iterator[Door]:
    made = Door.open(fresh_database.url)
    yield made
    made.close()


def at_second(door: Door, folder: Path) -> None:
    """Tables at 0002, before there were deadlines and artifacts."""
    folder.mkdir()
    for name in ("0001_tables.py", "0002_coordination.py"):
        shutil.copyfile(CHAIN.folders[0] / name, folder / name)
    migrate.migrate(door, Chain(("0001", "0002"), (folder,)))
    assert standing(door) == Standing("0002", CHAIN.head)


def written(door: Door) -> int:
    """How many rows of history there are."""
    with door.reading() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {door.tables.history.name}")).scalar_one())


class Writer:
    """What a worker of the version before writes, a row of history in each transaction."""

    def __init__(self, url: str, prefix: str) -> None:
        self._engine = create_engine(url, poolclass=NullPool)
        self._table = f"{prefix}history"
        self._numbers = itertools.count(1)
        self.written = 0

    def write(self, connection: Connection, *, run: int = 7) -> None:
        connection.execute(
            text(
                f"INSERT INTO {self._table} (run_id, seq, entry, at_us, token, final) "
                f"VALUES ({run}, {next(self._numbers)}, 'noted', {next(self._numbers)}, 1, 0)"
            )
        )

    def connect(self) -> Connection:
        return self._engine.connect()

    def go_on(self, enough: Callable[[], bool]) -> None:
        """One transaction after the other, each again if the database was busy."""
        with self.connect() as connection:
            while not enough():
                try:
                    with connection.begin():
                        self.write(connection)
                    self.written += 1
                except OperationalError as error:
                    if not isinstance(error.orig, sqlite3.OperationalError):
                        raise


def test_who_writes_goes_on_while_the_tables_are_brought_up_to_date(door: Door, tmp_path: Path) -> None:
    at_second(door, tmp_path / "second")
    url = door.engine.url.render_as_string(hide_password=False)
    writer = Writer(url, door.tables.prefix)
    writer.go_on(lambda: writer.written == 50)
    is_over, failures = threading.Event(), []

    def write() -> None:
        try:
            writer.go_on(lambda: is_over.wait(0.002))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert migrate.migrate(door) == Standing("0002", CHAIN.head)
    finally:
        is_over.set()
        thread.join()
    assert failures == []
    assert differences(door, door.tables.metadata) == []
    assert written(door) == writer.written > 50


def test_an_index_is_built_while_a_transaction_is_open_and_others_write(door: Door, tmp_path: Path) -> None:
    """It waits for that transaction; the plain way would have everybody wait who writes."""
    if door.dialect.build_index is None:
        pytest.skip("the plain way is as good")
    at_second(door, tmp_path / "second")
    url = door.engine.url.render_as_string(hide_password=False)
    writer = Writer(url, door.tables.prefix)
    found: list[object] = []
    with writer.connect() as before:
        writer.write(before)
        thread = threading.Thread(target=lambda: found.append(migrate.migrate(door)))
        thread.start()
        waiting = text(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%history_at%' "
            "AND wait_event_type = 'Lock' AND datname = current_database()"
        )
        with writer.connect() as watching:
            for _ in range(2000):
                with watching.begin():
                    if watching.execute(waiting).scalar_one():
                        break
        with writer.connect() as other, other.begin():
            other.execute(text("SET LOCAL lock_timeout = '2s'"))
            writer.write(other)
        assert found == []
        before.commit()
        thread.join(60)
    assert found == [Standing("0002", CHAIN.head)]
    assert differences(door, door.tables.metadata) == []
    assert written(door) == 2


def test_a_half_built_index_is_built_anew(door: Door, tmp_path: Path) -> None:
    if door.dialect.build_index is None:
        pytest.skip("the plain way is as good")
    at_second(door, tmp_path / "second")
    prefix = door.tables.prefix

    def leave_half(tx: Tx) -> None:
        tx.cursor.execute(f"CREATE INDEX ix_{prefix}history_at ON {prefix}history (at_us)")
        tx.cursor.execute(
            f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_{prefix}history_at'::regclass"
        )

    door.write(leave_half)
    assert migrate.migrate(door) == Standing("0002", CHAIN.head)

    def invalid(tx: Tx) -> Any:
        tx.cursor.execute("SELECT count(*) FROM pg_index WHERE NOT indisvalid")
        return tx.cursor.fetchone()[0]

    assert door.read(invalid) == 0
    assert differences(door, door.tables.metadata) == []


@pytest.mark.slow
def test_many_starters_bring_tables_with_rows_up_to_date_once(
    door: Door, fresh_database: Database, tmp_path: Path
) -> None:
    """Whoever waits for another's migration must not be what its index waits for."""
    at_second(door, tmp_path / "second")
    writer = Writer(fresh_database.url, door.tables.prefix)
    writer.go_on(lambda: writer.written == 20)
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload([start.__module__])
    begin, results = fresh.Barrier(8), fresh.SimpleQueue()
    starters = [fresh.Process(target=start, args=(fresh_database.url, CHAIN, begin, results)) for _ in range(8)]
    for starter in starters:
        starter.start()
    answers = [results.get() for _ in starters]
    for starter in starters:
        starter.join(60)
    assert answers == [CHAIN.head] * 8
    assert differences(door, door.tables.metadata) == []
    assert written(door) == writer.written
