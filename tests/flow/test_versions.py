"""Two versions of the package on one database: the older one leaves alone what only the newer one understands."""

from __future__ import annotations

from sqlalchemy import text

from queuety import JobStatus, Queuety, WorkflowStatus, step
from queuety.testing import ManualClock
from tests.support.databases import Database


@step
def note(state: dict[str, object]) -> dict[str, object]:
    return {"noted": True}


def rewrite_definitions(app: Queuety, old: str, new: str) -> None:
    """What a newer version would have written: a kind of step that this one does not know."""
    with app.door.engine.begin() as connection:
        connection.execute(
            text("UPDATE queuety_definitions SET body = REPLACE(body, :old, :new)"), {"old": old, "new": new}
        )


def test_a_timer_of_a_run_with_an_unknown_kind_is_left_for_a_newer_version(database: Database) -> None:
    clock = ManualClock()
    with Queuety(database.url, clock=clock) as newer:
        run = newer.workflow("future").delay(seconds=5).then(note).dispatch()
        rewrite_definitions(newer, '"type":"single"', '"type":"oracle"')
    clock.advance(seconds=6)
    with Queuety(database.url, clock=clock) as older:
        assert older.run_until_idle() == 0
        state = older.workflow_status(run)
        assert state is not None
        assert (state.status, state.current_step, state.error_message) == (WorkflowStatus.RUNNING, 0, None)
    with Queuety(database.url, clock=clock) as newer:
        rewrite_definitions(newer, '"type":"oracle"', '"type":"single"')
        clock.advance(seconds=30)
        assert newer.run_until_idle() == 1
        state = newer.workflow_status(run)
        assert state is not None
        assert (state.status, state.state) == (WorkflowStatus.COMPLETED, {"noted": True})


def test_a_step_of_a_run_with_an_unknown_kind_costs_no_attempt(database: Database) -> None:
    clock = ManualClock()
    with Queuety(database.url, clock=clock) as newer:
        run = newer.workflow("future").then(note).then(note).dispatch()
        rewrite_definitions(newer, '"type":"single"', '"type":"oracle"')
    with Queuety(database.url, clock=clock) as older:
        assert older.run_until_idle() == 0
        (job,) = older.list_jobs(workflow_id=run)
        assert (job.status, job.attempts) == (JobStatus.PENDING, 0)
        assert "oracle" in str(job.error_message)
    with Queuety(database.url, clock=clock) as newer:
        rewrite_definitions(newer, '"type":"oracle"', '"type":"single"')
        clock.advance(seconds=30)
        assert newer.run_until_idle() == 2
        assert newer.wait(run, timeout=0).status is WorkflowStatus.COMPLETED
