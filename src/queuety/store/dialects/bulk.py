"""Many rows in one statement, as each database takes them best; the hot path's only way of writing.

Everything here works on a driver's own cursor: through the SQL toolkit a statement costs 38 µs more of client time on
SQLite and 75 to 90 µs on PostgreSQL, which is too much where a step has about a dozen microseconds to spend.
The statements are made once per table and set of columns, and run unchanged ever after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, SmallInteger, Table, Text

from queuety.errors import StoreError

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


def _known(count: int) -> Found:
    return lambda: count


def _found(cursor: Cursor) -> Found:
    """What the last statement has found, for later: a cursor may have statements that are not answered yet."""
    counted: Callable[[], Found] | None = getattr(cursor, "counted", None)
    return _known(int(cursor.rowcount)) if counted is None else counted()


def _names(columns: Iterable[str]) -> str:
    return ", ".join(columns)


def _rest(table: Table, columns: Sequence[str], keeps: str | None) -> list[str]:
    """The columns that a row takes over from the one that it replaces it with: not the key, nor what stays."""
    return [name for name in columns if name not in table.primary_key.columns and name != keeps]


def _on_conflict(table: Table, columns: Sequence[str], highest: str | None, keeps: str | None) -> str:
    """Appended to an INSERT on SQLite and PostgreSQL: a row takes the place of one that has its primary key."""
    sets = _names(f"{name} = excluded.{name}" for name in _rest(table, columns, keeps))
    only = "" if highest is None else f" WHERE {table.name}.{highest} < excluded.{highest}"
    return f" ON CONFLICT ({_names(table.primary_key.columns.keys())}) DO UPDATE SET {sets}{only}"


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
        sql = f"INSERT INTO {table.name} ({_names(columns)}) VALUES ({_names('?' for _ in columns)})"
        sql += _on_conflict(table, columns, highest, keeps) if replaces else ""

        def insert(cursor: Cursor, rows: Sequence[Row], /) -> None:
            cursor.executemany(sql, rows)

        return insert

    def update(self, table: Table, columns: Sequence[str], *, fence: str | None = None) -> Update:
        keys = 2 if fence else 1
        first = keys + 1
        sets = _names(f"{name} = ?{number}" for number, name in enumerate(columns, first))
        held = f" AND {fence} = ?2" if fence else ""
        sql = f"UPDATE {table.name} SET {sets} WHERE id = ?1{held}"

        def update(cursor: Cursor, rows: Sequence[Row], /) -> Found:
            cursor.executemany(sql, rows)
            return _known(int(cursor.rowcount))

        return update

    def delete_held(self, table: Table) -> Update:
        return self.delete_by(table, ("id", "token"))

    def delete_by(self, table: Table, columns: Sequence[str]) -> Update:
        sql = f"DELETE FROM {table.name} WHERE {' AND '.join(f'{name} = ?' for name in columns)}"

        def delete(cursor: Cursor, rows: Sequence[Row], /) -> Found:
            cursor.executemany(sql, rows)
            return _known(int(cursor.rowcount))

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
        sql = f"INSERT INTO {table.name} ({_names(columns)}) SELECT * FROM {self._unnest(table, columns)}{tail}"
        single = f"INSERT INTO {table.name} ({_names(columns)}) VALUES ({_names('%s' for _ in columns)}){tail}"
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
        sets = _names(f"{name} = v.{value}" for name, value in zip(columns, given[len(keys) :], strict=True))
        where = " AND ".join(f"t.{key} = v.{value}" for key, value in zip(keys, given, strict=False))
        source = self._unnest(table, [*keys, *columns])
        sql = f"UPDATE {table.name} AS t SET {sets} FROM {source} AS v({_names(given)}) WHERE {where}"
        single = f"UPDATE {table.name} SET {_names(f'{name} = %s' for name in columns)} WHERE "
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
        source = f"unnest({_names('%s::bigint[]' for _ in columns)}) AS v({_names(columns)})"
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


def _weight(row: Row) -> int:
    """About how many bytes the row's texts take, without encoding them: four for a character that may need them."""
    return sum(
        len(value) if value.isascii() else 4 * len(value) for value in row if type(value) is str or type(value) is bytes
    )


