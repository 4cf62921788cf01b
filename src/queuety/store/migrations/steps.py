"""What revisions are made of. Each step does nothing if it was done before.

MySQL commits every change of a table by itself, so a migration that breaks off leaves the first half behind; the next
try begins at the first step again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine


def prefixed(name: str) -> str:
    """The table's name under the application's prefix."""
    return f"{context.config.attributes['prefix']}{name}"


def identifier(length: int) -> TypeEngine[str]:
    """Short text that compares byte for byte."""
    return sa.String(length, collation=context.config.attributes["collation"])


def long_text() -> TypeEngine[str]:
    """Text without a limit of its own."""
    return sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def run_id() -> TypeEngine[int]:
    """A key that is drawn before it is written; SQLite keeps the row under it."""
    return sa.BigInteger().with_variant(sa.Integer, "sqlite")


def create_table(name: str, *columns: sa.Column[Any]) -> None:
    """Creates it, without indexes."""
    collation = context.config.attributes["collation"]
    usual = {"engine": "InnoDB", "charset": "utf8mb4", "collate": collation}
    options = {f"{kind}_{key}": value for kind in ("mysql", "mariadb") for key, value in usual.items()}
    op.create_table(prefixed(name), *columns, if_not_exists=True, **options)


@dataclass(frozen=True, slots=True)
class Index:
    """An index on a table that is there already and may be large. A revision lists those that it creates as `INDEXES`:
    they are built before it, where the plain way would keep writers out (`migrate`)."""

    name: str
    table: str
    columns: tuple[str, ...]
    where: str | None = None


def create_indexes(*indexes: Index) -> None:
    """Creates those that were not built before."""
    for index in indexes:
        create_index(index.name, index.table, *index.columns, where=index.where)


def create_index(name: str, table: str, *columns: str, where: str | None = None, unique: bool = False) -> None:
    """Creates an index; partial (`where`) on the databases that have such."""
    full = f"ix_{prefixed(name)}"
    if full in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(prefixed(table))}:
        return
    condition = sa.text(where) if where else None
    op.create_index(
        full, prefixed(table), list(columns), unique=unique, postgresql_where=condition, sqlite_where=condition
    )


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Adds it."""
    if column.name not in {found["name"] for found in sa.inspect(op.get_bind()).get_columns(prefixed(table))}:
        op.add_column(prefixed(table), column)


def insert_row(table: str, key: str, row: dict[str, Any]) -> None:
    """Adds one row unless there is one with this key."""
    into = sa.table(prefixed(table), *(sa.column(name) for name in row))
    bind = op.get_bind()
    if bind.execute(sa.select(into.c[key]).where(into.c[key] == row[key])).first() is None:
        bind.execute(into.insert().values(row))
