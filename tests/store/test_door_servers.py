"""What servers do: refuse, deadlock, end idle connections, change nodes, stand behind poolers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import psycopg
import pymysql
import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from queuety.errors import DefinitionError, StoreUnavailable
from queuety.store.dialects import Limits
from queuety.store.dialects.libpq import name_of
from queuety.store.door import Door, Tx
from tests.support.databases import Database

QUICK = Limits(patience_s=0.2, connect_timeout_s=2, network_timeout_s=2)


def only(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("database_kind", kinds)


both = only("postgresql", "mysql")
postgresql = only("postgresql")
mysql = only("mysql")


@pytest.fixture
def door(fresh_database: Database) -> Iterator[Door]:
    made = Door.open(fresh_database.url)
    made.write(lambda tx: tx.connection.execute(text("CREATE TABLE things (id INTEGER PRIMARY KEY, n INTEGER)")))
    made.write(lambda tx: tx.connection.execute(text("INSERT INTO things (id, n) VALUES (1, 0), (2, 0)")))
    yield made
    made.close()


def one(tx: Tx, statement: str) -> object:
    tx.cursor.execute(statement)
    return tx.cursor.fetchone()[0]


RAISE = "UPDATE things SET n = n + 1 WHERE id = %s"


def raise_n(tx: Tx, thing: int) -> None:
    tx.cursor.execute(RAISE, [thing])
    tx.settle()


def numbers(door: Door) -> list[int]:
    with door.reading() as connection:
        return list(connection.execute(text("SELECT n FROM things ORDER BY id")).scalars())


@both
def test_a_real_deadlock_is_solved_by_the_retry(door: Door) -> None:
    """Each thread holds one row and wants the other's; the server takes one back, the door runs it again."""
    meet = threading.Barrier(2, timeout=10)
    tries: list[int] = []

    def run(first: int, second: int) -> None:
        own: list[int] = []

        def unit(tx: Tx) -> None:
            raise_n(tx, first)
            own.append(1)
            if len(own) == 1:
                meet.wait()
            raise_n(tx, second)

        door.write(unit)
        tries.extend(own)

    threads = [threading.Thread(target=run, args=rows) for rows in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert numbers(door) == [2, 2]
    assert len(tries) >= 3


@both
def test_a_server_that_does_not_answer_is_unavailable(fresh_database: Database) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = make_url(fresh_database.url).set(host="127.0.0.1", port=taken.getsockname()[1])
        door = Door.open(nobody, limits=QUICK)
        for run in (door.write, door.read):
            with pytest.raises(StoreUnavailable, match="is the server running") as caught:
                run(lambda tx: one(tx, "SELECT 1"))
            assert f"127.0.0.1:{nobody.port}" in str(caught.value)
        with pytest.raises(StoreUnavailable), door.reading():
            raise AssertionError("there is nothing to read from")
        door.close()


@both
def test_a_server_that_hangs_is_given_up(fresh_database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        nobody = make_url(fresh_database.url).set(host="127.0.0.1", port=deaf.getsockname()[1])
        door = Door.open(nobody, limits=QUICK)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            door.read(lambda tx: one(tx, "SELECT 1"))
        assert time.monotonic() - began < 15
        door.close()


@both
def test_a_database_that_is_not_there_is_an_error_at_once(fresh_database: Database) -> None:
    door = Door.open(make_url(fresh_database.url).set(database="queuety_no_such_database"))
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"reading failed: .*check user, password, database name and rights"):
        door.read(lambda tx: one(tx, "SELECT 1"))
    assert time.monotonic() - began < 5
    door.close()


@mysql
def test_a_wrong_password_is_an_error_at_once_and_not_shown(fresh_database: Database) -> None:
    door = Door.open(make_url(fresh_database.url).set(username="nobody", password="hunter2"))
    with pytest.raises(StoreUnavailable, match=r"\(1045\)|\(1698\)") as caught:
        door.write(lambda tx: one(tx, "SELECT 1"))
    assert "hunter2" not in str(caught.value)
    door.close()


@both
def test_a_full_pool_says_so(fresh_database: Database) -> None:
    door = Door.open(fresh_database.url, limits=Limits(pool_size=1, pool_timeout_s=0.05))
    with door.reading(), door.reading(), pytest.raises(StoreUnavailable, match="all connections are in use"):
        door.read(lambda tx: one(tx, "SELECT 1"))
    door.close()


@both
def test_all_connections_ended_by_the_server_are_replaced(door: Door, fresh_database: Database) -> None:
    """A restart, a failover: what the pool and a line hold is dead, and nobody notices but the door."""
    line = door.line()
    own = "SELECT pg_backend_pid()" if door.dialect.name == "postgresql" else "SELECT CONNECTION_ID()"
    ids = {door.read(lambda tx: one(tx, own), on=line), door.read(lambda tx: one(tx, own))}
    admin = create_engine(fresh_database.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        for number in ids:
            end = "SELECT pg_terminate_backend({}, 5000)" if door.dialect.name == "postgresql" else "KILL {}"
            connection.execute(text(end.format(number)))
    door.write(lambda tx: raise_n(tx, 1), on=line)
    assert door.read(lambda tx: one(tx, own)) not in ids
    assert numbers(door) == [1, 0]
    line.close()


@mysql
def test_an_idle_time_out_of_the_server_is_survived(door: Door) -> None:
    """`wait_timeout`: the connection that rested is closed by the server; nobody sees an error."""
    ended = threading.Event()
    line = door.line()

    def shorten(tx: Tx) -> int:
        tx.cursor.execute("SET SESSION wait_timeout = 1")
        return int(str(one(tx, "SELECT CONNECTION_ID()")))

    number = door.read(shorten, on=line)

    def watch() -> None:
        while door.read(lambda tx: one(tx, f"SELECT COUNT(*) FROM information_schema.processlist WHERE id = {number}")):
            pass
        ended.set()

    threading.Thread(target=watch).start()
    assert ended.wait(20)
    door.write(lambda tx: raise_n(tx, 1), on=line)
    assert numbers(door) == [1, 0]
    line.close()


@postgresql
def test_a_connection_to_a_node_that_only_reads_is_thrown_away(door: Door) -> None:
    """After a failover the old primary only reads: 25006. The next connection may lead to the new one."""
    line = door.line()
    first = door.read(lambda tx: one(tx, "SELECT pg_backend_pid()"), on=line)

    def unit(tx: Tx) -> object:
        pid = one(tx, "SELECT pg_backend_pid()")
        if pid == first:
            tx.cursor.execute("SET TRANSACTION READ ONLY")
        raise_n(tx, 1)
        return pid

    assert door.write(unit, on=line) != first
    assert numbers(door) == [1, 0]
    line.close()


@postgresql
@pytest.mark.parametrize(
    ("before", "spoil"),
    [(2, "DEALLOCATE ALL"), (1, f"PREPARE {name_of(RAISE.replace('%s', '$1').encode()).decode()} AS SELECT 1")],
    ids=["none-there", "one-there"],
)
def test_prepared_statements_that_a_pooler_mixed_up_are_done_without(
    door: Door, caplog: pytest.LogCaptureFixture, before: int, spoil: str
) -> None:
    """What PgBouncer in transaction mode does: the server session does not have the statement, or has it already."""
    line = door.line()
    spoilt = []

    def unit(tx: Tx) -> None:
        raw = tx.connection.connection.dbapi_connection
        if raw.prepare_threshold is not None:  # type: ignore[union-attr]
            raw.pgconn.exec_(spoil.encode())  # type: ignore[union-attr]
            spoilt.append(1)
        for _ in range(8 - before):
            raise_n(tx, 1)

    def prepare(tx: Tx) -> None:
        for _ in range(before):
            raise_n(tx, 1)

    door.write(prepare, on=line)
    door.write(unit, on=line)
    assert spoilt == [1]
    assert numbers(door) == [8, 0]
    assert "prepared statements do not survive" in caplog.text
    door.write(unit)
    assert spoilt == [1]
    line.close()


@postgresql
@pytest.mark.parametrize(("asked", "threshold"), [("none", None), ("None", None), ("0", 0), ("7", 7), (None, 5)])
def test_prepare_threshold_may_stand_in_the_url(
    fresh_database: Database, asked: str | None, threshold: int | None
) -> None:
    url = make_url(fresh_database.url)
    door = Door.open(url if asked is None else url.update_query_dict({"prepare_threshold": asked}))
    assert door.read(lambda tx: tx.connection.connection.dbapi_connection.prepare_threshold) == threshold  # type: ignore[union-attr]
    door.close()


@postgresql
def test_a_wrong_prepare_threshold_is_refused(fresh_database: Database) -> None:
    with pytest.raises(DefinitionError, match="prepare_threshold"):
        Door.open(make_url(fresh_database.url).update_query_dict({"prepare_threshold": "often"}))


@postgresql
def test_a_session_is_left_as_it_was(door: Door) -> None:
    """Nothing that a pooler could hand to the next client: no SET, no lock, no `options=`."""
    door.write(lambda tx: raise_n(tx, 1))
    # The isolation level stands in each BEGIN and ends with its transaction.
    session = "SELECT count(*) FROM pg_settings WHERE source = 'session' AND name <> 'transaction_isolation'"
    changed = door.read(lambda tx: one(tx, session))
    options = door.read(lambda tx: tx.connection.connection.dbapi_connection.info.options)  # type: ignore[union-attr]
    locks = door.read(
        lambda tx: one(tx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
    )
    assert (changed, options, locks) == (0, "", 0)


@postgresql
def test_time_outs_are_those_asked_for(fresh_database: Database) -> None:
    door = Door.open(fresh_database.url, limits=Limits(connect_timeout_s=7, network_timeout_s=12))
    given = door.read(lambda tx: tx.connection.connection.dbapi_connection.info.get_parameters())  # type: ignore[union-attr]
    assert (given["connect_timeout"], given["tcp_user_timeout"], given["keepalives_idle"]) == ("7", "12000", "4")
    door.close()


@mysql
def test_a_session_is_strict_and_reads_what_is_committed(fresh_database: Database) -> None:
    door = Door.open(fresh_database.url, limits=Limits(lock_timeout_s=3, network_timeout_s=12))

    def unit(tx: Tx) -> list[object]:
        raw: pymysql.connections.Connection = tx.connection.connection.dbapi_connection  # type: ignore[assignment]
        return [
            one(tx, "SELECT @@SESSION.sql_mode"),
            one(tx, "SELECT @@SESSION.innodb_lock_wait_timeout"),
            one(tx, "SELECT @@SESSION.character_set_connection"),
            raw._read_timeout,  # type: ignore[attr-defined]
        ]

    assert door.read(unit) == ["STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION", 3, "utf8mb4", 12]
    with door.reading() as connection:
        assert connection.get_isolation_level() == "READ COMMITTED"
    door.close()


@mysql
def test_asking_whether_a_commit_landed_waits_for_other_nodes(door: Door) -> None:
    door.write(lambda tx: tx.dialect.before_landed(tx.cursor))
    assert numbers(door) == [0, 0]


@both
def test_a_row_lock_is_waited_for_and_given_up(door: Door, fresh_database: Database) -> None:
    if door.dialect.name == "postgresql":
        options = {"options": "-c lock_timeout=100"}
        impatient = Door.open(make_url(fresh_database.url).update_query_dict(options), limits=QUICK)
    else:
        impatient = Door.open(fresh_database.url, limits=Limits(lock_timeout_s=1, patience_s=0.2))
    held, done = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        raise_n(tx, 1)
        held.set()
        done.wait(30)

    thread = threading.Thread(target=lambda: door.write(hold))
    thread.start()
    assert held.wait(10)
    try:
        with pytest.raises(StoreUnavailable, match="another transaction was in the way"):
            impatient.write(lambda tx: raise_n(tx, 1))
    finally:
        done.set()
        thread.join()
    assert numbers(door) == [1, 0]
    impatient.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "the database URL cannot be read"),
        ("oracle://u@h/d", "oracle is not supported"),
        ("postgresql+asyncpg://u@h/d", r"use postgresql\+psycopg"),
        ("mysql+aiomysql://u@h/d", r"use mysql\+pymysql"),
        ("sqlite+aiosqlite:///x.db", r"use sqlite\+pysqlite"),
        ("sqlite://host/x.db", "cannot be used"),
    ],
)
def test_a_url_that_cannot_be_right_is_refused_at_once(url: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        Door.open(url)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u:p@h:5433/d", "postgresql at h:5433/d"),
        ("postgres://u:p@h/d", "postgresql at h/d"),
        ("mysql://u:p@h/d", "mysql at h/d"),
        ("mariadb+pymysql://u:p@h/d", "mysql at h/d"),
        ("postgresql+psycopg://u@/d?host=a:1&host=b:2", "postgresql at a:1,b:2/d"),
    ],
)
def test_the_usual_driver_need_not_be_named(url: str, place: str) -> None:
    assert Door.open(url).dialect.place == place


