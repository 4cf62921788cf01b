"""Several processes' worth of applications over one database that want something in the same instant."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from sqlalchemy import func, select

from queuety import Queuety, Settings
from queuety.testing import ManualClock
from tests.support.flowing import until, working
from tests.support.invariants import check

ENDED = ("completed", "failed", "cancelled")
PROOF_S = 600.0
"""How long a proof of full size may take until everything has ended."""

Act = Callable[[], Any]


def pairs_of(rounds: int) -> int:
    """How many pairs meet: 6, or 1,000 under `make proof`."""
    return rounds * (5 if rounds >= 200 else 2)


class Field:
    """Applications with connections of their own over one database. `clock` is None for the database's own."""

    def __init__(self, url: str, clock: ManualClock | None = None) -> None:
        self._url = url
        self._clock = clock
        self._stack = ExitStack()
        self.app = self.side()

    def side(self) -> Queuety:
        """A process of its own, as far as the database can tell; it is connected."""
        settings = Settings(idle_poll_seconds=0.05)
        made = self._stack.enter_context(Queuety(self._url, clock=self._clock, settings=settings))
        made.door.write(lambda tx: tx.reserve(1))
        return made

    @contextmanager
    def workers(self, count: int = 2, *, concurrency: int = 4) -> Iterator[None]:
        """So many workers in threads of this process, each with an application of its own, while the block runs."""
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(working(self.side(), concurrency=concurrency))
            yield

    def drain(self) -> None:
        """Everything that is due is done, by whoever has no worker."""
        self.app.run_until_idle()

    def left(self, name: str) -> int:
        """How many runs of this name have not ended."""
        workflows = self.app.door.tables.workflows
        statement = select(func.count()).where(workflows.c.name == name, workflows.c.status.not_in(ENDED))
        with self.app.door.reading() as connection:
            return connection.execute(statement).scalar_one()

    def wait_for(self, name: str) -> None:
        """Until every run of this name has ended. A lost wake-up ends here, with the invariants saying where."""
        try:
            until(lambda: self.left(name) == 0, within_s=PROOF_S)
        except AssertionError:
            check(self.app.door)
            raise

    def rows(self, table: str, **equal: Any) -> list[dict[str, Any]]:
        """The rows of a table by the name of its attribute in `Tables`, by key."""
        found = getattr(self.app.door.tables, table)
        statement = select(found).order_by(*found.primary_key.columns)
        for name, value in equal.items():
            statement = statement.where(found.c[name] == value)
        with self.app.door.reading() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]

    def close(self) -> None:
        self._stack.close()


def at_once(*acts: Act) -> list[Any]:
    """What each gives back or raises when they begin in the same instant."""
    gate = threading.Barrier(len(acts))
    results: list[Any] = [None] * len(acts)

    def run(number: int) -> None:
        gate.wait()
        try:
            results[number] = acts[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def faults(results: list[Any], *expected: type[Exception]) -> list[Any]:
    """What was raised that nobody expects."""
    return [result for result in results if isinstance(result, Exception) and not isinstance(result, expected)]
