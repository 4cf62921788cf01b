"""The chores: one function each. Every worker does them; each is idempotent and may be done by several at once."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from queuety.commands.definitions import Definitions
from queuety.errors import StoreError
from queuety.model import ErrorInfo, ErrorKind, Failed, Span
from queuety.store import claims, leases, watchers, workers
from queuety.store.clock import SERVER_EVERY_NS
from queuety.store.door import Door, Line, Tx
from queuety.store.leases import Fallen
from queuety.store.load import Runs
from queuety.store.rows import Lease
from queuety.store.watchers import Swept
from queuety.worker.announce import Announcer
from queuety.worker.outcome import Outcome
from queuety.worker.turn import Order, Turn, turn
from queuety.worker.works import Defaults

_log = logging.getLogger("queuety.worker")

REAPED_AT_ONCE: Final = 200
REAP_EVERY_S: Final = 1.0
SWEEP_EVERY_S: Final = 60.0
SWEPT_AT_ONCE: Final = 1000
"""Watchers that one look for lost wake-ups reads."""
CLOCK_DOUBT_US: Final = 1_000_000
"""If the database's clock is further than this from what it was thought to be, nobody is reaped by either."""


class Recovery:
    """Takes back what processes held that are gone, once it may.

    `longest_pause_s` is how long its loop sleeps at most; `note_time` is called in every round of that.
    """

    def __init__(self, door: Door, definitions: Definitions, *, lease_s: float, longest_pause_s: float = 1.0) -> None:
        self._door = door
        self._definitions = definitions
        self._lease_s = lease_s
        self._since = time.monotonic()
        self._reaped = 0.0
        # A lease that is renewed three times in its length outlives an absence of less than this.
        self._absence_us = round(max(lease_s / 2, 2 * longest_pause_s) * 1_000_000)
        self._noted_us: int | None = None

    def note_time(self, now_us: int) -> None:
        """If time has leapt since the last round, nobody is reaped until others know of it and a lease has passed.

        The machine slept, the processes were stopped, or the database's clock was set forward: those that should have
        renewed may be as alive as this one. A worker that woke before its supervisor ran every step in hand again.
        """
        if self._noted_us is not None and now_us - self._noted_us > self._absence_us:
            _log.warning("time has leapt by %.1f s; leases may go on", (now_us - self._noted_us) / 1_000_000)
            self._since = time.monotonic() + SERVER_EVERY_NS / 1_000_000_000
        self._noted_us = now_us

    def note_return(self) -> None:
        """The database is back: nobody is reaped until a whole lease has passed, so that an outage costs no re-runs."""
        self._since = time.monotonic()

    def reap(self, line: Line, runs: Runs) -> int:
        """Recovers leases that have ended, at most once a second; says how many jobs it took back."""
        self.note_time(self._door.now_us())  # this very round may have been held up by a network that swallows
        moment = time.monotonic()
        if moment - self._since < self._lease_s or moment - self._reaped < REAP_EVERY_S:
            return 0
        self._reaped = moment
        return recover(self._door, self._definitions, runs=runs, on=line)


def recover(door: Door, definitions: Definitions, *, runs: Runs | None = None, on: Line | None = None) -> int:
    """Recovers every lease that has ended by now; says how many jobs were taken back."""

    def unit(tx: Tx) -> tuple[int, Turn]:
        now_us = tx.now_us()
        fallen = leases.ended(tx, now_us=now_us, limit=REAPED_AT_ONCE)
        # A clock set back an hour, which others had noticed and this process had not, ran every step in hand again.
        if fallen and abs(tx.measure_clock() - now_us) > CLOCK_DOUBT_US:
            return 0, Turn()
        return _take_back(tx, fallen, definitions, runs or Runs(), now_us=now_us, ended_by_us=now_us)

    total = 0
    while True:
        count, made = door.write(unit, on=on)
        Announcer().announce(made)
        total += count
        if count < REAPED_AT_ONCE:
            return total


