"""What purging deletes and what it leaves: nothing of a run that is gone, everything of one that somebody needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import update

from queuety.commands.dispatch import start_runs
from queuety.model import (
    Cancel,
    Fork,
    JobStatus,
    KeepGroup,
    LetterKind,
    RetryRun,
    Send,
    StepSpec,
    Watch,
    WorkflowStatus,
)
from queuety.store import letters, load, purge, settle
from queuety.store.door import Tx
from queuety.store.load import Runs
from queuety.store.purge import Place, Purged
from tests.support.databases import Database
from tests.support.hands import House, definition, failed, new_job, succeeded
from tests.support.pasts import end
from tests.support.purging import ALL, OVER, completed, furnish, owned_by, passed, purged, there


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants, which are asked where it matters."""
    with House(database.url) as made:
        yield made


def test_everything_that_belongs_to_a_run_goes_with_it_and_nothing_of_others(house: House) -> None:
    gone, kept = completed(house, 2)
    house.clock.advance(1)
    (later,) = completed(house)
    house.door.write(lambda tx: tx.connection.execute(update(tx.tables.workflows).values(definition_hash="h")))
    for run in (gone, kept, later):
        furnish(house, run)
    plain = house.add(new_job())
    house.door.write(
        lambda tx: tx.cursor.execute(f"UPDATE {tx.statements.workflows} SET status = 'running' WHERE id = {kept}")
    )
    before = {run: owned_by(house, run) for run in (kept, later)}
    assert all(count > 0 for run in before.values() for count in run.values()), before
    assert purged(house, statuses=OVER, before_us=house.clock.us - 1_500_000) == Purged(1, None)
    assert set(owned_by(house, gone).values()) == {0}
    assert {run: owned_by(house, run) for run in (kept, later)} == before
    assert [row["id"] for row in house.rows("jobs") if row["workflow_id"] is None] == plain


def test_the_key_of_a_purged_run_is_free(house: House) -> None:
    (run,) = completed(house, key="k")
    assert house.dispatch(definition(), key="k") == run
    assert passed(house) == 1
    assert house.dispatch(definition(), key="k") != run


def test_only_runs_of_these_statuses_that_ended_before_go(house: House) -> None:
    done, cancelled, lost, going, late = house.dispatch_many(definition(), [{}] * 5)
    hand = house.hand()
    jobs = {job.workflow_id: job for job in hand.claim()}
    hand.turn(succeeded(jobs[done]), failed(jobs[lost], is_final=True))
    house.steer(cancelled, Cancel())
    house.clock.advance(10)
    hand.turn(succeeded(jobs[late]))
    before = house.clock.us - 5_000_000
    assert passed(house, statuses=[WorkflowStatus.RUNNING, WorkflowStatus.PAUSED], before_us=before) == 0
    assert passed(house, statuses=[WorkflowStatus.COMPLETED], before_us=before) == 1
    assert there(house) == [cancelled, lost, going, late]
    assert passed(house, statuses=[WorkflowStatus.CANCELLED], before_us=before) == 1
    assert passed(house, statuses=OVER, before_us=before) == 0
    assert passed(house, statuses=[WorkflowStatus.FAILED], before_us=before) == 1
    assert there(house) == [going, late]
    assert passed(house, statuses=ALL) == 0
    house.clock.advance(1)
    assert passed(house, statuses=ALL) == 1
    assert there(house) == [going]


def test_a_pass_goes_on_where_it_stopped_past_what_stays(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "FAILED_AT_ONCE", 3)
    runs = completed(house, 7)  # all at one moment
    runs += [run for _ in range(3) for run in completed(house)]
    lost = house.dispatch_many(definition(), [{}] * 8)
    hand = house.hand()
    hand.work(lambda job: failed(job, is_final=True))
    house.clock.advance(1)
    stay = {runs[0], runs[4], runs[8], lost[0], lost[1], lost[2], lost[7]}
    table = house.door.tables.workflows
    house.door.write(
        lambda tx: tx.connection.execute(update(table).where(table.c.id.in_(stay)).values(cleanup="pending"))
    )
    seen: list[Place | None] = []
    count, after = 0, None
    while not seen or after is not None:
        found = purged(house, after=after, limit=2)
        assert found.count <= 2
        count, after = count + found.count, found.after
        assert after not in seen
        seen.append(after)
    assert count == len(runs) + len(lost) - len(stay)
    assert set(there(house)) == stay
    house.door.write(lambda tx: tx.connection.execute(update(table).values(cleanup="completed")))
    assert passed(house, limit=2) == len(stay)


# What stays


