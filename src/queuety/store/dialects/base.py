"""What every kind of database must answer. Here stands the contract; what differs, and why, stands in the other files.

Nothing in this folder decides what is written; it only knows how each database and its driver behave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol

from sqlalchemy import URL, Connection, Engine

from queuety.store.dialects.bulk import Bulk


class Fault(StrEnum):
    """What a driver's error means for the transaction that met it."""

    BUSY = "busy"
    """Another writer is at it; nothing was done."""
    TRANSIENT = "transient"
    """The database took this transaction back (a deadlock, a time-out); the same again may pass."""
    GONE = "gone"
    """The connection, or the node behind it, is of no more use. At COMMIT: nobody knows whether it was done."""
    POOLER = "pooler"
    """The prepared statements are not those that the driver believes in: a pooler changed the session below it."""
    FULL = "full"
    """No room is left; taken back. Goes on when there is room again."""
    REFUSED = "refused"
    """The database cannot be had, and waiting does not help: a wrong password, no such database or directory."""
    DUPLICATE = "duplicate"
    """A unique key is taken."""
    SCHEMA = "schema"
    """A table or a column is not there."""
    FATAL = "fatal"
    """Anything else: a statement that is wrong, a value that does not fit, a damaged file."""

    @property
    def may_pass(self) -> bool:
        """True if the same transaction may succeed when it is run again soon."""
        return self in _MAY_PASS

    @property
    def ends_connection(self) -> bool:
        """True if the connection must not be used again."""
        return self is Fault.GONE or self is Fault.POOLER


_MAY_PASS = frozenset({Fault.BUSY, Fault.TRANSIENT, Fault.GONE, Fault.POOLER, Fault.FULL})


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections, and how long for each thing, in seconds.

    `pool_size` connections are kept and as many more opened under load; `pool_timeout_s` is waited for a free one.
    `network_timeout_s` is the longest silence of a server before the connection counts as lost; `lock_timeout_s` the
    longest wait for a row (MySQL); `patience_s` how long a transaction is run again before `StoreUnavailable`.
    """

    pool_size: int = 5
    pool_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    network_timeout_s: float = 30.0
    lock_timeout_s: float = 5.0
    patience_s: float = 10.0
    sqlite_synchronous: Literal["FULL", "NORMAL"] = "FULL"


class Cursor(Protocol):
    """What is used of a driver's cursor. Placeholders are the driver's own (`Bulk.parameter`)."""

    rowcount: int
    lastrowid: Any
    description: Any

    @property
    def connection(self) -> Any: ...
    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Any: ...
    def executemany(self, statement: str, parameters: Sequence[Sequence[Any]], /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> Any: ...
    def close(self) -> None: ...


class BuildIndex(Protocol):
    """Builds an index while others write to the table, on a connection that commits every statement by itself."""

    def __call__(
        self, connection: Connection, name: str, table: str, columns: Sequence[str], where: str | None, /
    ) -> None: ...


class Usual:
    """What a database does where nothing else is said: mostly nothing."""

    now_sql: ClassVar[str | None] = None
    """Reads the database's clock in microseconds since the epoch; None where it is this host's clock."""
    tells: ClassVar[bool] = False
    """True if the database can wake those who sleep: `notify` and `listen` do something."""
    build_index: ClassVar[BuildIndex | None] = None
    """Builds an index before a migration, where its own way would keep writers out. Whoever broke off begins anew."""
    is_private: bool = False
    """True if the database lives in one connection of this process: all share it, and it must never be closed."""

    def check(self) -> None:
        """Raises `StoreUnavailable` if the database must not be used from here. Asked before the first connection."""

    def is_unmade(self) -> bool:
        """True if there is no database yet and looking into it would make an empty one."""
        return False

    def writer_key(self) -> str | None:
        """Names what only one transaction may write at a time; None if writers exclude each other row by row."""
        return None

    def leads_elsewhere(self, theirs: Connection, own: Engine) -> str | None:
        """How messages name the database of a caller's connection, if it is surely not that of our own engine."""
        return None

    def adopted(self, engine: Engine) -> Engine:
        """The caller's own engine as our transactions need it; theirs stay as they are."""
        return engine

    def check_idle(self, engine: Engine) -> None:
        """Raises `StoreError` if the one connection of a private database is in a transaction that is not ours."""

    def begin_write(self, cursor: Cursor, deadline: float) -> None:
        """Opens a writing transaction, where the driver does not do it by itself; `deadline` in `time.monotonic()`."""

    def begin_read(self, cursor: Cursor) -> None:
        """Opens a reading transaction, where the driver does not do it by itself."""

    def begin_snapshot(self, cursor: Cursor) -> None:
        """Has all statements of the reading transaction just begun see one moment, where each has its own otherwise."""

    def before_landed(self, cursor: Cursor) -> None:
        """Makes the next read see what other nodes have committed, where nodes may lag."""

    def catch_up(self, engine: Engine, table: str) -> bool:
        """Waits until what other nodes have committed by now can be read on this one; False if nodes never lag.

        For who does not find what must be there by what it was told; by a connection apart.
        """
        return False

    def shut(self, raw: Any) -> None:
        """Has the driver's connection fail at once in the thread that waits for an answer on it, where one may wait
        for long."""

    def after_fault(self, fault: Fault) -> None:
        """Takes note of what met a transaction, so that the next ones do better."""

    def news_mark(self) -> Callable[[], object] | None:
        """A function whose value changes when some process has committed, where looking is cheaper than asking."""
        return None

    def notify(self, cursor: Cursor, prefix: str) -> None:
        """Tells sleeping workers, when this transaction commits, that there is work; where the database can tell."""

    def listen(self, engine: Engine, prefix: str, heard: Callable[[], None], is_over: Callable[[], bool]) -> None:
        """Calls `heard` once when it listens, and for everything that `notify` tells, until `is_over` or an error."""

    def migration_engine(self, engine: Engine) -> Engine:
        """The engine that migrations run on, where they need other time-outs. If it is another, dispose of it."""
        return engine

    def lock_migrations(self, connection: Connection, name: str, wait_s: float) -> None:
        """Excludes other migrations of these tables, until the transaction ends or `unlock_migrations`."""

    def unlock_migrations(self, connection: Connection, name: str) -> None:
        """Ends what `lock_migrations` began, where the end of the transaction does not."""

    def identifier_collation(self, connection: Connection) -> str | None:
        """The collation that compares text byte for byte, blanks at its end included; None if it is the usual one."""
        return None


