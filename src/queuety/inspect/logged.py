"""The lines of the log that a row tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from queuety.codec import decode
from queuety.inspect.course import Eras
from queuety.inspect.events import Told, duration_ms, undone_at
from queuety.inspect.outline import FOR_EACH, Outline
from queuety.inspect.states import moment
from queuety.model import Entry, ErrorKind, ForEachMode, Json, WorkflowStatus
from queuety.store.queries import Record


@dataclass(frozen=True, slots=True)
class LogRow:
    """One line of the log.

    `id` is a text that names it and never changes. `event` is, of a handler's attempt, `started`, then `completed`, or
    `failed` with `retried`, or `buried` if no attempt follows; of a run `workflow_started`, `workflow_completed` (while
    it is), `workflow_failed`, `workflow_deadline_exceeded` (it fails then), `workflow_paused`, `workflow_resumed` (also
    by a retry), `workflow_cancelled`, `workflow_rewound`, `workflow_forked`, `workflow_replayed`, `workflow_patched`,
    `workflow_migrated`, `workflow_hurried`, `step_skipped`, `step_completed` (by hand).

    `handler`, `queue`, `job_id` and `attempt` are those of an attempt; of a plain job that was deleted nobody knows the
    first two. `context` says what is particular to the event: `branch` of one of several jobs of a step; `actor` and
    `reason`, as far as somebody gave them; `name` of a run that begins or ends; `error_kind` of one that failed;
    `rewound_to_step`, `forked_workflow_id`, `forked_from_workflow_id`, and what the timeline tells of a migration or a
    replay. `error_class` is a class by its qualified name. `created_at` is when it happened, aware, in UTC.
    """

    id: str
    event: str
    handler: str | None
    queue: str | None
    job_id: int | None
    workflow_id: int | None
    step_index: int | None
    attempt: int | None
    duration_ms: int | None
    error_message: str | None
    error_class: str | None
    context: dict[str, Json] | None
    created_at: datetime


_ATTEMPTS: Final = (Entry.COMPLETED, Entry.BRANCH, Entry.ITEM, Entry.CLEANED)
_FAILURES: Final = (Entry.FAILED, Entry.UNCLEANED)

_COMMANDS: Final = {
    Entry.PAUSED: "workflow_paused",
    Entry.CONTINUED: "workflow_resumed",
    Entry.RETRIED: "workflow_resumed",
    Entry.CANCELLED: "workflow_cancelled",
    Entry.REWOUND: "workflow_rewound",
    Entry.FORKED: "workflow_forked",
    Entry.REPLAYED: "workflow_replayed",
    Entry.PATCHED: "workflow_patched",
    Entry.MIGRATED: "workflow_migrated",
    Entry.HURRIED: "workflow_hurried",
    Entry.SKIPPED: "step_skipped",
}

_ENTRIES: Final[Mapping[str, tuple[Entry, ...]]] = {
    "started": (*_ATTEMPTS, *_FAILURES),
    "completed": _ATTEMPTS,
    "failed": _FAILURES,
    "retried": _FAILURES,
    "buried": _FAILURES,
    "workflow_started": (),
    "workflow_completed": (),
    "workflow_failed": (Entry.FAILED,),
    "workflow_deadline_exceeded": (Entry.FAILED,),
    "step_completed": (Entry.COMPLETED,),
    **{event: tuple(entry for entry, name in _COMMANDS.items() if name == event) for event in _COMMANDS.values()},
}

EVENTS: Final = tuple(_ENTRIES)
"""All that a line may tell."""


def entries_of(event: str | None, *, of_handlers: bool = False) -> tuple[Entry, ...]:
    """The entries of the history that tell of this event, of any without one; none if it is read elsewhere.

    With `of_handlers` only of what handlers do. What changes a run's definition is among them: a reader has to pass it
    to know what came before.
    """
    if of_handlers:
        entries = (*_ATTEMPTS, *_FAILURES) if event is None else _ENTRIES[event]
        entries = tuple(entry for entry in entries if entry in (*_ATTEMPTS, *_FAILURES))
    elif event is None:
        entries = (*_ATTEMPTS, *_FAILURES, *_COMMANDS, Entry.RESUMED)
    else:
        entries = _ENTRIES[event]
    return tuple({*entries, Entry.MIGRATED}) if entries else ()


def started_line(run: Record) -> LogRow:
    """A run was started."""
    parent = {} if run["parent_id"] is None else {"parent_workflow_id": run["parent_id"]}
    return _whole(run, "workflow_started", run["created_us"], context={"name": run["name"], **parent})


def completed_line(run: Record) -> LogRow:
    """A run is completed, so long after it was started."""
    took_ms = round((run["completed_us"] - run["created_us"]) / 1000)
    return _whole(run, "workflow_completed", run["completed_us"], duration_ms=took_ms, context={"name": run["name"]})


def lines_of(
    row: Record,
    eras: Eras,
    run: Record | None,
    job: tuple[str | None, str | None] | None,
    handler: str | None = None,
) -> list[LogRow]:
    """What a row of the history tells, in order: of this run, or of a job without one, its handler and its queue.

    With a `handler` nothing, if it tells of another one's attempt.
    """
    undone = undone_at(row)
    outline = Outline() if job is not None else eras.outline(row["run_id"], row["seq"] if undone is None else undone)
    told = Told(row, outline)
    by, queue = job or ((told.job.handler, told.job.queue) if told.job else (None, None))
    if handler is not None and by != handler:
        return []
    if not told.is_attempt:
        lines = _of_itself(row, told)
    else:
        common: dict[str, Any] = {
            "handler": by,
            "queue": queue,
            "job_id": row["job_id"],
            "workflow_id": None if job is not None else row["run_id"],
            "step_index": row["step_index"],
            "attempt": row["attempt"],
            "context": None if row["branch"] is None else {"branch": row["branch"]},
        }
        lines = _attempt(row, common)
        if row["final"] and run is not None and _fails_run(row, told):
            lines += _failure(row)
    return [*lines, completed_line(run)] if run is not None and _completes(row, run) else lines


def _completes(row: Record, run: Record) -> bool:
    """Whether this row tells of the end of a run that is completed: it settled the last visit that there was.

    Or the run went back behind its last step, which is a visit of its own and settles nothing.
    """
    if run["status"] != WorkflowStatus.COMPLETED:
        return False
    entry = Entry(row["entry"])
    if entry is Entry.REWOUND:
        return bool(row["visit"] == run["visit"] - 1)
    return entry.settles and bool(row["visit"] == run["visit"])


def _of_itself(row: Record, told: Told) -> list[LogRow]:
    """What is told by a row that no attempt has written."""
    if told.entry is Entry.FAILED:
        return _failure(row)
    event = _COMMANDS.get(told.entry)
    if told.entry is Entry.COMPLETED and "_by" in told.control:
        event = "step_completed"
    return [] if event is None else [_of_run(row, event, {**told.by, **_particulars(told)})]


def _attempt(row: Record, common: Mapping[str, Any]) -> list[LogRow]:
    """What an attempt tells of itself; `common` is what its lines have in common."""
    started = _line(_id(row, "started"), "started", row["started_us"], **common)
    took_ms, at_us = duration_ms(row), row["at_us"]
    if row["entry"] not in _FAILURES:
        return [started, _line(_id(row, "completed"), "completed", at_us, duration_ms=took_ms, **common)]
    event = "buried" if row["final"] else "failed"
    ended = _line(_id(row, event), event, at_us, duration_ms=took_ms, **_error(row), **common)
    if row["final"]:
        return [started, ended]
    return [started, ended, _line(_id(row, "retried"), "retried", at_us, **common)]


def _fails_run(row: Record, told: Told) -> bool:
    """Whether the last attempt of this job was the end of its run: not where a step can do without it."""
    if told.is_cleanup or told.entry is not Entry.FAILED:
        return False
    step = told.step
    if row["branch"] is None or step is None or step.kind != FOR_EACH:
        return True
    mode: str = step.entry.get("mode", ForEachMode.ALL)
    return mode == ForEachMode.ALL


def _failure(row: Record) -> list[LogRow]:
    """The end of a run that has failed."""
    kind = decode(row["error"]).get("kind") if row["error"] else None
    failed = _of_run(row, "workflow_failed", {"error_kind": kind}, **_error(row))
    if kind != ErrorKind.DEADLINE_EXCEEDED:
        return [failed]
    return [_of_run(row, "workflow_deadline_exceeded", {}), failed]


def _particulars(told: Told) -> dict[str, Json]:
    """What a command has to say beside who wanted it."""
    control = told.control
    if told.entry is Entry.REWOUND:
        return {"rewound_to_step": control.get("_rewound", {}).get("to_step")}
    if told.entry is Entry.FORKED:
        names = {"to": "forked_workflow_id", "from": "forked_from_workflow_id"}
        return {names[key]: id_ for key, id_ in control.get("_forked", {}).items() if key in names}
    if told.entry is Entry.MIGRATED or told.entry is Entry.REPLAYED:
        return dict(control.get(f"_{told.entry}", {}))
    return {}


def _error(row: Record) -> dict[str, Any]:
    if row["error"] is None:
        return {}
    stored: dict[str, Any] = decode(row["error"])
    return {"error_message": stored["message"], "error_class": stored["type"]}


def _of_run(row: Record, event: str, context: Mapping[str, Json], **more: Any) -> LogRow:
    said = {key: value for key, value in context.items() if value is not None} or None
    own: dict[str, Any] = {"workflow_id": row["run_id"], "step_index": row["step_index"], "context": said}
    return _line(_id(row, event), event, row["at_us"], **own, **more)


def _whole(run: Record, event: str, at_us: int, **more: Any) -> LogRow:
    return _line(f"{run['id']}.{at_us}.{event}", event, at_us, workflow_id=run["id"], **more)


def _id(row: Record, event: str) -> str:
    return f"{row['run_id']}.{row['seq']}.{event}"


def _line(id_: str, event: str, at_us: int, **more: Any) -> LogRow:
    return LogRow(**{**_EMPTY, "id": id_, "event": event, "created_at": moment(at_us), **more})


_EMPTY: Final[Mapping[str, Any]] = dict.fromkeys(field.name for field in fields(LogRow))