@pytest.mark.parametrize(
    "change",
    [{"cleanup": "pending"}, {"runtime": '{"child":7,"awaits":true}'}, {"ledger": '{"left":[7]}'}],
    ids=["pending", "awaiting", "left"],
)
@pytest.mark.parametrize("status", ["cancelled", "failed"])
def test_a_run_that_is_not_clean_stays(house: House, status: str, change: dict[str, Any]) -> None:
    (run,) = house.dispatch_many(definition(), [{}])
    end(house, [run], WorkflowStatus(status))
    house.clock.advance(1)
    table = house.door.tables.workflows
    house.door.write(lambda tx: tx.connection.execute(update(table).values(**change)))
    assert passed(house) == 0
    clean = {"cleanup": "failed", "runtime": '{"child":7}', "ledger": "{}"}
    house.door.write(lambda tx: tx.connection.execute(update(table).values(**clean)))
    assert passed(house) == 1


def test_a_run_that_somebody_watches_stays_until_that_one_has_ended(house: House) -> None:
    run, waiter = house.dispatch_many(definition(), [{}, {}])
    end(house, [run], WorkflowStatus.FAILED)
    house.clock.advance(1)
    house.door.write(lambda tx: letters.send(tx, (), (), [Watch(run, waiter, 1), Watch(run, 10**9, 1)]))
    assert passed(house) == 0
    end(house, [waiter], WorkflowStatus.CANCELLED)
    assert passed(house, statuses=[WorkflowStatus.FAILED]) == 1


def test_a_run_whose_parent_or_child_goes_on_stays(house: House) -> None:
    parent, child, other = house.dispatch_many(definition(), [{}, {}, {}])
    table = house.door.tables.workflows
    house.door.write(
        lambda tx: tx.connection.execute(update(table).where(table.c.id == child).values(parent_id=parent))
    )
    end(house, [parent, other])
    house.clock.advance(1)
    assert passed(house) == 1
    assert there(house) == [parent, child]
    end(house, [child])
    house.door.write(
        lambda tx: tx.connection.execute(update(table).where(table.c.id == parent).values(status="running"))
    )
    house.clock.advance(1)
    assert passed(house) == 0
    end(house, [parent])
    assert passed(house) == 1  # the child alone: its parent has ended a moment later
    assert there(house) == [parent]
    house.clock.advance(1)
    assert passed(house) == 1


def test_a_run_that_somebody_still_waits_for_stays_though_it_has_told(house: House) -> None:
    """A wait for all looks at all of them once the last has ended."""
    done, going = house.dispatch_many(definition(), [{}, {}])
    settings = {"workflows": [done, going], "mode": "all", "keyed": True, "result_key": "r"}
    waiter = house.dispatch(definition(StepSpec("wait_for_workflows", "wait", settings=settings)))
    hand = house.hand()
    jobs = {job.workflow_id: job for job in hand.claim()}
    hand.turn(looks_around=True)
    hand.turn(succeeded(jobs[done], {"a": 1}))
    hand.turn(looks_around=True)
    house.clock.advance(1)
    assert [row["workflow_id"] for row in house.rows("watchers")] == [going]
    assert passed(house) == 0
    hand.turn(succeeded(jobs[going], {"b": 1}))
    hand.turn(looks_around=True)
    assert house.state(waiter) == {"r": {str(done): {"a": 1}, str(going): {"b": 1}}}
    house.clock.advance(1)
    assert passed(house) == 3


def test_a_run_that_is_of_a_living_runs_group_stays(house: House) -> None:
    """Its planner waits for a person first, and for the group then."""
    planner, done = house.dispatch_many(definition(), [{}, {}])
    house.door.write(lambda tx: settle.write(tx, settle.Plan.of([KeepGroup(planner, "a", (done,))]), {}))
    end(house, [done])
    house.clock.advance(1)
    assert passed(house) == 0
    end(house, [planner])
    house.clock.advance(1)
    assert passed(house) == 2


def test_a_run_that_is_of_a_forks_group_stays(house: House) -> None:
    """The fork is younger than the group that it has taken over, and has yet to wait for it."""
    planner, done = house.dispatch_many(definition(), [{}, {}])
    house.door.write(lambda tx: settle.write(tx, settle.Plan.of([KeepGroup(planner, "a", (done,))]), {}))
    end(house, [done])
    house.clock.advance(1)
    before_us = house.clock.us
    (fork,) = house.door.write(lambda tx: tx.reserve(1))
    house.steer(planner, Fork(fork))
    end(house, [planner])
    assert passed(house, before_us=before_us) == 0
    end(house, [fork])
    assert passed(house, before_us=before_us) == 1
    assert there(house) == [planner, fork]


def test_a_letter_that_comes_while_its_run_goes_is_answered(house: House) -> None:
    """The waiter had found the run going on, in a transaction that took longer than the run."""
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    (run,) = house.dispatch_many(definition(), [{}])
    settings = {"workflows": [run], "mode": "all", "keyed": True}
    waiting = definition(StepSpec("wait_for_workflows", "wait", settings=settings))
    house.definitions.ensure(house.door, waiting)
    with House(house.url, clock=house.clock) as other, other.door.engine.connect() as theirs:
        with other.door.joined(theirs) as tx:
            (waiter,) = start_runs(tx, waiting, [{}])
        house.hand().work()
        house.clock.advance(1)

        def commit(statement: str) -> None:
            if statement.startswith("DELETE") and theirs.in_transaction():
                theirs.commit()

        house.door.on_statement = commit
        assert passed(house) == 1
        house.door.on_statement = None
        assert not theirs.in_transaction()
    hand = house.hand()
    for _ in range(2):
        hand.turn(looks_around=True)
    assert house.row("workflows", id=waiter)["error_kind"] == "WaitUnsatisfiable"
    assert house.rows("inbox") == []


