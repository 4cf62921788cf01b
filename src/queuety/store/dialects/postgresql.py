"""PostgreSQL 13 or newer through psycopg 3. No session state is kept: a pooler may change it after each transaction."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from sqlalchemy import URL, Connection, Engine, create_engine, text

from queuety.errors import DefinitionError
from queuety.store.dialects.base import Cursor, Dialect, Fault, Limits
from queuety.store.dialects.bulk import PostgresBulk
from queuety.store.dialects.pool import watch

log = logging.getLogger("queuety.store")

_BY_STATE: Final = {
    "40P01": Fault.TRANSIENT,  # deadlock
    "40001": Fault.TRANSIENT,  # serialisation
    "40002": Fault.FATAL,
    "40003": Fault.GONE,  # the server does not know itself whether it was done
    "55P03": Fault.TRANSIENT,  # lock_timeout
    "57014": Fault.TRANSIENT,  # statement_timeout, or cancelled by somebody
    "57P01": Fault.GONE,  # shut down
    "57P02": Fault.GONE,
    "57P03": Fault.GONE,  # starting up
    "57P04": Fault.REFUSED,  # the database was dropped
    "57P05": Fault.GONE,  # idle_session_timeout
    "25P03": Fault.GONE,  # idle_in_transaction_session_timeout
    "25P04": Fault.GONE,  # transaction_timeout
    "25006": Fault.GONE,  # a standby: a failover has left this connection on the wrong node
    "53100": Fault.FULL,
    "53300": Fault.GONE,  # too many connections
    "42P05": Fault.POOLER,
    "26000": Fault.POOLER,
    "23505": Fault.DUPLICATE,
    "42P01": Fault.SCHEMA,
    "42703": Fault.SCHEMA,
    "3F000": Fault.SCHEMA,
    "3D000": Fault.REFUSED,  # no such database
    "42501": Fault.REFUSED,  # no right to do that
}
_BY_CLASS: Final = {
    "08": Fault.GONE,
    "28": Fault.REFUSED,  # password, pg_hba.conf
    "40": Fault.TRANSIENT,
    "53": Fault.TRANSIENT,
}
# libpq gives no code with an error while connecting, only the server's words.
_REFUSALS: Final = ("authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry")


LOCK_S: Final = 0.2
"""How long one transaction waits to be the one that migrates."""

_PREPARED: Final = "queuety_prepared"
"""Where a connection's record keeps what was prepared on it."""

LISTEN_S: Final = 1.0
"""How often a listener looks whether it is over; hearing is immediate."""


