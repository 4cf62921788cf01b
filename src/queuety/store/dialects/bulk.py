"""Many rows in one statement, as each database takes them best; the hot path's only way of writing.

Everything here works on a driver's own cursor: through the SQL toolkit a statement costs 38 µs more of client time on
SQLite and 75 to 90 µs on PostgreSQL, which is too much where a step has about a dozen microseconds to spend.
The statements are made once per table and set of columns, and run unchanged ever after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, SmallInteger, Table, Text

Cursor = Any
"""A DBAPI cursor inside an open transaction."""

Row = Sequence[Any]


class Insert(Protocol):
    """Adds all rows; their values stand in the order of the columns that it was made for."""

    def __call__(self, cursor: Cursor, rows: Sequence[Row], /) -> None: ...


Found = Callable[[], int]
"""How many rows a statement has found. Asking may wait for the answer of the database."""


class Update(Protocol):
    """Sets its columns in the rows with these keys (the first value of each); gives back how many it found.

    The count is of rows found, not of rows that a new value changed.
    """

    def __call__(self, cursor: Cursor, rows: Sequence[Row], /) -> Found: ...


class Bulk(Protocol):
    """How one kind of database takes many rows."""

    parameter: str
    """The driver's placeholder."""
    for_update: str
    """Appended to a SELECT to lock its rows, passing over those that another transaction has locked."""
    for_update_waiting: str
    """Appended to a SELECT to lock its rows, waiting for those that another transaction has locked."""

    def insert(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        replaces: bool = False,
        highest: str | None = None,
        keeps: str | None = None,
    ) -> Insert:
        """Makes an `Insert`. With `replaces`, a row takes the place of one that has its primary key.

        Then no two rows of one call may have the same key. With `highest`, the only column that is no part of the key,
        it does so only if it holds the larger number there. What the replaced row has in the column `keeps` stays.
        """

    def update(self, table: Table, columns: Sequence[str], *, fence: str | None = None) -> Update:
        """Makes an `Update` by `id`. With `fence`, a row is found only if that column still holds the second value."""

    def delete_held(self, table: Table) -> Update:
        """Makes a deletion of the rows whose `id` and `token` are these pairs."""

    def delete_by(self, table: Table, columns: Sequence[str]) -> Update:
        """Makes a deletion of the rows in which these columns, the first of an index, hold these integers."""

    def or_leave(self, column: str) -> str:
        """Appended to `INSERT … VALUES (…)`: a row whose key is taken stays as it is. `column`: any of the table's."""

    def among(self, column: str, values: Sequence[int]) -> tuple[str, list[Any]]:
        """A condition that is true of rows whose column is one of these (at least one) integers, and its parameters."""


def known(count: int) -> Found:
    """What a statement has found that is answered."""
    return lambda: count


def _found(cursor: Cursor) -> Found:
    """What the last statement has found, for later: a cursor may have statements that are not answered yet."""
    counted: Callable[[], Found] | None = getattr(cursor, "counted", None)
    return known(int(cursor.rowcount)) if counted is None else counted()


def names(columns: Iterable[str]) -> str:
    """As a list in a statement."""
    return ", ".join(columns)


def rest(table: Table, columns: Sequence[str], keeps: str | None) -> list[str]:
    """The columns that a row takes over from the one that it replaces it with: not the key, nor what stays."""
    return [name for name in columns if name not in table.primary_key.columns and name != keeps]


def _on_conflict(table: Table, columns: Sequence[str], highest: str | None, keeps: str | None) -> str:
    """Appended to an INSERT on SQLite and PostgreSQL: a row takes the place of one that has its primary key."""
    sets = names(f"{name} = excluded.{name}" for name in rest(table, columns, keeps))
    only = "" if highest is None else f" WHERE {table.name}.{highest} < excluded.{highest}"
    return f" ON CONFLICT ({names(table.primary_key.columns.keys())}) DO UPDATE SET {sets}{only}"


class SqliteBulk:
    """SQLite runs in our process: a prepared statement per row is the fastest, about 3 µs each."""

    parameter = "?"
    # One writer at a time: who may write has locked everything.
    for_update = ""
    for_update_waiting = ""

    def insert(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        replaces: bool = False,
        highest: str | None = None,
        keeps: str | None = None,
    ) -> Insert:
        sql = f"INSERT INTO {table.name} ({names(columns)}) VALUES ({names('?' for _ in columns)})"
        sql += _on_conflict(table, columns, highest, keeps) if replaces else ""

        def insert(cursor: Cursor, rows: Sequence[Row], /) -> None:
            cursor.executemany(sql, rows)

        return insert

    def update(self, table: Table, columns: Sequence[str], *, fence: str | None = None) -> Update:
        keys = 2 if fence else 1
        first = keys + 1
        sets = names(f"{name} = ?{number}" for number, name in enumerate(columns, first))
        held = f" AND {fence} = ?2" if fence else ""
        sql = f"UPDATE {table.name} SET {sets} WHERE id = ?1{held}"

        def update(cursor: Cursor, rows: Sequence[Row], /) -> Found:
            cursor.executemany(sql, rows)
            return known(int(cursor.rowcount))

        return update

    def delete_held(self, table: Table) -> Update:
        return self.delete_by(table, ("id", "token"))

    def delete_by(self, table: Table, columns: Sequence[str]) -> Update:
        sql = f"DELETE FROM {table.name} WHERE {' AND '.join(f'{name} = ?' for name in columns)}"

        def delete(cursor: Cursor, rows: Sequence[Row], /) -> Found:
            cursor.executemany(sql, rows)
            return known(int(cursor.rowcount))

        return delete

    def or_leave(self, column: str) -> str:
        return " ON CONFLICT DO NOTHING"

    def among(self, column: str, values: Sequence[int]) -> tuple[str, list[Any]]:
        # One parameter whatever the number of values: at most 32,766 may be bound, and the statement stays the same.
        return f"{column} IN (SELECT value FROM json_each(?))", ["[" + ",".join(map(str, values)) + "]"]


