"""The end of a run that cannot be decided: its definition is missing or unreadable, or the engine itself has a fault.

Left as it is, such a run would be tried for ever and take others of its batch with it. It fails instead, visibly, and
may be retried once the cause is mended.
"""

from __future__ import annotations

from dataclasses import replace

from queuety.model import (
    AppendHistory,
    DropWork,
    Effect,
    Entry,
    ErrorInfo,
    SaveWorkflow,
    Workflow,
    WorkflowStatus,
)


def derailed(workflow: Workflow, error: ErrorInfo, *, now_us: int) -> list[Effect]:
    """Effects that fail the run and bury what it has open; none for a run that has ended."""
    if workflow.status.is_terminal:
        return []
    failed = replace(
        workflow,
        status=WorkflowStatus.FAILED,
        version=workflow.version + 1,
        error_message=error.message,
        error_kind=error.kind,
        failed_step=workflow.current_step,
        failed_us=now_us,
    )
    return [
        DropWork(workflow.id, error.message, now_us),
        AppendHistory(
            run_id=workflow.id,
            seq=failed.version,
            entry=Entry.FAILED,
            at_us=now_us,
            token=0,
            step_index=workflow.current_step,
            visit=workflow.visit,
            error=error,
            is_final=True,
        ),
        SaveWorkflow(failed, workflow),
    ]
