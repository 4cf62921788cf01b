"""How far a step is that runs several jobs, and what to do about one that has failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from queuety.inspect.outline import REPEAT, StepOutline
from queuety.inspect.waits import kept
from queuety.inspect.why import words
from queuety.inspect.why.look import Look, Why
from queuety.model import ErrorKind, JobPhase, Json, WorkflowStatus
from queuety.store.queries import Record, why, workflows

SHOWN: Final = 5
"""How many of the jobs that are left are named."""


def fan_out(look: Look, row: Record, name: str, jobs: Sequence[Record], because: Why) -> tuple[str, dict[str, Json]]:
    """What is said of it, and the details; `jobs` are the first that are left, `because` the answer for the first."""
    runtime = kept(row)
    total, done, failed = runtime["total"], runtime.get("done", 0), runtime.get("failed", 0)
    phases = why.phases(look.connection, look.tables, row["id"])
    running = phases.get(JobPhase.LEASED.value, 0)
    thing = "items" if "next" in runtime else "branches"
    lost = f" and {failed:,} failed" if failed else ""
    left = [{"branch": job["branch"], "job_id": job["id"], "status": JobPhase(job["phase"]).status} for job in jobs]
    named = words.listed([f"{job['branch']} (job {job['job_id']}, {job['status']})" for job in left])
    details: dict[str, Any] = {
        "total": total,
        "done": done,
        "failed": failed,
        "running": running,
        "open_jobs": sum(phases.values()),
        "left": left,
        "because": because.nested(),
    }
    left_are = "Left are, among others," if total - done - failed > len(left) else "Left:"
    run_now = "none is being run" if not running else f"{running:,} {'is' if running == 1 else 'are'} being run"
    done_are = f"{done:,} of {total:,} {thing} are done{lost}, {run_now}."
    return f"stands at step {name}: {done_are} {left_are} {named}. {because.answer}", details


_OF_CHILD: Final = frozenset({ErrorKind.CHILD_FAILED.value, ErrorKind.CHILD_CANCELLED.value})


def after_failure(look: Look, row: Record, step: StepOutline | None, child: int | None) -> str:
    """What a person can do about a run that has failed, at this step; `child` is the run that the step has run."""
    retry, kind = f"`queuety workflow retry {row['id']}`", row["error_kind"]
    if kind in _OF_CHILD and child is not None:
        standing = workflows.statuses(look.connection, look.tables, {child}).get(child)
        if standing == WorkflowStatus.FAILED:
            return f"`queuety workflow retry {child}` goes on in the child and then here, {retry} too."
        how = f"is {standing}" if standing else "is not there any more"
        return f"Its child {child} {how}; {retry} goes on with another one."
    if kind == ErrorKind.CONSTRAINT_VIOLATION and step is not None and step.kind == REPEAT:
        more = "start another run, of a definition that allows more rounds or with a payload that ends the loop"
        if step.own.handler is None:
            return f"A retry would ask the same state and fail again; {more}."
        return f"{retry} asks the condition once more, and fails again unless that now says otherwise; else {more}."
    if kind == ErrorKind.WAIT_UNSATISFIABLE:
        return f"{retry} looks anew, and fails again if all stands as it did; retry first the runs that have failed."
    if kind == ErrorKind.WAIT_TIMEOUT:
        return f"{retry} waits there anew, as long as the first time."
    return f"{retry} goes on there, with fresh attempts."