class Sweep:
    """Looks for runs that have ended and whose watchers were not told, some watchers a minute. It finds none, unless
    rows were changed by hand."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._swept = time.monotonic()
        self._after: tuple[int, int] | None = None

    def sweep(self, line: Line) -> int:
        """Goes on where it last stopped, at most once a minute; says how many were told."""
        moment = time.monotonic()
        if moment - self._swept < SWEEP_EVERY_S:
            return 0
        self._swept = moment
        swept = tell_again(self._door, self._after, on=line)
        self._after = swept.after
        return swept.told


def tell_again(door: Door, after: tuple[int, int] | None = None, *, on: Line | None = None) -> Swept:
    """Tells those among the next `SWEPT_AT_ONCE` watchers whose run has ended or is gone; says where to go on."""

    def unit(tx: Tx) -> Swept:
        swept = watchers.stale_watchers(tx, after, SWEPT_AT_ONCE, now_us=tx.now_us())
        if swept.told:
            tx.dialect.notify(tx.cursor, tx.tables.prefix)
        return swept

    swept = door.write(unit, on=on)
    if swept.told:
        _log.warning("%d runs waited for others that have ended, and had not been told; now they are", swept.told)
    return swept


def give_back_of_dead(door: Door, definitions: Definitions, owner: int) -> int:
    """Takes back at once what a process held that is known to be dead; says how many jobs."""

    def unit(tx: Tx) -> tuple[int, Turn]:
        fallen = leases.held_by(tx, owner)
        workers.leave(tx, owner)
        return _take_back(tx, fallen, definitions, Runs(), now_us=tx.now_us(), ended_by_us=None)

    count, made = door.write(unit)
    Announcer().announce(made)
    return count


def _take_back(
    tx: Tx,
    fallen: Collection[Fallen],
    definitions: Definitions,
    runs: Runs,
    *,
    now_us: int,
    ended_by_us: int | None,
) -> tuple[int, Turn]:
    """Makes suspects of what was held together, and ends the attempts of what was held alone.

    Says how many jobs that is, and what the ends of attempts have led to.
    """
    together = [one for one in fallen if not one.was_alone]
    count = leases.suspect(tx, together, ended_by_us=ended_by_us) if together else 0
    token = secrets.randbits(63)
    outcomes: list[Outcome] = []
    for one in sorted(fallen, key=lambda one: one.job.id):
        if one.was_alone:
            job = leases.take_over(tx, one, token, now_us=now_us, ended_by_us=ended_by_us)
            if job is not None:
                outcomes.append(Failed(job, _stale(one), Span(one.started_us, now_us, one.owner)))
    made = settle(tx, outcomes, definitions, runs) if outcomes else Turn()
    if fallen:
        tx.dialect.notify(tx.cursor, tx.tables.prefix)
    return count + len(outcomes), made


def settle(tx: Tx, outcomes: Collection[Outcome], definitions: Definitions, runs: Runs) -> Turn:
    """Settles outcomes that no loop has in hand; what cannot be settled now stays leased, its lease at an end."""
    lease = Lease(token=secrets.randbits(63), owner=0, until_us=0)
    order = Order(outcomes=list(outcomes), slots=0, lease=lease, queues=(), careful=True)
    return turn(tx, order, runs=runs, definitions=definitions, defaults=Defaults())


def _stale(one: Fallen) -> ErrorInfo:
    return ErrorInfo(
        message=f"the worker that ran attempt {one.job.attempt} of {one.job.handler} died or was cut off",
        type_name="queuety.errors:LeaseLost",
        kind=ErrorKind.STALE_WORKER,
    )


class Renewer:
    """Extends the leases of some processes, in a thread of its own, three times in every lease.

    In a supervisor it runs beside no user code. In a process that runs handlers itself, code that holds the interpreter
    lock for longer than a lease keeps it from renewing, and the attempt is fenced.
    """

    def __init__(self, door: Door, owners: Callable[[], Collection[int]], *, lease_s: float) -> None:
        self._door = door
        self._owners = owners
        self._lease_s = lease_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queuety-renew", daemon=True)

    def start(self) -> None:
        """Starts renewing."""
        self._thread.start()

    def stop(self) -> None:
        """Stops renewing; leases run on to their end."""
        self._end.set()

    def _run(self) -> None:
        while not self._end.wait(self._lease_s / 3):
            try:
                renew(self._door, self._owners(), lease_s=self._lease_s)
            except StoreError as error:
                _log.warning("leases could not be renewed, trying again: %s", error)
            except Exception:  # noqa: BLE001 - whoever stops renewing loses what it holds
                _log.exception("leases could not be renewed, trying again")


def renew(door: Door, owners: Collection[int], *, lease_s: float) -> int:
    """Extends by one lease from now everything that these processes hold; says how many jobs that is."""
    if not owners:
        return 0

    def unit(tx: Tx) -> int:
        now_us = tx.now_us()
        workers.seen(tx, owners)
        workers.forget_dead(tx, now_us - round(20 * lease_s * 1_000_000))
        return claims.renew(tx, owners, now_us + round(lease_s * 1_000_000))

    return door.write(unit)
