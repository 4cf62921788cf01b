"""Every error that a driver may raise has a meaning, bare or wrapped, and becomes one of ours."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pymysql
import pytest
from psycopg import errors as pg
from sqlalchemy import create_engine, exc

from queuety.errors import SchemaError, StoreError, StoreUnavailable
from queuety.store.dialects import Dialect, Fault, dialect_for
from queuety.store.translate import fault_of, is_duplicate, translated

ENGINES = [
    create_engine("sqlite:///translate.db"),
    create_engine("postgresql+psycopg://somebody:secret@db.example:5432/work"),
    create_engine("mysql+pymysql://somebody:secret@db.example:3306/work"),
]
SQLITE, POSTGRESQL, MYSQL = map(dialect_for, ENGINES)
TOOLKIT = {engine.dialect.name: engine.dialect for engine in ENGINES}


def sqlite_error(name: str, said: str = "it says no", kind: type[sqlite3.Error] = sqlite3.OperationalError) -> Any:
    error: Any = kind(said)
    error.sqlite_errorcode = getattr(sqlite3, name)
    error.sqlite_errorname = name
    return error


def without_state(said: str) -> psycopg.OperationalError:
    error = psycopg.OperationalError(said)
    assert error.sqlstate is None
    return error


def state(code: str, said: str = "the server says no") -> Any:
    """What psycopg raises for this code."""
    try:
        return pg.lookup(code)(said)
    except KeyError:
        error: Any = psycopg.OperationalError(said)
        error.sqlstate = code
        return error


def mysql(code: int, said: str = "it says no", kind: type[pymysql.Error] = pymysql.OperationalError) -> pymysql.Error:
    return kind(code, said)


CASES: list[tuple[Dialect, Any, Fault]] = [
    (SQLITE, sqlite_error("SQLITE_BUSY"), Fault.BUSY),
    (SQLITE, sqlite_error("SQLITE_BUSY_SNAPSHOT"), Fault.BUSY),
    (SQLITE, sqlite_error("SQLITE_BUSY_RECOVERY"), Fault.BUSY),
    (SQLITE, sqlite_error("SQLITE_LOCKED"), Fault.BUSY),
    (SQLITE, sqlite_error("SQLITE_PROTOCOL"), Fault.BUSY),
    (SQLITE, sqlite_error("SQLITE_SCHEMA"), Fault.TRANSIENT),
    (SQLITE, sqlite_error("SQLITE_INTERRUPT"), Fault.TRANSIENT),
    (SQLITE, sqlite_error("SQLITE_FULL"), Fault.FULL),
    (SQLITE, sqlite_error("SQLITE_IOERR"), Fault.GONE),
    (SQLITE, sqlite_error("SQLITE_IOERR_FSYNC"), Fault.GONE),
    (SQLITE, sqlite_error("SQLITE_READONLY_DBMOVED"), Fault.GONE),
    (SQLITE, sqlite3.ProgrammingError("Cannot operate on a closed database."), Fault.GONE),
    (SQLITE, sqlite_error("SQLITE_CANTOPEN"), Fault.REFUSED),
    (SQLITE, sqlite_error("SQLITE_READONLY"), Fault.REFUSED),
    (SQLITE, sqlite_error("SQLITE_PERM"), Fault.REFUSED),
    (SQLITE, sqlite_error("SQLITE_AUTH"), Fault.REFUSED),
    (SQLITE, sqlite_error("SQLITE_NOTADB", kind=sqlite3.DatabaseError), Fault.FATAL),
    (SQLITE, sqlite_error("SQLITE_CORRUPT", kind=sqlite3.DatabaseError), Fault.FATAL),
    (SQLITE, sqlite_error("SQLITE_CONSTRAINT_UNIQUE", kind=sqlite3.IntegrityError), Fault.DUPLICATE),
    (SQLITE, sqlite_error("SQLITE_CONSTRAINT_PRIMARYKEY", kind=sqlite3.IntegrityError), Fault.DUPLICATE),
    (SQLITE, sqlite_error("SQLITE_CONSTRAINT_NOTNULL", kind=sqlite3.IntegrityError), Fault.FATAL),
    (SQLITE, sqlite_error("SQLITE_ERROR", "no such table: queuety_jobs"), Fault.SCHEMA),
    (SQLITE, sqlite_error("SQLITE_ERROR", "no such column: phase"), Fault.SCHEMA),
    (SQLITE, sqlite_error("SQLITE_ERROR", "table queuety_jobs has no column named phase"), Fault.SCHEMA),
    (SQLITE, sqlite_error("SQLITE_ERROR", 'near "SELEC": syntax error'), Fault.FATAL),
    (SQLITE, sqlite3.InterfaceError("a value that does not fit"), Fault.FATAL),
    *((POSTGRESQL, state(code), Fault.TRANSIENT) for code in ("40001", "40P01", "55P03", "57014", "53200", "40000")),
    *(
        (POSTGRESQL, state(code), Fault.GONE)
        for code in ("08000", "08001", "08003", "08004", "08006", "08P01", "57P01", "57P02", "57P03", "57P05")
    ),
    *((POSTGRESQL, state(code), Fault.GONE) for code in ("25006", "25P03", "25P04", "40003", "53300")),
    (POSTGRESQL, state("0A000", "cached plan must not change result type"), Fault.GONE),
    (POSTGRESQL, state("0A000", "not supported"), Fault.FATAL),
    *((POSTGRESQL, state(code), Fault.POOLER) for code in ("42P05", "26000")),
    (POSTGRESQL, state("53100"), Fault.FULL),
    *((POSTGRESQL, state(code), Fault.REFUSED) for code in ("28P01", "28000", "3D000", "42501", "57P04")),
    (POSTGRESQL, state("23505"), Fault.DUPLICATE),
    *((POSTGRESQL, state(code), Fault.SCHEMA) for code in ("42P01", "42703", "3F000")),
    *((POSTGRESQL, state(code), Fault.FATAL) for code in ("42601", "22001", "23502", "25P02", "40002", "XX000")),
    (POSTGRESQL, without_state("server closed the connection unexpectedly"), Fault.GONE),
    (POSTGRESQL, without_state("consuming input failed: could not receive data from server: timed out"), Fault.GONE),
    (POSTGRESQL, without_state("the connection is closed"), Fault.GONE),
    (POSTGRESQL, psycopg.InterfaceError("the connection is closed"), Fault.GONE),
    (POSTGRESQL, psycopg.InterfaceError("the cursor is closed"), Fault.FATAL),
    (POSTGRESQL, psycopg.errors.ConnectionTimeout("connection timeout expired"), Fault.GONE),
    (
        POSTGRESQL,
        without_state('connection failed: FATAL:  password authentication failed for user "x"'),
        Fault.REFUSED,
    ),
    (POSTGRESQL, without_state('connection failed: FATAL:  database "x" does not exist'), Fault.REFUSED),
    (POSTGRESQL, psycopg.ProgrammingError("the query has 1 placeholder but 0 parameters were passed"), Fault.FATAL),
    (POSTGRESQL, psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), Fault.FATAL),
    *((MYSQL, mysql(code), Fault.TRANSIENT) for code in (1213, 1205, 1020, 1317, 1412, 1615, 3024, 3572)),
    *((MYSQL, mysql(code), Fault.GONE) for code in (1047, 1180, 2006, 2013, 1290, 4031, 2003, 1836, 1927, 1040, 1053)),
    (MYSQL, pymysql.InterfaceError(0, ""), Fault.GONE),
    (MYSQL, pymysql.InternalError("Packet sequence number wrong - got 5 expected 1"), Fault.GONE),
    *((MYSQL, mysql(code), Fault.FULL) for code in (1021, 1114)),
    *((MYSQL, mysql(code), Fault.REFUSED) for code in (1044, 1045, 1046, 1049, 1130, 1142, 1698)),
    (MYSQL, mysql(1062, kind=pymysql.IntegrityError), Fault.DUPLICATE),
    *((MYSQL, mysql(code, kind=pymysql.ProgrammingError), Fault.SCHEMA) for code in (1146, 1054)),
    *((MYSQL, mysql(code), Fault.FATAL) for code in (1064, 1153, 1406, 9999)),
    (MYSQL, pymysql.ProgrammingError("Cursor closed"), Fault.FATAL),
]

OURS = {
    Fault.BUSY: StoreUnavailable,
    Fault.TRANSIENT: StoreUnavailable,
    Fault.GONE: StoreUnavailable,
    Fault.POOLER: StoreUnavailable,
    Fault.FULL: StoreUnavailable,
    Fault.REFUSED: StoreUnavailable,
    Fault.SCHEMA: SchemaError,
    Fault.DUPLICATE: StoreError,
    Fault.FATAL: StoreError,
}


def case_name(value: object) -> str:
    return value.name if isinstance(value, Dialect) else str(value) if isinstance(value, Fault) else repr(value)[:60]


@pytest.mark.parametrize(("dialect", "error", "fault"), CASES, ids=case_name)
def test_an_error_means_the_same_bare_and_wrapped(dialect: Dialect, error: Exception, fault: Fault) -> None:
    assert fault_of(error, dialect) is fault
    wrapped = exc.DBAPIError.instance("SELECT 1", None, error, dialect.driver_error, dialect=TOOLKIT[dialect.name])
    assert isinstance(wrapped, exc.DBAPIError)
    assert fault_of(wrapped, dialect) is fault
    assert is_duplicate(wrapped, dialect) is (fault is Fault.DUPLICATE)


@pytest.mark.parametrize(("dialect", "error", "fault"), CASES, ids=case_name)
def test_ours_says_where_what_was_tried_and_what_was_found(dialect: Dialect, error: Exception, fault: Fault) -> None:
    ours = translated(error, fault, dialect, tried="writing failed 3 times")
    assert type(ours) is OURS[fault]
    assert str(ours).startswith(f"{dialect.place}: writing failed 3 times: ")
    assert str(ours).count("; ") >= 1
    assert "\n" not in str(ours)
    assert "secret" not in str(ours)


def test_every_fault_has_a_case_and_a_class_of_ours() -> None:
    assert {fault for _, _, fault in CASES} == set(Fault) == set(OURS)


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL, MYSQL], ids=case_name)
def test_what_is_no_error_of_the_database_is_left_alone(dialect: Dialect) -> None:
    for error in (ValueError("no"), OSError("no"), KeyboardInterrupt()):
        assert fault_of(error, dialect) is None


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL, MYSQL], ids=case_name)
def test_an_exhausted_pool_is_unavailable_and_says_so(dialect: Dialect) -> None:
    error = exc.TimeoutError("QueuePool limit of size 5 overflow 5 reached")
    fault = fault_of(error, dialect)
    assert fault is Fault.REFUSED
    ours = translated(error, fault, dialect, tried="reading failed")
    assert isinstance(ours, StoreUnavailable)
    assert "all connections are in use" in str(ours)


def test_a_disconnect_that_the_toolkit_noticed_is_one() -> None:
    wrapped = exc.DBAPIError.instance(
        "SELECT 1", None, mysql(1064), pymysql.Error, connection_invalidated=True, dialect=TOOLKIT["mysql"]
    )
    assert isinstance(wrapped, exc.DBAPIError)
    assert fault_of(wrapped, MYSQL) is Fault.GONE
