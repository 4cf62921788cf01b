"""What the random courses have found, in its smallest form."""

from __future__ import annotations

from queuety import Queuety, WorkflowStatus, step


@step
def greet(_state: dict[str, object]) -> dict[str, object]:
    return {"greeted": True}


def test_a_run_waits_for_runs_that_are_started_in_the_same_transaction(memory_url: str) -> None:
    """Three runs come to be at once: two of the start step, and a child that waits for them as its first step."""
    with Queuety(memory_url) as app:
        greeter = app.workflow("greeter").then(greet)
        gather = app.workflow("gather").wait_for_workflows("ids", result_key="got")
        root = app.workflow("root").start_workflows("items", greeter, result_key="ids").run_workflow("gather", gather)
        run_id = root.dispatch({"items": [1, 2]})
        app.run_until_idle()
        status = app.workflow_status(run_id)
    assert status is not None
    assert status.status is WorkflowStatus.COMPLETED, status.error_message
    assert len(status.state["got"]) == 2
