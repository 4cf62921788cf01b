"""MySQL 8 and MariaDB 10.6 or newer through PyMySQL. DDL commits by itself; 1213 and 1205 may meet any statement."""

from __future__ import annotations

import socket
from contextlib import suppress
from hashlib import blake2b
from typing import Any, ClassVar, Final

from sqlalchemy import URL, Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool

from queuety.errors import StoreUnavailable
from queuety.store.dialects.base import Cursor, Dialect, Fault, Limits
from queuety.store.dialects.bulk_mysql import MysqlBulk
from queuety.store.dialects.pool import watch

_CODES: Final = {
    # 1205 takes back only the statement: the door rolls back the rest. 1020, 1412, 1614, 1615: "try again" in other
    # words. 1317, 1969, 3024: interrupted or over a time limit. 3572: NOWAIT.
    Fault.TRANSIENT: (1020, 1205, 1206, 1213, 1317, 1412, 1614, 1615, 1637, 1969, 3024, 3572),
    # 0: PyMySQL, used after it was closed. 1040, 1203, 1226: too many connections. 1047: a Galera node without a
    # quorum. 1180: an error during COMMIT. 1290, 1792, 1836: a node that only reads. 1927, 3169: killed. 4031: idle
    # for too long.
    Fault.GONE: (
        *(0, 1040, 1047, 1053, 1077, 1078, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1180, 1184, 1203, 1226, 1290),
        *(1792, 1836, 1927, 2000, 2001, 2002, 2003, 2004, 2005, 2006, 2012, 2013, 2014, 2027, 2055, 3169, 4031),
    ),
    Fault.FULL: (1021, 1114),
    Fault.REFUSED: (1044, 1045, 1046, 1049, 1129, 1130, 1142, 1143, 1227, 1251, 1370, 1698, 2054, 2058, 2059),
    Fault.DUPLICATE: (1062, 1586),
    Fault.SCHEMA: (1054, 1146),
}
_BY_CODE: Final = {code: fault for fault, codes in _CODES.items() for code in codes}


