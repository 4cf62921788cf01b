"""Every scenario begins with nothing noted, and ends with a database in which everything that must hold does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuety import Queuety
from queuety.testing import ManualClock
from tests.support.flowing import notes
from tests.support.invariants import check


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    notes.clear()


@pytest.fixture(autouse=True)
def sound_database(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a scenario on `app`, no run, job or message is in a state that must not be."""
    made: Queuety | None = request.getfixturevalue("app") if "app" in request.fixturenames else None
    yield
    if made is not None:
        check(made.door)


@pytest.fixture
def memory(memory_url: str, clock: ManualClock) -> Iterator[Queuety]:
    """An application in memory, for what ends before any database is asked."""
    with Queuety(memory_url, clock=clock) as made:
        yield made
        check(made.door)
