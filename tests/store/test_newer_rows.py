"""Rows of a newer version, in the middle of a rolling deploy: they wait for a worker that can read them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from sqlalchemy import insert, update

from queuety.store import leases
from queuety.worker.maintain import recover
from tests.support.databases import Database
from tests.support.hands import House, definition, new_job, pause_of, single, succeeded


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    with House(database.url) as made:
        yield made


def change(house: House, table: str, row_id: int, **values: object) -> None:
    found = getattr(house.door.tables, table)
    house.door.write(lambda tx: tx.connection.execute(update(found).where(found.c.id == row_id).values(**values)))


def newer(house: House) -> str:
    """The hash of a definition with a step of a kind that this version does not know."""
    body = {"name": "newer", "steps": [{"type": "tournament", "name": "one"}]}
    row = {"hash": "f" * 64, "name": "newer", "version": None, "body": json.dumps(body), "created_us": 0}
    house.door.write(lambda tx: tx.connection.execute(insert(tx.tables.definitions).values(**row)))
    return str(row["hash"])


def strange(house: House, what: str) -> dict[str, str]:
    """What a newer version may have written into a run's row."""
    return {"definition_hash": newer(house)} if what == "definition" else {"status": "musing"}


def test_an_ended_lease_of_a_job_that_cannot_be_read_keeps_no_other_from_recovery(house: House) -> None:
    strange, plain = house.add(new_job(), new_job())
    house.hand().claim(1)
    house.hand().claim(1)
    change(house, "jobs", strange, role="umpire")
    house.clock.advance(31)
    recover(house.door, house.definitions)
    assert house.row("jobs", id=plain)["phase"] == "delayed"
    assert house.row("jobs", id=strange)["role"] == "umpire"


def test_what_a_dead_process_held_and_cannot_be_read_is_left_to_its_lease(house: House) -> None:
    strange, plain = house.add(new_job(), new_job())
    dead = house.hand()
    assert len(dead.claim()) == 2
    change(house, "jobs", strange, role="umpire")
    held = house.door.read(lambda tx: leases.held_by(tx, dead.owner))
    assert [one.job.id for one in held] == [plain]
    assert not held[0].was_alone


@pytest.mark.parametrize("what", ["definition", "status"])
def test_a_step_of_a_run_that_cannot_be_read_waits_at_no_cost(house: House, what: str) -> None:
    run, other = house.dispatch(definition()), house.dispatch(definition())
    change(house, "workflows", run, **strange(house, what))
    hand = house.hand()
    made = hand.turn(slots=10)
    assert [work.job.workflow_id for work in made.works] == [other]
    hand.turn(*made.unprepared, *(succeeded(work.job) for work in made.works))
    job = house.row("jobs", workflow_id=run)
    assert (job["phase"], job["attempts"]) == ("delayed", 0)
    assert "this version of queuety cannot read" in job["error_message"]


@pytest.mark.parametrize("what", ["definition", "status"])
def test_a_timer_of_a_run_that_cannot_be_read_waits_and_holds_up_nobody(house: House, what: str) -> None:
    run, other = (house.dispatch(definition(pause_of(1), single("two"))) for _ in range(2))
    change(house, "workflows", run, **strange(house, what))
    before = house.row("workflows", id=run)
    house.clock.advance(2)
    house.hand().work()
    assert house.row("workflows", id=other)["status"] == "completed"
    assert house.row("workflows", id=run) == before
    (timer,) = house.rows("inbox", workflow_id=run)
    assert timer["due_us"] > house.clock.us
    change(
        house, "workflows", run, definition_hash=house.row("workflows", id=other)["definition_hash"], status="running"
    )
    house.clock.advance(16)
    house.hand().work()
    assert house.row("workflows", id=run)["status"] == "completed"


def test_a_job_whose_run_cannot_be_read_any_more_goes_back_for_a_newer_worker(house: House) -> None:
    run, other = house.dispatch(definition()), house.dispatch(definition())
    hand = house.hand()
    jobs = hand.claim()
    assert len(jobs) == 2
    change(house, "workflows", run, status="musing", version=7)
    made = hand.turn(*(succeeded(job) for job in jobs))
    assert house.row("workflows", id=other)["status"] == "completed"
    assert [one.job.workflow_id for one in made.settled] == [other]
    assert made.carried == []
    row = house.row("jobs", workflow_id=run)
    assert (row["phase"], row["attempts"], row["token"]) == ("delayed", 0, None)
    assert "newer version" in row["error_message"]
    assert house.row("workflows", id=run)["status"] == "musing"
