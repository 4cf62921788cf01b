"""Leases are judged by the database's clock as it is now, not as this process measured it half a minute ago."""

from __future__ import annotations

import pytest

from queuety.store.clock import DatabaseClock
from queuety.worker.maintain import recover
from tests.support.databases import Database
from tests.support.hands import House, new_job


@pytest.mark.parametrize("ahead_s", [3600, 31])
def test_a_clock_that_was_set_back_unnoticed_ends_no_lease(database: Database, ahead_s: int) -> None:
    with House(database.url) as house:
        house.door.clock = DatabaseClock(house.door.dialect.now_sql, house.door._ask_clock)
        house.clock.us = house.door.now_us()
        (job,) = house.add(new_job())
        assert house.hand(lease_s=30).claim()
        late = house.door.clock
        assert isinstance(late, DatabaseClock)
        late._offset_ns = (late._offset_ns or 0) + ahead_s * 1_000_000_000
        assert recover(house.door, house.definitions) == 0
        assert house.row("jobs", id=job)["phase"] == "leased"
        assert recover(house.door, house.definitions) == 0
