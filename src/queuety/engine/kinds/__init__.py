"""The kinds of steps, one file each; nothing outside a kind's file names it.

To add one, write `kinds/<name>.py`, name it in `_MODULES` below, put its test beside the others. It is a module with

- `NAME`: what `StepSpec.kind` holds;
- `task(spec, job, state)`: what a job of the step runs, with which arguments;
- `enter(run)`: the step has become current, or is entered again because the run goes on after a failure
  (`run.is_retry`: then `run.workflow.runtime` is what the visit had kept, and only what is missing may be asked for);
- `resume(run, event)`: something happened to the step in its present visit: a job of it succeeded, or failed for good
  (attempts that are repeated never get here), its timer fired, a message came. The run may be paused.

Both return a verdict: `Stay` with what to add (jobs, a timer) and what the visit keeps as its runtime, `Leave` with
what to merge, or `Fail`. What they must know beside the workflow they ask `engine/facts.py` for, when they need it: it
is read under the workflow's lock, and the decision is made anew. The rest belongs to the engine: closing the job, the
history row, the version, visit and status, `_next_step`, entering what follows. A kind may not keep
`{"entered": False}` as its runtime, and keeps a run that it is parked on under `child`. An event that means nothing to
it is answered with a `Stay` that keeps the runtime. `changes` must hold no key that starts with `_` (`output.split`).
"""

from __future__ import annotations

from typing import Final

from queuety.engine.kinds import (
    delay,
    for_each,
    parallel,
    repeat,
    run_workflow,
    single,
    start_workflows,
    wait_for_signal,
    wait_for_workflows,
)
from queuety.engine.protocol import Kind
from queuety.errors import DefinitionError
from queuety.model import StepSpec

_MODULES: Final[tuple[Kind, ...]] = (
    single,
    delay,
    parallel,
    for_each,
    repeat,
    start_workflows,
    run_workflow,
    wait_for_signal,
    wait_for_workflows,
)

KINDS: Final[dict[str, Kind]] = {module.NAME: module for module in _MODULES}


def kind_of(spec: StepSpec) -> Kind:
    """The kind of this step. Raises `DefinitionError` if this version of the package knows none of that name."""
    try:
        return KINDS[spec.kind]
    except KeyError:
        known = ", ".join(KINDS)
        raise DefinitionError(
            f"step {spec.name!r} is of kind {spec.kind!r}, which this version does not know; it knows {known}"
        ) from None
