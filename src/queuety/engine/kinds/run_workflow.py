"""`run_workflow`: a run within the run; its public state is merged once it has completed.

The runtime is `{"child": id}`. Letters of the child are only a reason to look how it stands: they may overtake each
other.
"""

from __future__ import annotations

from typing import Final

from queuety.engine import facts
from queuety.engine.jobs import no_task, nothing_held
from queuety.engine.protocol import Fail, Leave, Run, Stay, Verdict
from queuety.engine.replay import delta
from queuety.errors import DefinitionError
from queuety.model import (
    ChildRevived,
    ChildSettled,
    Due,
    ErrorInfo,
    ErrorKind,
    Event,
    LetterKind,
    Send,
    StartRun,
    WorkflowStatus,
)
from queuety.model.needs import Standing

NAME: Final = "run_workflow"
task = no_task
held = nothing_held

_NEWS: Final = (ChildSettled, ChildRevived, Due)


def enter(run: Run) -> Verdict:
    """Start the child with the public state as its payload. After a failure never a second one beside a living one:

    one that goes on is waited for, one that has failed is asked to go on, and only one that cannot (it was cancelled,
    or its steps were undone) is replaced.
    """
    kept = run.workflow.runtime
    if kept is None:
        return _start(run)
    child: int = kept["child"]
    found = _standing(run, child)
    if found is None or found.status is WorkflowStatus.CANCELLED:
        return _start(run)
    if found.status is not WorkflowStatus.FAILED:
        return _by_standing(run, child, found)
    if found.is_compensated:
        return _start(run)
    return Stay((Send(child, LetterKind.RETRY, run.now_us, {"parent": run.workflow.id}),), kept)


def resume(run: Run, event: Event) -> Verdict:
    """Leave with the child's state, or fail as it did."""
    kept = run.workflow.runtime
    if kept is None or not isinstance(event, _NEWS):
        return Stay(runtime=kept)
    return _by_standing(run, kept["child"], _standing(run, kept["child"]))


def _start(run: Run) -> Stay:
    workflow, definition = run.workflow, run.spec.child
    if definition is None:
        raise DefinitionError(f"step {run.spec.name!r} of workflow {workflow.id} has no definition to run")
    (child,) = facts.ids(run, 1)
    started = StartRun(child, definition, dict(workflow.state), workflow.id, workflow.current_step)
    return Stay((started,), {"child": child})


def _standing(run: Run, child: int) -> Standing | None:
    return facts.standing(run, (child,)).get(child)


def _by_standing(run: Run, child: int, found: Standing | None) -> Verdict:
    """What follows from how the child stands. One that is not clean yet will write once more, when it is."""
    if found is None:
        return _fail(ErrorKind.CHILD_CANCELLED, f"child workflow {child} is not there any more")
    if found.status is WorkflowStatus.COMPLETED:
        # Only what differs: what the child was given and left as it was, it has not written.
        changed, _ = delta(run.workflow.state, facts.states(run, (child,))[child])
        return Leave(changed)
    after = None if found.is_clean else child
    if found.status is WorkflowStatus.FAILED:
        return _fail(ErrorKind.CHILD_FAILED, found.error_message or f"child workflow {child} failed", after)
    if found.status is WorkflowStatus.CANCELLED:
        return _fail(ErrorKind.CHILD_CANCELLED, f"child workflow {child} was cancelled", after)
    return Stay(runtime=run.workflow.runtime)


def _fail(kind: ErrorKind, message: str, after: int | None = None) -> Fail:
    return Fail(ErrorInfo(message, kind.value, kind=kind), after=after)
