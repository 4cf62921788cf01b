"""Jobs: those that steps ask for, and what becomes of a plain one, which is a job without a workflow."""

from __future__ import annotations

from queuety.engine.protocol import Run, Task
from queuety.engine.retry import next_due_us
from queuety.errors import DefinitionError
from queuety.model import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_QUEUE,
    AppendHistory,
    BuryJob,
    Definition,
    Effect,
    Entry,
    Failed,
    FinishJob,
    HandlerRef,
    Job,
    NewJob,
    Options,
    Priority,
    RetryJob,
    Role,
    State,
    StepSpec,
    Succeeded,
)

_NO_OPTIONS = Options()


def step_job(
    run: Run, *, handler: HandlerRef | None = None, branch: int | None = None, options: Options | None = None
) -> NewJob:
    """A job for the run's step in its present visit; `handler` and `options` are the step's own unless given.

    The step's `delay_s` holds back the jobs of a visit, not those of a retry after a failure.
    """
    spec, workflow = run.spec, run.workflow
    handler = handler or spec.handler
    if handler is None:
        raise DefinitionError(f"step {spec.name!r} of workflow {workflow.id} has no handler; its kind needs one")
    options = options or spec.options
    delay_s = options.delay_s
    held_us = round(delay_s * 1_000_000) if delay_s and not run.is_retry else 0
    return _new_job(
        handler,
        run.definition,
        options,
        role=Role.STEP,
        due_us=run.now_us + held_us,
        workflow_id=workflow.id,
        step_index=workflow.current_step,
        visit=workflow.visit,
        branch=branch,
    )


def own_task(spec: StepSpec, job: Job, _state: State, /) -> Task:
    """What a job runs whose step has one handler, which gets the state."""
    return Task(spec.handler or HandlerRef(job.handler, job.config), spec.options)


def no_task(spec: StepSpec, job: Job, _state: State, /) -> Task:
    """What a job of a step would run that has none."""
    raise DefinitionError(
        f"step {spec.name!r} is of kind {spec.kind!r}, which has no jobs; job {job.id} is not its own"
    )


def nothing_held(_run: Run) -> frozenset[str]:
    """The keys that a step relies on while it is under way: none."""
    return frozenset()


def cleanup_job(
    handler: HandlerRef, definition: Definition, *, workflow_id: int, visit: int, now_us: int, payload: State
) -> NewJob:
    """A job that cleans up after a run has ended; it has the run's queue and its budget of attempts.

    `payload` says what it is for: `{"seq", "step"}` undoes the step that the history row has settled, with the state as
    of then; `{"handler"}` is the run's own of that name, with the present state.
    """
    return _new_job(
        handler,
        definition,
        _NO_OPTIONS,
        role=Role.CLEANUP,
        due_us=now_us,
        workflow_id=workflow_id,
        visit=visit,
        step_index=payload.get("step"),
        payload=payload,
    )


def _new_job(
    handler: HandlerRef,
    definition: Definition,
    options: Options,
    *,
    role: Role,
    due_us: int,
    workflow_id: int,
    visit: int,
    step_index: int | None = None,
    branch: int | None = None,
    payload: State | None = None,
) -> NewJob:
    priority = options.priority if options.priority is not None else definition.priority
    return NewJob(
        role=role,
        queue=options.queue or definition.queue or DEFAULT_QUEUE,
        priority=priority if priority is not None else Priority.LOW,
        handler=handler.name,
        max_attempts=options.max_attempts or definition.max_attempts or DEFAULT_MAX_ATTEMPTS,
        due_us=due_us,
        config=handler.config,
        payload=payload,
        workflow_id=workflow_id,
        step_index=step_index,
        visit=visit,
        branch=branch,
    )


def decide_job(event: Succeeded | Failed, *, now_us: int) -> list[Effect]:
    """What an attempt of a plain job leads to: the job closed or put back, and a row in the job's own history."""
    job = event.job
    seq = job.entries + 1
    trace = event.output.get("_queuety_trace") if isinstance(event, Succeeded) else event.trace
    noted = {"_queuety_trace": trace} if trace else None
    if isinstance(event, Succeeded):
        row = AppendHistory(job.id, seq, Entry.COMPLETED, now_us, job.token, job, event.span, control=noted)
        return [FinishJob(job, now_us), row]
    due_us = next_due_us(event, job.options.backoff if job.options else None, now_us=now_us)
    closed: Effect = BuryJob(job, event.error, now_us) if due_us is None else RetryJob(job, due_us, event.error, now_us)
    row = AppendHistory(
        job.id,
        seq,
        Entry.FAILED,
        now_us,
        job.token,
        job,
        event.span,
        control=noted,
        error=event.error,
        is_final=due_us is None,
    )
    return [closed, row]
