"""Looking at, or breaking, every statement that passes the door; for tests. Costs nothing while nobody looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queuety.errors import DefinitionError

StatementHook = Callable[[str], None]


class WatchedCursor:
    """A driver's cursor that tells of each statement before it is run."""

    def __init__(self, cursor: Any, hook: StatementHook) -> None:
        self._cursor = cursor
        self._hook = hook

    def execute(self, statement: str, *parameters: Any) -> Any:
        self._hook(statement)
        return self._cursor.execute(statement, *parameters)

    def executemany(self, statement: str, *parameters: Any) -> Any:
        self._hook(statement)
        return self._cursor.executemany(statement, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class Listener:
    """Tells of the statements that SQLAlchemy runs; an object, so that it can be taken off again."""

    def __init__(self, hook: StatementHook) -> None:
        self._hook = hook

    def __call__(self, _conn: Any, _cursor: Any, statement: str, _parameters: Any, _context: Any, _many: bool) -> None:
        self._hook(statement)


def unusable_cursor(driver: str) -> Any:
    """Stands where a driver's cursor cannot be used: its placeholders are others than ours."""
    return _Unusable(driver)


class _Unusable:
    def __init__(self, driver: str) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        raise DefinitionError(
            f"a connection of the driver {self._driver} cannot be joined here; use one of psycopg, PyMySQL or sqlite3"
        )
