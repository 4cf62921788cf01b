"""What can be told at a glance: of a run, of an attempt, of an effect."""

from __future__ import annotations

from queuety.engine.protocol import Run
from queuety.model import AddJob, Effect, Failed, Job, Role, SetTimer, Succeeded, Workflow


def child_of(workflow: Workflow) -> int | None:
    """The run that this one has started and is parked on, or None."""
    child: int | None = workflow.runtime.get("child") if workflow.runtime else None
    return child


def done_by(attempt: Succeeded | Failed | None) -> Job | None:
    """The job that has completed with this attempt, or None."""
    return attempt.job if isinstance(attempt, Succeeded) else None


def is_open_work(effect: Effect) -> bool:
    """Whether it asks for something that would have to be taken back with the step."""
    return isinstance(effect, SetTimer) or (isinstance(effect, AddJob) and effect.job.role is Role.STEP)


def no_such_step(run: Run, name: object) -> str:
    """What is wrong with a `_next_step` that names none."""
    known = ", ".join(repr(spec.name) for spec in run.definition.steps)
    return (
        f"step {run.spec.name!r} of workflow {run.workflow.id} returned _next_step {_short(repr(name))}, "
        f"which is the name of no step; there are {_short(known)}"
    )


def _short(text: str) -> str:
    return text if len(text) <= 500 else text[:500] + " …"
