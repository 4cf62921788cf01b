"""What a supervisor does in the database when children die, are killed or are silent; on each kind of database."""

from __future__ import annotations

import pytest

from queuety import JobStatus, Queuety, job
from queuety.model import JobPhase
from queuety.store import claims
from queuety.store.door import Tx
from queuety.store.rows import Lease
from queuety.testing import ManualClock
from queuety.worker.desk import MOST_SUSPECTS, AppDesk, Hands

CHILD = 5


@job(timeout=10, max_attempts=2, backoff=[0])
def brief(payload):
    raise AssertionError("nobody runs it here")


@job(timeout=100)
def longer(payload):
    raise AssertionError("nobody runs it here")


@pytest.fixture
def desk(app: Queuety) -> AppDesk:
    return AppDesk(app, app.terms("default", 10))


def claim(app: Queuety, *, owner: int = CHILD, limit: int = 100) -> int:
    """A child claims what is ready; how many jobs that is."""

    def unit(tx: Tx) -> int:
        lease = Lease(token=owner * 1000, owner=owner, until_us=tx.now_us() + 30_000_000)
        return len(claims.claim(tx, ["default"], limit, lease, now_us=tx.now_us()).jobs)

    return app.door.write(unit)


def phase_of(app: Queuety, job_id: int) -> tuple[JobPhase, int]:
    """Where the job's row stands, and how many attempts it counts."""

    def unit(tx: Tx) -> tuple[JobPhase, int]:
        p = tx.statements.parameter
        tx.cursor.execute(f"SELECT phase, attempts FROM {tx.statements.jobs} WHERE id = {p}", [job_id])
        row = tx.cursor.fetchone()
        assert row is not None
        return JobPhase(row[0]), int(row[1])

    return app.door.read(unit)


def test_it_sees_what_is_over_its_time_limit_and_what_will_be_next(
    app: Queuety, clock: ManualClock, desk: AppDesk
) -> None:
    assert desk.hands_of(CHILD) == Hands(0)
    first, second = app.dispatch(brief), app.dispatch(longer)
    assert claim(app) == 2
    assert desk.hands_of(CHILD) == Hands(2, (), 11.0)
    clock.advance(seconds=11)
    assert desk.hands_of(CHILD) == Hands(2, (first,), 90.0)
    clock.advance(seconds=90)
    assert desk.hands_of(CHILD) == Hands(2, (first, second), None)
    assert desk.hands_of(CHILD + 1) == Hands(0)


def test_only_what_is_late_pays_when_its_process_is_killed(app: Queuety, clock: ManualClock, desk: AppDesk) -> None:
    late, beside = app.dispatch(brief), app.dispatch(longer)
    claim(app)
    clock.advance(seconds=11)
    desk.end_killed(CHILD, (late,))
    assert phase_of(app, beside) == (JobPhase.READY, 0)
    state = app.job_status(late)
    assert state is not None
    assert (state.status, state.attempts) == (JobStatus.PENDING, 1)
    assert "longer than its time limit of 10 s" in (state.error_message or "")

    claim(app)
    clock.advance(seconds=11)
    desk.end_killed(CHILD, (late,))
    state = app.job_status(late)
    assert state is not None
    assert (state.status, state.attempts) == (JobStatus.BURIED, 2)


def test_what_is_beside_a_late_one_again_runs_alone_at_no_cost(app: Queuety, clock: ManualClock, desk: AppDesk) -> None:
    hog = app.dispatch(longer)  # it holds the interpreter, and others run over their limits for it
    for expected in (JobPhase.READY, JobPhase.SUSPECT):
        victim = app.dispatch(brief)
        assert claim(app) >= 2
        clock.advance(seconds=11)
        desk.end_killed(CHILD, desk.hands_of(CHILD).late)
        assert phase_of(app, hog) == (expected, 0)
        assert phase_of(app, victim)[1] == 1
    assert desk.count_suspects() == 1


def test_what_was_killed_for_another_reason_costs_nothing_however_often(app: Queuety, desk: AppDesk) -> None:
    innocent = app.dispatch(longer)
    for _ in range(3):
        assert claim(app) == 1
        desk.end_killed(CHILD, ())
        assert phase_of(app, innocent) == (JobPhase.READY, 0)


def test_what_died_together_becomes_suspect_and_is_counted_no_further_than_needed(app: Queuety, desk: AppDesk) -> None:
    assert desk.count_suspects() == 0
    for _ in range(MOST_SUSPECTS + 2):
        app.dispatch(longer)
    claim(app, limit=2)
    desk.end_dead(CHILD)
    assert desk.count_suspects() == 2
    claim(app, limit=100)
    desk.end_dead(CHILD)
    assert desk.count_suspects() == MOST_SUSPECTS


def test_suspects_of_a_paused_queue_wait_and_are_not_counted(app: Queuety, desk: AppDesk) -> None:
    for _ in range(2):
        app.dispatch(longer)
    claim(app)
    desk.end_dead(CHILD)
    app.pause("default")
    assert desk.count_suspects() == 0
    app.resume("default")
    assert desk.count_suspects() == 2
