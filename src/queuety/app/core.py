"""What every verb of the application stands on: the door, the registry of handlers, the definitions, the settings."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sqlalchemy import URL, Connection, Engine

from queuety.app.settings import Settings
from queuety.commands.definitions import Definitions
from queuety.define.options import read_seconds
from queuety.define.registry import Registry
from queuety.define.templates import Templates
from queuety.errors import DefinitionError
from queuety.store.clock import Clock
from queuety.store.dialects import Limits
from queuety.store.door import Door, Tx

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

    from queuety.worker.wake import Wakes

T = TypeVar("T")

DEFAULT_URL = "sqlite:///queuety.db"


class Core:
    """The application's parts, and how its verbs reach the database."""

    def __init__(
        self,
        url: str | URL | Engine | None = None,
        *,
        clock: Clock | None = None,
        table_prefix: str = "queuety_",
        auto_migrate: bool = True,
        settings: Settings | None = None,
    ) -> None:
        """Makes the application; connects to nothing yet. Raises `DefinitionError` for a URL that cannot be right.

        `url` is any SQLAlchemy URL or an `Engine`; None reads `QUEUETY_DATABASE_URL`, else `sqlite:///queuety.db` in
        the working directory. `clock` tells the time instead of the database (`queuety.testing.ManualClock`). Without
        `auto_migrate` the tables must have been made by `migrate()` or `queuety migrate`.
        """
        self.settings = settings or Settings.from_environment()
        self.registry = Registry()
        self.templates = Templates()
        self.definitions = Definitions()
        self._door = Door.open(
            url if url is not None else os.environ.get("QUEUETY_DATABASE_URL") or DEFAULT_URL,
            table_prefix=table_prefix,
            limits=_limits(self.settings),
            clock=clock,
        )
        self._has_own_clock = clock is not None
        self._auto_migrate = auto_migrate
        self._is_migrated = False
        self._migrating = threading.Lock()
        self._bell = threading.Event()
        self._listeners: weakref.WeakSet[Wakes] = weakref.WeakSet()

    @property
    def door(self) -> Door:
        """The way to the database, its tables made or upgraded first if that has not been seen to yet."""
        if not self._is_migrated:
            with self._migrating:
                if not self._is_migrated:
                    self._see_to_schema()
        return self._door

    def _see_to_schema(self) -> None:
        from queuety.store.migrate import ensure

        ensure(self._door, auto_migrate=self._auto_migrate)
        self._is_migrated = True

    def migrate(self) -> None:
        """Creates or upgrades the tables; safe from several processes at once. Raises `SchemaError` for newer ones."""
        from queuety.store.migrate import migrate

        with self._migrating:
            migrate(self._door)
            self._is_migrated = True

    def register(self, alias: str, handler: Any) -> None:
        """Gives a handler a further name, under which definitions and rows may call it. Raises `DefinitionError`."""
        self.registry.register(alias, handler)

    def close(self) -> None:
        """Releases the connections; used again, the application opens new ones."""
        self._door.close()
        if self._door.dialect.is_private:
            self._is_migrated = False
            self.definitions = Definitions()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _write(self, unit: Callable[[Tx], T], *, landed: Callable[[Tx], T | None] | None = None) -> T:
        """One transaction; then whoever sleeps in this process is woken."""
        result = self.door.write(unit, landed=landed)
        self._ring()
        return result

    @contextmanager
    def _joined(self, connection: Connection | Session | scoped_session[Session]) -> Iterator[Tx]:
        """The caller's own transaction, the tables and definitions being there already."""
        with self.door.joined(connection) as tx:
            yield tx

    def _ring(self) -> None:
        for wakes in list(self._listeners):
            wakes.tell()


def _limits(settings: Settings) -> Limits:
    return Limits(
        pool_size=settings.pool_size,
        pool_timeout_s=settings.pool_timeout_seconds,
        connect_timeout_s=settings.connect_timeout_seconds,
        network_timeout_s=settings.network_timeout_seconds,
        lock_timeout_s=settings.lock_timeout_seconds,
        patience_s=settings.patience_seconds,
        sqlite_synchronous=settings.sqlite_synchronous,
    )


def checked_timeout(timeout: Any) -> float | None:
    """The number of seconds to wait at most; None waits for ever. Raises `DefinitionError`."""
    return None if timeout is None else read_seconds(timeout, "timeout")


def known_id(value: Any, what: str) -> int | None:
    """The id, or None if it is a number that no row can have. Raises `DefinitionError` for what is no whole number.

    The databases differ in what they make of `"1"` or `None`, and their drivers fail at what has more than 64 bits.
    """
    if type(value) is not int:
        raise DefinitionError(f"{what}={value!r}: the whole number that a dispatch gave back is needed")
    return value if 0 < value < 1 << 63 else None


def read_count(value: Any, what: str, *, least: int, most: int | None = None) -> int:
    """A whole number of at least `least`, and at most `most`. Raises `DefinitionError`."""
    if type(value) is not int or value < least or (most is not None and value > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise DefinitionError(f"{what}={value!r}: a whole number {wanted} is needed")
    return value