def test_several_hosts_mean_the_one_that_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, object]] = []

    def connect(*_args: object, **arguments: object) -> None:
        given.append(arguments)
        raise psycopg.OperationalError("not today")

    monkeypatch.setattr(psycopg, "connect", connect)
    for url in ("postgresql+psycopg://u@/d?host=a:1&host=b:2", "postgresql+psycopg://u@h/d"):
        with pytest.raises(StoreUnavailable):
            Door.open(url, limits=Limits(patience_s=0)).read(lambda tx: one(tx, "SELECT 1"))
    assert [arguments.get("target_session_attrs") for arguments in given] == ["read-write", None]


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "REPEATABLE READ", None])
@both
def test_an_engine_of_the_callers_own_has_our_transactions_whatever_its_own_are_like(
    fresh_database: Database, door: Door, level: str | None
) -> None:
    """MySQL's usual level hides from a claim what the job's last step has written, and AUTOCOMMIT halves a turn."""
    engine = create_engine(fresh_database.url, **({"isolation_level": level} if level else {}))
    own = Door.open(engine)

    def breaks(tx: Tx) -> None:
        raise_n(tx, 1)
        raise ValueError("taken back")

    def looks_twice(tx: Tx) -> list[object]:
        first = one(tx, "SELECT n FROM things WHERE id = 2")
        door.write(lambda other: raise_n(other, 2))
        return [first, one(tx, "SELECT n FROM things WHERE id = 2")]

    try:
        with pytest.raises(ValueError, match="taken back"):
            own.write(breaks)
        assert door.read(lambda tx: one(tx, "SELECT n FROM things WHERE id = 1")) == 0
        assert own.write(looks_twice) == [0, 1]
        with own.line() as line:
            assert own.write(looks_twice, on=line) == [1, 2]
        with engine.connect() as theirs:
            if level != "AUTOCOMMIT":
                assert theirs.get_isolation_level() == (level or theirs.default_isolation_level)
            theirs.execute(text("UPDATE things SET n = 7 WHERE id = 1"))
            theirs.rollback()
            kept = 7 if level == "AUTOCOMMIT" else 0
            assert theirs.execute(text("SELECT n FROM things WHERE id = 1")).scalar() == kept
    finally:
        own.close()
        engine.dispose()
