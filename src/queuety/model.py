"""The values that cross rooms: frozen, slotted, standard library only.

Times are integers: microseconds since the epoch, UTC, by the database's clock. A *run* is what the history speaks of:
a workflow, or a job without one. Workflows and jobs draw their ids from one sequence, so a run's id names one thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Final

Json = Any
"""A value as JSON gives it back: None, bool, int, float, str, list and dict with string keys."""

State = Mapping[str, Json]

DEFAULT_QUEUE: Final = "default"
DEFAULT_MAX_ATTEMPTS: Final = 3


class Priority(IntEnum):
    """How urgent a job is; a higher one is claimed first."""

    LOW = 0
    NORMAL = 1
    HIGH = 2
    URGENT = 3


class WorkflowStatus(StrEnum):
    """What a workflow is doing, as people see it."""

    RUNNING = "running"
    PAUSED = "paused"
    WAITING_FOR_SIGNAL = "waiting_for_signal"
    WAITING_FOR_WORKFLOWS = "waiting_for_workflows"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """True once nothing but a command can change the run again."""
        return self in _TERMINAL


_TERMINAL: Final = frozenset({WorkflowStatus.COMPLETED, WorkflowStatus.FAILED, WorkflowStatus.CANCELLED})


class JobStatus(StrEnum):
    """What a job is doing, as people see it."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    BURIED = "buried"


class JobPhase(StrEnum):
    """Where a job's row stands. Finer than `JobStatus`: what may be claimed now has a phase of its own.

    `ready` may be claimed now, `delayed` once `wake_us` has passed, `suspect` only by a process that holds nothing else
    (it was in hand when a process died), `leased` is being run, until `wake_us` unless renewed.
    """

    READY = "ready"
    DELAYED = "delayed"
    SUSPECT = "suspect"
    LEASED = "leased"
    COMPLETED = "completed"
    BURIED = "buried"

    @property
    def status(self) -> JobStatus:
        """The status that people read."""
        return _STATUS_OF_PHASE[self]


_STATUS_OF_PHASE: Final = {
    JobPhase.READY: JobStatus.PENDING,
    JobPhase.DELAYED: JobStatus.PENDING,
    JobPhase.SUSPECT: JobStatus.PENDING,
    JobPhase.LEASED: JobStatus.PROCESSING,
    JobPhase.COMPLETED: JobStatus.COMPLETED,
    JobPhase.BURIED: JobStatus.BURIED,
}


class Role(StrEnum):
    """What a job runs: a plain job, a workflow's step, or a handler that cleans up after a workflow has ended."""

    JOB = "job"
    STEP = "step"
    CLEANUP = "cleanup"


class CleanupStatus(StrEnum):
    """How far the handlers are that clean up after a cancelled or failed run (`compensation_status`)."""

    NONE = "none"
    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"


class ErrorKind(StrEnum):
    """Why a workflow failed (`error_kind`)."""

    STEP_FAILED = "StepFailed"
    WAIT_UNSATISFIABLE = "WaitUnsatisfiable"
    FOR_EACH_UNSATISFIABLE = "ForEachUnsatisfiable"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    CHILD_FAILED = "ChildFailed"
    CHILD_CANCELLED = "ChildCancelled"
    CONSTRAINT_VIOLATION = "ConstraintViolation"
    DEFINITION_ERROR = "DefinitionError"
    HANDLER_NOT_FOUND = "HandlerNotFound"
    STALE_WORKER = "StaleWorker"
    WAIT_TIMEOUT = "WaitTimeout"


# What a user writes, as data


@dataclass(frozen=True, slots=True)
class HandlerRef:
    """A handler by name, with the configuration that `bind` gave it."""

    name: str
    config: State | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """How a handler's jobs are run; None means that the next level decides.

    The levels, first wins: the step's entry (or the dispatch call), the handler, the workflow, `Settings`.
    `backoff` is a name or exact seconds per failure; `retry_on` and `give_up_on` are `module:qualname` of exceptions.
    """

    queue: str | None = None
    priority: Priority | None = None
    max_attempts: int | None = None
    backoff: str | tuple[float, ...] | None = None
    timeout_s: float | None = None
    retry_on: tuple[str, ...] | None = None
    give_up_on: tuple[str, ...] | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step of a definition. `settings` holds what only the step's kind understands, as JSON."""

    kind: str
    name: str
    handler: HandlerRef | None = None
    options: Options = Options()
    settings: State = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definition:
    """What a workflow does, as data. Immutable; `hash` is 64 lowercase hex digits over its JSON form."""

    name: str
    steps: tuple[StepSpec, ...]
    queue: str | None = None
    priority: Priority | None = None
    max_attempts: int | None = None
    version: str | None = None
    on_cancel: HandlerRef | None = None
    hash: str = ""

    def step_index(self, name: object) -> int | None:
        """The 0-based index of the step with exactly this name, or None."""
        for index, spec in enumerate(self.steps):
            if spec.name == name:
                return index
        return None


# What the database holds