def _array_type(column: Column[Any]) -> str:
    kind = column.type
    if isinstance(kind, SmallInteger):
        return "smallint[]"
    if isinstance(kind, BigInteger):
        return "bigint[]"
    if isinstance(kind, Integer):
        return "integer[]"
    return "bytea[]" if isinstance(kind, LargeBinary) else "text[]"


def _places_of_texts(table: Table, columns: Sequence[str]) -> list[int]:
    """Which of these columns hold text or bytes of any length."""
    return [place for place, name in enumerate(columns) if isinstance(table.c[name].type, Text | LargeBinary)]


class PostgresBulk:
    """PostgreSQL takes a column of values as an array: one round trip, and 65,535 parameters are no limit.

    A row with a large text goes by itself: the driver writes 9 MB into an array in 1.6 s, as a plain value in 0.1 s.
    """

    parameter = "%s"
    large = 16_384
    for_update = " FOR UPDATE SKIP LOCKED"
    for_update_waiting = " FOR UPDATE"

    def _unnest(self, table: Table, columns: Sequence[str]) -> str:
        return "unnest(" + ", ".join(f"%s::{_array_type(table.c[name])}" for name in columns) + ")"

    def _by_size(self, rows: Sequence[Row], texts: Sequence[int]) -> tuple[Sequence[Row], Sequence[Row]]:
        """Rows without a large text and rows with one; `texts` are the places where one may be."""
        most = self.large
        columns = list(zip(*rows, strict=True))
        if all(max(map(len, filter(None, columns[place])), default=0) <= most for place in texts):
            return rows, ()
        small: list[Row] = []
        large: list[Row] = []
        for row in rows:
            is_large = any((text := row[place]) and len(text) > most for place in texts)
            (large if is_large else small).append(row)
        return small, large

    def insert(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        replaces: bool = False,
        highest: str | None = None,
        keeps: str | None = None,
    ) -> Insert:
        tail = _on_conflict(table, columns, highest, keeps) if replaces else ""
        sql = f"INSERT INTO {table.name} ({names(columns)}) SELECT * FROM {self._unnest(table, columns)}{tail}"
        single = f"INSERT INTO {table.name} ({names(columns)}) VALUES ({names('%s' for _ in columns)}){tail}"
        texts = _places_of_texts(table, columns)

        def insert(cursor: Cursor, rows: Sequence[Row], /) -> None:
            small, large = self._by_size(rows, texts)
            if small:
                cursor.execute(sql, [list(column) for column in zip(*small, strict=True)])
            for row in large:
                cursor.execute(single, row)

        return insert

    def update(self, table: Table, columns: Sequence[str], *, fence: str | None = None) -> Update:
        keys = ["id", fence] if fence else ["id"]
        given = [f"v{number}" for number in range(len(keys) + len(columns))]
        sets = names(f"{name} = v.{value}" for name, value in zip(columns, given[len(keys) :], strict=True))
        where = " AND ".join(f"t.{key} = v.{value}" for key, value in zip(keys, given, strict=False))
        source = self._unnest(table, [*keys, *columns])
        sql = f"UPDATE {table.name} AS t SET {sets} FROM {source} AS v({names(given)}) WHERE {where}"
        single = f"UPDATE {table.name} SET {names(f'{name} = %s' for name in columns)} WHERE "
        single += " AND ".join(f"{key} = %s" for key in keys)
        texts = _places_of_texts(table, [*keys, *columns])

        def update(cursor: Cursor, rows: Sequence[Row], /) -> Found:
            small, large = self._by_size(rows, texts)
            found: list[Found] = []
            if small:
                cursor.execute(sql, [list(column) for column in zip(*small, strict=True)])
                found.append(_found(cursor))
            for row in large:
                cursor.execute(single, [*row[len(keys) :], *row[: len(keys)]])
                found.append(_found(cursor))
            return lambda: sum(one() for one in found)

        return update

    def delete_held(self, table: Table) -> Update:
        return self.delete_by(table, ("id", "token"))

    def delete_by(self, table: Table, columns: Sequence[str]) -> Update:
        source = f"unnest({names('%s::bigint[]' for _ in columns)}) AS v({names(columns)})"
        where = " AND ".join(f"t.{name} = v.{name}" for name in columns)
        sql = f"DELETE FROM {table.name} AS t USING {source} WHERE {where}"

        def delete(cursor: Cursor, rows: Sequence[Row], /) -> Found:
            cursor.execute(sql, [list(column) for column in zip(*rows, strict=True)])
            return _found(cursor)

        return delete

    def or_leave(self, column: str) -> str:
        return " ON CONFLICT DO NOTHING"

    def among(self, column: str, values: Sequence[int]) -> tuple[str, list[Any]]:
        return f"{column} = ANY(%s::bigint[])", [list(values)]
