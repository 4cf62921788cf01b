"""SQLite: one file, or one connection's memory. It runs in our process; its clock is this host's."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import QueuePool, SingletonThreadPool, StaticPool

from queuety.errors import DefinitionError, StoreError, StoreUnavailable
from queuety.store.dialects.base import Cursor, Dialect, Fault, Limits
from queuety.store.dialects.bulk import SqliteBulk

WAL_LIMIT: Final = 64 * 1024 * 1024
"""Bytes that the write-ahead log keeps after a checkpoint: one long reader had made it 320 MB."""

CACHE_KIB: Final = 16_384
"""Pages that a connection may keep. With the usual 2 MiB an item of 50,000 took a third more CPU than one of 5,000: the
tail of the history and the indexes of the open jobs no longer fit, and were read and spilt over and over."""

SETUP_S: Final = 10.0
"""How long a new connection tries to turn WAL on: the switch does not wait by itself while others connect."""

NETWORK_FILESYSTEMS: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre", "gpfs",
    "beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph",
})  # fmt: skip
"""Where WAL's shared memory does not reach every writer: the file is damaged sooner or later (sqlite.org/wal.html)."""

MOUNTS: Final = "/proc/mounts"

_BY_PRIMARY: Final = {
    sqlite3.SQLITE_BUSY: Fault.BUSY,  # with BUSY_SNAPSHOT and BUSY_RECOVERY
    sqlite3.SQLITE_LOCKED: Fault.BUSY,
    sqlite3.SQLITE_PROTOCOL: Fault.BUSY,  # lost a race for the log's locks
    sqlite3.SQLITE_SCHEMA: Fault.TRANSIENT,
    sqlite3.SQLITE_INTERRUPT: Fault.TRANSIENT,
    sqlite3.SQLITE_FULL: Fault.FULL,
    sqlite3.SQLITE_IOERR: Fault.GONE,
    sqlite3.SQLITE_CANTOPEN: Fault.REFUSED,
    sqlite3.SQLITE_READONLY: Fault.REFUSED,
    sqlite3.SQLITE_PERM: Fault.REFUSED,
    sqlite3.SQLITE_AUTH: Fault.REFUSED,
}
_BY_EXTENDED: Final = {
    sqlite3.SQLITE_ABORT_ROLLBACK: Fault.TRANSIENT,
    sqlite3.SQLITE_READONLY_DBMOVED: Fault.GONE,  # the file was replaced below an open connection
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: Fault.DUPLICATE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: Fault.DUPLICATE,
    sqlite3.SQLITE_CONSTRAINT_ROWID: Fault.DUPLICATE,
}


class OpenedFile(sqlite3.Connection):
    """A connection that knows which file it has open: another may have taken its name since.

    SQLite goes on with the file that it has. A worker served a deleted file for ever, and said nothing.
    """

    path: str | None = None
    identity: tuple[int, int] | None = None

    def opened(self, path: str) -> None:
        """Takes note of the file that stands at `path` now."""
        self.path, self.identity = path, _identity(path)

    @property
    def is_gone(self) -> bool:
        """True if that file no longer has its name."""
        return self.path is not None and _identity(self.path) != self.identity


