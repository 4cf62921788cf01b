"""The pytest plugin: fixtures for tests of programs that use Queuety. Imported by pytest; nothing else imports it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from queuety import Queuety
    from queuety.testing.clock import ManualClock


@pytest.fixture
def queuety_clock() -> ManualClock:
    """A clock that stands at 2030-01-01 00:00 UTC until the test advances it."""
    from queuety.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def queuety_app(queuety_clock: ManualClock) -> Iterator[Queuety]:
    """An application on an empty database in memory that goes by `queuety_clock`; run it with `run_until_idle()`."""
    from queuety import Queuety

    with Queuety("sqlite://", clock=queuety_clock) as app:
        yield app
