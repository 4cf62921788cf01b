"""`queuety work`: a supervisor and its children. The supervisor runs no handler, and never waits for the database.

It keeps every seat filled, renews what living children hold, has a dead child's jobs given back at once, lets suspects
run alone, and kills a child that is silent while one of its jobs is over its time limit. One thread waits for
everything that can happen; what is asked of the database is an errand of another, which tells by a ring.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from queuety.worker.desk import MOST_SUSPECTS, AppDesk, Desk, Hands
from queuety.worker.errands import Errand, Errands
from queuety.worker.messages import STOP, STOP_NOW, Order
from queuety.worker.parts import AppParts
from queuety.worker.proc import NO_PIDFD, Proc, death_of
from queuety.worker.seats import HOPELESS_STARTS, Seat, Times
from queuety.worker.signals import StopSignals
from queuety.worker.terms import Terms

_log = logging.getLogger("queuety.worker")

PROGRAM: Final = (sys.executable, "-m", "queuety.worker.child")
LONGEST_ROUND_S: Final = 1.0
"""Children beat every second: waiting longer would save nothing."""
NEVER: Final = float("inf")


class Supervisor:
    """Runs `workers` children on these terms. `run` blocks; `stop` may be called from any thread."""

    def __init__(
        self,
        target: str,
        desk: Desk,
        terms: Terms,
        *,
        workers: int,
        program: Sequence[str] = PROGRAM,
        times: Times | None = None,
        workflows: Sequence[str] = (),
    ) -> None:
        self._desk = desk
        self._times = times or Times()
        terms = replace(terms, is_supervised=True, takes_suspects_only=False)
        self._terms = terms
        self._retire_s = min(terms.grace_s, self._times.retire_s)
        self._order = Order(target, terms, tuple(sys.path), self._retire_s, _log.getEffectiveLevel(), workflows)
        self._alone = replace(self._order, terms=replace(terms, concurrency=1, takes_suspects_only=True))
        self._program = program
        self._seats = [Seat(self._times) for _ in range(workers)]
        self._suspects_seat = Seat(self._times)
        self._procs: list[Proc] = []
        self._owners: frozenset[int] = frozenset()
        self._errands = Errands()
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._bell_read, self._bell = os.pipe()
        os.set_blocking(self._bell_read, False)
        os.set_blocking(self._bell, False)
        self._selector = selectors.DefaultSelector()
        self._suspects = 0
        self._is_counting = False
        self._count_at = 0.0
        self._round_at = time.monotonic()
        self._stop_by: float | None = None
        self._signals = 0
        self._has_worked = False
        self._failed_starts = 0

    def run(self) -> int:
        """Works until it is stopped. 0 when it was; 1 if no child could ever work, and why has been logged."""
        with StopSignals() as signals, self._selector:
            self._selector.register(signals.fd, selectors.EVENT_READ)
            self._selector.register(self._bell_read, selectors.EVENT_READ)
            self._errands.start()
            self._errands.add(Errand("reaching the database", lambda: self._desk.open(lambda: self._owners)))
            _log.info("supervisor %d starts its worker processes: %d", os.getpid(), len(self._seats))
            try:
                while not self._is_done():
                    self._round(signals)
            finally:
                self._take_leave()
        return 1 if self._failed_starts and not self._has_worked else 0

    def _is_done(self) -> bool:
        if self._stop_by is None:
            return False
        # What has been killed and is still there hangs in the kernel: it is not waited for.
        return not self._procs or time.monotonic() > self._stop_by + self._times.margin_s

    def stop(self, *, at_once: bool = False) -> None:
        """Has the children finish within the grace time and ends; `at_once` gives back everything now."""
        self._later(lambda: self._begin_stop(at_once=at_once))

    # One round: what is due, then what happens

    def _round(self, signals: StopSignals) -> None:
        now = time.monotonic()
        if self._stop_by is None:
            self._fill_seats(now)
            self._watch_suspects(now)
            self._watch_silent(now)
        self._kill_overdue(now)
        moments = [*self._moments(), now + LONGEST_ROUND_S]
        self._round_at = time.monotonic()
        ready = self._selector.select(max(0.0, min(moments) - self._round_at))
        self._mind_own_absence()
        for _ in range(signals.take()):
            self._signals += 1
            self._begin_stop(at_once=self._signals > 1)
        for key, _ in ready:
            if isinstance(key.data, Proc):
                self._hear(key.data, key.fd)
        self._reap()
        self._take_news()

    def _moments(self) -> list[float]:
        """When something is due, as far as it is known."""
        moments = [proc.kill_by for proc in self._procs if proc.kill_by is not None and not proc.was_killed]
        if self._stop_by is None:
            moments += [seat.free_from for seat in self._seats if seat.proc is None]
            moments.append(self._count_at)
            moments += [self._suspects_seat.free_from] if self._suspects else []
            moments += [proc.asked_about_by for proc in self._procs if proc.asked_about_by is not None]
        return moments

    def _mind_own_absence(self) -> None:
        """If this process itself was stopped for a while, its children's silence means nothing yet."""
        now = time.monotonic()
        if now - self._round_at > LONGEST_ROUND_S + self._times.silent_s:
            for proc in self._procs:
                proc.last_beat = now

    def _take_news(self) -> None:
        try:
            os.read(self._bell_read, 4096)
        except BlockingIOError:
            return
        while True:
            try:
                news = self._inbox.get_nowait()
            except Empty:
                return
            news()

    def _later(self, news: Callable[[], None]) -> None:
        """Has something done by the supervisor's thread; may be called from any."""
        self._inbox.put(news)
        try:
            os.write(self._bell, b"!")
        except BlockingIOError:
            return  # it rings already

    # Starting

    def _fill_seats(self, now: float) -> None:
        for seat in self._seats:
            if seat.proc is None and seat.free_from <= now:
                seat.proc = self._start(self._order, seat)

    def _start(self, order: Order, seat: Seat) -> Proc | None:
        try:
            proc = Proc.start(self._program, order)
        except OSError as error:
            pause_s = seat.lose(0.0, time.monotonic())
            _log.error("a worker process cannot be started: %s; trying again in %.1f s", error, pause_s)
            self._note_failed_start(seat)
            return None
        self._procs.append(proc)
        self._selector.register(proc.fd, selectors.EVENT_READ, proc)
        if proc.pidfd != NO_PIDFD:
            self._selector.register(proc.pidfd, selectors.EVENT_READ, proc)
        return proc

    def _note_failed_start(self, seat: Seat) -> None:
        seat.failed_starts += 1
        self._failed_starts += 1
        if not self._has_worked and seat.failed_starts >= HOPELESS_STARTS and self._stop_by is None:
            _log.error("no worker process could be started in %d tries; giving up", seat.failed_starts)
            self._begin_stop(at_once=True)

    # Hearing

    def _hear(self, proc: Proc, fd: int) -> None:
        if fd != proc.fd:
            return  # it has died: `_reap` finds it
        proc.listen()
        if proc.is_silenced:
            self._selector.unregister(proc.fd)
        if proc.owner is not None and proc.owner not in self._owners:
            self._has_worked = True
            self._note_owners()
        if proc.status.retiring is not None and not proc.is_retiring:
            self._retire(proc)

    def _note_owners(self) -> None:
        self._owners = frozenset(proc.owner for proc in self._procs if proc.owner is not None)

    def _retire(self, proc: Proc) -> None:
        """It takes no more jobs and ends soon by itself; another takes its seat now."""
        now = time.monotonic()
        proc.is_retiring = True
        if proc.kill_by is None:
            proc.kill_by = now + self._retire_s + self._times.margin_s
        for seat in self._seats:
            if seat.proc is proc:
                seat.leave(now)
        _log.warning("worker process %d is replaced: %s", proc.pid, proc.status.retiring)

    # Dying

    def _reap(self) -> None:
        for proc in list(self._procs):
            code = proc.exit_code()
            if code is not None:
                self._bury(proc, code)

    def _bury(self, proc: Proc, code: int) -> None:
        """It is dead: what it held goes back at once, and its seat is filled again after a pause."""
        self._procs.remove(proc)
        if not proc.is_silenced:
            self._selector.unregister(proc.fd)
        if proc.pidfd != NO_PIDFD:
            self._selector.unregister(proc.pidfd)
        proc.close()
        owner = proc.owner
        self._note_owners()
        if owner is not None:
            self._has_worked = True
            self._give_back(proc, owner, code)
        now = time.monotonic()
        lived_s = now - proc.started
        if self._stop_by is not None or proc.is_retiring:
            return
        if proc.suspects_only:
            if code != 0 or owner is None:
                self._report_death(proc, code, self._suspects_seat.lose(lived_s, now))
            return
        seat = next(seat for seat in self._seats if seat.proc is proc)
        self._report_death(proc, code, seat.lose(lived_s, now))
        if owner is None:
            self._note_failed_start(seat)

    def _give_back(self, proc: Proc, owner: int, code: int) -> None:
        late = proc.late
        what = f"giving back what worker process {proc.pid} held"
        if late is not None and code == -signal.SIGKILL:
            self._errands.add(Errand(what, lambda: self._desk.end_killed(owner, late), is_owed=True))
        else:
            self._errands.add(Errand(what, lambda: self._desk.end_dead(owner), is_owed=True))
        if code != 0:
            self._count_at = 0.0

    def _report_death(self, proc: Proc, code: int, pause_s: float) -> None:
        reason = f" ({proc.status.failed})" if proc.status.failed else ""
        _log.warning(
            "worker process %d %s%s after %.1f s; another may start in %.1f s",
            proc.pid,
            death_of(code),
            reason,
            time.monotonic() - proc.started,
            pause_s,
        )

    # Suspects run alone, in children of their own

    def _watch_suspects(self, now: float) -> None:
        """Asks from time to time how many there are, and starts children for them."""
        if now >= self._count_at and not self._is_counting:
            self._is_counting = True
            self._count_at = now + self._terms.lease_s / 3
            gave_up = partial(self._later, lambda: self._note_suspects(0))
            self._errands.add(Errand("counting suspects", self._count_suspects, gave_up))
        if now < self._suspects_seat.free_from:
            return
        alone = [proc for proc in self._procs if proc.suspects_only and not proc.is_retiring]
        # One that has only just been started will take one of those that were counted.
        beginning = sum(1 for proc in alone if proc.owner is None)
        for _ in range(min(MOST_SUSPECTS - len(alone), self._suspects - beginning)):
            if self._start(self._alone, self._suspects_seat) is None:
                break
        self._suspects = 0

    def _count_suspects(self) -> None:
        count = self._desk.count_suspects()
        self._later(lambda: self._note_suspects(count))

    def _note_suspects(self, count: int) -> None:
        self._is_counting = False
        self._suspects = count

    # Silent children

    def _watch_silent(self, now: float) -> None:
        """Asks what a child has in hand that sends no beats: it is stopped, or something holds its interpreter."""
        for proc in self._procs:
            if proc.owner is None or proc.was_killed:
                continue
            if now - proc.last_beat < self._times.silent_s:
                proc.asked_about_by = proc.last_beat + self._times.silent_s
            elif proc.asked_about_by is None or now >= proc.asked_about_by:
                proc.asked_about_by = NEVER
                self._ask_about(proc, proc.owner)

    def _ask_about(self, proc: Proc, owner: int) -> None:
        def ask() -> None:
            hands = self._desk.hands_of(owner)
            self._later(lambda: self._judge(proc, hands))

        gave_up = partial(self._later, lambda: self._ask_later(proc, None))
        self._errands.add(Errand(f"looking at what worker process {proc.pid} has in hand", ask, gave_up))

    def _judge(self, proc: Proc, hands: Hands) -> None:
        now = time.monotonic()
        silent_s = now - proc.last_beat
        if proc not in self._procs or silent_s < self._times.silent_s or self._stop_by is not None:
            return
        if hands.late:
            _log.error(
                "worker process %d is silent, and job %d is over its time limit: killed", proc.pid, hands.late[0]
            )
            proc.kill(late=hands.late)
        elif not hands.count and silent_s >= self._times.lifeless_s:
            _log.error(
                "worker process %d has been silent for %.0f s and has nothing in hand: killed", proc.pid, silent_s
            )
            proc.kill()
        else:
            self._ask_later(proc, hands.next_late_s)

    def _ask_later(self, proc: Proc, after_s: float | None) -> None:
        longest_s = self._terms.lease_s / 3
        proc.asked_about_by = time.monotonic() + min(max(longest_s if after_s is None else after_s, 0.05), longest_s)

    # Stopping

    def _begin_stop(self, *, at_once: bool) -> None:
        now = time.monotonic()
        given_s = self._times.at_once_s if at_once else self._terms.grace_s + self._times.margin_s
        self._stop_by = now + given_s if self._stop_by is None else min(self._stop_by, now + given_s)
        how = "at once" if at_once else f"within {self._terms.grace_s:g} s"
        _log.info("stopping the worker processes (%d) %s", len(self._procs), how)
        for proc in self._procs:
            proc.tell(STOP_NOW if at_once else STOP)
            # One that has not begun has nothing to finish.
            by = self._stop_by if proc.owner is not None else min(self._stop_by, now + self._times.at_once_s)
            proc.kill_by = by if proc.kill_by is None else min(by, proc.kill_by)

    def _kill_overdue(self, now: float) -> None:
        for proc in self._procs:
            if proc.kill_by is not None and proc.kill_by <= now and not proc.was_killed:
                _log.warning("worker process %d did not end in the time it was given: killed", proc.pid)
                proc.kill()

    def _take_leave(self) -> None:
        """Whatever ended the work: children that still live see the end of their pipes, and finish by themselves."""
        left = self._errands.end(within_s=self._times.farewell_s)
        self._desk.close()
        for errand in left:
            _log.warning("%s was not possible; it comes back when its lease ends", errand.what)
        for proc in self._procs:
            proc.close()
        os.close(self._bell_read)
        os.close(self._bell)


def supervise(target: str, app: AppParts, terms: Terms, *, workers: int, workflows: Sequence[str] = ()) -> int:
    """Runs the application `target` (`module:attribute`) in so many processes until a signal ends it; its exit code.

    `workflows` are folders of workflow files that each process loads.
    """
    return Supervisor(target, AppDesk(app, terms), terms, workers=workers, workflows=workflows).run()
