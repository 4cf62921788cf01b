"""A run waits for one that a newer version has put into a status which this version does not know."""

from __future__ import annotations

import pytest

from queuety import Queuety, WorkflowStatus, errors, step, workflow
from tests.support.databases import Database


@step
def nothing(state: dict[str, object]) -> None:
    """Does nothing."""


def _hibernate(app: Queuety, workflow_id: int) -> None:
    table = app.door.tables.workflows.name
    app.door.write(lambda tx: tx.cursor.execute(f"UPDATE {table} SET status = 'hibernating' WHERE id = {workflow_id}"))


def test_a_wait_for_a_run_that_cannot_be_read_fails_alone_and_may_be_retried(database: Database) -> None:
    with Queuety(database.url) as app:
        newer = app.workflow("newer").delay(hours=1).dispatch()
        bystander = app.workflow("bystander").then(nothing).dispatch()
        _hibernate(app, newer)
        waiter = workflow("waiter").then(nothing).wait_for_workflow(newer)
        waiting = app.dispatch_workflow(waiter)
        app.run_until_idle()
        state = app.workflow_status(waiting)
        assert state is not None
        assert state.status is WorkflowStatus.FAILED
        assert "retry the run when every worker has been upgraded" in (state.error_message or "")
        done = app.workflow_status(bystander)
        assert done is not None
        assert done.status is WorkflowStatus.COMPLETED
        table = app.door.tables.workflows.name
        app.door.write(lambda tx: tx.cursor.execute(f"UPDATE {table} SET status = 'completed' WHERE id = {newer}"))
        app.retry_workflow(waiting)
        again = app.workflow_status(waiting)
        assert again is not None
        assert again.status is WorkflowStatus.COMPLETED


def test_a_run_that_waits_at_once_for_one_that_cannot_be_read_is_not_started(database: Database) -> None:
    with Queuety(database.url) as app:
        newer = app.workflow("newer").delay(hours=1).dispatch()
        _hibernate(app, newer)
        with pytest.raises(errors.DefinitionError, match="every worker has been upgraded"):
            app.workflow("waiter").wait_for_workflow(newer).dispatch()
        assert [run.name for run in app.list_workflows(name="waiter")] == []
