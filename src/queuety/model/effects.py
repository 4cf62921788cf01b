"""What is to be written, all of it in the transaction that read the event."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from queuety.model.events import ErrorInfo, Span
from queuety.model.runs import Job, NewJob, Workflow
from queuety.model.words import State


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
