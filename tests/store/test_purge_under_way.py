"""Purging in parts, while runs go on, against others and broken off anywhere: nothing is ever half gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from queuety.errors import NotFoundError
from queuety.model import (
    RetryRun,
    WorkflowStatus,
)
from queuety.store import prune, purge
from queuety.store.purge import Purged
from tests.support.databases import Database
from tests.support.hands import House, definition, failed, single, succeeded
from tests.support.invariants import check
from tests.support.pasts import live
from tests.support.purging import ALL, OVER, completed, furnish, owned_by, passed, purged, there


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants, which are asked where it matters."""
    with House(database.url) as made:
        yield made


# Runs with a long past


@pytest.fixture
def long_run(house: House, monkeypatch: pytest.MonkeyPatch) -> int:
    """A run with far more rows than may go at once, of which one has the key `k`."""
    monkeypatch.setattr(prune, "MOST_ROWS", 60)
    monkeypatch.setattr(prune, "FEWEST_ROWS", 50)
    (run,) = completed(house, key="k")
    live(house, run, 300, visits=False)
    furnish(house, run, jobs=70, chunks=130, signals=110)
    return run


def test_a_long_run_goes_at_once_for_others_and_its_rows_in_parts(house: House, long_run: int) -> None:
    (other,) = completed(house)
    found = purged(house, limit=1)
    assert (found.count, found.after is None) == (1, False)
    assert there(house) == [other]
    left = owned_by(house, long_run)
    assert {table for table, count in left.items() if count} == {"jobs", "signals", "chunks", "history"}
    assert house.dispatch(definition(), key="k") != long_run
    calls = 0
    before = sum(left.values())
    while house.rows("checkpoints"):
        found = purged(house, after=found.after, limit=1)
        assert (found.count, found.after is None) == (0, False)
        now = sum(owned_by(house, long_run).values())
        assert 0 <= before - now <= 50
        before = now
        calls += 1
    assert set(owned_by(house, long_run).values()) == {0}
    assert calls > (300 + 130 + 110 + 70) // 50
    assert passed(house) == 1  # the other one


def test_a_pass_ends_only_when_the_parts_are_gone(house: House, long_run: int) -> None:
    assert passed(house, limit=1) == 1
    assert set(owned_by(house, long_run).values()) == {0}
    assert house.rows("checkpoints") == []


def test_another_pass_finishes_what_one_has_left(house: House, long_run: int) -> None:
    assert purged(house, limit=1).count == 1
    with House(house.url, clock=house.clock) as other:
        assert passed(other, limit=1) == 0
    assert set(owned_by(house, long_run).values()) == {0}


def test_two_that_finish_one_run_do_not_meet(house: House, long_run: int) -> None:
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    purged(house, limit=1)
    with House(house.url, clock=house.clock) as other, other.door.engine.connect() as theirs:
        with other.door.joined(theirs) as tx:
            purge.purge_runs(tx, before_us=house.clock.us, statuses=ALL, after=None, limit=1)
            assert purged(house, statuses=OVER) == Purged(0, None)
        theirs.rollback()


# Runs that have really lived


def test_runs_that_go_on_while_old_rows_and_old_runs_go(house: House) -> None:
    """Whatever is pruned and purged in between, every invariant holds, and nothing is left at the end."""
    steps = definition(*(single(f"s{number}") for number in range(6)))
    hand = house.hand()

    def go_on(times: int) -> None:
        for _ in range(times):
            jobs = hand.claim()
            hand.turn(*(succeeded(job, {f"k{job.step_index}": job.workflow_id}) for job in jobs))
            house.clock.advance(1)

    def shorten() -> int:
        return house.door.write(
            lambda tx: prune.prune_history(
                tx, before_us=house.clock.us - 1, after_id=None, limit=100, may_prune=lambda _: True
            )
        ).rows

    first = house.dispatch_many(steps, [{}, {"text": "x" * 2000}, {"text": "x" * 20_000}])
    go_on(3)
    second = house.dispatch_many(steps, [{}])
    assert shorten() > 0
    check(house.door)
    go_on(3)
    assert [row["status"] for row in house.rows("workflows")] == ["completed"] * 3 + ["running"]
    assert shorten() > 0
    check(house.door)
    assert [house.state(run) for run in first] == [
        {**payload, **{f"k{number}": run for number in range(6)}}
        for run, payload in zip(first, ({}, {"text": "x" * 2000}, {"text": "x" * 20_000}), strict=True)
    ]
    assert passed(house) == 3
    check(house.door)
    go_on(3)
    assert house.state(second[0]) == {f"k{number}": second[0] for number in range(6)}
    assert passed(house) == 1
    check(house.door)
    assert {table for table, rows in house.dump().items() if rows} == {
        house.door.tables.definitions.name,
        house.door.tables.ids.name,
    }


def test_of_a_retry_and_a_purge_at_the_same_moment_one_wins(house: House) -> None:
    runs = house.dispatch_many(definition(), [{}] * 30)
    house.hand().work(lambda job: failed(job, is_final=True), slots=30)
    house.clock.advance(1)
    retried: set[int] = set()
    begin = threading.Barrier(2)

    def retry() -> None:
        with House(house.url, clock=house.clock) as other:
            begin.wait(30)
            for run in reversed(runs):
                with suppress(NotFoundError):
                    other.steer(run, RetryRun())
                    retried.add(run)

    thread = threading.Thread(target=retry)
    thread.start()
    begin.wait(30)
    count = sum(passed(house, statuses=[WorkflowStatus.FAILED], limit=1) for _ in range(2))
    thread.join()
    count += passed(house, statuses=[WorkflowStatus.FAILED])
    assert set(there(house)) == retried
    assert count + len(retried) == len(runs)
    check(house.door)


# Nothing half done


def broken_before_each(house: House, act: Callable[[], object], rows: Callable[[], object]) -> int:
    """Makes the transaction again and again, broken before one statement after the other: nothing is left of it.

    Says how many statements it has.
    """

    class Broken(Exception):
        pass

    before, number = rows(), 0
    while True:
        left = [number]

        def hook(statement: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1 and statement != "COMMITTED":
                raise Broken(statement)

        house.door.on_statement = hook
        try:
            act()
        except Broken:
            house.door.on_statement = None
            assert rows() == before, f"statement {number}"
            number += 1
            continue
        finally:
            house.door.on_statement = None
        return number


def test_a_purge_that_breaks_off_anywhere_has_done_nothing(house: House) -> None:
    (run,) = completed(house)
    furnish(house, run)
    before = sum(owned_by(house, run).values())
    assert broken_before_each(house, lambda: purged(house), lambda: owned_by(house, run)) > 15
    assert (before > 15, sum(owned_by(house, run).values())) == (True, 0)


def test_a_part_of_a_long_run_that_breaks_off_is_deleted_by_the_next(house: House, long_run: int) -> None:
    broken_before_each(house, lambda: purged(house, limit=1), lambda: owned_by(house, long_run))
    purged(house, limit=1)
    broken_before_each(house, lambda: purged(house, limit=1), lambda: owned_by(house, long_run))
    assert passed(house, limit=1) == 0
    assert set(owned_by(house, long_run).values()) == {0}
