"""`then`: one job; what its handler returns is merged."""

from __future__ import annotations

from typing import Final

from queuety.engine.jobs import nothing_held, own_task, step_job
from queuety.engine.output import split
from queuety.engine.protocol import Fail, Leave, Run, Stay, Verdict
from queuety.model import AddJob, Event, Failed, Succeeded

NAME: Final = "single"
task = own_task
held = nothing_held


def enter(run: Run) -> Verdict:
    """Ask for the job."""
    return Stay((AddJob(step_job(run)),))


def resume(run: Run, event: Event) -> Verdict:
    """Leave with the output, or fail with the error of the last attempt."""
    if isinstance(event, Succeeded):
        changes, control = split(event.output)
        return Leave(changes, control)
    if isinstance(event, Failed):
        return Fail(event.error)
    return Stay(runtime=run.workflow.runtime)
