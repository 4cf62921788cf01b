"""Places that are no database for us: each says what is wrong in words, at the first call and soon."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from queuety import Queuety, Settings, errors, job, step
from tests.support.databases import Database

State = dict[str, Any]
IMPATIENT = Settings(patience_seconds=0.1, connect_timeout_seconds=1)


@step
def work(state: State) -> None:
    pass


@job
def task(payload: State) -> None:
    pass


CALLS: tuple[Callable[[Queuety], Any], ...] = (
    lambda app: app.workflow("w").then(work).dispatch(),
    lambda app: app.dispatch(task),
    lambda app: app.workflow_status(1),
    lambda app: app.list_jobs(),
    lambda app: app.run_until_idle(),
    lambda app: app.cancel_workflow(1),
    lambda app: app.paused_queues(),
)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def refuses(app: Queuety, kind: type[Exception], says: str) -> None:
    for call in CALLS:
        began = time.monotonic()
        with pytest.raises(kind) as refusal:
            call(app)
        assert says in str(refusal.value)
        assert isinstance(refusal.value, errors.QueuetyError)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "mysql+pymysql"])
def test_a_server_that_is_not_there(scheme: str) -> None:
    with Queuety(f"{scheme}://user:secret@127.0.0.1:{unused_port()}/shop", settings=IMPATIENT) as app:
        for call in CALLS:
            with pytest.raises(errors.StoreUnavailable) as refusal:
                call(app)
            assert "127.0.0.1" in str(refusal.value)
            assert "secret" not in str(refusal.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    path.write_bytes(b"%PDF-1.7 " * 500)
    with Queuety(f"sqlite:///{path}", settings=IMPATIENT) as app:
        refuses(app, errors.StoreError, str(path))
    assert path.read_bytes() == b"%PDF-1.7 " * 500


def test_a_directory_that_is_not_there_or_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "q.db", tmp_path):
        with Queuety(f"sqlite:///{path}", settings=IMPATIENT) as app:
            refuses(app, errors.StoreError, str(path))


def test_tables_that_are_newer_than_the_code(database: Database) -> None:
    with Queuety(database.url) as app, app.door.engine.begin() as connection:
        table = next(name for name in _tables(connection) if "version" in name)
        before = connection.execute(text(f"SELECT version_num FROM {table}")).scalar_one()
        connection.execute(text(f"UPDATE {table} SET version_num = '9999_from_the_future'"))
    try:
        with Queuety(database.url, settings=IMPATIENT) as app:
            refuses(app, errors.SchemaError, "newer")
    finally:
        with Queuety(database.url, auto_migrate=False) as app, app._door.engine.begin() as connection:
            connection.execute(text(f"UPDATE {table} SET version_num = :version"), {"version": before})


def _tables(connection: Any) -> list[str]:
    from sqlalchemy import inspect

    return list(inspect(connection).get_table_names())


def test_missing_tables_when_nobody_may_make_them(fresh_database: Database) -> None:
    with Queuety(fresh_database.url, auto_migrate=False, settings=IMPATIENT) as app:
        refuses(app, errors.SchemaError, "migrate")
        app.migrate()
        assert app.run_until_idle() == 0


@pytest.mark.parametrize(
    "url", ["", "nonsense", "oracle://x/y", "sqlite+aiosqlite:///x.db", "postgresql+asyncpg://x/y", 3], ids=repr
)
def test_an_address_that_cannot_be_right(url: Any) -> None:
    with pytest.raises(errors.DefinitionError):
        Queuety(url)


def test_settings_that_cannot_be_right() -> None:
    for wrong in ({"lease_seconds": 0}, {"jitter": 2}, {"max_value_bytes": 1.5}, {"sqlite_synchronous": "OFF"}):
        with pytest.raises(errors.DefinitionError, match=next(iter(wrong))):
            Settings(**wrong)
