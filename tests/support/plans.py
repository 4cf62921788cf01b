"""What a database says about how it runs statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, event, text

from tests.support.runs import Scene

T = TypeVar("T")


def analyze(scene: Scene, *tables: Table) -> None:
    """Has the database count what is in the tables, so that it plans as it would on real ones.

    PostgreSQL's indexes are made anew: of one whose many pages a hundred thousand jobs of an earlier test have left
    empty it expects to read every page, and reads the table instead.
    """
    words = {"mysql": ["ANALYZE TABLE"], "postgresql": ["REINDEX TABLE", "VACUUM ANALYZE"]}
    with scene.door.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in tables:
            for word in words.get(scene.door.dialect.name, ["ANALYZE"]):
                connection.execute(text(f"{word} {table.name}")).close()


def planned(scene: Scene, connection: Connection, call: Callable[[], T]) -> tuple[T, list[tuple[str, str]]]:
    """What the call gives back, and each statement that it has run on the connection, with its plan."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_more: object) -> None:
        asked.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    try:
        result = call()
    finally:
        event.remove(connection, "before_cursor_execute", note)
    word = "EXPLAIN QUERY PLAN" if scene.door.dialect.name == "sqlite" else "EXPLAIN"
    plans = []
    for statement, parameters in asked:
        rows = connection.exec_driver_sql(f"{word} {statement}", parameters).all()
        plans.append((statement, "\n".join(" ".join(map(str, row)) for row in rows)))
    return result, plans