def test_a_run_with_a_letter_that_is_to_be_answered_stays(house: House) -> None:
    (run,) = completed(house)
    house.door.write(lambda tx: letters.send(tx, (), [Send(run, LetterKind.SUBSCRIBE, 5, {"waiter": 10**9}, 1)]))
    assert passed(house) == 0
    house.hand().turn(looks_around=True)
    assert passed(house) == 1


def test_a_run_that_is_locked_is_passed_over(house: House) -> None:
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    one, _ = completed(house, 2)
    with House(house.url) as other, other.door.engine.connect() as theirs:
        with other.door.joined(theirs) as tx:
            load.lock(tx, Runs(), [one])
            assert purged(house).count == 1
        theirs.rollback()
    assert there(house) == [one]


def test_a_run_that_was_retried_between_the_look_and_the_lock_stays(house: House) -> None:
    """A `retry` that commits after the page was read: asked again under the lock, the run is running."""
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    (run,) = house.dispatch_many(definition(), [{}])
    hand = house.hand()
    hand.work(lambda job: failed(job, is_final=True))
    house.clock.advance(1)

    def unit(tx: Tx) -> Purged:
        plain = tx.cursor

        class Slow:
            def execute(self, statement: str, parameters: Any = ()) -> Any:
                if "FOR UPDATE" in statement and "workflows" in statement:
                    house.steer(run, RetryRun())
                return plain.execute(statement, parameters)

            def __getattr__(self, name: str) -> Any:
                return getattr(plain, name)

        tx.cursor = Slow()
        return purge.purge_runs(tx, before_us=house.clock.us, statuses=ALL, after=Place(is_at_failed=True), limit=5)

    assert house.door.write(unit).count == 0
    assert house.row("workflows")["status"] == "running"


def test_who_writes_to_a_purged_run_is_answered(house: House) -> None:
    (done,) = completed(house)
    assert passed(house) == 1
    settings = {"workflows": [done], "mode": "all", "keyed": True}
    waiter = house.dispatch(definition(StepSpec("wait_for_workflows", "wait", settings=settings)))
    house.hand().turn(looks_around=True)
    row = house.row("workflows", id=waiter)
    assert (row["status"], row["error_kind"]) == ("failed", "WaitUnsatisfiable")


# Plain jobs


def test_plain_jobs_go_with_their_history(house: House) -> None:
    done, lost, going, late = house.add(*(new_job(max_attempts=1) for _ in range(4)))
    (run,) = house.dispatch_many(definition(), [{}])
    hand = house.hand()
    jobs = {job.id: job for job in hand.claim()}
    (step,) = [job for job in jobs.values() if job.workflow_id == run]
    hand.turn(succeeded(jobs[done]), failed(jobs[lost]), failed(step, is_final=True))
    house.clock.advance(10)
    hand.turn(succeeded(jobs[late]))
    before = house.clock.us - 5_000_000

    def call(*statuses: JobStatus) -> int:
        found = house.door.write(
            lambda tx: purge.purge_plain_jobs(tx, before_us=before, statuses=statuses, after=None, limit=10)
        )
        assert found.after is None
        return found.count

    assert call(JobStatus.PENDING, JobStatus.PROCESSING) == 0
    assert call(JobStatus.COMPLETED) == 1
    assert [row["id"] for row in house.rows("jobs")] == sorted([lost, going, late, step.id])
    assert call(JobStatus.COMPLETED, JobStatus.BURIED) == 1
    assert [row["id"] for row in house.rows("jobs")] == sorted([going, late, step.id])
    assert {row["run_id"] for row in house.rows("history")} == {late, run}


def test_a_pass_over_plain_jobs_goes_past_those_that_stay(house: House) -> None:
    """A thousand buried ones must not be read again for every batch."""
    jobs = house.add(*(new_job(max_attempts=1) for _ in range(9)))
    hand = house.hand()
    for number, job in enumerate(sorted(hand.claim(), key=lambda job: job.id)):
        hand.turn(failed(job) if number % 3 < 2 else succeeded(job))
    house.clock.advance(1)
    seen: list[tuple[int, bool]] = []
    after: Place | None = None
    while not seen or after is not None:
        found = house.door.write(
            lambda tx, after=after: purge.purge_plain_jobs(
                tx, before_us=house.clock.us, statuses=[JobStatus.COMPLETED], after=after, limit=4
            )
        )
        after = found.after
        seen.append((found.count, after is None))
    assert seen == [(1, False), (1, False), (1, True)]
    assert len(house.rows("jobs")) == len(jobs) - 3
