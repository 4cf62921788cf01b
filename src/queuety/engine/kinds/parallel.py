"""`parallel`: a job per branch, side by side; what each returns is merged as it comes.

The runtime counts: `{"total", "done", "since": version at entry}`, and `kept`, the branches that a retry found done.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from queuety.engine import facts
from queuety.engine.jobs import nothing_held, step_job
from queuety.engine.output import split, unsteered
from queuety.engine.protocol import Fail, Leave, Part, Run, Stay, Task, Verdict
from queuety.errors import DefinitionError
from queuety.model import AddJob, Entry, Event, Failed, Job, State, StepSpec, Succeeded

NAME: Final = "parallel"
held = nothing_held


def task(spec: StepSpec, job: Job, _state: State, /) -> Task:
    """The branch's own handler and options. Raises `DefinitionError` for a job of no branch."""
    if job.branch is None or job.branch >= len(spec.branches):
        raise DefinitionError(
            f"step {spec.name!r} has {len(spec.branches)} branches; job {job.id} belongs to none of them"
        )
    branch = spec.branches[job.branch]
    return Task(branch.handler, branch.options)


def enter(run: Run) -> Verdict:
    """Ask for a job per branch; after a failure, for those that have not completed in this visit."""
    total, kept = len(run.spec.branches), run.workflow.runtime
    if kept is None:
        runtime = {"total": total, "done": 0, "since": run.workflow.version}
        return Stay(_jobs(run, without=()), runtime)
    rows = facts.parts(run, after_seq=kept["since"])
    done = sorted({row.branch for row in rows if row.entry is Entry.BRANCH})
    if len(done) == total:
        return Leave()
    return Stay(_jobs(run, without=done), {**kept, "done": len(done), "kept": done})


def resume(run: Run, event: Event) -> Verdict:
    """Merge what a branch returned, and leave with the last one; fail with the first that fails for good.

    A branch cannot steer: its `_next_step` means nothing.
    """
    kept = run.workflow.runtime
    if isinstance(event, Failed):
        return Fail(event.error)
    if kept is None or not isinstance(event, Succeeded):
        return Stay(runtime=kept)
    changes, control = split(event.output)
    part = Part(Entry.BRANCH, changes, unsteered(control))
    done = kept["done"] + 1
    if done < kept["total"]:
        return Stay(runtime={**kept, "done": done}, part=part)
    return Leave(part=part)


def _jobs(run: Run, *, without: Collection[int]) -> tuple[AddJob, ...]:
    return tuple(
        AddJob(step_job(run, handler=branch.handler, branch=index, options=branch.options))
        for index, branch in enumerate(run.spec.branches)
        if index not in without
    )
