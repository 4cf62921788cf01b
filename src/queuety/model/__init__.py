"""The values that cross rooms: frozen, slotted, standard library only.

Times are integers: microseconds since the epoch, UTC, by the database's clock. A *run* is what the history speaks of:
a workflow, or a job without one. Workflows and jobs draw their ids from one sequence, so a run's id names one thing.
"""

from __future__ import annotations

from queuety.model.definitions import Definition, HandlerRef, Options, StepSpec
from queuety.model.effects import (
    AddJob,
    AppendHistory,
    BuryJob,
    DropWork,
    Effect,
    Entry,
    FinishJob,
    RetryJob,
    SaveWorkflow,
    SetTimer,
)
from queuety.model.events import (
    Cancel,
    Command,
    Commanded,
    Due,
    ErrorInfo,
    Event,
    Failed,
    Pause,
    Resume,
    RetryRun,
    Span,
    Succeeded,
)
from queuety.model.runs import Job, NewJob, Workflow
from queuety.model.words import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_QUEUE,
    CleanupStatus,
    ErrorKind,
    JobPhase,
    JobStatus,
    Json,
    Priority,
    Role,
    State,
    WorkflowStatus,
)

__all__ = [
    "DEFAULT_MAX_ATTEMPTS",
    "DEFAULT_QUEUE",
    "AddJob",
    "AppendHistory",
    "BuryJob",
    "Cancel",
    "CleanupStatus",
    "Command",
    "Commanded",
    "Definition",
    "DropWork",
    "Due",
    "Effect",
    "Entry",
    "ErrorInfo",
    "ErrorKind",
    "Event",
    "Failed",
    "FinishJob",
    "HandlerRef",
    "Job",
    "JobPhase",
    "JobStatus",
    "Json",
    "NewJob",
    "Options",
    "Pause",
    "Priority",
    "Resume",
    "RetryJob",
    "RetryRun",
    "Role",
    "SaveWorkflow",
    "SetTimer",
    "Span",
    "State",
    "StepSpec",
    "Succeeded",
    "Workflow",
    "WorkflowStatus",
]
