"""What has grown old goes: by the workers a batch at a time, by hand at once; and runs whose time is over fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuety import JobStatus, Queuety, Settings, WorkflowStatus, errors, job, step
from queuety.model import CleanupStatus
from queuety.store import purge
from queuety.testing import ManualClock
from queuety.worker import retain, turn
from queuety.worker.retain import EVERY_S, FIRST, HISTORY_EVERY_S, LONG_S, PAUSE_S, SHARE, Retention
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check

State = dict[str, Any]


@step
def steps(state: State) -> State:
    return {"n": state.get("n", 0) + 1}


@step(max_attempts=1)
def fails(state: State) -> None:
    raise ValueError("no")


@step
def undo(state: State) -> None:
    note(state)


@job
def quick() -> None: ...


@job(max_attempts=1)
def sinks() -> None:
    raise ValueError("no")


@pytest.fixture
def pruned(database: Database, clock: ManualClock) -> Iterator[Queuety]:
    """An application whose histories are not whole, as what is checked of any other's would want them."""
    with Queuety(database.url, clock=clock) as made:
        yield made


class Seconds:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def keeping(
    app: Queuety, *, retention_days: float | None = 7.0, history_days: float | None = None
) -> tuple[Retention, Seconds]:
    """A loop's chore, and its clock, at the moment in which it first looks."""
    seconds = Seconds()
    made = Retention(
        app.door, app.definitions, retention_days=retention_days, history_days=history_days, monotonic=seconds
    )
    assert made.look() == 0, "it has only begun"
    seconds.now += EVERY_S
    return made, seconds


def look_at_all(app: Queuety, **ages: float | None) -> int:
    """What one loop deletes until it pauses."""
    retention, seconds = keeping(app, **ages)
    count = 0
    while retention.pause_s < 1:
        seconds.now += retention.pause_s
        count += retention.look()
    return count


def test_a_worker_looks_some_seconds_after_it_has_started(app: Queuety) -> None:
    first = [Retention(app.door, app.definitions, retention_days=7, history_days=1).pause_s for _ in range(20)]
    assert all(4 < pause_s <= 15 for pause_s in first), "restarted every minute, it purges too"
    assert len(set(first)) > 1, "those that start together do not look together"


