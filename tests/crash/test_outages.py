"""The database goes away for longer than a transaction's patience, at every place where a worker asks it something."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from queuety import Queuety, Settings, job, step
from tests.store.breaking import driver_error
from tests.support.databases import Database
from tests.support.flowing import status_of, until, working
from tests.support.invariants import check
from tests.support.network import network_to

LEASE_S: Final = 1.0
OUTAGE_S: Final = 0.3
SETTINGS: Final = Settings(lease_seconds=LEASE_S, idle_poll_seconds=0.05, patience_seconds=0.05)

# What a worker asks outside its turns, by words that only that statement has; "" is its very first one.
MOMENTS: Final = {
    "it begins": "",
    "it asks what is paused": "WHERE paused_us IS NOT NULL",
    "it looks for leases that have ended": "wake_us < ",
    "it looks for what it holds unknowingly": "SELECT id, token FROM",
    "it claims": "SKIP LOCKED",
    "it commits": "COMMIT",
}


@step
def one(state: dict[str, Any]) -> dict[str, Any]:
    return {"n": state.get("n", 0) + 1}


entered = threading.Event()
release = threading.Event()


@step
def held(state: dict[str, Any]) -> None:
    entered.set()
    release.wait(30)


@job
def errand() -> None:
    """Nothing."""


class Outage:
    """A hook that takes the database away for a while, once, from the first statement with these words on."""

    def __init__(self, kind: str, words: str) -> None:
        self._kind = kind
        self._words = words
        self._lock = threading.Lock()
        self._until: float | None = None

    @property
    def is_over(self) -> bool:
        return self._until is not None and time.monotonic() > self._until

    def __call__(self, statement: str) -> None:
        with self._lock:
            if self._until is None and self._words in statement:
                self._until = time.monotonic() + OUTAGE_S
            is_out = self._until is not None and time.monotonic() <= self._until
        if is_out and statement != "COMMITTED":
            raise driver_error(self._kind, "lost")


@pytest.fixture
def apps(database: Database) -> Iterator[tuple[Queuety, Queuety]]:
    """The worker's application, whose database goes away, and the caller's, whose does not."""
    with Queuety(database.url, settings=SETTINGS) as worker, Queuety(database.url, settings=SETTINGS) as caller:
        assert worker.door is not None
        yield worker, caller
        worker.door.on_statement = None
        check(caller.door)


def stirs(app: Queuety) -> bool:
    """Has workers ask which queues are paused."""
    app.pause("elsewhere")
    app.resume("elsewhere")
    return False


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_outlives_an_outage_that_begins_when(
    apps: tuple[Queuety, Queuety], database: Database, moment: str
) -> None:
    worker, caller = apps
    if database.kind == "sqlite" and moment == "it claims":
        pytest.skip("SQLite locks no rows")
    flow = caller.workflow("outage").then(one).delay(seconds=0.1).then(one)
    outage = Outage(database.kind, MOMENTS[moment])
    worker.door.on_statement = outage
    with working(worker):
        first = flow.dispatch()
        until(lambda: outage.is_over or stirs(caller))
        ids = [first, flow.dispatch()]
        plain = caller.dispatch(errand)
        until(lambda: all(status_of(caller, one_id).status == "completed" for one_id in ids))
        until(lambda: (seen := caller.job_status(plain)) is not None and seen.status == "completed")
    assert [status_of(caller, one_id).state["n"] for one_id in ids] == [2, 2]


def test_a_worker_whose_database_does_not_answer_ends_when_it_is_told_to(database: Database) -> None:
    if database.kind == "sqlite":
        pytest.skip("there is no network to a file")
    entered.clear()
    release.clear()
    with network_to(database.url) as (network, url), Queuety(url) as far, Queuety(database.url) as near:
        worker = far.worker(grace_seconds=0.1)
        thread = threading.Thread(target=worker.run)
        thread.start()
        run = near.workflow("hole").then(held).dispatch()
        assert entered.wait(30)
        network.swallow()
        release.set()  # its result cannot be stored
        worker.stop()
        # The grace time, the last turns' five seconds, and five for a connection that was just being made.
        thread.join(0.1 + 5 + 5 + 5)
        is_alive = thread.is_alive()
        network.heal()
        thread.join(30)
        assert not is_alive
        assert status_of(near, run).status == "running"
        check(near.door)
