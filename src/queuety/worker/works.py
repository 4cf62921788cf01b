"""What a claimed job needs to be run, put together from its row, its workflow and its definition."""

from __future__ import annotations

from dataclasses import dataclass

from queuety.engine.kinds import kind_of
from queuety.engine.protocol import Task
from queuety.engine.rounds import round_of
from queuety.model import (
    Definition,
    ErrorInfo,
    ErrorKind,
    Failed,
    HandlerRef,
    Job,
    Options,
    Role,
    Span,
    State,
    Use,
    Workflow,
)
from queuety.worker.outcome import Unhandled, Work

NO_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for every job here: the time limit of a handler that names none, the share by which a back-off may be
    lengthened, how long a job waits for somebody who knows its handler, and how large a value may be, encoded."""

    timeout_s: float | None = None
    jitter: float = 0.0
    handler_grace_us: int = 0
    max_value_bytes: int | None = None


def work_of(
    job: Job,
    workflow: Workflow | None,
    definition: Definition | None,
    defaults: Defaults,
    *,
    state: State | None = None,
    state_characters: int = 0,
) -> Work:
    """The work that this job is.

    A step's handler and options stand in the definition, any other job's in its own row. `state` is what the handler
    gets, the workflow's own unless given, and `state_characters` what that takes at most.
    """
    step_name, iteration = None, None
    if workflow is not None and definition is not None and job.role is Role.STEP and job.step_index is not None:
        spec = definition.steps[job.step_index]
        task, step_name = kind_of(spec).task(spec, job, workflow.state), spec.name
        iteration = round_of(definition, workflow.loops, job.step_index)
    else:
        use = Use.CLEANUP if job.role is Role.CLEANUP else Use.STEP
        task = Task(HandlerRef(job.handler, job.config), job.options or NO_OPTIONS, use)
        step_name = _undone_name(job, task.handler, definition)
    options = task.options
    return Work(
        job=job,
        ref=task.handler,
        state=_state_of(workflow) if state is None else state,
        step_name=step_name,
        workflow_name=workflow.name if workflow is not None else None,
        options=options,
        timeout_s=defaults.timeout_s if options.timeout_s is None else options.timeout_s,
        iteration=iteration,
        jitter=defaults.jitter,
        state_characters=state_characters,
        use=task.use,
        arguments=task.arguments,
        shared=task.shared,
    )


def _state_of(workflow: Workflow | None) -> State:
    return {} if workflow is None else workflow.state


def _undone_name(job: Job, handler: HandlerRef | None, definition: Definition | None) -> str | None:
    """The name of the step that a compensation undoes; None for what is none.

    If the run has moved to another definition meanwhile, the index is one of the earlier definition, which the handler
    tells.
    """
    if definition is None or job.step_index is None or not 0 <= job.step_index < len(definition.steps):
        return None
    spec = definition.steps[job.step_index]
    return spec.name if spec.compensation == handler else None


def stateless(job: Job, seq: int, *, now_us: int) -> Failed:
    """The final failure of a job that needs a state which is not to be had any more."""
    error = ErrorInfo(
        f"the state as of row {seq} of the history of workflow {job.workflow_id} is gone (its history was pruned), and "
        f"{job.handler} undoes what was done there; undo it by hand",
        "queuety.errors:SnapshotMissingError",
    )
    return Failed(job, error, Span(now_us, now_us, 0), is_final=True)


def handler_unknown(outcome: Unhandled, *, now_us: int, since_us: int) -> Failed:
    """The final failure of a job whose handler no worker has known for all its grace time."""
    waited_s = (now_us - since_us) / 1_000_000
    return Failed(
        job=outcome.job,
        error=ErrorInfo(
            message=f"{outcome.message} (no worker has known it for {waited_s:,.0f} s)",
            type_name="queuety.errors:HandlerNotFound",
            kind=ErrorKind.HANDLER_NOT_FOUND,
        ),
        span=Span(started_us=now_us, finished_us=now_us, owner=0),
        is_final=True,
    )


def orphaned(job: Job, *, now_us: int) -> Failed:
    """The final failure of a job whose workflow is not there any more."""
    error = ErrorInfo(f"workflow {job.workflow_id} of job {job.id} is gone", "queuety.errors:NotFoundError")
    return Failed(job, error, Span(now_us, now_us, 0), is_final=True)
