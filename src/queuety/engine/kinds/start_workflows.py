"""`start_workflows`: a run of its own per item, all of them with the step or none; nobody waits for them here.

`settings` is `{"items_key", "result_key", "payload_key", "inherit_state": bool, "group"?}`, the definition is `child`.
A group without a name is kept under one that no user can give, `_step_<index>`.
"""

from __future__ import annotations

from typing import Final

from queuety.codec import encode
from queuety.engine import facts
from queuety.engine.items import check_started, items_at, no_items
from queuety.engine.jobs import no_task, nothing_held
from queuety.engine.protocol import Fail, Leave, Run, Stay, Verdict
from queuety.errors import DefinitionError
from queuety.model import Effect, ErrorInfo, ErrorKind, Event, Json, KeepGroup, StartRun, State

NAME: Final = "start_workflows"
task = no_task
held = nothing_held

LARGEST_COPIES: Final = 64 * 1024 * 1024
"""Characters that the state may take in all runs together that inherit it: they are written in one transaction.
2,000 runs with 100 KB each took 12.7 s; without it they took 0.5 s."""


def enter(run: Run) -> Verdict:
    """Start the runs, and leave with their ids in the order of the items."""
    settings, workflow, child = run.spec.settings, run.workflow, run.spec.child
    if child is None:
        raise DefinitionError(f"step {run.spec.name!r} of workflow {workflow.id} has no definition to start")
    key, result_key = settings["items_key"], settings["result_key"]
    items = items_at(workflow.state, key)
    if items is None:
        return no_items(run, key, ErrorKind.STEP_FAILED)
    check_started(run, len(items))
    ids = facts.ids(run, len(items))
    inherited: State = {}
    if settings["inherit_state"]:
        inherited = {name: value for name, value in workflow.state.items() if name not in (key, result_key)}
        size = len(items) * len(encode(inherited)) if items else 0
        if size > LARGEST_COPIES:
            return _too_much(run, len(items), size)
    effects: list[Effect] = [
        StartRun(started, child, _payload(inherited, item, index, settings["payload_key"]))
        for index, (started, item) in enumerate(zip(ids, items, strict=True))
    ]
    # Also where nobody has named it: as long as this run goes on, what it has started is kept for a wait by these ids.
    effects.append(KeepGroup(workflow.id, settings.get("group", f"_step_{workflow.current_step}"), ids))
    return Leave({result_key: list(ids)}, effects=tuple(effects))


def resume(run: Run, event: Event) -> Verdict:  # noqa: ARG001 - a kind's signature
    """Nothing happens to a step that is left as it is entered."""
    return Stay(runtime=run.workflow.runtime)


def _payload(inherited: State, item: Json, index: int, payload_key: str) -> dict[str, Json]:
    """A mapping's public keys are the payload, any other item stands under its key."""
    own = item if isinstance(item, dict) else {payload_key: item}
    public = {name: value for name, value in own.items() if not name.startswith("_")}
    return {**inherited, **public, "start_item_index": index}


def _too_much(run: Run, count: int, size: int) -> Fail:
    message = (
        f"step {run.spec.name!r} would give each of {count} workflows a copy of the state, {size} characters in all, "
        f"more than {LARGEST_COPIES}; start them with inherit_state=False and put what they need into the items"
    )
    return Fail(ErrorInfo(message, "queuety.errors:ConstraintViolation", kind=ErrorKind.CONSTRAINT_VIOLATION))