class Dialect(Usual, ABC):
    """One database, as a kind: how to connect, begin, read its clock, lock out other migrations, and read errors."""

    name: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    """What SQLAlchemy calls it."""
    drivers: ClassVar[tuple[str, ...]]
    """Drivers that we connect with, the usual one first."""
    joinable: ClassVar[tuple[str, ...]]
    """Drivers whose cursors take our statements when a caller's own connection is joined."""
    bulk: ClassVar[Bulk]

    def __init__(self, engine: Engine, limits: Limits | None) -> None:
        """`limits` is what `engine` was made with, None if it is the caller's own."""
        self.limits = limits
        self.place = place_of(self.name, engine.url)
        """How messages name the database; without the password."""
        self.driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error

    @classmethod
    @abstractmethod
    def connect(cls, url: URL, limits: Limits) -> Engine:
        """An engine for this URL, set up as we need it. Connects to nothing yet."""

    def cursor(self, connection: Connection) -> Any:
        """The cursor of a transaction of our own. It may answer late: when it is asked, or with `settle`; `leave` gives
        the connection back to its driver."""
        return connection.connection.cursor()

    @abstractmethod
    def fault_of(self, error: Exception) -> Fault:
        """What this error of the driver means."""

    @abstractmethod
    def advice(self, error: Exception, fault: Fault) -> str:
        """What somebody may do about it; one clause."""


def place_of(name: str, url: URL) -> str:
    """The database as a message names it: kind, host, port and database, never a user or a password."""
    host = url.host or ",".join(_many(url.query.get("host"))) or "the local socket"
    port = f":{url.port}" if url.port else ""
    return f"{name} at {host}{port}/{url.database or ''}"


def _many(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value
