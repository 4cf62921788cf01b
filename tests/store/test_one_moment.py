"""A reading that needs it sees one moment of the database, whatever is committed while it lasts."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from tests.support.hands import House, definition


def count(house: House, *, one_moment: bool) -> tuple[int, int]:
    """How many runs are seen before and after another one is committed, in one reading."""
    runs = house.door.tables.workflows
    with house.door.reading(one_moment=one_moment) as connection:
        before = connection.execute(select(func.count()).select_from(runs)).scalar_one()
        with House(house.url, clock=house.clock) as other:
            other.dispatch(definition())
        after = connection.execute(select(func.count()).select_from(runs)).scalar_one()
    return before, after


def test_nothing_that_is_committed_meanwhile_is_seen(house: House) -> None:
    assert count(house, one_moment=True) == (0, 0)
    # Of that reading only: the connection is used again.
    seen = [count(house, one_moment=False) for _ in range(3)]
    assert [before for before, _ in seen] == [1, 2, 3]


@pytest.mark.parametrize("database_kind", ["postgresql", "mysql"])
def test_on_a_server_another_reading_sees_it(house: House, database_kind: str) -> None:
    assert count(house, one_moment=False) == (0, 1)
    assert count(house, one_moment=True) == (1, 1)
    assert count(house, one_moment=False) == (2, 3)


def test_it_may_be_the_first_after_a_write(house: House) -> None:
    """The isolation is of the transaction, and no statement may have begun it."""
    house.dispatch(definition())
    assert count(house, one_moment=True) == (1, 1)
    house.dispatch(definition())
    assert count(house, one_moment=True) == (3, 3)
