"""Many rows in one statement on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Table

from queuety.errors import StoreError
from queuety.store.dialects.bulk import Cursor, Found, Insert, Row, Update, known, names, rest


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
        head = f"INSERT INTO {table.name} ({names(columns)}) VALUES "
        one = "(" + names("%s" for _ in columns) + ")"
        # VALUES(): MariaDB knows no name for the new row, which MySQL would rather have since 8.0.20.
        sets = names(
            f"{name} = GREATEST({name}, VALUES({name}))" if name == highest else f"{name} = VALUES({name})"
            for name in rest(table, columns, keeps)
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
        first = "SELECT " + names(f"%s AS {value}" for value in given)
        other = "SELECT " + names("%s" for _ in given)
        sets = names(f"t.{name} = v.{value}" for name, value in zip(columns, given[len(keys) :], strict=True))
        where = " AND ".join(f"t.{key} = v.{value}" for key, value in zip(keys, given, strict=False))
        single = f"UPDATE {table.name} SET {names(f'{name} = %s' for name in columns)} WHERE id = %s"
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
            return known(found)

        return update

    def delete_held(self, table: Table) -> Update:
        # The pairs alone would not use the key on MariaDB: it reads a range only from `id IN (…)`.
        head = f"DELETE FROM {table.name} WHERE id IN ("

        def delete(cursor: Cursor, rows: Sequence[Row], /) -> Found:
            found = 0
            for part in self._parts(rows):
                ids = names(str(int(row[0])) for row in part)
                pairs = names(f"({int(row[0])}, {int(row[1])})" for row in part)
                cursor.execute(f"{head}{ids}) AND (id, token) IN ({pairs})")
                found += int(cursor.rowcount)
            return known(found)

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
            return known(found)

        return delete

    def or_leave(self, column: str) -> str:
        # INSERT IGNORE would also swallow values that do not fit.
        return f" ON DUPLICATE KEY UPDATE {column} = {column}"

    def among(self, column: str, values: Sequence[int]) -> tuple[str, list[Any]]:
        return f"{column} IN ({names(str(int(value)) for value in values)})", []
