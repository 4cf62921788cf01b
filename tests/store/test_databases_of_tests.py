"""The databases that the tests run on are what the fixtures promise; every other test builds on that."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from tests.support import databases as support
from tests.support.databases import Database, Place


def _sizes(database: Database) -> dict[str, int]:
    with _engine(database).connect() as connection:
        names = inspect(connection).get_table_names()
        return {name: connection.execute(text(f"SELECT COUNT(*) FROM {name}")).scalar_one() for name in names}


def test_a_database_has_the_tables_and_the_rows_of_a_new_one(
    databases: support.Databases, database_kind: str, tmp_path: Path
) -> None:
    place = databases.place(database_kind)
    fresh = place.fresh(tmp_path)
    support.create_schema(fresh.url)
    found = _sizes(place.database(tmp_path))
    assert found == _sizes(fresh)
    assert found["queuety_jobs"] == 0


def _engine(database: Database) -> Engine:
    return create_engine(database.url, poolclass=NullPool)


def _a_table(url: str) -> None:
    """Stands for the migrations: one table, one row that belongs to the schema."""
    with create_engine(url, poolclass=NullPool).begin() as connection:
        connection.execute(text("CREATE TABLE things (name VARCHAR(20) PRIMARY KEY)"))
        connection.execute(text("INSERT INTO things VALUES ('seed')"))


@pytest.fixture
def place(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database_kind: str) -> Place:
    """A place of the same kind whose migrations make that one table."""
    monkeypatch.setattr(support, "create_schema", _a_table)
    own = support.Databases(tmp_path, "of_tests")
    return own.place(database_kind)


def _names(database: Database) -> list[str]:
    with _engine(database).connect() as connection:
        return list(connection.execute(text("SELECT name FROM things ORDER BY name")).scalars())


def test_what_a_test_wrote_is_gone_and_what_the_migrations_wrote_is_not(place: Place, tmp_path: Path) -> None:
    try:
        first = place.database(tmp_path)
        with _engine(first).begin() as connection:
            connection.execute(text("DELETE FROM things"))
            connection.execute(text("INSERT INTO things VALUES ('mine')"))
        assert _names(first) == ["mine"]
        assert _names(place.database(tmp_path)) == ["seed"]
    finally:
        place.close()


def test_a_table_too_many_or_too_few_is_put_right(place: Place, tmp_path: Path) -> None:
    try:
        for change in ("CREATE TABLE other (name INTEGER)", "DROP TABLE things"):
            with _engine(place.database(tmp_path)).begin() as connection:
                connection.execute(text(change))
            with _engine(place.database(tmp_path)).connect() as connection:
                assert inspect(connection).get_table_names() == ["things"]
    finally:
        place.close()


def test_a_connection_left_open_in_a_transaction_does_not_block_the_next_test(place: Place, tmp_path: Path) -> None:
    engine = _engine(place.database(tmp_path))
    left = engine.connect()
    try:
        left.execute(text("UPDATE things SET name = 'held'"))
        assert _names(place.database(tmp_path)) == ["seed"]
    finally:
        left.invalidate()
        place.close()


def test_a_fresh_database_has_no_table(place: Place, tmp_path: Path) -> None:
    try:
        fresh = place.fresh(tmp_path)
        with _engine(fresh).connect() as connection:
            assert inspect(connection).get_table_names() == []
    finally:
        place.close()


def test_two_sessions_never_share_a_database(place: Place, database_kind: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    others = support.Databases(tmp_path / "other", "of_tests")
    try:
        other = others.place(database_kind)
        assert other.database(tmp_path / "other").url != place.database(tmp_path).url
    finally:
        others.close()
        place.close()
