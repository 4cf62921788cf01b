"""`repeat`: go back to an earlier step, or on, by a key of the state or by what a condition says.

`settings` is `{"until": bool, "target": step name, "state_key"?, "expected", "max_iterations"?}`: with `until` the run
goes back unless matched, without it (while) if matched. How often it went back stands in the workflow's `loops`.
"""

from __future__ import annotations

from typing import Final

from queuety.engine.jobs import nothing_held, step_job
from queuety.engine.matching import is_same
from queuety.engine.protocol import Fail, Leave, Run, Stay, Task, Verdict
from queuety.errors import DefinitionError
from queuety.model import AddJob, ErrorInfo, ErrorKind, Event, Failed, Job, State, StepSpec, Succeeded, Use

NAME: Final = "repeat"
held = nothing_held


def task(spec: StepSpec, job: Job, _state: State, /) -> Task:
    """The condition. Raises `DefinitionError` if the step has none, and so no jobs."""
    if spec.handler is None:
        raise DefinitionError(f"step {spec.name!r} has no condition; job {job.id} is not its own")
    return Task(spec.handler, spec.options, Use.CONDITION)


def enter(run: Run) -> Verdict:
    """Decide by the state, where a missing key counts as null, or ask the condition."""
    spec = run.spec
    if spec.handler is not None:
        return Stay((AddJob(step_job(run)),), {"asked": True})
    settings = spec.settings
    return _decided(run, matched=is_same(run.workflow.state.get(settings["state_key"]), settings.get("expected")))


def resume(run: Run, event: Event) -> Verdict:
    """Decide by what the condition said."""
    if isinstance(event, Succeeded):
        return _decided(run, matched=bool(event.output["_matched"]))
    if isinstance(event, Failed):
        return Fail(event.error)
    return Stay(runtime=run.workflow.runtime)


def _decided(run: Run, *, matched: bool) -> Verdict:
    settings, workflow = run.spec.settings, run.workflow
    if matched == settings["until"]:
        return Leave(jumps=0)
    jumps, most = (workflow.loops or {}).get(str(workflow.current_step), 0), settings.get("max_iterations")
    if most is not None and jumps >= most:
        kind = ErrorKind.CONSTRAINT_VIOLATION
        message = (
            f"step {run.spec.name!r} of workflow {workflow.id} would go back to step {settings['target']!r} once more, "
            f"but max_iterations={most}"
        )
        return Fail(ErrorInfo(message, kind.value, kind=kind))
    return Leave(control={"_next_step": settings["target"]}, jumps=jumps + 1)
