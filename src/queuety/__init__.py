"""Queuety: durable workflows and jobs in the database that you already have.

Everything that a program may import is listed here, and nowhere else.
"""

from __future__ import annotations

from queuety import errors
from queuety.app.application import Queuety
from queuety.app.results import BulkResult
from queuety.app.settings import Settings
from queuety.define.builder import workflow
from queuety.define.marks import (
    Compensation,
    ForEachHandler,
    ForEachReducer,
    Job,
    RepeatCondition,
    Step,
    StreamingStep,
    bind,
    job,
    step,
)
from queuety.errors import Fail, Retry
from queuety.inspect.filters import WorkflowFilter
from queuety.inspect.states import JobState, WorkflowState
from queuety.model import ForEachMode, JobStatus, Priority, WaitMode, WorkflowStatus
from queuety.worker.context import current

__version__ = "0.1.0"

__all__ = [
    "BulkResult",
    "Compensation",
    "Fail",
    "ForEachHandler",
    "ForEachMode",
    "ForEachReducer",
    "Job",
    "JobState",
    "JobStatus",
    "Priority",
    "Queuety",
    "RepeatCondition",
    "Retry",
    "Settings",
    "Step",
    "StreamingStep",
    "WaitMode",
    "WorkflowFilter",
    "WorkflowState",
    "WorkflowStatus",
    "bind",
    "current",
    "errors",
    "job",
    "step",
    "workflow",
]
