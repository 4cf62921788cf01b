"""The events of a run: what a row of the history says to people, with the states around it.

The history holds one row per attempt, written when the attempt has ended: its start is read from the same row. So an
attempt appears once it has ended; that one is under way, the job says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from queuety.codec import decode
from queuety.engine.items import items_at
from queuety.inspect.outline import FOR_EACH, HELD, PARALLEL, UNNAMED_KIND, JobOutline, Outline
from queuety.inspect.states import moment
from queuety.model import DEFAULT_MAX_ATTEMPTS, Entry, Json, Priority
from queuety.store.queries import Record


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One thing that happened to a run.

    `id` rises with every event of the run and never changes; with `workflow_id` it names the event. `event` is
    `step_started`, `step_completed` (without a `job_id` and with `attempt` None where a step settled by itself or
    somebody supplied its output), `step_failed`, `step_branch_completed`, `step_item_completed` (then the step's own
    `step_completed` follows, without a start), `step_skipped`, `workflow_waiting` (its output says for what),
    `signal_received` (name and payload), `workflow_resumed` (a wait, a delay or a child run is over, or somebody
    resumed a paused run: then there is no output), `workflow_paused`, `workflow_retried`, `workflow_cancelled`,
    `workflow_rewound`, `workflow_forked`, `workflow_replayed`, `workflow_patched`, `workflow_migrated`,
    `workflow_hurried`, or `cleanup_started`, `cleanup_completed`, `cleanup_failed` of a handler that ran after the end:
    with the step that it undoes, if it is one. `parent_event_id` of an attempt's end is its start. `attempt` counts
    from 1. `actor` and `reason` say who asked for it and why, as far as they did.

    `input` and `output` are what a handler noted by `current().trace(…)`, else what it was given (the state; an item's
    `{"state", "item", "item_index"}`; of other steps than single and parallel ones `{"state", "definition"}`) and what
    it returned. `context`, `artifacts` and `chunks` are noted too; a streaming step's chunks are all that it yielded.

    The states are public ones, folded when they are asked for. `state_before` of a start is what the attempt was given,
    of any other event the state just before it; `state_after` is None of starts, failures and cleanup, where nothing
    changes. `changed` and `removed` are what lies between the two. `input_delta`, of a start, is `{"changed",
    "removed"}`: what the attempt was given, compared with the one that is shown before it. All of it is None where its
    past was pruned. Events share values: copy what you change.

    `error` is `{"message", "class", "trace"}`. `worker` names the process that ran it, for display only. `created_at`
    is aware, in UTC.
    """

    id: int
    workflow_id: int
    event: str
    step_index: int | None
    step_name: str | None
    step_type: str | None
    handler: str | None
    queue: str | None
    job_id: int | None
    parent_event_id: int | None
    attempt: int | None
    input: Json
    output: dict[str, Json] | None
    state_before: dict[str, Json] | None
    state_after: dict[str, Json] | None
    changed: dict[str, Json] | None
    removed: list[str] | None
    input_delta: dict[str, Json] | None
    context: dict[str, Json] | None
    artifacts: Json
    chunks: Json
    error: dict[str, Json] | None
    error_message: str | None
    duration_ms: int | None
    created_at: datetime
    worker: int | None
    actor: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Around:
    """The states around a row: what its attempt was `given` and how that differs (`news`), and those before and after.

    The last three are None where they are not known.
    """

    given: dict[str, Json] | None = None
    before: dict[str, Json] | None = None
    after: dict[str, Json] | None = None
    news: dict[str, Json] | None = None


def events_of(row: Record, told: Told, around: Around) -> Sequence[TimelineEvent]:
    """The start and the end of an attempt, or the one thing that any other row tells of."""
    item = _item(row, told, around.given)
    end = _event(row, told, around, item)
    return [_event(row, told, around, item, is_start=True), end] if told.is_attempt else [end]