class MysqlDialect(Dialect):
    """MySQL, MariaDB, and Galera clusters of them."""

    name = "mysql"
    names = ("mysql", "mariadb")
    drivers = ("pymysql",)
    joinable = ("pymysql", "mysqldb", "aiomysql", "asyncmy")
    bulk = MysqlBulk()
    # UNIX_TIMESTAMP(now) is ambiguous in the hour that a session's time zone repeats; this is not.
    now_sql: ClassVar[str | None] = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"

    _may_lag: bool | None = None
    """Whether the server is a node of a Galera cluster; None until somebody has asked."""

    @classmethod
    def connect(cls, url: URL, limits: Limits) -> Engine:
        engine = create_engine(
            url,
            isolation_level="READ COMMITTED",
            pool_size=limits.pool_size,
            max_overflow=limits.pool_size,
            pool_timeout=limits.pool_timeout_s,
            pool_use_lifo=True,
            pool_recycle=1800,
            pool_reset_on_return=None,  # a ROLLBACK is a round trip here, and the door has ended the transaction
            connect_args=_arguments(url, limits),
        )
        watch(engine)
        return engine

    def adopted(self, engine: Engine) -> Engine:
        # REPEATABLE READ, the usual level, locks rows as they are and reads others as they were when the transaction
        # first read: a claimed step would get the state from before the step that it follows.
        return engine.execution_options(isolation_level="READ COMMITTED")

    def fault_of(self, error: Exception) -> Fault:
        code = error.args[0] if error.args else None
        if isinstance(code, int):
            return _BY_CODE.get(code, Fault.FATAL)
        # PyMySQL has no code for a packet out of sequence: somebody else read from the socket, or the server died.
        return Fault.GONE if "sequence number" in str(error) else Fault.FATAL

    def advice(self, error: Exception, fault: Fault) -> str:
        if fault is Fault.GONE:
            return "is the server running, reachable and accepting writes, and is the URL right?"
        if fault is Fault.REFUSED:
            return "check user, password, database name and rights"
        if fault is Fault.FULL:
            return "free some space on the server's disk; nothing was half written"
        if fault is Fault.TRANSIENT:
            return "another transaction was in the way all the time; look for one that is left open"
        return "see the cause"

    def shut(self, raw: Any) -> None:
        if (wire := raw._sock) is not None:
            with suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    def begin_snapshot(self, cursor: Cursor) -> None:
        # Of the next transaction only: the driver begins one with the first statement that reads a table.
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def before_landed(self, cursor: Cursor) -> None:
        # On Galera a node lags behind the others: 13 % of reads right after a commit elsewhere missed it. MariaDB only;
        # a comment to MySQL. It costs the connection's later reads 60 µs.
        cursor.execute("SET @queuety = 1 /*M!100300 , SESSION wsrep_sync_wait = 1 */")

    def catch_up(self, engine: Engine, table: str) -> bool:
        # Of 200 runs that were waited for through another node right after their dispatch 42 were not found there yet.
        # Apart, since only a transaction's first statement waits; if a row that we have locked is in the way, Galera
        # takes our transaction back, and it is repeated.
        if self._may_lag is False:
            return False
        apart = Engine(engine.pool.recreate(), engine.dialect, engine.url)
        try:
            with apart.connect() as connection:
                if self._may_lag is None:
                    found = connection.exec_driver_sql("SHOW GLOBAL VARIABLES LIKE 'wsrep_on'").first()
                    connection.rollback()
                    self._may_lag = found is not None and found[1] == "ON"
                if self._may_lag:
                    connection.exec_driver_sql("SET @queuety = 1 /*M!100300 , SESSION wsrep_sync_wait = 1 */")
                    connection.exec_driver_sql(f"SELECT id FROM {table} LIMIT 1")
        finally:
            apart.dispose()
        return bool(self._may_lag)

    def migration_engine(self, engine: Engine) -> Engine:
        # Changing a large table is silent for longer than any network time-out.
        if self.limits is None:
            return engine
        arguments = _arguments(engine.url, self.limits) | {"read_timeout": None, "write_timeout": None}
        return create_engine(engine.url, isolation_level="READ COMMITTED", poolclass=NullPool, connect_args=arguments)

    def lock_migrations(self, connection: Connection, name: str, wait_s: float) -> None:
        # Of the session, not of the transaction: DDL would end that at once. Per node on Galera: the steps themselves
        # can be repeated, and a table is created there once for all nodes.
        got = connection.execute(
            text("SELECT GET_LOCK(:name, :wait_s)"), {"name": self._lock_name(connection, name), "wait_s": int(wait_s)}
        ).scalar_one()
        if got != 1:
            raise StoreUnavailable(
                f"{self.place}: another process has been migrating for {wait_s:g} s; wait for it and try again"
            )
        connection.execute(text("SET SESSION lock_wait_timeout = 3"))

    def unlock_migrations(self, connection: Connection, name: str) -> None:
        connection.execute(text("SET SESSION lock_wait_timeout = DEFAULT"))
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": self._lock_name(connection, name)})

    def _lock_name(self, connection: Connection, name: str) -> str:
        """Locks are the whole server's, and their names at most 64 characters long."""
        database = str(connection.execute(text("SELECT DATABASE()")).scalar())
        return "queuety " + blake2b(f"{database} {name}".encode(), digest_size=16).hexdigest()

    def identifier_collation(self, connection: Connection) -> str | None:
        # `utf8mb4_bin` ignores blanks at the end: "a" = "a ".
        version = str(connection.execute(text("SELECT VERSION()")).scalar())
        return "utf8mb4_nopad_bin" if "mariadb" in version.lower() else "utf8mb4_0900_bin"


def _arguments(url: URL, limits: Limits) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "charset": "utf8mb4",
        "connect_timeout": limits.connect_timeout_s,
        "read_timeout": limits.network_timeout_s,
        "write_timeout": limits.network_timeout_s,
        # One statement, so one round trip. The last part only MariaDB reads: a worker that is cut off must not keep its
        # rows locked.
        "init_command": (
            "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', "
            f"SESSION innodb_lock_wait_timeout = {max(1, round(limits.lock_timeout_s))} "
            f"/*M!100300 , SESSION idle_transaction_timeout = {max(1, round(limits.network_timeout_s))} */"
        ),
    }
    return {name: value for name, value in usual.items() if name not in url.query}
