"""`for_each`: a job per item; when enough have succeeded, what they returned stands in the state as one aggregate.

`settings` is `{"items_key", "result_key", "mode": "all|first_success|quorum", "quorum"?}`. The runtime only counts:
`{"total", "next": index of the next item to be given a job, "done", "failed", "since": version at entry}`, and
`retried`, the version at the last retry (failures before it are forgotten), and `reducing` while the reducer runs. What
the items returned is in the history, a row each, and is read once, when the step settles.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from queuety.engine import facts
from queuety.engine.items import check_items, items_at, no_items
from queuety.engine.jobs import step_job
from queuety.engine.output import split, unsteered
from queuety.engine.protocol import Fail, Leave, Part, Run, Stay, Task, Verdict
from queuety.errors import DefinitionError
from queuety.model import (
    AddJob,
    Due,
    Effect,
    Entry,
    ErrorInfo,
    ErrorKind,
    Event,
    Failed,
    ForEachMode,
    HandlerRef,
    Job,
    Json,
    SetTimer,
    State,
    StepSpec,
    Succeeded,
    Use,
)
from queuety.model.needs import PartRow

NAME: Final = "for_each"

ITEMS_AT_ONCE: Final = 1_000
"""Items that are given a job in one transaction; the rest follow in transactions of their own."""

LARGE: Final = 100
"""Above so many items the jobs share the list: a copy for each took two thirds of the time of a step with 500 items."""


@dataclass(frozen=True, slots=True)
class _Tally:
    """How the items have ended: a row each, by index, in the order in which they did."""

    succeeded: dict[int, PartRow]
    failed: dict[int, PartRow]


def task(spec: StepSpec, job: Job, state: State, /) -> Task:
    """The handler with its item and index; without a branch, the reducer with the aggregate."""
    settings = spec.settings
    if job.branch is None:
        return Task(_reducer(spec), spec.options, Use.REDUCER, (state[settings["result_key"]],))
    if spec.handler is None:
        raise DefinitionError(f"step {spec.name!r} has no handler for its items")
    key = settings["items_key"]
    items = items_at(state, key) or ()
    # The values of a mapping are a list of our own; what the handler reads in the state is the mapping, a copy.
    shared = key if len(items) > LARGE and isinstance(state.get(key), list) else None
    return Task(spec.handler, spec.options, Use.ITEM, (items[job.branch], job.branch), shared)


def enter(run: Run) -> Verdict:
    """Give the first items a job, or settle at once. After a failure only items that have not succeeded are run again.

    Once the items are settled and the reducer has failed, it alone is.
    """
    kept, spec = run.workflow.runtime, run.spec
    if kept is not None and kept.get("reducing"):
        return Stay((_reducer_job(run),), kept)
    items = items_at(run.workflow.state, spec.settings["items_key"])
    if items is None:
        return no_items(run, spec.settings["items_key"], ErrorKind.FOR_EACH_UNSATISFIABLE)
    if kept is not None:
        return _again(run, kept, items)
    total = len(items)
    check_items(run, total)
    if _needed(spec, total) > total:
        return _unsatisfiable(run, total, "so it cannot be settled")
    fresh = {"total": total, "next": 0, "done": 0, "failed": 0, "since": run.workflow.version}
    return _go_on(run, fresh, without=()) if total else _settle(run, fresh, items, _Tally({}, {}))


def resume(run: Run, event: Event) -> Verdict:
    """Count what has become of an item, and settle or fail as soon as that is certain; the timer brings more items."""
    kept = run.workflow.runtime
    if kept is None:
        return Stay()
    if isinstance(event, (Succeeded, Failed)):
        if event.job.branch is None:
            return Leave(*split(event.output)) if isinstance(event, Succeeded) else Fail(event.error)
        if kept.get("reducing"):
            return Stay(runtime=kept, part=Part(Entry.NOTED))
        return _count_success(run, kept, event) if isinstance(event, Succeeded) else _count_failure(run, kept, event)
    if isinstance(event, Due) and kept["next"] < kept["total"] and not kept.get("reducing"):
        if "retried" not in kept:
            return _go_on(run, kept, without=())
        return _go_on(replace(run, is_retry=True), kept, without=_tally(run, kept).succeeded)
    return Stay(runtime=kept)


def held(run: Run, /) -> frozenset[str]:
    """The list: its items go by their index. While the reducer runs, the aggregate too."""
    settings, kept = run.spec.settings, run.workflow.runtime or {}
    return frozenset({settings["items_key"], *((settings["result_key"],) if kept.get("reducing") else ())})


def _count_success(run: Run, kept: State, event: Succeeded) -> Verdict:
    done, part = kept["done"] + 1, _part(event)
    if done >= _needed(run.spec, kept["total"]):
        # The counters say when to look, the rows what is so: an item counts once, however often it is told of.
        tally = _tally(run, kept, event)
        done = len(tally.succeeded)
        if done >= _needed(run.spec, kept["total"]):
            items = items_at(run.workflow.state, run.spec.settings["items_key"]) or ()
            return _settle(run, {**kept, "done": done}, items, tally, part)
    return Stay(runtime={**kept, "done": done}, part=part)


def _count_failure(run: Run, kept: State, event: Failed) -> Verdict:
    total, failed = kept["total"], kept["failed"] + 1
    if run.spec.settings["mode"] == ForEachMode.ALL:
        return Fail(event.error)
    if total - failed < _needed(run.spec, total):
        return _unsatisfiable(run, total, f"and {failed} failed, the last one with: {event.error.message}")
    return Stay(runtime={**kept, "failed": failed})


def _again(run: Run, kept: State, items: Sequence[Json]) -> Verdict:
    """Go on after a failure: what has succeeded is kept, what has failed forgotten."""
    forgetting = {**kept, "next": 0, "failed": 0, "retried": run.workflow.version}
    tally = _tally(run, forgetting)
    forgetting["done"] = len(tally.succeeded)
    if forgetting["done"] >= _needed(run.spec, forgetting["total"]):
        return _settle(run, forgetting, items, tally)
    return _go_on(run, forgetting, without=tally.succeeded)


def _go_on(run: Run, kept: State, *, without: Collection[int]) -> Stay:
    """Give the next items a job, and set a timer for those after them."""
    total = kept["total"]
    waiting = (index for index in range(kept["next"], total) if index not in without)
    chosen = list(islice(waiting, ITEMS_AT_ONCE))
    following = chosen[-1] + 1 if len(chosen) == ITEMS_AT_ONCE else total
    effects: list[Effect] = [AddJob(step_job(run, branch=index)) for index in chosen]
    if following < total:
        effects.append(SetTimer(run.workflow.id, run.workflow.visit, run.now_us))
    return Stay(tuple(effects), {**kept, "next": following})


def _settle(run: Run, kept: State, items: Sequence[Json], tally: _Tally, part: Part | None = None) -> Verdict:
    """Leave with the aggregate; if there is a reducer, it is given the aggregate as part of the state first."""
    name, total = run.spec.name, kept["total"]
    is_open = len(tally.succeeded) + len(tally.failed) < total
    superseded = f"superseded: step {name!r} is settled without this item" if is_open else None
    changes = {run.spec.settings["result_key"]: _aggregate(run.spec, items, tally)}
    if run.spec.reducer is None:
        return Leave(changes, part=part, supersedes=superseded)
    merged = Part(Entry.NOTED, changes) if part is None else replace(part, changes=changes)
    return Stay((_reducer_job(run),), {**kept, "reducing": True}, part=merged, supersedes=superseded)


def _aggregate(spec: StepSpec, items: Sequence[Json], tally: _Tally) -> dict[str, Json]:
    results = {
        index: {"index": index, "item": items[index], "output": row.output or {}, "job_id": row.job_id}
        for index, row in sorted(tally.succeeded.items())
    }
    failures = [
        {"index": index, "item": items[index], "error_message": row.error, "job_id": row.job_id}
        for index, row in sorted(tally.failed.items())
    ]
    first = next(iter(tally.succeeded), None)
    return {
        "mode": spec.settings["mode"],
        "quorum": spec.settings.get("quorum"),
        "total": len(items),
        "succeeded": len(results),
        "failed": len(failures),
        "settled": True,
        "winner": None if first is None else results[first],
        "results": list(results.values()),
        "failures": failures,
    }


def _tally(run: Run, kept: State, event: Succeeded | None = None) -> _Tally:
    """How the items have ended in this visit, the present success with them; failures since the last retry only."""
    rows = facts.parts(run, after_seq=kept["since"])
    if event is not None and event.job.branch is not None:
        output, _ = split(event.output)
        rows.append(PartRow(run.workflow.version + 1, Entry.ITEM, event.job.branch, event.job.id, output))
    succeeded: dict[int, PartRow] = {}
    failed: dict[int, PartRow] = {}
    for row in rows:
        if row.entry is Entry.ITEM:
            succeeded.setdefault(row.branch, row)
        elif row.seq > kept.get("retried", 0):
            failed[row.branch] = row
    return _Tally(succeeded, failed)


def _part(event: Succeeded) -> Part:
    output, control = split(event.output)
    return Part(Entry.ITEM, control={**(unsteered(control) or {}), "_output": output})


def _needed(spec: StepSpec, total: int) -> int:
    """How many items must succeed."""
    mode = spec.settings["mode"]
    if mode == ForEachMode.ALL:
        return total
    quorum: int = spec.settings["quorum"] if mode == ForEachMode.QUORUM else 1
    return quorum


def _unsatisfiable(run: Run, total: int, why: str) -> Fail:
    kind, needed = ErrorKind.FOR_EACH_UNSATISFIABLE, _needed(run.spec, total)
    message = f"step {run.spec.name!r} needs {needed} of its items to succeed; it has {total}, {why}"
    return Fail(ErrorInfo(message, kind.value, kind=kind))


def _reducer(spec: StepSpec) -> HandlerRef:
    if spec.reducer is None:
        raise DefinitionError(f"step {spec.name!r} has no reducer")
    return spec.reducer


def _reducer_job(run: Run) -> AddJob:
    """The reducer's job; the step's delay has held back the items, and does not hold it back once more."""
    return AddJob(step_job(run, handler=_reducer(run.spec), options=replace(run.spec.options, delay_s=None)))