class Told:
    """What a row says, read once, and of which step: `outline` is the definition that the run had then."""

    def __init__(self, row: Record, outline: Outline) -> None:
        self.entry = Entry(row["entry"])
        self.control: Mapping[str, Any] = decode(row["control"]) if row["control"] else {}
        self.is_attempt = row["started_us"] is not None
        self.is_cleanup = is_cleanup(row)
        self.step = outline.step(row["step_index"])
        self.job = self._job(row, outline)
        trace = self.control.get("_queuety_trace")
        self.trace: Mapping[str, Any] = trace if isinstance(trace, dict) else {}

    @property
    def event(self) -> str:
        """What its end, or the row itself, is called."""
        if self.is_cleanup:
            return "cleanup_completed" if self.entry is Entry.CLEANED else "cleanup_failed"
        if self.entry is Entry.RESUMED and self.step is not None and self.step.kind not in HELD:
            return "step_completed"
        return _EVENTS[self.entry]

    @property
    def by(self) -> Mapping[str, Any]:
        """Who asked for it and why; only what nobody's handler has returned counts."""
        by = None if self.is_attempt else self.control.get("_by")
        return by if isinstance(by, dict) else {}

    def _job(self, row: Record, outline: Outline) -> JobOutline | None:
        if self.is_cleanup:
            return JobOutline(self._cleaner(outline), outline.queue, Priority.LOW, DEFAULT_MAX_ATTEMPTS)
        if self.step is None:
            return None
        return self.step.job(row["branch"]) if self.is_attempt else self.step.own

    def _cleaner(self, outline: Outline) -> str | None:
        """The handler that cleaned up: what undoes the step, or the run's own."""
        if self.step is not None:
            return self.step.undo
        cleanup = self.control.get("_cleanup")
        return outline.cleaning.get(cleanup.get("handler", "on_cancel") if isinstance(cleanup, dict) else "on_cancel")


def is_cleanup(row: Record) -> bool:
    """Whether it tells of cleaning up after the run's end, rather than of the run as it went on."""
    if row["entry"] in (Entry.CLEANED, Entry.UNCLEANED):
        return True
    return row["entry"] == Entry.FAILED and row["job_id"] is not None and row["step_index"] is None


def undone_at(row: Record) -> int | None:
    """The row whose step this one tells to have undone: the state as of it was given. None for anything else."""
    if row["entry"] not in (Entry.CLEANED, Entry.UNCLEANED) or row["control"] is None:
        return None
    cleanup = decode(row["control"]).get("_cleanup")
    seq = cleanup.get("seq") if isinstance(cleanup, dict) else None
    return seq if isinstance(seq, int) else None


_EVENTS: Final = {
    Entry.COMPLETED: "step_completed",
    Entry.BRANCH: "step_branch_completed",
    Entry.ITEM: "step_item_completed",
    Entry.FAILED: "step_failed",
    Entry.SKIPPED: "step_skipped",
    Entry.WAITING: "workflow_waiting",
    Entry.SIGNALLED: "signal_received",
    Entry.RESUMED: "workflow_resumed",
    Entry.PAUSED: "workflow_paused",
    Entry.CONTINUED: "workflow_resumed",
    Entry.RETRIED: "workflow_retried",
    Entry.CANCELLED: "workflow_cancelled",
    Entry.REWOUND: "workflow_rewound",
    Entry.PATCHED: "workflow_patched",
    Entry.HURRIED: "workflow_hurried",
    Entry.FORKED: "workflow_forked",
    Entry.MIGRATED: "workflow_migrated",
    Entry.REPLAYED: "workflow_replayed",
}

_OWN_OUTPUT: Final = {
    Entry.ITEM: "_output",
    Entry.WAITING: "_waiting",
    Entry.SIGNALLED: "_signal",
    Entry.REWOUND: "_rewound",
    Entry.FORKED: "_forked",
    Entry.MIGRATED: "_migrated",
    Entry.REPLAYED: "_replayed",
}
"""Under which control key a row's output stands that is not what was merged into the state."""

_KEPT: Final = frozenset({"_queuety_trace", "_chunks", "_output"})
"""Control keys of an attempt that are no part of what was returned: what a trace shows, and what the engine keeps."""

_ENGINES: Final = _KEPT | {"_by", "_used", "_groups", "_cleanup", *_OWN_OUTPUT.values()}
"""The same of a row that no attempt wrote."""

_WITH_INPUT: Final = frozenset({Entry.COMPLETED, Entry.BRANCH, Entry.ITEM, Entry.FAILED, Entry.WAITING, Entry.RESUMED})
"""Entries of a step that goes on with what it has, rather than of something that is done to a run."""

_WITHOUT_AFTER: Final = frozenset({Entry.FAILED, Entry.CLEANED, Entry.UNCLEANED})