class SqliteDialect(Dialect):
    """SQLite in WAL mode, several threads and processes on one file."""

    name = "sqlite"
    names = ("sqlite",)
    drivers = ("pysqlite",)
    joinable = ("pysqlite", "aiosqlite")
    bulk = SqliteBulk()

    def __init__(self, engine: Engine, limits: Limits | None) -> None:
        super().__init__(engine, limits)
        self._path = _path_of(engine.url)
        self.is_private = self._path is None
        # Threads of one process wait for each other in memory; only processes meet in the file.
        self._writer = f"memory {id(engine)}" if self._path is None else os.path.realpath(self._path)
        self.place = f"SQLite file {self._path}" if self._path else "SQLite in memory"
        if self.is_private and isinstance(engine.pool, SingletonThreadPool):
            raise DefinitionError(
                "this Engine gives every thread an in-memory database of its own; make it with "
                "create_engine(url, poolclass=StaticPool, connect_args={'check_same_thread': False}), or pass the URL"
            )

    @classmethod
    def connect(cls, url: URL, limits: Limits) -> Engine:
        if limits.sqlite_synchronous not in ("FULL", "NORMAL"):
            raise DefinitionError(f"sqlite_synchronous={limits.sqlite_synchronous!r}: FULL or NORMAL is needed")
        _refuse_shared_memory(url)
        # No transaction is begun behind our back (isolation_level), none waits inside SQLite (timeout): its own waiting
        # starved one of eight writers for 4.9 s; see `begin_write`.
        arguments: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "timeout": 0.0}
        path = _path_of(url)
        if path is None:
            engine = create_engine(url, poolclass=StaticPool, connect_args=arguments)
        else:
            engine = create_engine(
                url,
                poolclass=QueuePool,
                pool_size=limits.pool_size,
                max_overflow=limits.pool_size,
                pool_timeout=limits.pool_timeout_s,
                pool_use_lifo=True,
                pool_reset_on_return=None,  # the door ends every transaction itself
                connect_args={**arguments, "cached_statements": 256, "factory": OpenedFile},
            )
            event.listen(engine, "checkout", _refuse_gone)
            event.listen(engine, "do_connect", _refuse_another(path))
        synchronous = limits.sqlite_synchronous

        @event.listens_for(engine, "connect")
        def set_up(raw: sqlite3.Connection, _record: object) -> None:
            _persist(lambda: _set_up(raw, synchronous))
            if isinstance(raw, OpenedFile) and path is not None:
                raw.opened(path)

        return engine

    def check(self) -> None:
        if self._path is None:
            return
        directory = os.path.dirname(self._path)
        if not os.path.isdir(directory):
            raise StoreUnavailable(f"{self.place} cannot be opened: its directory does not exist; make it first")
        if os.path.isdir(self._path):
            raise StoreUnavailable(f"{self.place} cannot be opened: it is a directory; name a file")
        kind = _filesystem(directory)
        if kind in NETWORK_FILESYSTEMS:
            raise StoreUnavailable(
                f"{self.place} lies on a network file system ({kind}), where SQLite's locks do not hold and the file "
                f"would be damaged; put it on a local disk, or use PostgreSQL or MySQL"
            )

    def is_unmade(self) -> bool:
        return self._path is not None and not os.path.exists(self._path) and os.path.isdir(os.path.dirname(self._path))

    def news_mark(self) -> Callable[[], object] | None:
        path = self._path
        if path is None:
            return None
        log_path = f"{path}-wal"

        def mark() -> object:
            # A commit appends to the log; a checkpoint that ends it writes the file itself.
            try:
                log = os.stat(log_path)
            except FileNotFoundError:
                return None
            return log.st_size, log.st_mtime_ns

        return mark

    def writer_key(self) -> str | None:
        return self._writer

    def leads_elsewhere(self, theirs: Connection, own: Engine) -> str | None:
        # What is written to another file succeeds if it has such tables too, and no worker of ours ever sees it.
        named = _path_of(theirs.engine.url)
        if self._path is not None and named is not None and os.path.realpath(named) == self._writer:
            return None
        path = theirs.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar()
        if not path:
            return None if self._path is None and theirs.engine.pool is own.pool else "SQLite in memory elsewhere"
        return None if os.path.realpath(path) == self._writer else f"SQLite file {path}"

    def check_idle(self, engine: Engine) -> None:
        # Looked at without taking it from the pool: giving it back would roll the caller back.
        raw = engine.pool.connection.dbapi_connection if isinstance(engine.pool, StaticPool) else None
        if raw is not None and raw.in_transaction:
            raise StoreError(
                f"{self.place}: its one connection is inside a transaction of yours; end that one first, or use a file"
            )

    def begin_write(self, cursor: Cursor, deadline: float) -> None:
        _check_there(cursor.connection)
        # A transaction that reads first and then writes cannot be waited for: 193,000 "database is locked" in a test
        # where BEGIN IMMEDIATE gave none.
        if cursor.connection.in_transaction:  # an Engine whose own listener has begun a deferred one
            cursor.execute("ROLLBACK")
        while True:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if self.fault_of(error) is not Fault.BUSY or time.monotonic() >= deadline:
                    raise
            # Eight writers with synchronous=FULL: the slowest transaction 0.29 s; 4.9 s with SQLite's own back-off.
            time.sleep(random.uniform(0.0002, 0.004))

    def begin_read(self, cursor: Cursor) -> None:
        _check_there(cursor.connection)
        if not cursor.connection.in_transaction:
            cursor.execute("BEGIN")

    def fault_of(self, error: Exception) -> Fault:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is None:
            return Fault.GONE if "closed database" in str(error) else Fault.FATAL
        if code in _BY_EXTENDED:
            return _BY_EXTENDED[code]
        if code == sqlite3.SQLITE_ERROR and str(error).startswith(("no such table", "no such column")):
            return Fault.SCHEMA
        if code == sqlite3.SQLITE_ERROR and "has no column named" in str(error):
            return Fault.SCHEMA
        return _BY_PRIMARY.get(code & 0xFF, Fault.FATAL)

    def advice(self, error: Exception, fault: Fault) -> str:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if fault is Fault.BUSY:
            return "another connection holds the write lock; end its transaction"
        if fault is Fault.FULL:
            return "free some space on its disk; nothing was half written"
        if code == sqlite3.SQLITE_NOTADB:
            return "the file is not an SQLite database; name another one"
        if code == sqlite3.SQLITE_CORRUPT:
            return "the file is damaged; restore it from a backup"
        if fault is Fault.REFUSED:
            return "this process needs the right to write the file and its directory"
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED:
            return "put it back; a program that starts anew would make an empty one"
        if fault is Fault.GONE:
            return "look at the disk that holds it"
        return "see the cause"


