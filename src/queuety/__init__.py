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
from queuety.define.templates import WorkflowTemplate
from queuety.engine.migrating import Move, MoveVerdict
from queuety.errors import Fail, Retry
from queuety.inspect.artifacts import Artifact
from queuety.inspect.diff import DefinitionVersion, WorkflowDiff
from queuety.inspect.diff_runs import RunMove
from queuety.inspect.diff_steps import DefinitionChange, Difference, StepChange, StepFate
from queuety.inspect.events import TimelineEvent
from queuety.inspect.filters import WorkflowFilter
from queuety.inspect.logged import LogRow
from queuety.inspect.states import JobState, WorkflowState
from queuety.model import ErrorKind, ForEachMode, JobStatus, Priority, WaitMode, WorkflowStatus
from queuety.worker.context import current

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "BulkResult",
    "Compensation",
    "DefinitionChange",
    "DefinitionVersion",
    "Difference",
    "ErrorKind",
    "Fail",
    "ForEachHandler",
    "ForEachMode",
    "ForEachReducer",
    "Job",
    "JobState",
    "JobStatus",
    "LogRow",
    "Move",
    "MoveVerdict",
    "Priority",
    "Queuety",
    "RepeatCondition",
    "Retry",
    "RunMove",
    "Settings",
    "Step",
    "StepChange",
    "StepFate",
    "StreamingStep",
    "TimelineEvent",
    "WaitMode",
    "WorkflowDiff",
    "WorkflowFilter",
    "WorkflowState",
    "WorkflowStatus",
    "WorkflowTemplate",
    "bind",
    "current",
    "errors",
    "job",
    "step",
    "workflow",
]