@dataclass(frozen=True, slots=True)
class Workflow:
    """A run as the engine sees it, its state decoded.

    `version` rises by one with every history entry. `visit` rises each time a step becomes current: results of an earlier
    visit are stale. `runtime` is what the current step's kind keeps for this visit (JSON, never shown to handlers).
    """

    id: int
    name: str
    definition_hash: str
    status: WorkflowStatus
    current_step: int
    total_steps: int
    visit: int
    version: int
    state: State
    created_us: int
    runtime: State | None = None
    transitions: int = 0
    parent_id: int | None = None
    parent_step: int | None = None
    idempotency_key: str | None = None
    error_message: str | None = None
    error_kind: ErrorKind | None = None
    failed_step: int | None = None
    cleanup: CleanupStatus = CleanupStatus.NONE
    completed_us: int | None = None
    failed_us: int | None = None
    cancelled_us: int | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be added. `payload` and `options` are for plain jobs; a step reads its definition."""

    role: Role
    queue: str
    priority: Priority
    handler: str
    max_attempts: int
    due_us: int
    payload: State | None = None
    config: State | None = None
    options: Options | None = None
    workflow_id: int | None = None
    step_index: int | None = None
    visit: int | None = None
    branch: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was claimed. `attempt` counts from 1 and includes this one; `token` fences every write of it.

    `entries` is how many history rows the job has already written (a job without a workflow counts its own).
    """

    id: int
    role: Role
    queue: str
    priority: Priority
    handler: str
    attempt: int
    max_attempts: int
    token: int
    due_us: int
    created_us: int
    payload: State | None = None
    config: State | None = None
    options: Options | None = None
    workflow_id: int | None = None
    step_index: int | None = None
    visit: int | None = None
    branch: int | None = None
    entries: int = 0
    unknown_since_us: int | None = None


# Events: what happens to a run


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """What went wrong in an attempt, already made safe to store: valid text of bounded length, whatever was raised."""

    message: str
    type_name: str
    traceback: str | None = None
    kind: ErrorKind = ErrorKind.STEP_FAILED


@dataclass(frozen=True, slots=True)
class Span:
    """When and by whom an attempt was run. `owner` names the process's incarnation, for display only."""

    started_us: int
    finished_us: int
    owner: int


@dataclass(frozen=True, slots=True)
class Succeeded:
    """A handler returned. `output` is checked JSON; its `_` keys are control values."""

    job: Job
    output: State
    span: Span


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt failed. `is_final`: no further attempt, whatever is left. `retry_after_us` is the handler's own wish.

    `jitter` is a random number in 0 … 1, drawn outside the engine.
    """

    job: Job
    error: ErrorInfo
    span: Span
    is_final: bool = False
    retry_after_us: int | None = None
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Due:
    """A timer has fired for the visit that set it."""

    visit: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Let what runs finish, start nothing new."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on after a pause."""


@dataclass(frozen=True, slots=True)
class RetryRun:
    """Go on after a failure, at the step that failed, with fresh attempts."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the run now."""


Command = Pause | Resume | RetryRun | Cancel


@dataclass(frozen=True, slots=True)
class Commanded:
    """Somebody asked for something. `operation` is made by the caller and unique: a repeated one is not done twice."""

    command: Command
    operation: int


Event = Succeeded | Failed | Due | Commanded


# Effects: what is to be written, all in the transaction that read the event


@dataclass(frozen=True, slots=True)
class SaveWorkflow:
    """Write the workflow's row as it is now. `was` is what the row holds; the difference is what is written."""

    workflow: Workflow
    was: Workflow


@dataclass(frozen=True, slots=True)
class FinishJob:
    """Close the job as completed, if it is still held by this token."""

    job: Job
    now_us: int


@dataclass(frozen=True, slots=True)
class BuryJob:
    """Close the job as failed for good, if it is still held by this token."""

    job: Job
    error: ErrorInfo
    now_us: int


@dataclass(frozen=True, slots=True)
class RetryJob:
    """Put the job back for another attempt at `due_us`, if it is still held by this token."""

    job: Job
    due_us: int
    error: ErrorInfo
    now_us: int


@dataclass(frozen=True, slots=True)
class AddJob:
    """Add a job; the store gives it its id."""

    job: NewJob


@dataclass(frozen=True, slots=True)
class DropWork:
    """Bury every open handler's job of the run with this message, and forget its timers (messages to it stay)."""

    workflow_id: int
    message: str
    now_us: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Have `Due(visit)` happen to the run at `due_us`."""

    workflow_id: int
    visit: int
    due_us: int


class Entry(StrEnum):
    """What a history row tells of."""

    COMPLETED = "completed"
    FAILED = "failed"
    RESUMED = "resumed"
    PAUSED = "paused"
    CONTINUED = "continued"
    RETRIED = "retried"
    CANCELLED = "cancelled"
    CLEANED = "cleaned"


@dataclass(frozen=True, slots=True)
class AppendHistory:
    """One row of the run's history; `seq` counts from 1 and equals the workflow's version after it.

    `changed` holds the keys that the boundary set in the public state and `removed` those that it took out (the
    delta: folding all deltas over the payload gives the state); `control` the `_` keys that the handler returned.
    `token` is the attempt's lease token, or the operation id of a command.
    """

    run_id: int
    seq: int
    entry: Entry
    at_us: int
    token: int
    job: Job | None = None
    span: Span | None = None
    step_index: int | None = None
    visit: int | None = None
    changed: State | None = None
    removed: tuple[str, ...] | None = None
    control: State | None = None
    error: ErrorInfo | None = None
    is_final: bool = False


Effect = SaveWorkflow | FinishJob | BuryJob | RetryJob | AddJob | DropWork | SetTimer | AppendHistory
