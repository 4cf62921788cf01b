"""The one way to the database: every transaction begins, is repeated and ends here. No rules.

A *unit* is a function of a `Tx` that reads and writes and may be run more than once: it touches nothing but the
database until it has returned. A driver's error never leaves; it becomes a `StoreError`. Any other exception rolls
back and passes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import SQLAlchemyError

from queuety.errors import DefinitionError, QueuetyError, StoreError
from queuety.store.clock import Clock, DatabaseClock
from queuety.store.dialects import Dialect, Fault, Limits, dialect_for, engine_for
from queuety.store.hooks import Listener, StatementHook, WatchedCursor, unusable_cursor
from queuety.store.ids import Ids
from queuety.store.joining import joinable
from queuety.store.patience import Patience
from queuety.store.schema import Tables
from queuety.store.statements import Statements
from queuety.store.translate import fault_of, translated
from queuety.store.turns import Turn, turn_for
from queuety.store.tx import Line, Tx, inherited

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

__all__ = ["Door", "Limits", "Line", "Tx", "Unit"]

T = TypeVar("T")

Unit = Callable[[Tx], T]

_SURELY_TAKEN_BACK: Final = frozenset({Fault.BUSY, Fault.TRANSIENT, Fault.FULL, Fault.DUPLICATE})
"""What a COMMIT can answer that leaves no doubt: nothing was done."""


class Door:
    """The way to one database with one set of tables. Thread-safe; may be made before a fork."""

    def __init__(self, engine: Engine, dialect: Dialect, tables: Tables, limits: Limits, *, owns_engine: bool) -> None:
        self.engine = engine
        self.dialect = dialect
        self.limits = limits
        self.tables = tables
        self.statements = Statements(tables, dialect.bulk)
        self.ids = Ids(self)
        self.clock: Clock = DatabaseClock(dialect.now_sql, self._ask_clock)
        self._owns_engine = owns_engine
        self._pid = os.getpid()
        self.has_schema = False
        """True once `migrate.ensure` has found the tables to be those of this version."""
        self._is_ready = False
        self._turn: Turn | None = None
        self._inside: Connection | None = None
        self._closing = threading.Event()
        self._hook: StatementHook | None = None
        self._listener: Listener | None = None

    @classmethod
    def open(
        cls,
        url: str | URL | Engine,
        *,
        table_prefix: str = "queuety_",
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> Door:
        """A door to this database; connects when it is first used. Raises `DefinitionError` if the URL cannot be right.

        An `Engine` is used with its pool and time-outs, and never disposed of. `clock` stands in for the database's.
        """
        limits = limits or Limits()
        tables = Tables(_checked(table_prefix))
        if hasattr(url, "sync_engine"):
            raise DefinitionError("an AsyncEngine was given; give the URL or an Engine, for `_async` calls too")
        if isinstance(url, Engine):
            dialect = dialect_for(url)
            door = cls(dialect.adopted(url), dialect, tables, limits, owns_engine=False)
        else:
            engine = engine_for(url, limits)
            door = cls(engine, dialect_for(engine, limits), tables, limits, owns_engine=True)
        if clock is not None:
            door.clock = clock
        return door

    def close(self) -> None:
        """Closes the connections that it opened, and ends the patience of who waits. Used again, it opens new ones."""
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        if self._pid == os.getpid():
            self.ids.close()
        if self._owns_engine and self._pid == os.getpid():
            self.engine.dispose()
            self.has_schema = self.has_schema and not self.dialect.is_private  # memory is gone with its connection

    def now_us(self) -> int:
        """Now by the door's clock, in microseconds since the epoch, UTC. The first call may need the database."""
        return self.clock.now_us()

    @contextmanager
    def reading(self, *, one_moment: bool = False) -> Iterator[Connection]:
        """A connection to read from, in one transaction that is rolled back. Raises `StoreError`.

        With `one_moment` all of its statements see the database as of one moment; else each on a server sees its own.
        """
        with self._translating("reading"), self._reading(one_moment=one_moment) as connection:
            yield connection

    def read(self, unit: Unit[T], *, on: Line | None = None) -> T:
        """What the unit gives back from one reading transaction; repeated like `write`."""
        return self.write(unit, on=on, reads=True)

    def write(
        self,
        unit: Unit[T],
        *,
        landed: Unit[T | None] | None = None,
        on: Line | None = None,
        patience_s: float | None = None,
        reads: bool = False,
    ) -> T:
        """What the unit gives back from one transaction that was committed (with `reads`: only read, and rolled back).

        It is run again, whole, when the database took it back or the connection was lost, for at most `patience_s`
        (else that of the limits); then `StoreUnavailable`. If the connection is lost while committing, nobody knows
        whether it was done: `landed` is asked in the next transaction, and what it gives back, unless None, is the
        result. Without `landed` the unit must do no harm when it is done twice. `on` is this thread's own connection.
        """
        unsure = False

        def attempt(deadline: float) -> T:
            nonlocal unsure
            try:
                return self._transact(unit, landed if unsure else None, on, deadline, reads)
            except _AtCommit as failure:
                fault = fault_of(failure.error, self.dialect)
                unsure = unsure or (fault is not None and fault not in _SURELY_TAKEN_BACK)
                if fault is Fault.FATAL:  # an answer that we do not know may stand for either
                    raise _Repeat(failure.error, Fault.GONE) from failure.error
                raise failure.error from failure.error.__cause__
            except Exception as error:
                # The COMMIT of unknown outcome went through while this try was under way.
                if unsure and landed is not None and fault_of(error, self.dialect) is Fault.DUPLICATE:
                    raise _Repeat(error, Fault.TRANSIENT) from error
                raise

        return self._persist(attempt, patience_s, "reading" if reads else "writing")

    @contextmanager
    def joined(self, connection: Connection | Session | scoped_session[Session]) -> Iterator[Tx]:
        """The caller's own transaction, begun if it was not. Neither committed, rolled back nor repeated here.

        Raises `DefinitionError` if it leads elsewhere or commits by itself, `StoreError` for a driver's error.
        """
        with self._translating("taking part in the caller's transaction"):
            theirs = joinable(connection, self.engine, self.dialect)
        with self._translating("taking part in the caller's transaction", theirs):
            self._ready()
            if not theirs.in_transaction():
                theirs.begin()
            usable = theirs.dialect.driver in self.dialect.joinable
            yield Tx(self, theirs, self._cursor(theirs) if usable else unusable_cursor(theirs.dialect.driver))

    def line(self, engine: Engine | None = None) -> Line:
        """A connection for one thread's transactions (`on=`), opened when first used and replaced when lost."""
        if engine is not None and engine is not self.engine and self._listener is not None:
            event.listen(engine, "before_cursor_execute", self._listener)
        return Line(engine or self.engine, self.dialect.shut)

    @property
    def on_statement(self) -> StatementHook | None:
        """For tests that break things: called with every statement before it is run, `COMMIT` included, and with
        `COMMITTED` after one. What it raises happens as if the driver had raised it there. None costs nothing."""
        return self._hook

    @on_statement.setter
    def on_statement(self, hook: StatementHook | None) -> None:
        if self._listener is not None:
            event.remove(self.engine, "before_cursor_execute", self._listener)
            self._listener = None
        self._hook = hook
        if hook is not None:
            self._listener = Listener(hook)
            event.listen(self.engine, "before_cursor_execute", self._listener)

    def _persist(self, attempt: Callable[[float], T], patience_s: float | None, doing: str) -> T:
        """Runs it until it succeeds, fails for good, or patience is at its end."""
        closing = self._closing
        began = time.monotonic()
        allowed = self.limits.patience_s if patience_s is None else patience_s
        patience: Patience | None = None
        while True:
            try:
                return attempt(began + allowed)
            except QueuetyError:
                raise
            except Exception as error:
                cause = error.error if isinstance(error, _Repeat) else error
                fault = error.fault if isinstance(error, _Repeat) else fault_of(error, self.dialect)
                if fault is None:
                    raise
                patience = patience or Patience(allowed, began, closing)
                self.dialect.after_fault(fault)
                if not fault.may_pass or not patience.another(fault):
                    tries = max(1, patience.tries)
                    tried = f"{doing} failed" + (f" {tries} times in {patience.spent_s:.1f} s" if tries > 1 else "")
                    raise translated(cause, fault, self.dialect, tried=tried) from cause

    def _transact(
        self, unit: Unit[T], landed: Unit[T | None] | None, on: Line | None, deadline: float, reads: bool
    ) -> T:
        if reads and on is None:
            with self._reading() as connection:
                return unit(Tx(self, connection, self._cursor(connection)))
        self._ready()
        turn = None if reads and not self.dialect.is_private else self._turn
        if turn is not None:
            turn.take(deadline)
        try:
            self.dialect.check_idle(self.engine)
            connection = self.engine.connect() if on is None else on.connection()
            try:
                self._inside = connection if self.dialect.is_private else None
                return self._in_transaction(connection, unit, landed, deadline, reads)
            except BaseException as error:
                self._give_up(connection, error)
                if on is not None and connection.invalidated:
                    on.close()
                raise
            finally:
                self._inside = None
                if on is None:
                    connection.close()
        finally:
            if turn is not None:
                turn.give()

    def _in_transaction(
        self, connection: Connection, unit: Unit[T], landed: Unit[T | None] | None, deadline: float, reads: bool
    ) -> T:
        dialect, clock = self.dialect, self.clock
        transaction = connection.begin()
        cursor = self._watched(dialect.cursor(connection))
        tx = Tx(self, connection, cursor)
        found: T | None = None
        with tx.answered():
            if reads:
                dialect.begin_read(cursor)
            else:
                if landed is not None:
                    dialect.before_landed(cursor)
                dialect.begin_write(cursor, deadline)
                if isinstance(clock, DatabaseClock) and clock.is_due:
                    clock.measure(cursor)
                found = None if landed is None else landed(tx)
            result = unit(tx) if found is None else found
        if reads or found is not None:
            transaction.rollback()
            return result
        hook = self._hook
        try:
            if hook is None:
                transaction.commit()
            else:
                hook("COMMIT")
                transaction.commit()
                hook("COMMITTED")
        except Exception as error:
            raise _AtCommit(error) from error
        return result

    def _give_up(self, connection: Connection, error: BaseException) -> None:
        """Leaves the connection without a transaction, or without itself."""
        fault = fault_of(error.error if isinstance(error, _AtCommit) else error, self.dialect)
        is_broken = fault is not None and fault.ends_connection and not self.dialect.is_private
        transaction = connection.get_transaction()
        # A closed SQLite connection keeps the file locked for as long as a cursor of it is half read.
        if transaction is not None and (not is_broken or self._turn is not None):
            try:
                transaction.rollback()
            except (SQLAlchemyError, self.dialect.driver_error):
                is_broken = not self.dialect.is_private  # 1213 may meet a ROLLBACK too: who knows what it holds now
        if is_broken and not connection.invalidated:
            connection.invalidate()
        if (left := connection.get_transaction()) is not None:
            left.close()

    @contextmanager
    def _reading(self, *, one_moment: bool = False) -> Iterator[Connection]:
        self._ready()
        if self._inside is not None and self._turn is not None and self._turn.is_mine():
            yield self._inside  # the one connection of a database in memory, inside a transaction of this thread
            return
        turn = self._turn if self.dialect.is_private else None
        if turn is not None:
            turn.take(time.monotonic() + self.limits.patience_s)
        try:
            self.dialect.check_idle(self.engine)
            with self.engine.connect() as connection:
                try:
                    self._inside = connection if turn is not None else None
                    transaction = connection.begin()
                    self.dialect.begin_read(self._cursor(connection))
                    if one_moment:
                        self.dialect.begin_snapshot(self._cursor(connection))
                    yield connection
                    transaction.rollback()
                except BaseException as error:
                    self._give_up(connection, error)
                    raise
                finally:
                    self._inside = None
        finally:
            if turn is not None:
                turn.give()

    def _cursor(self, connection: Connection) -> Any:
        return self._watched(connection.connection.cursor())

    def _watched(self, cursor: Any) -> Any:
        return cursor if self._hook is None else WatchedCursor(cursor, self._hook)

    def _ask_clock(self, measure: Callable[[Any], None]) -> None:
        self.read(lambda tx: measure(tx.cursor))

    @contextmanager
    def _translating(self, doing: str, theirs: Connection | None = None) -> Iterator[None]:
        try:
            yield
        except QueuetyError:
            raise
        except Exception as error:
            fault = fault_of(error, self.dialect)
            if fault is None and theirs is not None and isinstance(error, theirs.dialect.loaded_dbapi.Error):
                fault = self.dialect.fault_of(error)
            if fault is None:
                raise
            self.dialect.after_fault(fault)
            raise translated(error, fault, self.dialect, tried=f"{doing} failed") from error

    def _ready(self) -> None:
        """Before every transaction: has this process been forked, and, once, may the place be used?"""
        if self._pid != os.getpid():
            self._after_fork()
        if not self._is_ready:
            self.dialect.check()
            key = self.dialect.writer_key()
            self._turn = None if key is None else turn_for(key, self.dialect.place)
            self._is_ready = True

    def _after_fork(self) -> None:
        if self.dialect.is_private and self._is_ready:
            raise StoreError(
                f"{self.dialect.place}: it belongs to the process that forked this one; use a file instead"
            )
        inherited.extend((self.engine.pool, self.ids))
        self.engine.dispose(close=False)
        self._inside = None
        self._is_ready = False
        self.ids = Ids(self)
        self._closing = threading.Event()
        self._pid = os.getpid()


class _AtCommit(Exception):
    """What went wrong while committing."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Repeat(Exception):
    """An error to be taken for another fault than it is by itself."""

    def __init__(self, error: Exception, fault: Fault) -> None:
        super().__init__(error)
        self.error = error
        self.fault = fault


def _checked(prefix: str) -> str:
    """The prefix, if tables can be named with it on every database without quoting."""
    is_plain = prefix.isascii() and prefix.isidentifier() and prefix == prefix.lower()
    if not is_plain or len(prefix) > 32:
        raise DefinitionError(
            f"table_prefix={prefix!r}: at most 32 lowercase letters, digits and underscores are needed, no digit first"
        )
    return prefix
