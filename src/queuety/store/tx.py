"""An open transaction, and the connection that a thread keeps for many. The door makes both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine

from queuety.errors import StoreUnavailable
from queuety.store.clock import DatabaseClock
from queuety.store.dialects import Cursor

if TYPE_CHECKING:
    from queuety.store.door import Door

inherited: Final[list[object]] = []
"""What a fork has copied of the parent's connections: kept, so that nothing in the child ever closes them."""


class Tx:
    """An open transaction. `cursor` is the driver's own, on the same transaction as `connection`."""

    __slots__ = ("_connection", "_expected", "cursor", "dialect", "door", "statements", "tables")

    def __init__(self, door: Door, connection: Connection, cursor: Cursor) -> None:
        self.door = door
        self._connection = connection
        self._expected: list[tuple[Callable[[], int], int, type[Exception]]] = []
        self.cursor = cursor
        self.dialect = door.dialect
        self.tables = door.tables
        self.statements = door.statements

    @property
    def connection(self) -> Connection:
        """The same transaction through the SQL toolkit."""
        self.settle()
        self._leave()
        return self._connection

    def expect(self, found: Callable[[], int], wanted: int, otherwise: type[Exception]) -> None:
        """Has the transaction fail with `otherwise`, before it commits, if not so many rows have been found."""
        self._expected.append((found, wanted, otherwise))

    @contextmanager
    def answered(self) -> Iterator[None]:
        """At its end all statements have been answered. Raises what went wrong, or what was to be raised if not so many
        rows were found as expected: what was sent after such a statement may have failed of that."""
        try:
            yield
            self.settle()
        except self.dialect.driver_error:
            self._refuse()
            raise
        finally:
            self._leave()

    def settle(self) -> None:
        """Waits for what is unanswered. Raises as `answered`."""
        _have(self.cursor, "settle")
        self._refuse()

    def _refuse(self) -> None:
        for found, wanted, otherwise in self._expected:
            if found() not in (wanted, -1):
                raise otherwise

    def _leave(self) -> None:
        """Gives the connection back to its driver, where the cursor has taken it over."""
        _have(self.cursor, "leave")

    def now_us(self) -> int:
        """Now by the door's clock, in microseconds since the epoch, UTC; no round trip."""
        return self.door.clock.now_us()

    def measure_clock(self) -> int:
        """Now by the database's clock, asked for anew where that is the door's: one round trip."""
        clock = self.door.clock
        if isinstance(clock, DatabaseClock):
            clock.measure(self.cursor)
        return clock.now_us()

    def catch_up(self) -> bool:
        """Waits until this node knows what others have committed, where nodes may lag; True if it is worth another
        look. For who was told of a run that is not there."""
        return self.dialect.catch_up(self.door.engine, self.statements.workflows)

    def reserve(self, count: int) -> list[int]:
        """`count` new ids for workflows, jobs and messages, ascending."""
        return self.door.ids.reserve(self, count)


def _have(cursor: Cursor, act: str) -> None:
    """Only a cursor that answers late has anything to do then."""
    own: Callable[[], object] | None = getattr(cursor, act, None)
    if own is not None:
        own()


class Line:
    """A connection that one thread keeps for its transactions (`on=`); a lost one is replaced at the next.

    Leaving its `with` gives it back.
    """

    def __init__(self, engine: Engine, shut: Callable[[Any], None]) -> None:
        """`shut` is the dialect's."""
        self.engine = engine
        self._shut = shut
        self._is_cut = False
        self._connection: Connection | None = None
        self._pid = os.getpid()

    def connection(self) -> Connection:
        """The connection, opened if there is none. Only the door calls this: the driver's errors come bare."""
        if self._pid != os.getpid():
            inherited.append(self._connection)
            self._connection, self._pid = None, os.getpid()
        if self._is_cut:
            raise StoreUnavailable("this connection was given up, because its worker has no more time")
        if self._connection is None:
            self._connection = self.engine.connect()
        return self._connection

    def cut(self) -> None:
        """Ends from another thread what waits for the database here, and whatever is tried later, with
        `StoreUnavailable`. Only the making of a connection runs on to its own time-out."""
        self._is_cut = True
        connection = self._connection
        if connection is not None and not connection.closed and not connection.invalidated:
            self._shut(connection.connection.driver_connection)

    def close(self) -> None:
        """Gives it back; the next transaction would open another."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
