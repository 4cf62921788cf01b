"""What became of a run, in the words of those who only see it from outside."""

from __future__ import annotations

from queuety import JobStatus, Queuety, WorkflowState
from queuety.inspect.states import JobState
from tests.support.flowing import status_of

EVERYTHING = 1_000_000


def ended(app: Queuety, run: int) -> WorkflowState:
    """The run once nothing is due any more."""
    app.run_until_idle()
    return status_of(app, run)


def story(app: Queuety, run: int) -> list[str]:
    """Its events, oldest first, without the starts; each with the index of its step, if it has one."""
    events = [event for event in app.workflow_timeline(run, EVERYTHING) if not event.event.endswith("_started")]
    return [event.event if event.step_index is None else f"{event.event} {event.step_index}" for event in events]


def jobs_of(app: Queuety, run: int, status: JobStatus | None = None) -> list[JobState]:
    """Its jobs that are there, oldest first."""
    return sorted(app.list_jobs(workflow_id=run, status=status, limit=EVERYTHING), key=lambda job: job.id)
