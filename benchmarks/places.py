"""The databases that are measured: SQLite in a new file, and the servers that answer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

SERVERS = {
    "postgresql": ("QUEUETY_TEST_POSTGRESQL_URL", "postgresql+psycopg://postgres@127.0.0.1:5432/test"),
    "mysql": ("QUEUETY_TEST_MYSQL_URL", "mysql+pymysql://root@127.0.0.1:3306/test"),
}
NAME = f"queuety_bench_{os.getpid()}"
"""Its own for every process: two that measure at once would empty each other's database."""


@dataclass(frozen=True, slots=True)
class Place:
    """A database that holds nothing yet. `kind` is how tables name it."""

    kind: str
    url: str


@contextmanager
def empty_place(kind: str) -> Iterator[Place]:
    """An empty database of this kind, removed afterwards. Raises `SQLAlchemyError` or `ImportError`."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="queuety-bench-", dir=".") as directory:
            yield Place("sqlite FULL", f"sqlite:///{directory}/bench.db")
        return
    variable, usual = SERVERS[kind]
    url = make_url(os.environ.get(variable, usual))
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 5})
    force = " WITH (FORCE)" if kind == "postgresql" else ""

    def recreate(*, afterwards: bool) -> None:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE IF EXISTS {NAME}{force}"))
            if not afterwards:
                connection.execute(text(f"CREATE DATABASE {NAME}"))

    recreate(afterwards=False)
    try:
        yield Place(kind, url.set(database=NAME).render_as_string(hide_password=False))
    finally:
        recreate(afterwards=True)


def kinds_that_answer(wanted: list[str]) -> tuple[list[str], dict[str, str]]:
    """Which of these kinds can be measured here, and why not the others."""
    found: list[str] = []
    absent: dict[str, str] = {}
    for kind in wanted:
        try:
            with empty_place(kind):
                found.append(kind)
        except (SQLAlchemyError, ImportError) as error:
            cause = str(getattr(error, "orig", None) or error)
            absent[kind] = cause.strip().splitlines()[0]
    return found, absent
