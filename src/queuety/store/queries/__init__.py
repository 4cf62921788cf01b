"""What is read for people: rows as mappings, nothing decoded, nothing locked. The hot path's reads are not here.

Every function takes an open connection and the tables, and reads by SQLAlchemy Core; what the rows mean is said in
`inspect`. A count of what may be endless is a `Tally` with a cap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import ColumnExpressionArgument, Connection, RowMapping, Table, func, literal_column, select

Record: TypeAlias = RowMapping
"""A row by the names of its columns, as the database gave it."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many there are, or at least are: counting ends at a cap, so that it costs the same on any database.

    >>> str(Tally(12)), str(Tally(10_000, is_exact=False))
    ('12', '10,000+')
    """

    count: int
    is_exact: bool = True

    def __str__(self) -> str:
        return f"{self.count:,}{'' if self.is_exact else '+'}"

    def __bool__(self) -> bool:
        return self.count > 0


def tally(connection: Connection, table: Table, *conditions: ColumnExpressionArgument[bool], cap: int) -> Tally:
    """How many rows meet the conditions, counted up to `cap`."""
    some = select(literal_column("1").label("one")).select_from(table).where(*conditions).limit(cap + 1).subquery()
    count = int(connection.execute(select(func.count()).select_from(some)).scalar_one())
    return Tally(min(count, cap), is_exact=count <= cap)