def test_who_waits_is_read_before_anything_is_locked(
    app: Queuety, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.workflow("w").then(steps).dispatch()
    app.workflow("w").then(fails).dispatch()
    app.run_until_idle()
    clock.advance(days=2)
    read, others = purge._awaited, []

    def reads_while_others_write(*given: Any) -> frozenset[int]:
        others.append(app.dispatch(quick))
        return read(*given)

    monkeypatch.setattr(purge, "_awaited", reads_while_others_write)
    assert look_at_all(app, retention_days=1) == 1
    assert app.purge_workflows(1, statuses="failed") == 1
    assert app.purge_workflows(1) == 0, "nothing is there, so nothing is read"
    assert len(others) == 2


def jobs_of(app: Queuety) -> dict[int, JobStatus]:
    return {one.id: one.status for one in app.list_jobs(limit=1000) if one.workflow_id is None}


def runs_of(app: Queuety) -> dict[int, str]:
    return {one.id: one.status for one in app.list_workflows(limit=1000)}


def a_bit_of_everything(app: Queuety) -> dict[str, int]:
    """Runs and jobs in every state, by name."""
    made = {
        "completed": app.workflow("w").then(steps).dispatch(),
        "failed": app.workflow("w").then(fails).dispatch(),
        "cancelled": app.workflow("w").delay(days=100).on_cancel(undo).dispatch(),
        "uncleaned": app.workflow("w").delay(days=100).on_cancel(undo).on_queue("nobody's").dispatch(),
        "waiting": app.workflow("w").wait_for_signal("go").dispatch(),
        "done": app.dispatch(quick),
        "buried": app.dispatch(sinks),
    }
    app.cancel_workflow(made["cancelled"])
    app.cancel_workflow(made["uncleaned"])
    app.run_until_idle("default")
    made["pending"] = app.dispatch(quick, delay=100 * 86_400)
    return made


GONE = ("completed", "cancelled", "done")


def test_what_is_over_for_good_goes_after_its_time_and_nothing_else(app: Queuety, clock: ManualClock) -> None:
    old = a_bit_of_everything(app)
    clock.advance(days=2)
    young = a_bit_of_everything(app)
    clock.advance(days=5)
    assert look_at_all(app) == 0, "not a moment too early"
    clock.advance(seconds=1)
    assert look_at_all(app) == len(GONE)
    left = runs_of(app).keys() | jobs_of(app).keys()
    assert left == ({*old.values(), *young.values()} - {old[name] for name in GONE})
    assert look_at_all(app, retention_days=None) == 0
    assert look_at_all(app, retention_days=0.001) == len(GONE)
    app.run_until_idle()  # cleans up after the last ones
    assert status_of(app, old["uncleaned"]).compensation_status is CleanupStatus.COMPLETED


def test_everything_of_a_run_goes_with_it(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").then(steps).tag("t").idempotency_key("k").dispatch()
    app.put_artifact(run, "a", 1)
    app.signal(run, "unused")
    app.run_until_idle()
    clock.advance(days=8)
    assert look_at_all(app) == 1
    assert app.workflow_status(run) is None
    assert app.workflow_timeline(run) == []
    assert app.workflow_artifact(run, "a") is None
    assert app.workflow("w").then(steps).idempotency_key("k").dispatch() != run, "its key is free"


def test_who_keeps_everything_is_asked_nothing(app: Queuety) -> None:
    said: list[str] = []
    retention, seconds = keeping(app, retention_days=None)
    app.door.on_statement = said.append
    for _ in range(3):
        assert retention.look() == 0
        seconds.now += HISTORY_EVERY_S
    app.door.on_statement = None
    assert (said, retention.pause_s) == ([], float("inf"))


def test_a_full_batch_is_soon_followed_by_the_next_and_the_last_by_a_minute(app: Queuety, clock: ManualClock) -> None:
    for _ in range(FIRST + 1):
        app.dispatch(quick)
    app.run_until_idle()
    clock.advance(days=8)
    retention, seconds = keeping(app)
    assert (retention.look(), retention.pause_s) == (0, 0.0), "there are no runs; the jobs are next"
    assert retention.look() == FIRST
    assert 0 < retention.pause_s <= PAUSE_S
    assert retention.look() == 0, "it pauses"
    seconds.now += PAUSE_S
    assert retention.look() == 1
    assert PAUSE_S < retention.pause_s <= EVERY_S
    seconds.now += EVERY_S
    app.dispatch(quick)
    app.run_until_idle()
    clock.advance(days=8)
    retention.look()
    assert retention.look() == 1, "and again"


def test_a_long_batch_is_followed_by_a_longer_pause_and_a_smaller_batch(
    app: Queuety, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []
    seconds = Seconds()

    def slow(tx: Any, *, limit: int, **_: Any) -> purge.Purged:
        limits.append(limit)
        seconds.now += 2 * LONG_S
        return purge.Purged(limit, purge.Place())

    monkeypatch.setattr(purge, "purge_runs", slow)
    monkeypatch.setattr(retain.time, "monotonic", seconds)
    retention = Retention(app.door, app.definitions, retention_days=1, history_days=None, monotonic=seconds)
    seconds.now += EVERY_S
    for _ in range(12):
        retention.look()
        seconds.now += max(retention.pause_s, PAUSE_S)
    runs = limits[:6]
    assert runs == [16, 8, 4, 2, 1, 1]
    monkeypatch.undo()
    assert SHARE * 2 * LONG_S > PAUSE_S


@pytest.mark.parametrize("waits", [True, False], ids=["idle", "busy"])
def test_a_worker_does_it_beside_its_work(
    app: Queuety, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    monkeypatch.setattr(retain, "EVERY_S", 0.02)
    old = [app.workflow("w").then(steps).dispatch() for _ in range(3)]
    app.run_until_idle()
    clock.advance(days=8)
    kept = app.workflow("w").then(fails).dispatch()
    with working(app):
        if not waits:
            for _ in range(20):
                app.dispatch(quick)
        until(lambda: not any(run in runs_of(app) for run in old))
        until(lambda: status_of(app, kept).status is WorkflowStatus.FAILED)
    assert list(runs_of(app)) == [kept]


def test_a_worker_goes_on_if_it_cannot(
    app: Queuety, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(tx: Any, **_: Any) -> purge.Purged:
        note("tried")
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(retain, "EVERY_S", 0.02)
    monkeypatch.setattr(purge, "purge_runs", broken)
    given = app.dispatch(quick)
    with working(app), caplog.at_level(logging.ERROR, "queuety.worker"):
        until(lambda: len(notes) >= 2)
        until(lambda: jobs_of(app)[given] is JobStatus.COMPLETED)
    assert "a chore of the worker failed; it is tried again" in caplog.text


def test_several_at_once_delete_each_once(app: Queuety, database: Database, clock: ManualClock) -> None:
    for _ in range(20):
        app.dispatch(quick)
    for _ in range(10):
        app.workflow("w").then(steps).dispatch()
    app.run_until_idle()
    clock.advance(days=8)
    counts: list[int] = []
    begun = threading.Barrier(3)

    def one() -> None:
        with Queuety(database.url, clock=clock) as mine:
            begun.wait(20)
            counts.append(look_at_all(mine))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(counts) == 3
    assert sum(counts) + look_at_all(app) == 30, "what was locked is left to the next"
    assert (runs_of(app), jobs_of(app)) == ({}, {})


class BreakdownError(Exception):
    pass


def test_a_look_that_breaks_off_anywhere_leaves_all_or_nothing_of_a_run(app: Queuety, clock: ManualClock) -> None:
    """Before each of its statements in turn, the commits among them."""
    left = a_bit_of_everything(app)
    app.put_artifact(left["completed"], "a", 1)
    clock.advance(days=8)
    breaks = 0

    def breaking(_text: str) -> None:
        nonlocal said
        said += 1
        if said > breaks:
            raise BreakdownError

    while True:
        said = 0
        app.door.on_statement = breaking
        try:
            look_at_all(app)
            break
        except BreakdownError:
            breaks += 1
        finally:
            app.door.on_statement = None
        check(app.door)
    assert breaks > 20
    assert runs_of(app).keys() | jobs_of(app).keys() == set(left.values()) - {left[name] for name in GONE}


def test_history_goes_before_its_run(pruned: Queuety, clock: ManualClock) -> None:
    app = pruned
    run = app.workflow("w").then(steps).wait_for_signal("go").then(steps).dispatch({"given": 1})
    undone = app.workflow("u").then(steps).compensate_with(undo).wait_for_signal("go").dispatch()
    app.run_until_idle()
    clock.advance(days=31)
    assert look_at_all(app, retention_days=None, history_days=None) == 0
    before = app.workflow_timeline(run), app.workflow_timeline(undone)
    assert look_at_all(app, retention_days=None, history_days=30) > 0
    assert len(app.workflow_timeline(run)) < len(before[0])
    assert app.workflow_timeline(undone) == before[1], "it may still be undone"
    app.signal(run, "go")
    app.run_until_idle()
    state = status_of(app, run)
    assert (state.status, state.state) == (WorkflowStatus.COMPLETED, {"given": 1, "n": 2})
    app.cancel_workflow(undone)
    app.run_until_idle()
    assert notes == [{"n": 1}]


# By hand


def test_jobs_are_purged_by_hand(app: Queuety, clock: ManualClock) -> None:
    made = a_bit_of_everything(app)
    assert app.purge(1) == 0
    clock.advance(days=8)
    assert app.purge(9) == 0
    assert app.purge() == 1
    assert jobs_of(app).keys() == {made["buried"], made["pending"]}
    assert app.purge(0, statuses=["completed", JobStatus.BURIED]) == 1
    assert runs_of(app).keys() >= {made["completed"], made["failed"]}


def test_runs_are_purged_by_hand(app: Queuety, clock: ManualClock) -> None:
    made = a_bit_of_everything(app)
    clock.advance(days=1)
    every = ("completed", "failed", "cancelled")
    assert app.purge_workflows(1.5, every) == 0
    assert app.purge_workflows(0.5, every, dry_run=True) == 3
    assert app.purge_workflows(0.5, dry_run=True) == 1
    assert len(runs_of(app)) == 5, "nothing has gone yet"
    assert app.purge_workflows(0.5) == 1
    assert app.purge_workflows(0.5, "failed") == 1
    assert app.purge_workflows(0.5, [WorkflowStatus.CANCELLED]) == 1
    assert runs_of(app).keys() == {made["uncleaned"], made["waiting"]}


def test_a_dry_run_counts_past_what_an_unfinished_purge_has_left(
    app: Queuety, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.workflow("w").then(steps).repeat_until("0", "n", 12).dispatch()
    for _ in range(3):
        app.workflow("w").then(steps).dispatch()
    app.run_until_idle()
    clock.advance(days=1)
    before_us = app.door.now_us()
    monkeypatch.setattr(purge, "rows_for", lambda _limit: 8)

    def first_part(tx: Any) -> int:
        return purge.purge_runs(tx, before_us=before_us, statuses=[WorkflowStatus.COMPLETED], after=None, limit=1).count

    assert app.door.write(first_part) == 1
    assert app.purge_workflows(0, dry_run=True) == 3
    assert app.purge_workflows(0) == 3
    assert runs_of(app) == {}


@pytest.mark.parametrize(
    "looks",
    [lambda app, run: app.workflow_state_at(run, 1), lambda app, run: app.workflow_timeline(run)],
    ids=["state_at", "timeline"],
)
def test_the_past_is_as_it_was_when_somebody_began_to_look(
    pruned: Queuety, clock: ManualClock, looks: Callable[[Queuety, int], Any]
) -> None:
    run = pruned.workflow("w").then(steps).then(steps).then(steps).dispatch({"text": "x" * 3000})
    pruned.run_until_idle()
    clock.advance(days=2)
    expected = looks(pruned, run)
    gone: list[int] = []

    def late(statement: str) -> None:
        if "changed" in statement and not gone:
            gone.append(0)
            with Queuety(pruned.door.engine.url, clock=clock) as other:
                gone[0] = other.prune_history(1)

    pruned.door.on_statement = late
    assert looks(pruned, run) == expected
    pruned.door.on_statement = None
    assert gone == [3]


def test_history_is_pruned_by_hand(pruned: Queuety, clock: ManualClock) -> None:
    app = pruned
    run = app.workflow("w").then(steps).then(steps).dispatch()
    app.run_until_idle()
    clock.advance(days=2)
    assert app.prune_history(3) == 0
    assert app.prune_history(1) == 2
    assert app.workflow_timeline(run) == []
    assert status_of(app, run).state == {"n": 2}
    assert app.prune_history(1) == 0


@pytest.mark.parametrize("days", [-1, float("nan"), float("inf"), True, "7", 1e400])
@pytest.mark.parametrize(
    "verb",
    [lambda app, days: app.purge(days), lambda app, days: app.purge_workflows(days), Queuety.prune_history],
    ids=["purge", "purge_workflows", "prune_history"],
)
def test_impossible_ages_are_refused(memory: Queuety, verb: Callable[[Queuety, Any], int], days: Any) -> None:
    with pytest.raises(errors.DefinitionError, match="a finite number of days that is not negative is needed"):
        verb(memory, days)


def test_an_age_beyond_all_times_is_none(memory: Queuety) -> None:
    assert memory.purge(1e300) == memory.purge_workflows(1e300) == memory.prune_history(1e300) == 0


def test_impossible_statuses_are_refused(memory: Queuety) -> None:
    with pytest.raises(errors.DefinitionError, match="'running' is not one of completed, failed, cancelled"):
        memory.purge_workflows(1, ["completed", "running"])
    with pytest.raises(errors.DefinitionError, match="at least one of completed, failed, cancelled"):
        memory.purge_workflows(1, ())
    with pytest.raises(errors.DefinitionError, match="'pending' is not one of completed, buried"):
        memory.purge(1, statuses=JobStatus.PENDING)


def test_who_keeps_everything_must_say_how_many_days(memory_url: str) -> None:
    with Queuety(memory_url, settings=Settings(retention_days=None)) as app:
        with pytest.raises(errors.DefinitionError, match="say how many days"):
            app.purge()
        assert app.purge(1) == 0


# Deadlines


def test_runs_whose_time_is_over_fail_now(app: Queuety, clock: ManualClock) -> None:
    def late(builder: Any) -> int:
        run: int = builder.must_complete_within(hours=1).dispatch()
        return run

    waiting = late(app.workflow("w").wait_for_signal("go").on_deadline(undo))
    delayed = late(app.workflow("w").delay(days=1))
    running = late(app.workflow("w").then(steps))
    paused = late(app.workflow("w").then(steps).then(steps))
    app.pause_workflow(paused)
    done = late(app.workflow("w").delay(minutes=1))
    other = app.workflow("w").delay(minutes=30).then(steps).dispatch()
    assert app.check_deadlines() == 0
    clock.advance(minutes=59)
    assert app.check_deadlines() == 0
    assert status_of(app, done).status is WorkflowStatus.COMPLETED
    clock.advance(minutes=1)
    assert app.check_deadlines() == 3
    assert app.check_deadlines() == 0
    for run in (waiting, delayed, running):
        state = status_of(app, run)
        assert (state.status, state.error_kind) == (WorkflowStatus.FAILED, "DeadlineExceeded")
    assert status_of(app, paused).status is WorkflowStatus.PAUSED
    assert status_of(app, other).status is WorkflowStatus.RUNNING
    assert notes == [], "no handler was run"
    app.run_until_idle()
    assert notes == [{}]


def test_more_runs_than_one_turn_looks_at_fail_and_are_named_in_the_log(
    app: Queuety, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(turn, "LETTERS", 10)
    builder = app.workflow("w").wait_for_signal("go").must_complete_within(hours=1)
    runs = app.dispatch_many(builder, [{}] * 25)
    clock.advance(hours=2)
    with caplog.at_level(logging.ERROR, "queuety.worker"):
        assert app.check_deadlines() == 25
    assert f"workflow {runs[0]} (w) has failed" in caplog.text
    assert {run.error_kind for run in app.list_workflows(limit=25)} == {"DeadlineExceeded"}
