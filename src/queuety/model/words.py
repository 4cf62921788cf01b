"""The words that everything else is said in: statuses, priorities, kinds of error."""

from __future__ import annotations

from collections.abc import Mapping
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


class Use(StrEnum):
    """What a handler is called as: (state), an item's (state, item, index), a reducer's (state, results).

    A condition's return value counts as true or false, a cleanup's, called with (state), is ignored; every other
    handler returns a mapping to merge, or None.
    """

    STEP = "step"
    ITEM = "item"
    REDUCER = "reducer"
    CONDITION = "condition"
    CLEANUP = "cleanup"


class WaitMode(StrEnum):
    """How many of those that are waited for are needed."""

    ALL = "all"
    ANY = "any"
    QUORUM = "quorum"


class ForEachMode(StrEnum):
    """How many items must succeed."""

    ALL = "all"
    FIRST_SUCCESS = "first_success"
    QUORUM = "quorum"


class LetterKind(StrEnum):
    """What a letter in a run's inbox says. `timer` is the run's own, the others come from other runs.

    `subscribe`: tell the run `waiter`, for the letter's visit, when you have ended. `settled`: the run `id` that you
    wait for has ended. `child`: your child `id` has ended as `status`; `is_clean`: nothing of it is left to clean up.
    `revived`: your child `id` goes on after a failure. `cancel`, `retry`: your parent, the run `parent`, wants you to.
    `deadline`: the time that the run had is over.
    """

    TIMER = "timer"
    SUBSCRIBE = "subscribe"
    SETTLED = "settled"
    CHILD = "child"
    REVIVED = "revived"
    CANCEL = "cancel"
    RETRY = "retry"
    DEADLINE = "deadline"


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