def _event(
    row: Record, told: Told, around: Around, item: dict[str, Json] | None, *, is_start: bool = False
) -> TimelineEvent:
    step, job, is_attempt = told.step, told.job, told.is_attempt
    number = 2 * row["seq"]
    error = None if is_start else error_of(row)
    has_after = not is_start and told.entry not in _WITHOUT_AFTER
    changed, removed = _delta(row) if has_after else (None, None)
    before = around.given if is_start or told.is_cleanup else around.before
    start = "cleanup_started" if told.is_cleanup else "step_started"
    return TimelineEvent(
        id=number - 1 if is_start else number,
        workflow_id=row["run_id"],
        event=start if is_start else told.event,
        step_index=row["step_index"],
        step_name=step.name if step else None,
        step_type=step.kind if step else None,
        handler=job.handler if job else None,
        queue=job.queue if job and is_attempt else None,
        job_id=row["job_id"],
        parent_event_id=number - 1 if is_attempt and not is_start else None,
        attempt=row["attempt"],
        input=_input(told, around.given if is_attempt else around.before, item),
        output=None if is_start else output_of(row, told),
        state_before=before,
        state_after=around.after if has_after else None,
        changed=changed,
        removed=removed,
        input_delta=around.news if is_start else None,
        context={**(item or {}), **({} if is_start else told.trace.get("context") or {})} or None,
        artifacts=None if is_start else told.trace.get("artifacts"),
        chunks=None if is_start else _chunks(told),
        error=error,
        error_message=error["message"] if error else None,
        duration_ms=None if is_start else duration_ms(row),
        created_at=moment(row["started_us"] if is_start else row["at_us"]),
        worker=row["owner"],
        actor=told.by.get("actor"),
        reason=told.by.get("reason"),
    )


def output_of(row: Record, told: Told) -> dict[str, Json] | None:
    """What a handler noted or returned, a timer merged, or the row itself tells; None where there is nothing."""
    noted: dict[str, Json] | None = told.trace.get("output")
    if noted is not None:
        return noted
    own = _OWN_OUTPUT.get(told.entry)
    if own is not None:
        output: dict[str, Json] | None = told.control.get(own)
        return output
    if row["changed"] is None:
        return None
    changed: dict[str, Json] = decode(row["changed"])
    hidden = _KEPT if row["job_id"] is not None else _ENGINES
    return changed | {key: value for key, value in told.control.items() if key not in hidden}


def error_of(row: Record) -> dict[str, Json] | None:
    """Why an attempt or a run failed, as `message`, `class` and `trace`."""
    if row["error"] is None:
        return None
    stored: dict[str, Any] = decode(row["error"])
    return {"message": stored["message"], "class": stored["type"], "trace": stored["traceback"]}


def duration_ms(row: Record) -> int | None:
    """How long an attempt took."""
    return None if row["started_us"] is None else round((row["at_us"] - row["started_us"]) / 1000)


def _delta(row: Record) -> tuple[dict[str, Json] | None, list[str] | None]:
    changed = None if row["changed"] is None else decode(row["changed"])
    removed = decode(row["removed"]) if row["removed"] else None
    return changed, removed if removed or changed is None else []


def _input(told: Told, state: dict[str, Json] | None, item: dict[str, Json] | None) -> Json:
    """What a handler noted that it worked on, else what it was given."""
    if "input" in told.trace:
        return told.trace["input"]
    step = told.step
    if state is None or told.is_cleanup:
        return state
    if step is None or told.entry not in _WITH_INPUT:
        return None
    if item is not None:
        return {"state": state, **item}
    return state if step.kind in (UNNAMED_KIND, PARALLEL) else {"state": state, "definition": step.entry}


def _item(row: Record, told: Told, state: dict[str, Json] | None) -> dict[str, Json] | None:
    """Which item an attempt worked on, as a for-each step's own; None for anything else."""
    step, index = told.step, row["branch"]
    if state is None or step is None or step.kind != FOR_EACH or index is None:
        return None
    items = items_at(state, step.entry.get("items_key", "")) or ()
    return {"item": items[index] if index < len(items) else None, "item_index": index}


def _chunks(told: Told) -> Json:
    """What a handler noted of them, else all that a streaming step yielded."""
    return told.trace.get("chunks", told.control.get("_chunks"))
