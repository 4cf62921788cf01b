"""What the store's tests share: a house on each kind of database, its invariants checked when the test is over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.databases import Database
from tests.support.hands import House
from tests.support.invariants import check


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """A database, a clock that stands, and what callers do there."""
    with House(database.url) as made:
        yield made
        made.door.on_statement = None
        check(made.door)
