"""`dispatch(connection=…)`: a run or a job that starts with the caller's own transaction, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, func, make_url, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from queuety import Queuety, WorkflowStatus, errors, job, step
from tests.support.databases import Database
from tests.support.flowing import note, notes, until, working
from tests.support.invariants import check

State = dict[str, Any]

metadata = MetaData()
orders = Table("flow_orders", metadata, Column("id", Integer, primary_key=True))
"""The caller's own table."""


@step
def confirm(state: State) -> State:
    note(state["order"])
    return {"confirmed": True}


@job
def invoice(order: int) -> None:
    note(f"invoice {order}")


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    """The caller's own engine on the same database."""
    made = create_engine(database.url)
    metadata.create_all(made)
    yield made
    metadata.drop_all(made)
    made.dispose()


@pytest.fixture
def app(database: Database) -> Iterator[Queuety]:
    with Queuety(database.url) as made:
        yield made
        check(made.door)


def start(app: Queuety, order: int, connection: Any) -> tuple[int, int]:
    connection.execute(orders.insert().values(id=order))
    run = app.workflow("order").then(confirm).dispatch({"order": order}, connection=connection)
    return run, app.dispatch(invoice, {"order": order}, connection=connection)


def count_orders(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(orders)).scalar_one()


@pytest.mark.parametrize("begin", [Engine.begin, Session], ids=["connection", "session"])
def test_a_dispatch_is_committed_with_the_callers_transaction_and_seen_by_workers_only_then(
    app: Queuety, engine: Engine, begin: Callable[[Engine], Any]
) -> None:
    other = app.workflow("other").then(confirm).dispatch({"order": "other"})
    with working(app):
        app.wait(other, 30)
        with begin(engine) as connection:
            run, job_id = start(app, 1, connection)
            if app.door.dialect.writer_key() is None:
                beside = app.workflow("other").then(confirm).dispatch({"order": "beside"})
                app.wait(beside, 30)
            assert app.workflow_status(run) is None
            assert app.job_status(job_id) is None
            assert 1 not in notes
            if isinstance(connection, Session):
                connection.commit()
        assert app.wait(run, 30).status is WorkflowStatus.COMPLETED
        until(lambda: "invoice 1" in notes)
    assert count_orders(engine) == 1


@pytest.mark.parametrize("begin", [Engine.connect, Session], ids=["connection", "session"])
def test_a_dispatch_is_rolled_back_with_the_callers_transaction(
    app: Queuety, engine: Engine, begin: Callable[[Engine], Any]
) -> None:
    with begin(engine) as connection:
        run, job_id = start(app, 1, connection)
        connection.rollback()
        assert (app.workflow_status(run), app.job_status(job_id)) == (None, None)
        kept, _ = start(app, 2, connection)
        connection.commit()
    assert app.run_until_idle() == 2
    assert notes == [2, "invoice 2"]
    assert [state.id for state in app.list_workflows()] == [kept]
    assert count_orders(engine) == 1


def test_a_savepoint_that_is_rolled_back_takes_its_dispatch_along(app: Queuety, engine: Engine) -> None:
    with engine.begin() as connection:
        start(app, 1, connection)
        savepoint = connection.begin_nested()
        start(app, 2, connection)
        savepoint.rollback()
        start(app, 3, connection)
    assert app.run_until_idle() == 4
    assert notes == [1, "invoice 1", 3, "invoice 3"]


def test_a_key_within_the_callers_transaction_is_free_again_after_a_rollback(app: Queuety, engine: Engine) -> None:
    builder = app.workflow("order").then(confirm).idempotency_key("k")
    with engine.connect() as connection:
        lost = builder.dispatch({"order": 1}, connection=connection)
        assert builder.dispatch({"order": 2}, connection=connection) == lost
        connection.rollback()
    kept = builder.dispatch({"order": 3})
    with engine.begin() as connection:
        assert builder.dispatch({"order": 4}, connection=connection) == kept
    app.run_until_idle()
    assert notes == [3]


