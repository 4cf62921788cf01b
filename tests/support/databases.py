"""The databases that the tests run on: found, created, cleaned and dropped here. No test does any of it by itself.

Every pytest process (every xdist worker) has a database of its own on each server. It holds a lock on the database's
name while it lives, so sessions that run side by side never share one, and what a killed session left is used again.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, inspect, make_url, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

KINDS: Final = ("sqlite", "postgresql", "mysql")
SERVERS: Final = {
    "postgresql": ("QUEUETY_TEST_POSTGRESQL_URL", "postgresql+psycopg://postgres@127.0.0.1:5432/test"),
    "mysql": ("QUEUETY_TEST_MYSQL_URL", "mysql+pymysql://root@127.0.0.1:3306?ssl_disabled=1"),
}
"""Where the servers are looked for: the variable that says so, and the place if it is not set. PyMySQL reads all of the
system's certificates for every connection, 20 ms, unless it is told that there is no TLS."""

CONNECT_S: Final = 5
BLOCKED_S: Final = 1
"""How long cleaning waits for a lock that an earlier test's connection holds before it ends that connection."""


@dataclass(frozen=True, slots=True)
class Database:
    """One database for one test. `kind` is one of `KINDS`; `url` is what a user would pass."""

    kind: str
    url: str


class Unreachable(Exception):
    """There is no such server here; the message is one line that says why."""


def create_schema(url: str) -> None:
    """Makes Queuety's tables there."""
    from queuety.store.door import Door
    from queuety.store.migrate import ensure

    door = Door.open(url)
    try:
        ensure(door)
    finally:
        door.close()


class Place(ABC):
    """Where databases of one kind are had."""

    @abstractmethod
    def database(self, directory: Path) -> Database:
        """A database with the tables and nothing in them. `directory` is the test's own."""

    @abstractmethod
    def fresh(self, directory: Path) -> Database:
        """A database without any table."""

    @abstractmethod
    def close(self) -> None:
        """Drops what was made."""


class SqliteFiles(Place):
    """A file per test, copied from one that was migrated once."""

    def __init__(self, directory: Path) -> None:
        self._template = directory / "template.db"

    def database(self, directory: Path) -> Database:
        if not self._template.exists():
            create_schema(f"sqlite:///{self._template}")
            with sqlite3.connect(self._template) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
        path = directory / "queuety.db"
        shutil.copyfile(self._template, path)
        return Database("sqlite", f"sqlite:///{path}")

    def fresh(self, directory: Path) -> Database:
        return Database("sqlite", f"sqlite:///{directory / 'fresh.db'}")

    def close(self) -> None:
        """Nothing: pytest keeps the last sessions' directories, and removes older ones."""


class Server(Place):
    """A server, and this process's two databases on it: one with the tables, made once and emptied before each test,
    and one without. Raises `Unreachable` when made."""

    kind: str
    try_lock: str
    create_options: str
    bounded_wait: tuple[str, ...]

    def __init__(self, url: URL, worker: str) -> None:
        self._url = url
        try:
            self._engine = create_engine(
                url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": CONNECT_S}
            )
            self._holder = self._engine.connect()
        except (SQLAlchemyError, ImportError) as error:
            cause = str(getattr(error, "orig", None) or error)
            raise Unreachable(cause.strip().splitlines()[0]) from error
        self._name = self._reserve(worker)
        self._schema: Schema | None = None

    @abstractmethod
    def end_others(self, connection: Connection, name: str) -> None:
        """Ends every connection to the database `name`."""

    def database(self, directory: Path) -> Database:
        url = self._url_of(self._name)
        if self._schema is not None and not self._schema.is_whole():
            self._schema.close()
            self._schema = None
        if self._schema is None:
            self._recreate(self._name)
            create_schema(url)
            self._schema = Schema(url, self.bounded_wait)
        try:
            self._schema.empty()
        except OperationalError:
            self.end_others(self._holder, self._name)
            self._schema.empty()
        return Database(self.kind, url)

    def fresh(self, directory: Path) -> Database:
        name = f"{self._name}_fresh"
        self._recreate(name)
        return Database(self.kind, self._url_of(name))

    def close(self) -> None:
        if self._schema is not None:
            self._schema.close()
        for name in (self._name, f"{self._name}_fresh"):
            self._drop(name)
        self._holder.close()
        self._engine.dispose()

    def _reserve(self, worker: str) -> str:
        for number in range(1, 100):
            name = f"queuety_test_{worker}" + ("" if number == 1 else f"_{number}")
            if self._holder.execute(text(self.try_lock), {"name": name}).scalar_one():
                return name
        raise Unreachable(f"a hundred databases named queuety_test_{worker} are in use")

    def _recreate(self, name: str) -> None:
        self._drop(name)
        self._holder.execute(text(f"CREATE DATABASE {name} {self.create_options}"))

    def _drop(self, name: str) -> None:
        self.end_others(self._holder, name)
        self._holder.execute(text(f"DROP DATABASE IF EXISTS {name}"))

    def _url_of(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)


