"""The worker's heart: take what has been run, make a turn of it, hand out what was claimed, sleep when all is done.

One thread, one connection. Handlers run elsewhere (`execute`), leases are renewed elsewhere (`maintain`, or the
supervisor), so nothing that user code does delays a turn by more than the interpreter's own switching.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from queuety.commands.definitions import Definitions
from queuety.errors import StoreUnavailable
from queuety.store import claims, workers
from queuety.store.door import Door, Line
from queuety.store.rows import Lease
from queuety.worker.announce import Announcer
from queuety.worker.execute import Executor
from queuety.worker.maintain import Recovery, Sweep
from queuety.worker.outcome import Outcome, Returned
from queuety.worker.retain import Retention
from queuety.worker.terms import Terms
from queuety.worker.turn import Order, Turn
from queuety.worker.turns import Turns
from queuety.worker.wake import Ear, Wakes

_log = logging.getLogger("queuety.worker")

LOOK_AROUND_S: Final = 0.05
"""A busy worker looks for what has come due this often, besides the moments that it knows of."""
CARRY_PAUSE_S: Final = (0.002, 0.1)
"""How long it waits, first and at most, when all that is left belongs to workflows that others have locked."""
LAST_TURNS_S: Final = 5.0
"""How long after the grace time a lost database is waited for; what is not settled by then comes back by its lease."""
OUTAGE_PAUSE_S: Final = (0.5, 5.0)
"""How long it waits, first and at most, before it asks a lost database again."""


class Loop:
    """One process's loop. `run` blocks until it is stopped; `stop` may be called from any thread, no signal handler."""

    def __init__(
        self,
        door: Door,
        definitions: Definitions,
        terms: Terms,
        *,
        make_executor: Callable[[Callable[[Outcome], None], int], Executor],
        wakes: Wakes,
    ) -> None:
        self.owner = secrets.randbits(63)
        self._door = door
        self._terms = terms
        self._wakes = wakes
        self._outcomes: deque[Outcome] = deque()
        self._executor = make_executor(self._report, self.owner)
        self._turns = Turns(door, definitions, terms.defaults)
        self._announcer = Announcer()
        self._sweep = Sweep(door)
        self._retention = Retention(
            door, definitions, retention_days=terms.retention_days, history_days=terms.history_days
        )
        self._recovery = Recovery(door, definitions, lease_s=terms.lease_s, longest_pause_s=terms.idle_poll_s)
        self._paused: frozenset[str] = frozenset()
        self._pauses = -1
        self._next_us: int | None = None
        self._looked_us = 0
        # Pauses between looks are kept by this clock: the database's may stand (a test's), or be set back.
        self._looked = self._look_from = -LOOK_AROUND_S
        self._is_hungry = True
        self._has_suspects = terms.takes_suspects_only
        self._holds_suspect = False
        self._suspects_since = 0.0
        self._is_registered = False
        self._is_stopping = False
        self._stop_by: float | None = None
        self._line = door.line()
        self._end_of_time = self._timer(0.0)
        self._lost_since: float | None = None
        self._pause_s = 0.0
        self._reconciled = time.monotonic()

    def stop(self, *, at_once: bool = False) -> None:
        """Finish what can be finished within the grace time and release the rest; `at_once`: release everything now."""
        now = time.monotonic()
        stop_by = now if at_once else now + self._terms.grace_s
        self._stop_by = stop_by if self._stop_by is None else min(stop_by, self._stop_by)
        self._is_stopping = True
        self._end_of_time.cancel()
        self._end_of_time = self._timer(self._stop_by + LAST_TURNS_S - now)
        self._end_of_time.start()
        self._wakes.ring()

    def _timer(self, after_s: float) -> threading.Timer:
        """Has a database that does not answer not be waited for any longer."""
        timer = threading.Timer(after_s, self._line.cut)
        timer.daemon = True
        return timer

    def _report(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._wakes.ring()

    def run(self) -> None:
        """Works until it is stopped, or, if it takes suspects only, until there is none."""
        line = self._line
        ear = Ear(self._door, self._wakes)
        ear.start()
        try:
            while not self._is_done():
                self._step(line)
        finally:
            ear.stop()
            self._executor.stop()
            self._leave(line)
            self._end_of_time.cancel()
            line.close()

    def _is_done(self) -> bool:
        if self._executor.running or self._outcomes:  # in this order: a job leaves the hand after its report
            overdue = self._stop_by is not None and time.monotonic() > self._stop_by + LAST_TURNS_S
            return self._is_stopping and overdue
        if self._terms.takes_suspects_only and not self._has_suspects:
            return True
        return self._is_stopping

    def _step(self, line: Line) -> None:
        """One round, in which the database may be lost at any question."""
        try:
            self._round(line)
        except StoreUnavailable as error:
            self._mind_outage(error)

    def _round(self, line: Line) -> None:
        """At most one turn, or one sleep. Raises `StoreUnavailable`; nothing that has come in is lost then."""
        if self._is_stopping:
            self._wind_down()
        if not (self._is_registered or self._is_stopping):
            self._enter(line)
        now_us = self._door.now_us()
        self._recovery.note_time(now_us)
        outcomes = self._take()
        slots = self._slots()
        is_busy = bool(outcomes) or (self._is_hungry and slots > 0)
        looks = self._must_look(now_us, is_busy=is_busy)
        alone = self._may_run_alone()
        if not (is_busy or looks or alone):
            self._sleep(line, now_us)
            return
        until_us = now_us + round(self._terms.lease_s * 1_000_000)
        order = Order(
            outcomes=outcomes,
            slots=slots,
            lease=Lease(token=secrets.randbits(63), owner=self.owner, until_us=until_us),
            queues=self._terms.queues,
            looks_around=looks,
            alone=alone,
            was_asleep=self._wakes.is_asleep,
        )
        if looks:
            self._looked_us, self._looked = now_us, time.monotonic()
        try:
            result = self._turns.make(order, on=line)
        except StoreUnavailable:
            self._outcomes.extendleft(reversed(outcomes))
            raise
        self._mind_return()
        self._accept(result, order)
        if result.seen is not None:
            self._notice(line, result.seen)
            self._do_chore(lambda: self._recovery.reap(line, self._turns.runs))
            self._do_chores(line)
            self._reconcile(line)
            if result.has_more_due:
                self._next_us, self._look_from = now_us, self._looked

    def _take(self) -> list[Outcome]:
        """All outcomes that have arrived."""
        taken: list[Outcome] = []
        while self._outcomes:
            taken.append(self._outcomes.popleft())
        return taken

    # What turns bring

    def _accept(self, result: Turn, order: Order) -> None:
        """Takes over what the committed turn has brought."""
        self._announcer.announce(result)
        for outcome in result.lost:
            _log.warning(
                "attempt %d of job %d (%s) is no longer ours (another took over, or its run moved on): refused",
                outcome.job.attempt,
                outcome.job.id,
                outcome.job.handler,
            )
        self._outcomes.extend(result.unprepared)
        if result.works:
            self._wakes.is_asleep = False
            self._executor.submit(result.works)
        if order.alone:
            self._has_suspects = self._holds_suspect = bool(result.works)
        self._is_hungry = result.has_more or (self._is_hungry and order.slots == 0)
        if result.seen is None and result.next_us is not None:
            due_s = max(result.next_us - self._door.now_us(), 0) / 1_000_000
            self._look_from = min(self._look_from, time.monotonic() + due_s)
            self._next_us = result.next_us if self._next_us is None else min(self._next_us, result.next_us)
        if result.carried:
            self._outcomes.extendleft(reversed(result.carried))
            if not result.settled and not result.works:
                self._pause_s = min(max(self._pause_s * 2, CARRY_PAUSE_S[0]), CARRY_PAUSE_S[1])
                self._wakes.wait(self._pause_s)
                return
        self._pause_s = 0.0

    # Looking around and sleeping

    def _must_look(self, now_us: int, *, is_busy: bool) -> bool:
        """True when something is known to be due, or when a busy worker has not looked for a while.

        One that always has something in hand never sleeps, and looks nowhere else.
        """
        moment = time.monotonic()
        if self._next_us is not None and self._next_us <= now_us and moment >= self._look_from:
            self._next_us = None
            return True
        return is_busy and moment - self._looked >= LOOK_AROUND_S

    def _slots(self) -> int:
        """How many jobs may be claimed now: none beside a suspect, none by a process that is there for suspects.

        Suspects wait for a moment in which nothing is in hand; after a lease nothing is claimed until they have run.
        """
        self._holds_suspect = self._holds_suspect and bool(self._executor.running)
        if self._is_stopping or self._holds_suspect or self._terms.takes_suspects_only:
            return 0
        if self._has_suspects and time.monotonic() - self._suspects_since >= self._terms.lease_s:
            return 0  # it has not been idle for so long that they could run: make room for them
        return self._executor.free

    def _may_run_alone(self) -> bool:
        """True when there are suspects, they are ours to run, and nothing else is in hand."""
        is_ours = not self._terms.is_supervised or self._terms.takes_suspects_only
        if not (is_ours and self._has_suspects) or self._is_stopping:
            return False
        return not self._outcomes and not self._executor.running

    def _sleep(self, line: Line, now_us: int) -> None:
        """Waits until rung, until the next known moment, or until it is time to ask the database."""
        timeout_s = min(self._wakes.poll_s, self._retention.pause_s)
        if self._next_us is not None:
            due_s = max((self._next_us - now_us) / 1_000_000, self._look_from - time.monotonic(), 0.0)
            timeout_s = min(timeout_s, due_s)
        if self._stop_by is not None:
            timeout_s = min(timeout_s, max(self._stop_by - time.monotonic(), 0.001))
        has_room = self._slots() > 0
        if has_room:
            news = self._wakes.wait(timeout_s)
            is_rung = news.is_rung and not news.is_foreign
        else:  # what others add concerns it once something of its own has ended
            is_rung = self._wakes.wait_blindly(timeout_s)
        if is_rung:
            return
        if has_room and self._wakes.may_fall_asleep:
            # Said before asking once more: what is added in between is either found, or told of.
            self._door.write(lambda tx: workers.set_sleeping(tx, self.owner, sleeping=True), on=line)
            self._wakes.is_asleep = True
        self._look(line)
        self._do_chores(line)

    def _look(self, line: Line) -> None:
        """Asks the database, in one statement, whether there is something to do."""
        seen = self._door.read(lambda tx: claims.probe(tx, self._terms.queues, paused=self._paused), on=line)
        self._mind_return()
        self._notice(line, seen)
        self._wakes.found(something=seen.has_ready and self._slots() > 0)

    def _notice(self, line: Line, seen: claims.Probe) -> None:
        """Takes note of what a look at the database has shown."""
        if seen.pauses != self._pauses:
            self._paused = self._door.read(claims.paused_queues, on=line)
            self._pauses = seen.pauses
            self._is_hungry = True
        self._is_hungry = self._is_hungry or seen.has_ready
        if not self._terms.is_supervised or self._terms.takes_suspects_only:
            if seen.has_suspect and not self._has_suspects:
                self._suspects_since = time.monotonic()
            self._has_suspects = seen.has_suspect
        self._next_us = seen.next_us
        if seen.next_us is not None:
            # What was due at the last look and is still there (a lease that may not be ended yet) waits for a poll.
            is_left = seen.next_us <= self._looked_us
            self._look_from = self._looked + (max(LOOK_AROUND_S, self._wakes.poll_s) if is_left else LOOK_AROUND_S)

    def _do_chores(self, line: Line) -> None:
        """What every worker does beside its work, idle or not, now and then."""
        self._do_chore(lambda: self._sweep.sweep(line))
        self._do_chore(lambda: self._retention.look(line))

    def _do_chore(self, chore: Callable[[], int]) -> None:
        try:
            chore()
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - another worker's chore too; our own work goes on
            _log.exception("a chore of the worker failed; it is tried again")

    def _reconcile(self, line: Line) -> None:
        """Gives back what the database says we hold and nobody here knows of, once in every lease.

        A claim whose commit was never answered leaves such jobs, and renewing would keep them for ever.
        """
        moment = time.monotonic()
        if moment - self._reconciled < self._terms.lease_s:
            return
        self._reconciled = moment
        until_us = self._door.now_us() + round(2 * self._terms.lease_s * 1_000_000)
        in_database = self._door.read(lambda tx: claims.held_by(tx, self.owner, until_us=until_us), on=line)
        known = {(job.id, job.token) for job in self._executor.running}
        known |= {(outcome.job.id, outcome.job.token) for outcome in list(self._outcomes)}
        strangers = [held for held in in_database if held not in known]
        if strangers:
            _log.warning("%d jobs were claimed here without this process's knowledge; giving them back", len(strangers))
            self._door.write(lambda tx: claims.give_back(tx, strangers), on=line)
            self._is_hungry = True

    # Losing the database

    def _mind_outage(self, error: StoreUnavailable) -> None:
        if self._lost_since is None:
            self._lost_since = time.monotonic()
            self._pause_s = OUTAGE_PAUSE_S[0]
            _log.warning(
                "the database is lost (%s); %d results and %d running jobs are kept until it is back",
                error,
                len(self._outcomes),
                len(self._executor.running),
            )
        self._wakes.wait_blindly(self._pause_s)
        self._pause_s = min(self._pause_s * 1.5, OUTAGE_PAUSE_S[1])

    def _mind_return(self) -> None:
        if self._lost_since is None:
            return
        _log.warning("the database is back after %.1f s", time.monotonic() - self._lost_since)
        self._lost_since = None
        self._pause_s = 0.0
        self._is_hungry = True
        self._is_registered = False  # whoever was cut off for long has been taken out of the register
        self._reconciled = -self._terms.lease_s
        self._recovery.note_return()

    # Coming and going

    def _enter(self, line: Line) -> None:
        row = workers.WorkerRow.here(self.owner, self._terms.queues, self._terms.concurrency)
        self._door.write(lambda tx: workers.enter(tx, row), on=line)
        self._wakes.is_asleep = False
        self._look(line)
        self._is_registered = True

    def _wind_down(self) -> None:
        """On the way out: give back what has not been started, and at the end of the grace time what still runs."""
        for job in self._executor.take_back():
            self._outcomes.append(Returned(job))
        if self._stop_by is not None and time.monotonic() >= self._stop_by:
            for job in self._executor.abandon():
                self._outcomes.append(Returned(job))

    def _leave(self, line: Line) -> None:
        try:
            self._door.write(lambda tx: workers.leave(tx, self.owner), on=line)
        except StoreUnavailable:
            _log.warning("the database cannot be reached; what is left in hand comes back when its lease ends")
