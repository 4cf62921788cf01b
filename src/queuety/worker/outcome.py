"""From a claimed job to what came of it: a pure step of the pipeline, after user code and before anything is written.

Every return and every raise becomes an `Outcome` here. Nothing in this module raises, whatever the user's objects do.
"""

from __future__ import annotations

import inspect
import random
from dataclasses import dataclass, field, replace
from typing import Final

from queuety.codec import checked_mapping, encode
from queuety.define.call import Plan
from queuety.define.options import gives_up
from queuety.errors import JobTimeout, PayloadError, Retry
from queuety.model import ErrorInfo, Failed, HandlerRef, Job, Json, Options, Role, Span, State, Succeeded, Use
from queuety.worker import faults, traces
from queuety.worker.traces import Trace

_LONGEST_RETRY_S: Final = 100 * 365.25 * 86_400
_NO_OPTIONS: Final = Options()
_SMALL_STATE: Final = 65_536
"""What a state of fewer characters adds to a result is not counted: that would cost every step."""
_BYTES_OF_CHARACTER: Final = 4


@dataclass(frozen=True, slots=True)
class Work:
    """A claimed job with all that running it takes.

    `ref` is the handler, None for the one in the job's row. `state` is the public state for steps and cleanup handlers
    (a plain job runs with `job.payload`); nobody may change it any more, handlers get copies. `state_characters` is
    what it takes as JSON, or somewhat more. `timeout_s` is the effective limit, None for none; of the options only
    `retry_on` and `give_up_on` are read. `iteration` counts the rounds of a repeat; `jitter` is the largest share by
    which a back-off may be lengthened.

    `use` is what a step's handler is called as and `arguments` what it gets beside the state, copied like that. Of the
    state, `shared` names a list that all jobs of the step read and none may change: it is not copied.
    """

    job: Job
    ref: HandlerRef | None = None
    state: State = field(default_factory=dict)
    options: Options = _NO_OPTIONS
    timeout_s: float | None = None
    step_name: str | None = None
    workflow_name: str | None = None
    iteration: int | None = None
    jitter: float = 0.0
    state_characters: int = 0
    use: Use = Use.STEP
    arguments: tuple[Json, ...] = ()
    shared: str | None = None


@dataclass(frozen=True, slots=True)
class Unhandled:
    """This process cannot resolve the handler: the job goes back at no cost, for one that can."""

    job: Job
    message: str


@dataclass(frozen=True, slots=True)
class Returned:
    """The job was never started and goes back at no cost."""

    job: Job


Outcome = Succeeded | Failed | Unhandled | Returned


def returned(
    work: Work,
    plan: Plan,
    value: object,
    span: Span,
    *,
    max_bytes: int,
    chunks: tuple[Json, ...] | None = None,
    trace: Trace | None = None,
) -> Outcome:
    """What a handler's return value means: a step's output, or a failed attempt if it is none.

    A condition's is `_matched`, true or false; a job's and a cleanup's is empty. `chunks` is what a streaming step has
    yielded, `trace` what the handler has noted: with what it returned of that, it stands in the output.
    """
    try:
        if value is not None and type(value) is not dict:
            _refuse_unrun(value)
        if work.use is Use.CONDITION and work.job.role is Role.STEP:
            output: dict[str, Json] = {"_matched": bool(value)}
        elif value is None:
            output = {}
        elif work.job.role is not Role.STEP:
            output = traces.only_trace(value, max_bytes=max_bytes)
        else:
            output = plan.output(value, max_bytes=max_bytes)
            _check_chunks(output)
            if work.state_characters > _SMALL_STATE and work.use is not Use.ITEM:
                _check_state(work, output, max_bytes)
        if trace is not None or traces.KEY in output:
            output = traces.traced(output, trace, max_bytes=max_bytes)
    except BaseException as exc:  # noqa: BLE001 - the value is the user's object, and reading it may raise anything
        return raised(work, exc, span, trace)
    return Succeeded(work.job, output, span, chunks)


def _check_chunks(output: State) -> None:
    """Raise if what stands for all that a streaming step has yielded is no list: it is read as one."""
    found = output.get("_chunks", [])
    if type(found) is not list:
        raise PayloadError(
            f"result._chunks must be a list, not of type {type(found).__name__}; it is kept for the chunks of a "
            "StreamingStep: give the key another name"
        )


def _check_state(work: Work, output: State, max_bytes: int) -> None:
    """Raise if the state would grow beyond what may be stored: on MySQL the snapshot would not pass to the server."""
    at_most = _BYTES_OF_CHARACTER * work.state_characters + len(encode(output).encode())
    if at_most > max_bytes:
        checked_mapping({**work.state, **output}, what="state with this result", max_bytes=max_bytes)


def _refuse_unrun(value: object) -> None:
    """Raise if the handler returned code instead of running it; a plain job would otherwise end without having run."""
    if inspect.iscoroutine(value):
        value.close()  # it would warn that nobody awaited it
    elif not (inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value)):
        return
    instead = "declare it `async def` and return its result"
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        instead = "return a result, or yield the chunks of a StreamingStep"
    raise PayloadError(f"the handler returned a {type(value).__name__}, which nobody runs; {instead}")


def raised(work: Work, exc: BaseException, span: Span, trace: Trace | None = None) -> Failed:
    """The failed attempt that an exception means, whatever it is; with what the handler had noted until then."""
    try:
        return Failed(
            job=work.job,
            error=faults.error_info(exc),
            span=span,
            is_final=not isinstance(exc, Retry) and gives_up(work.options, exc),
            retry_after_us=_retry_after_us(exc),
            jitter=random.random() * work.jitter,
            trace=None if trace is None else trace.noted,
        )
    except BaseException:  # noqa: BLE001 - out of memory or stack: the attempt must be settled all the same
        error = ErrorInfo("the handler failed, and its error could not be read", "builtins:BaseException")
        return Failed(work.job, error, span)


def timed_out(work: Work, span: Span, trace: Trace | None = None, *, note: str = "") -> Failed:
    """The failed attempt of a handler that ran longer than it may."""
    limit = "" if work.timeout_s is None else f" of {work.timeout_s:g} s"
    return raised(work, JobTimeout(f"{work.job.handler} ran longer than its time limit{limit}{note}"), span, trace)


def broken(outcome: Outcome, exc: Exception, *, now_us: int) -> Failed:
    """The failed attempt that an outcome becomes which the database does not take."""
    span = outcome.span if isinstance(outcome, Succeeded | Failed) else Span(now_us, now_us, 0)
    error = faults.error_info(exc)
    message = faults.storable(f"its result could not be stored: {error.message}", max_bytes=faults.MESSAGE_BYTES)
    return Failed(outcome.job, replace(error, message=message), span)


def _retry_after_us(exc: BaseException) -> int | None:
    if not isinstance(exc, Retry):
        return None
    return round(max(0.0, min(exc.after, _LONGEST_RETRY_S)) * 1_000_000)