def test_what_is_refused_leaves_the_callers_transaction_as_it_was(app: Queuety, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(orders.insert().values(id=1))
        with pytest.raises(errors.PayloadError):
            app.workflow("order").then(confirm).dispatch({"_order": 1}, connection=connection)
        with pytest.raises(errors.PayloadError):
            app.dispatch(invoice, {}, connection=connection)
        with pytest.raises(errors.DefinitionError):
            app.workflow("order").dispatch({}, connection=connection)
    assert count_orders(engine) == 1
    assert app.list_workflows() == []


@pytest.mark.parametrize("connection", ["sqlite://", 3, object()], ids=["text", "number", "object"])
def test_what_is_no_connection_is_refused(app: Queuety, connection: Any) -> None:
    with pytest.raises(errors.DefinitionError, match="connection="):
        app.workflow("order").then(confirm).dispatch({"order": 1}, connection=connection)


def test_a_connection_to_another_kind_of_database_is_refused(app: Queuety, database: Database) -> None:
    if database.kind == "sqlite":
        pytest.skip("needs two kinds")
    with create_engine("sqlite://").begin() as connection, pytest.raises(errors.DefinitionError, match="sqlite"):
        app.dispatch(invoice, {"order": 1}, connection=connection)


DRIVERS = {
    "sqlite": ("aiosqlite", "sqlite+aiosqlite"),
    "postgresql": ("psycopg", "postgresql+psycopg_async"),
    "mysql": ("aiomysql", "mysql+aiomysql"),
}


@asynccontextmanager
async def async_engine(database: Database) -> AsyncIterator[Any]:
    """The caller's own asynchronous engine, if there is a driver for it."""
    module, drivername = DRIVERS[database.kind]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    made = create_async_engine(make_url(database.url).set(drivername=drivername))
    try:
        yield made
    finally:
        await made.dispose()


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_an_asynchronous_dispatch_is_committed_or_rolled_back_with_the_callers_transaction(
    app: Queuety, engine: Engine, database: Database, kind: str
) -> None:
    async def transact(theirs: Any, order: int) -> tuple[int, int]:
        await theirs.execute(orders.insert().values(id=order))
        run = await app.workflow("order").then(confirm).dispatch_async({"order": order}, connection=theirs)
        return run, await app.dispatch_async(invoice, {"order": order}, connection=theirs)

    async def scenario() -> int:
        runs = []
        async with async_engine(database) as own:
            for order in (1, 2, 3):
                async with own.connect() if kind == "connection" else AsyncSession(own) as theirs:
                    runs.append((await transact(theirs, order))[0])
                    await (theirs.rollback() if order == 2 else theirs.commit())
        return len(runs)

    assert asyncio.run(scenario()) == 3
    assert sorted(state.state["order"] for state in app.list_workflows()) == [1, 3]
    assert app.run_until_idle() == 4
    assert notes == [1, "invoice 1", 3, "invoice 3"]
    assert count_orders(engine) == 2


def test_the_own_engine_of_an_application_may_be_the_callers(database: Database) -> None:
    engine = create_engine(database.url)
    metadata.create_all(engine)
    with Queuety(engine) as app:
        with engine.begin() as connection:
            start(app, 1, connection)
        assert app.run_until_idle() == 2
        with engine.connect() as connection:
            start(app, 2, connection)
        assert app.run_until_idle() == 0
    metadata.drop_all(engine)
    engine.dispose()


def test_a_scoped_session_is_joined_as_its_session(app: Queuety, engine: Engine) -> None:
    sessions = scoped_session(sessionmaker(engine))
    app.migrate()
    kept = start(app, 1, sessions)[0]
    sessions.commit()
    lost = start(app, 2, sessions)[0]
    sessions.rollback()
    sessions.remove()
    assert app.workflow_status(kept) is not None
    assert app.workflow_status(lost) is None


def test_a_connection_that_commits_by_itself_is_refused(app: Queuety, engine: Engine) -> None:
    app.migrate()
    of_engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    with of_engine.connect() as connection, pytest.raises(errors.DefinitionError, match="AUTOCOMMIT"):
        start(app, 1, connection)
    with Session(of_engine) as session, pytest.raises(errors.DefinitionError, match="takes nothing back"):
        start(app, 2, session)
    assert app.list_workflows() == []


def test_another_sqlite_file_is_refused_also_if_it_has_the_tables(tmp_path: Path) -> None:
    ours, theirs = f"sqlite:///{tmp_path / 'ours.db'}", f"sqlite:///{tmp_path / 'theirs.db'}"
    with Queuety(ours) as app, Queuety(theirs) as other:
        app.migrate()
        other.migrate()
        for url, place in ((theirs, "SQLite file .*theirs.db"), ("sqlite://", "SQLite in memory")):
            engine = create_engine(url)
            with (
                engine.begin() as connection,
                pytest.raises(
                    errors.DefinitionError, match=f"connection= leads to {place}.*; the tables are in .*ours"
                ),
            ):
                app.dispatch(invoice, {"order": 1}, connection=connection)
            engine.dispose()
        assert app.list_jobs() == other.list_jobs() == []


def test_the_same_sqlite_file_by_another_name_is_joined(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with Queuety(f"sqlite:///{tmp_path / 'shop.db'}") as app:
        app.migrate()
        engines = [
            create_engine(f"sqlite:///{tmp_path / 'link' / 'shop.db'}"),
            create_engine("sqlite://", creator=lambda: sqlite3.connect(tmp_path / "shop.db"), poolclass=NullPool),
        ]
        for engine in engines:
            with engine.begin() as connection:
                app.dispatch(invoice, {"order": 1}, connection=connection)
            engine.dispose()
        assert len(app.list_jobs()) == 2
