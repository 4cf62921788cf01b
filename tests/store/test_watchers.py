"""The backstop for lost wake-ups: who waits for a run that has ended, or is gone, and was not told."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from sqlalchemy import update

from queuety.model import Cancel, LetterKind, Watch
from queuety.store import letters, load, watchers
from queuety.store.load import Runs
from queuety.store.watchers import Swept
from queuety.worker import maintain
from tests.support.databases import Database
from tests.support.hands import House, definition, failed, succeeded


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants, which find the same."""
    with House(database.url) as made:
        yield made


def watch(house: House, *rows: tuple[int, int, int]) -> None:
    house.door.write(lambda tx: letters.send(tx, (), (), [Watch(*row) for row in rows]))


def sweep(house: House, after: tuple[int, int] | None = None, limit: int = 100) -> Swept:
    return house.door.write(lambda tx: watchers.stale_watchers(tx, after, limit, now_us=tx.now_us()))


def left(house: House) -> list[tuple[int, int]]:
    return [(row["workflow_id"], row["waiter_id"]) for row in house.rows("watchers")]


def test_who_waits_for_a_run_that_is_over_or_is_gone_is_told_and_the_others_are_not(house: House) -> None:
    """Who watches a failed run has been told so, and will be told again if it goes on."""
    going, done, cancelled, lost = house.dispatch_many(definition(), [{}, {}, {}, {}])
    hand = house.hand()
    jobs = {job.workflow_id: job for job in hand.claim()}
    hand.turn(succeeded(jobs[done]), failed(jobs[lost], is_final=True))
    house.steer(cancelled, Cancel())
    gone = 10**9
    watch(house, (going, 900, 1), (done, 900, 1), (done, 901, 2), (cancelled, 900, 3), (gone, 902, 4), (lost, 903, 5))
    assert sweep(house) == Swept(4, None)
    assert left(house) == [(going, 900), (lost, 903)]
    rows = house.rows("inbox")
    assert sorted((row["workflow_id"], row["visit"], row["body"]) for row in rows) == sorted(
        [
            (900, 1, f'{{"id":{done}}}'),
            (901, 2, f'{{"id":{done}}}'),
            (900, 3, f'{{"id":{cancelled}}}'),
            (902, 4, f'{{"id":{gone}}}'),
        ]
    )
    assert {(row["kind"], row["due_us"]) for row in rows} == {(LetterKind.SETTLED.value, house.clock.us)}
    assert sweep(house) == Swept(0, None)


def test_the_sweep_goes_on_where_it_stopped_and_looks_at_no_more_than_it_may(house: House) -> None:
    (going,) = house.dispatch_many(definition(), [{}])
    keys = [(going, waiter, 1) for waiter in range(900, 907)] + [(going + 1000, waiter, 1) for waiter in (900, 901)]
    watch(house, *keys)
    seen: list[tuple[int, int] | None] = []
    after: tuple[int, int] | None = None
    told = []
    while not seen or after is not None:
        swept = sweep(house, after, limit=3)
        after = swept.after
        seen.append(after)
        told.append(swept.told)
    assert seen == [(going, 902), (going, 905), (going + 1000, 901), None]
    assert told == [0, 0, 2, 0]
    assert left(house) == [key[:2] for key in keys[:7]]


def test_a_sweep_that_finds_nothing_costs_three_reads(house: House) -> None:
    (going,) = house.dispatch_many(definition(), [{}])
    watch(house, *((going, waiter, 1) for waiter in range(900, 950)))
    said: list[str] = []
    house.door.on_statement = said.append
    assert sweep(house) == Swept(0, None)
    house.door.on_statement = None
    ours = [text for text in said if "queuety_" in text]
    assert len(ours) == 3
    assert all(text.startswith("SELECT") for text in ours)


def test_a_run_that_somebody_has_locked_is_left_to_the_next_sweep(house: House) -> None:
    if house.door.dialect.writer_key() is not None:
        pytest.skip("whoever may write has locked everything")
    (run,) = house.dispatch_many(definition(), [{}])
    house.steer(run, Cancel())
    watch(house, (run, 900, 1))
    with House(house.url) as other, other.door.engine.connect() as theirs:
        with other.door.joined(theirs) as tx:
            load.lock(tx, Runs(), [run])
            assert sweep(house) == Swept(0, None)
        theirs.rollback()
    assert left(house) == [(run, 900)]
    assert sweep(house) == Swept(1, None)


def test_the_status_of_a_newer_version_is_no_end(house: House) -> None:
    (run,) = house.dispatch_many(definition(), [{}])
    table = house.door.tables.workflows
    house.door.write(lambda tx: tx.connection.execute(update(table).values(status="musing")))
    watch(house, (run, 900, 1))
    assert sweep(house) == Swept(0, None)
    assert left(house) == [(run, 900)]


def test_the_chore_sweeps_a_part_a_minute(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "SWEPT_AT_ONCE", 2)
    moment = [0.0]
    monkeypatch.setattr(maintain, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    chore = maintain.Sweep(house.door)
    watch(house, *((gone, 900, 1) for gone in (10**9, 10**9 + 1, 10**9 + 2)))
    found = []
    with house.door.line() as line:
        for moment[0] in (59.0, 60.0, 61.0, 120.0, 180.0):
            found.append(chore.sweep(line))
    assert found == [0, 2, 0, 1, 0]
    assert left(house) == []