class MysqlBulk:
    """MySQL and MariaDB take many rows as one long statement; the driver writes the values into it.

    A statement stays below `at_once` rows: their packet ends at 16 MiB.
    """

    parameter = "%s"
    # SKIP LOCKED: MySQL 8.0.1, MariaDB 10.6
    for_update = " FOR UPDATE SKIP LOCKED"
    for_update_waiting = " FOR UPDATE"
    at_once = 500
    sure_to_fit = 4_000_000
    """What `_weight` says of a statement that needs no closer look: escaped it is at most twice as much."""

    def _execute(self, cursor: Cursor, sql: str, values: Row) -> None:
        """Runs it, unless it is too large for the server, which would only hang up: that looks like a lost connection.

        Raises `StoreError` then.
        """
        if _weight(values) > self.sure_to_fit:
            cursor.execute("SELECT @@max_allowed_packet")
            most = int(cursor.fetchone()[0])
            size = len(cursor.mogrify(sql, values).encode(errors="surrogateescape"))
            if size + 1024 > most:
                raise StoreError(
                    f"a value takes {size:,} bytes as MySQL is to be told of it, and the server takes {most:,}; "
                    "raise its max_allowed_packet, or keep large values elsewhere and their names here"
                )
        cursor.execute(sql, values)

    def _parts(self, rows: Sequence[Row]) -> Iterable[Sequence[Row]]:
        """Pieces of at most `at_once` rows and, as well as can be told without encoding, 4 MB of text."""
        part: list[Row] = []
        weight = 0
        for row in rows:
            own = _weight(row)
            if part and (len(part) >= self.at_once or weight + own > 4_000_000):
                yield part
                part, weight = [], 0
            part.append(row)
            weight += own
        if part:
            yield part

    def insert(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        replaces: bool = False,
        highest: str | None = None,
        keeps: str | None = None,
    ) -> Insert:
        head = f"INSERT INTO {table.name} ({_names(columns)}) VALUES "
        one = "(" + _names("%s" for _ in columns) + ")"
        # VALUES(): MariaDB knows no name for the new row, which MySQL would rather have since 8.0.20.
        sets = _names(
            f"{name} = GREATEST({name}, VALUES({name}))" if name == highest else f"{name} = VALUES({name})"
            for name in _rest(table, columns, keeps)
        )
        tail = f" ON DUPLICATE KEY UPDATE {sets}" if replaces else ""

        def insert(cursor: Cursor, rows: Sequence[Row], /) -> None:
            for part in self._parts(rows):
                values = [value for row in part for value in row]
                self._execute(cursor, head + ", ".join([one] * len(part)) + tail, values)

        return insert

    def update(self, table: Table, columns: Sequence[str], *, fence: str | None = None) -> Update:
        keys = ["id", fence] if fence else ["id"]
        given = [f"v{number}" for number in range(len(keys) + len(columns))]
        first = "SELECT " + _names(f"%s AS {value}" for value in given)
        other = "SELECT " + _names("%s" for _ in given)
        sets = _names(f"t.{name} = v.{value}" for name, value in zip(columns, given[len(keys) :], strict=True))
        where = " AND ".join(f"t.{key} = v.{value}" for key, value in zip(keys, given, strict=False))
        single = f"UPDATE {table.name} SET {_names(f'{name} = %s' for name in columns)} WHERE id = %s"
        if fence:
            single += f" AND {fence} = %s"

        def update(cursor: Cursor, rows: Sequence[Row], /) -> Found:
            found = 0
            for part in self._parts(rows):
                if len(part) == 1:
                    row = part[0]
                    self._execute(cursor, single, [*row[len(keys) :], *row[: len(keys)]])
                else:
                    source = " UNION ALL ".join([first] + [other] * (len(part) - 1))
                    sql = f"UPDATE {table.name} AS t JOIN ({source}) AS v ON {where} SET {sets}"
                    self._execute(cursor, sql, [value for row in part for value in row])
                found += int(cursor.rowcount)
            return _known(found)

        return update

    def delete_held(self, table: Table) -> Update:
        # The pairs alone would not use the key on MariaDB: it reads a range only from `id IN (…)`.
        head = f"DELETE FROM {table.name} WHERE id IN ("

        def delete(cursor: Cursor, rows: Sequence[Row], /) -> Found:
            found = 0
            for part in self._parts(rows):
                ids = _names(str(int(row[0])) for row in part)
                pairs = _names(f"({int(row[0])}, {int(row[1])})" for row in part)
                cursor.execute(f"{head}{ids}) AND (id, token) IN ({pairs})")
                found += int(cursor.rowcount)
            return _known(found)

        return delete

    def delete_by(self, table: Table, columns: Sequence[str]) -> Update:
        head = f"DELETE FROM {table.name} WHERE "

        def delete(cursor: Cursor, rows: Sequence[Row], /) -> Found:
            found = 0
            for part in self._parts(rows):
                # A range of the key for each row; of a list of tuples MariaDB makes none.
                ranges = (
                    " AND ".join(f"{name} = {int(value)}" for name, value in zip(columns, row, strict=True))
                    for row in part
                )
                cursor.execute(head + " OR ".join(f"({one})" for one in ranges))
                found += int(cursor.rowcount)
            return _known(found)

        return delete

    def or_leave(self, column: str) -> str:
        # INSERT IGNORE would also swallow values that do not fit.
        return f" ON DUPLICATE KEY UPDATE {column} = {column}"

    def among(self, column: str, values: Sequence[int]) -> tuple[str, list[Any]]:
        return f"{column} IN ({_names(str(int(value)) for value in values)})", []
