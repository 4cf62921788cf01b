"""Every difference between the databases, each with its reason; nowhere else asks which one it is."""

from __future__ import annotations

from typing import Final

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from queuety.errors import DefinitionError
from queuety.store.dialects.base import Cursor, Dialect, Fault, Limits
from queuety.store.dialects.mysql import MysqlDialect
from queuety.store.dialects.postgresql import PostgresDialect
from queuety.store.dialects.sqlite import SqliteDialect

__all__ = ["Cursor", "Dialect", "Fault", "Limits", "dialect_for", "engine_for"]

_KINDS: Final[dict[str, type[Dialect]]] = {
    "sqlite": SqliteDialect,
    "postgresql": PostgresDialect,
    "postgres": PostgresDialect,
    "mysql": MysqlDialect,
    "mariadb": MysqlDialect,
}
_EXTRA: Final = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mysql"}


def engine_for(url: str | URL, limits: Limits) -> Engine:
    """An engine for this URL. Raises `DefinitionError` if it is not one of ours, or its driver is not installed."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise DefinitionError(
            "the database URL cannot be read; write it as sqlite:///queuety.db, "
            "postgresql+psycopg://user:password@host/database or mysql+pymysql://user:password@host/database"
        ) from error
    backend, _, driver = parsed.drivername.partition("+")
    kind = _kind(backend)
    if driver and driver not in kind.drivers:
        raise _wrong_driver(backend, driver, kind)
    parsed = parsed.set(drivername=f"{kind.name}+{kind.drivers[0]}")
    try:
        return kind.connect(parsed, limits)
    except (ImportError, NoSuchModuleError) as error:
        raise DefinitionError(
            f"the driver for {kind.name} is not installed; install queuety[{_EXTRA.get(backend, kind.name)}]"
        ) from error
    except ArgumentError as error:
        raise DefinitionError(f"the database URL {parsed} cannot be used: {error}") from error


def dialect_for(engine: Engine, limits: Limits | None = None) -> Dialect:
    """What is particular about this engine's database; `limits` if `engine_for` made it. Raises `DefinitionError`."""
    kind = _kind(engine.dialect.name)
    if engine.dialect.driver not in kind.drivers:
        raise _wrong_driver(engine.dialect.name, engine.dialect.driver, kind)
    return kind(engine, limits)


def _kind(backend: str) -> type[Dialect]:
    kind = _KINDS.get(backend)
    if kind is None:
        raise DefinitionError(f"{backend} is not supported; SQLite, PostgreSQL, MySQL and MariaDB are")
    return kind


def _wrong_driver(backend: str, driver: str, kind: type[Dialect]) -> DefinitionError:
    return DefinitionError(
        f"{backend}+{driver} is not supported; use {kind.name}+{kind.drivers[0]} "
        f"(an asyncio program too: its `_async` calls run in a thread)"
    )