def build_index(connection: Connection, name: str, table: str, columns: Sequence[str], where: str | None) -> None:
    """Builds an index while others write to the table.

    The plain way keeps writers out until it is done: 2.8 s for each million rows of history, measured. This one takes
    3.1 s, waits for the transactions that are open, and leaves an invalid index behind if it breaks off.
    """
    found = connection.execute(
        text(
            "SELECT indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
            "WHERE relname = :name AND pg_table_is_visible(indexrelid)"
        ),
        {"name": name},
    ).scalar()
    if found:
        return
    if found is False:
        connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))
    condition = f" WHERE {where}" if where else ""
    connection.execute(
        text(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {table} ({', '.join(columns)}){condition}")
    )


class PostgresDialect(Dialect):
    """PostgreSQL, directly, behind PgBouncer in transaction mode, or behind a failover."""

    name = "postgresql"
    names = ("postgresql",)
    drivers = ("psycopg",)
    joinable = ("psycopg", "psycopg_async", "psycopg2")
    bulk = PostgresBulk()
    tells = True
    build_index = staticmethod(build_index)
    now_sql: ClassVar[str | None] = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

    def __init__(self, engine: Engine, limits: Limits | None) -> None:
        super().__init__(engine, limits)
        self._prepares = True

    @classmethod
    def connect(cls, url: URL, limits: Limits) -> Engine:
        query = dict(url.query)
        arguments: dict[str, Any] = {}
        if "prepare_threshold" in query:
            arguments["prepare_threshold"] = _threshold(query.pop("prepare_threshold"))
            url = url.set(query=query)
        timeout_ms = int(limits.network_timeout_s * 1000)
        usual: dict[str, Any] = {
            "connect_timeout": max(2, round(limits.connect_timeout_s)),  # libpq knows whole seconds, at least 2
            "tcp_user_timeout": timeout_ms,  # keepalives alone do not end a query that is in flight
            "keepalives": 1,
            "keepalives_idle": max(1, int(limits.network_timeout_s / 3)),
            "keepalives_interval": max(1, int(limits.network_timeout_s / 6)),
            "keepalives_count": 3,
            "application_name": "queuety",
        }
        hosts = query.get("host")
        if isinstance(hosts, tuple) or (isinstance(hosts, str) and "," in hosts):
            usual["target_session_attrs"] = "read-write"
        arguments |= {name: value for name, value in usual.items() if name not in query}
        engine = create_engine(
            url,
            isolation_level="READ COMMITTED",
            pool_size=limits.pool_size,
            max_overflow=limits.pool_size,
            pool_timeout=limits.pool_timeout_s,
            pool_use_lifo=True,
            pool_reset_on_return=None,  # the door ends every transaction itself
            connect_args=arguments,
        )
        watch(engine)
        return engine

    def adopted(self, engine: Engine) -> Engine:
        # With AUTOCOMMIT a turn would be written by halves; above this level it fails to lock a row that has changed.
        return engine.execution_options(isolation_level="READ COMMITTED")

    def cursor(self, connection: Connection) -> Any:
        fairy = connection.connection
        raw: Any = fairy.dbapi_connection
        if raw.info.encoding != "utf-8":
            return fairy.cursor()
        prepared = fairy.info.get(_PREPARED)
        if prepared is None:
            prepared = fairy.info[_PREPARED] = libpq().Prepared()
        return libpq().PipelineCursor(raw, prepared)

    def begin_write(self, cursor: Cursor, deadline: float) -> None:
        self.begin_read(cursor)

    def begin_read(self, cursor: Cursor) -> None:
        if not self._prepares:
            cursor.connection.prepare_threshold = None

    def begin_snapshot(self, cursor: Cursor) -> None:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def notify(self, cursor: Cursor, prefix: str) -> None:
        # NOTIFY takes a lock on the whole server at commit: nobody is told when nobody sleeps.
        sleepers = f"SELECT 1 FROM {prefix}workers WHERE sleeping = 1"
        cursor.execute(f"SELECT pg_notify(%s, '') WHERE EXISTS ({sleepers})", [_channel(prefix)])

    def listen(self, engine: Engine, prefix: str, heard: Callable[[], None], is_over: Callable[[], bool]) -> None:
        pooled = engine.raw_connection()
        connection: Any = pooled.driver_connection  # None once detached
        pooled.detach()
        try:
            connection.autocommit = True
            connection.execute(f'LISTEN "{_channel(prefix)}"')
            heard()
            while not is_over():
                for _ in connection.notifies(timeout=LISTEN_S, stop_after=1):
                    heard()
        finally:
            connection.close()

    def shut(self, raw: Any) -> None:
        if not raw.closed:
            with socket.socket(fileno=os.dup(raw.fileno())) as wire, suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    def after_fault(self, fault: Fault) -> None:
        if fault is Fault.POOLER and self._prepares:
            self._prepares = False
            log.warning(
                "%s: prepared statements do not survive here (a pooler in transaction mode?); going on without them. "
                "Add ?prepare_threshold=none to the URL to begin so",
                self.place,
            )

    def fault_of(self, error: Exception) -> Fault:
        state: str | None = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if state is None:
            return self._without_state(error)
        if state == "0A000" and "cached plan" in str(error):  # the table was migrated below a prepared statement
            return Fault.GONE
        return _BY_STATE.get(state) or _BY_CLASS.get(state[:2], Fault.FATAL)

    def _without_state(self, error: Exception) -> Fault:
        """A connection that broke, or was never made, has no code."""
        said = str(error)
        if any(words in said for words in _REFUSALS):
            return Fault.REFUSED
        if type(error).__name__ in ("InterfaceError", "ProgrammingError", "DataError", "NotSupportedError"):
            return Fault.GONE if "connection" in said and "closed" in said else Fault.FATAL
        return Fault.GONE

    def advice(self, error: Exception, fault: Fault) -> str:
        if fault is Fault.GONE:
            return "is the server running, reachable and accepting writes, and is the URL right?"
        if fault is Fault.REFUSED:
            return "check user, password, database name and rights"
        if fault is Fault.POOLER:
            return "add ?prepare_threshold=none to the URL when a pooler stands in between"
        if fault is Fault.FULL:
            return "free some space on the server's disk; nothing was half written"
        if fault is Fault.TRANSIENT:
            return "another transaction was in the way all the time; look for one that is left open"
        return "see the cause"

    def lock_migrations(self, connection: Connection, name: str, wait_s: float) -> None:
        # Ends with the transaction, so it holds behind a pooler too. The bound for it, then the one for the tables: a
        # short one, after which the door tries anew, since an index that is built apart waits for who waits here.
        connection.execute(text(f"SET LOCAL lock_timeout = '{int(min(wait_s, LOCK_S) * 1000)}ms'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name})
        connection.execute(text("SET LOCAL lock_timeout = '3s'"))
        # Nothing is said here while an index is built apart.
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))

    def identifier_collation(self, connection: Connection) -> str | None:
        # By bytes: equal means identical, and an index outlives a change of the system's collations.
        return "C"


def libpq() -> Any:
    """The room that needs psycopg, which whoever uses another database may not have."""
    from queuety.store.dialects import libpq as room

    return room


def _channel(prefix: str) -> str:
    return f"{prefix}work"


def _threshold(value: str | tuple[str, ...]) -> int | None:
    if isinstance(value, str) and value.lower() == "none":
        return None
    if isinstance(value, str) and value.isdigit():
        return int(value)
    raise DefinitionError(f"prepare_threshold={value!r} in the URL: a number or `none` is needed")
