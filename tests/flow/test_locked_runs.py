"""A run whose row somebody else has locked just when its step is done: the result waits, and nobody asks in vain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from queuety import Queuety, Settings, WorkflowStatus, current, step
from queuety.errors import StoreUnavailable
from tests.support.databases import Database
from tests.support.flowing import status_of

State = dict[str, Any]

held: list[Connection] = []


@step
def locks_its_run(state: State) -> State:
    held[0].execute(text(f"SELECT id FROM queuety_workflows WHERE id = {current().workflow_id} FOR UPDATE"))
    return {"done": True}


@pytest.fixture
def server(database: Database) -> Database:
    if database.kind == "sqlite":
        pytest.skip("a file has no locks of rows")
    return database


@contextmanager
def stranger(database: Database) -> Iterator[Connection]:
    """Another program's connection, for `locks_its_run`."""
    engine = create_engine(database.url, poolclass=NullPool)
    with engine.connect() as connection:
        held[:] = [connection]
        yield connection


def test_run_until_idle_waits_for_a_locked_run_without_asking_all_the_time(server: Database) -> None:
    turns = 0
    with Queuety(server.url) as app, stranger(server) as connection:
        run = app.workflow("w").then(locks_its_run).dispatch()

        def count(statement: str) -> None:
            nonlocal turns
            turns += statement == "COMMIT"
            if turns == 20:
                connection.rollback()

        app.door.on_statement = count
        assert app.run_until_idle() == 1
        app.door.on_statement = None
        assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_run_until_idle_says_so_if_a_run_stays_locked(server: Database) -> None:
    with Queuety(server.url, settings=Settings(patience_seconds=0.3)) as app, stranger(server) as connection:
        run = app.workflow("w").then(locks_its_run).dispatch()
        with pytest.raises(StoreUnavailable, match=f"workflow {run} is locked by another transaction"):
            app.run_until_idle()
        connection.rollback()
        assert status_of(app, run).status is WorkflowStatus.RUNNING
