"""Queuety: durable workflows and jobs in the database that you already have.

Everything that a program may import is listed here, and nowhere else.
"""

from __future__ import annotations

from queuety import errors
from queuety.app.application import Queuety
from queuety.app.settings import Settings
from queuety.define.builder import workflow
from queuety.define.marks import Job, Step, bind, job, step
from queuety.errors import Fail, Retry
from queuety.inspect.states import JobState, WorkflowState
from queuety.model import JobStatus, Priority, WorkflowStatus
from queuety.worker.context import current

__version__ = "0.1.0"

__all__ = [
    "Fail",
    "Job",
    "JobState",
    "JobStatus",
    "Priority",
    "Queuety",
    "Retry",
    "Settings",
    "Step",
    "WorkflowState",
    "WorkflowStatus",
    "bind",
    "current",
    "errors",
    "job",
    "step",
    "workflow",
]