class Postgresql(Server):
    """PostgreSQL 14 or newer."""

    kind = "postgresql"
    try_lock = "SELECT pg_try_advisory_lock(hashtext(:name))"
    create_options = "TEMPLATE template0 ENCODING 'UTF8'"
    bounded_wait = (f"SET lock_timeout = '{BLOCKED_S}s'",)

    def end_others(self, connection: Connection, name: str) -> None:
        connection.execute(
            # Waits (in ms) until each is gone: the database cannot be dropped before.
            text("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = :name"),
            {"name": name},
        )


class Mysql(Server):
    """MySQL 8 or MariaDB 10.6, or newer."""

    kind = "mysql"
    try_lock = "SELECT GET_LOCK(:name, 0)"
    create_options = "CHARACTER SET utf8mb4"
    bounded_wait = (
        f"SET SESSION innodb_lock_wait_timeout = {BLOCKED_S}",
        f"SET SESSION lock_wait_timeout = {BLOCKED_S}",
    )

    def end_others(self, connection: Connection, name: str) -> None:
        ids = connection.execute(text("SELECT id FROM information_schema.processlist WHERE db = :name"), {"name": name})
        for number in ids.scalars().all():
            try:
                connection.execute(text(f"KILL {int(number)}"))
            except OperationalError as error:
                if "Unknown thread" not in str(error):  # it has ended by itself
                    raise


class Schema:
    """The tables of one migrated database, and the rows that the migrations put there."""

    def __init__(self, url: str, bounded_wait: tuple[str, ...]) -> None:
        # One connection for all tests; some of them have ended it.
        self._engine: Engine = create_engine(url, pool_size=1, max_overflow=0, pool_pre_ping=True)
        self._bounded_wait = bounded_wait
        with self._engine.connect() as connection:
            ordered = [name for name, _ in inspect(connection).get_sorted_table_and_fkc_names() if name is not None]
            self._tables = list(reversed(ordered))
            self._rows = {name: self._rows_of(connection, name) for name in self._tables}

    def is_whole(self) -> bool:
        """Whether the tables are still those, no one more or fewer."""
        with self._engine.connect() as connection:
            found = connection.execute(
                text("SELECT table_name FROM information_schema.tables WHERE table_schema = :here"),
                {"here": "public" if self._engine.name == "postgresql" else self._engine.url.database},
            )
            return set(found.scalars()) == set(self._tables)

    def empty(self) -> None:
        """Leaves what the migrations left. Raises `OperationalError` if somebody holds a lock for too long."""
        with self._engine.begin() as connection:
            for statement in self._bounded_wait:
                connection.execute(text(statement))
            for name in self._tables:
                connection.execute(text(f"DELETE FROM {self._quoted(name)}"))
            for name in reversed(self._tables):
                if rows := self._rows[name]:
                    columns = ", ".join(self._quoted(column) for column in rows[0])
                    values = ", ".join(f":{column}" for column in rows[0])
                    connection.execute(text(f"INSERT INTO {self._quoted(name)} ({columns}) VALUES ({values})"), rows)

    def close(self) -> None:
        self._engine.dispose()

    def _rows_of(self, connection: Connection, name: str) -> list[dict[str, Any]]:
        return [dict(row) for row in connection.execute(text(f"SELECT * FROM {self._quoted(name)}")).mappings()]

    def _quoted(self, name: str) -> str:
        return self._engine.dialect.identifier_preparer.quote(name)


class Databases:
    """The databases of one pytest process, opened when first asked for."""

    def __init__(self, directory: Path, worker: str) -> None:
        self._directory = directory
        self._worker = worker
        self._places: dict[str, Place | Unreachable] = {}

    def place(self, kind: str) -> Place:
        """Where databases of this kind are had. Raises `Unreachable`, at once from the second time on."""
        if kind not in self._places:
            try:
                self._places[kind] = self._open(kind)
            except Unreachable as reason:
                self._places[kind] = reason
        found = self._places[kind]
        if isinstance(found, Unreachable):
            raise found
        return found

    def close(self) -> None:
        for place in self._places.values():
            if isinstance(place, Place):
                place.close()

    def _open(self, kind: str) -> Place:
        if kind == "sqlite":
            return SqliteFiles(self._directory)
        variable, usual = SERVERS[kind]
        url = make_url(os.environ.get(variable) or usual)
        return (Postgresql if kind == "postgresql" else Mysql)(url, self._worker)


@contextmanager
def opened(directory: Path, worker: str) -> Iterator[Databases]:
    """The databases of this process, dropped at the end."""
    databases = Databases(directory, worker)
    try:
        yield databases
    finally:
        databases.close()


def required_kinds() -> frozenset[str]:
    """The kinds that must not be missing, of `QUEUETY_TEST_REQUIRE=postgresql,mysql`. Raises `ValueError` on others."""
    named = {part.strip() for part in os.environ.get("QUEUETY_TEST_REQUIRE", "").split(",")} - {""}
    if unknown := named - set(KINDS):
        raise ValueError(f"QUEUETY_TEST_REQUIRE names {', '.join(sorted(unknown))}; known are {', '.join(KINDS)}")
    return frozenset(named)
