"""What is left when rows or whole databases have gone away under a run."""

from __future__ import annotations

from typing import Any

from queuety import Queuety, step
from queuety.store.door import Tx
from tests.support.flowing import status_of

State = dict[str, Any]


@step
def fine(state: State) -> State:
    return {"fine": True}


def test_a_job_whose_run_is_gone_goes_too(app: Queuety) -> None:
    def forget(tx: Tx) -> None:
        tx.cursor.execute(f"DELETE FROM {tx.statements.workflows}")

    app.workflow("w").then(fine).dispatch()
    app.door.write(forget)
    app.run_until_idle()
    assert app.list_jobs() == []


def test_a_database_in_memory_that_was_closed_begins_anew(memory_url: str) -> None:
    app = Queuety(memory_url)
    builder = app.workflow("w").then(fine, name="only")
    builder.dispatch()
    app.close()
    run = builder.dispatch()
    assert status_of(app, run).current_step_name == "only"
    app.close()