def _path_of(url: URL) -> str | None:
    """The absolute path of the file, or None for a database in memory."""
    name = url.database
    if not name or name == ":memory:":
        return None
    if name.startswith("file:"):
        name = unquote(name.removeprefix("file:").partition("?")[0])
        name = "/" + name.lstrip("/") if name.startswith("//") else name
    return os.path.abspath(name)


def _identity(path: str) -> tuple[int, int] | None:
    """What tells the file at this path from another of that name; None if there is none. It costs 1 µs."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _check_there(raw: object) -> None:
    """Raises SQLite's own error for a file that was moved; SQLite looks for itself only when it makes a journal."""
    if isinstance(raw, OpenedFile) and raw.is_gone:
        raise _moved("the file was deleted, moved or replaced while it was open")


def _moved(message: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED
    error.sqlite_errorname = "SQLITE_READONLY_DBMOVED"
    return error


def _refuse_gone(raw: object, _record: object, _proxy: object) -> None:
    """Has the pool replace a connection whose file is gone."""
    if isinstance(raw, OpenedFile) and raw.is_gone:
        raise DisconnectionError


def _refuse_another(path: str) -> Callable[..., None]:
    """Has an engine whose file is gone make no empty one in its place.

    Whoever then puts a backup there would leave it beside the log of the empty file, which SQLite takes for its own.
    """
    has_seen_it = False

    def before_connect(*_: object) -> None:
        nonlocal has_seen_it
        exists = os.path.exists(path)
        if has_seen_it and not exists:
            raise _moved("the file was deleted or moved while it was in use")
        has_seen_it = exists

    return before_connect


def _refuse_shared_memory(url: URL) -> None:
    name = url.database or ""
    asked = {url.query.get("mode"), url.query.get("cache")} | set(name.partition("?")[2].split("&"))
    if name.startswith("file:") and (":memory:" in name or asked & {"memory", "shared", "mode=memory", "cache=shared"}):
        raise DefinitionError(
            f"{url}: a shared-cache or in-memory URI is not supported; use sqlite:// for a database in memory "
            f"(all threads of the process share it), or a file"
        )


def _set_up(raw: sqlite3.Connection, synchronous: str) -> None:
    if raw.execute("PRAGMA journal_mode").fetchone()[0] not in ("wal", "memory"):
        raw.execute("PRAGMA journal_mode = WAL")
    raw.execute(f"PRAGMA synchronous = {synchronous}")
    raw.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
    raw.execute(f"PRAGMA cache_size = -{CACHE_KIB}")


def _persist(attempt: Any) -> None:
    """Runs it again while another connection is in the way, at most `SETUP_S`."""
    deadline = time.monotonic() + SETUP_S
    while True:
        try:
            attempt()
            return
        except sqlite3.OperationalError as error:
            busy = _BY_PRIMARY.get(getattr(error, "sqlite_errorcode", 0) & 0xFF) is Fault.BUSY
            if not busy or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0.001, 0.01))


def _filesystem(directory: str) -> str | None:
    """The type of the file system that holds this directory, or None where the system does not tell."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as lines:
            table = [line.split() for line in lines]
    except OSError:
        return None
    where = os.path.join(os.path.realpath(directory), "")
    best, kind = "", None
    for _device, point, kind_here, *_ in table:
        folder = os.path.join(point.replace("\\040", " ").replace("\\011", "\t"), "")
        if where.startswith(folder) and len(folder) >= len(best):
            best, kind = folder, kind_here
    return kind
