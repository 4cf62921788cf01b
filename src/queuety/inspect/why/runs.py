"""Why a workflow is not running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from queuety.codec import decode
from queuety.engine.kinds import KINDS
from queuety.inspect.outline import DELAY, Outline, StepOutline, outlines
from queuety.inspect.waits import kept
from queuety.inspect.why import cleanup, steps, waiting, words
from queuety.inspect.why.jobs import of_job
from queuety.inspect.why.look import Look, Why
from queuety.model import CleanupStatus, Entry, Json, LetterKind, Role, WorkflowStatus
from queuety.store.queries import Record, history, why, workflows

DEPTH: Final = 5
"""How many answers deep the children and dependencies of a run are asked about."""

OVERDUE_US: Final = 5_000_000
"""For how long a letter may be due before nobody seems to read it: workers look at least every second."""


def of_run(look: Look, row: Record, above: tuple[int, ...] = ()) -> Why:
    """The answer for a workflow; `above` are the others for which it is asked about, the first one first."""
    status = WorkflowStatus(row["status"])
    if status is WorkflowStatus.COMPLETED:
        return _said(row, "completed", f"was completed {look.when(row['completed_us'])}.")
    if status is WorkflowStatus.FAILED:
        return _failed(look, row, above)
    if status is WorkflowStatus.CANCELLED:
        return _cancelled(look, row, above)
    if status is WorkflowStatus.PAUSED:
        return _paused(look, row)
    outline = outlines(look.connection, look.tables, [row["definition_hash"]])[row["definition_hash"]]
    found = _unreadable(row, outline) or _unread(look, row) or _going_on(look, row, outline, above)
    return _until_deadline(look, row, found)


def _until_deadline(look: Look, row: Record, found: Why) -> Why:
    """The answer, and until when the run must have ended."""
    due_us = row["deadline_us"]
    if due_us is None:
        return found
    told = f"It fails unless it has ended {look.when(due_us)}."
    if due_us <= look.now_us:
        told = f"Its deadline has passed, {look.when(due_us)}: it fails as soon as a worker looks."
    details = {**found.details, "deadline_at": words.iso(due_us)}
    return replace(found, answer=f"{found.answer} {told}", details=details)


def _said(row: Record, reason: str, answer: str, found: Mapping[str, Json] | None = None, **details: Json) -> Why:
    """An answer about the run, which begins with its name; `found` are details too."""
    name = f"Workflow {row['id']} ({row['name']})"
    told: dict[str, Any] = {"name": row["name"], "step_index": row["current_step"], **(found or {}), **details}
    return Why(row["id"], "workflow", row["status"], reason, f"{name} {answer}", told)


def _failed(look: Look, row: Record, above: tuple[int, ...]) -> Why:
    id_, child, is_retried = row["id"], kept(row).get("child"), False
    hash_ = row["definition_hash"]
    outline = outlines(look.connection, look.tables, [hash_])[hash_]
    step = outline.step(row["failed_step"])
    at = f" at step {step.name!r}" if step else ""
    more: dict[str, Any] = {}
    if row["cleanup"] != CleanupStatus.NONE:
        cleaning = cleanup.of_run(look, row, outline, lambda other: _other(look, other, row, above))
        then, more = f"{cleaning.answer} It cannot be retried.", cleaning.details
    elif is_retried := why.has_letter(look.connection, look.tables, id_, LetterKind.RETRY):
        then = "A retry of its parent is on its way: it goes on there as soon as a worker looks."
        if not any(worker.is_alive for worker in look.workers):
            then += " No worker is alive; start one: `queuety work`."
    else:
        then = steps.after_failure(look, row, step, child)
    return _said(
        row,
        "failed",
        f"failed {look.when(row['failed_us'])}{at} ({row['error_kind']}): {words.quoted(row['error_message'])}. {then}",
        more,
        error_kind=row["error_kind"],
        error_message=row["error_message"],
        failed_step=row["failed_step"],
        step_name=step.name if step else None,
        failed_at=words.iso(row["failed_us"]),
        child=child,
        retry_on_its_way=is_retried,
    )


def _cancelled(look: Look, row: Record, above: tuple[int, ...]) -> Why:
    found = history.last_of(look.connection, look.tables, row["id"], Entry.CANCELLED)
    ended = f"was cancelled {look.when(row['cancelled_us'])}{words.by(said_by(found))}."
    at: dict[str, Any] = {"cancelled_at": words.iso(row["cancelled_us"]), **said_by(found)}
    if row["cleanup"] == CleanupStatus.NONE:
        return _said(row, "cancelled", ended, at, compensation_status=row["cleanup"])
    hash_ = row["definition_hash"]
    outline = outlines(look.connection, look.tables, [hash_])[hash_]
    cleaning = cleanup.of_run(look, row, outline, lambda other: _other(look, other, row, above))
    return _said(row, cleaning.reason or "cancelled", f"{ended} {cleaning.answer}", {**at, **cleaning.details})


def _paused(look: Look, row: Record) -> Why:
    found = history.last_of(look.connection, look.tables, row["id"], Entry.PAUSED)
    since = "" if found is None else f" {look.since(found['at_us'])}"
    running = why.phases(look.connection, look.tables, row["id"])
    open_ = sum(running.values())
    rest = f" {words.count(open_, 'job')} of its present step may still finish." if open_ else ""
    due_us = row["deadline_us"]
    if due_us is not None:
        rest += f" Its deadline, {look.when(due_us)}, counts once it goes on."
    return _said(
        row,
        "paused",
        f"has been paused{since}{words.by(said_by(found))}.{rest} `queuety workflow resume {row['id']}` has it go on.",
        said_by(found),
        paused_at=None if found is None else words.iso(found["at_us"]),
        open_jobs=open_,
        deadline_at=None if due_us is None else words.iso(due_us),
    )


def said_by(row: Record | None) -> dict[str, Any]:
    """Who has asked for what the row tells, and why, as far as they said."""
    control: Mapping[str, Any] = decode(row["control"]) if row is not None and row["control"] else {}
    by = control.get("_by")
    return dict(by) if isinstance(by, dict) else {}


def _unreadable(row: Record, outline: Outline) -> Why | None:
    """The answer if this version cannot make sense of what the run is to do."""
    if not outline.steps:
        return _said(
            row,
            "definition_missing",
            f"is to do what its definition {row['definition_hash']} says, which the database does not have; it was "
            "deleted by hand, or lost.",
            definition_hash=row["definition_hash"],
        )
    step = outline.step(row["current_step"])
    if step is None or step.kind in KINDS:
        return None
    return _said(
        row,
        "kind_unknown",
        f"stands at step {step.name!r} of kind {step.kind!r}, which this version of queuety does not know; a worker of "
        "a newer one has to go on with it.",
        step_name=step.name,
        step_type=step.kind,
    )


def _unread(look: Look, row: Record) -> Why | None:
    """The answer if something has come due for the run, and nobody reads it."""
    letter = why.first_letter(look.connection, look.tables, row["id"])
    if letter is None or letter["due_us"] > look.now_us - OVERDUE_US:
        return None
    what = letter["kind"] if letter["kind"] in (LetterKind.TIMER, LetterKind.DEADLINE) else "message"
    alive = [worker for worker in look.workers if worker.is_alive]
    then = (
        f"{words.count(len(alive), 'worker')} should have seen to it; the log of the worker says what keeps it."
        if alive
        else "No worker is alive; start one: `queuety work`."
    )
    return _said(
        row,
        "letter_overdue",
        f"has had a {what} due {look.since(letter['due_us'])} that nobody has read. {then}",
        letter=letter["kind"],
        due_at=words.iso(letter["due_us"]),
        workers=len(alive),
    )


def _going_on(look: Look, row: Record, outline: Outline, above: tuple[int, ...]) -> Why:
    """The answer for a run that runs or waits, whose step this version knows."""
    step = outline.step(row["current_step"])
    if row["status"] == WorkflowStatus.WAITING_FOR_SIGNAL:
        return _said(row, *waiting.for_signals(look, row, outline))
    if row["status"] == WorkflowStatus.WAITING_FOR_WORKFLOWS:
        reason, answer, details = waiting.for_workflows(look, row, outline)
        return _with_first(look, row, reason, answer, details, above)
    runtime, name = kept(row), repr(step.name) if step else str(row["current_step"])
    child = runtime.get("child")
    if child is not None:
        of_child = _other(look, child, row, above)
        told = f"stands at step {name}, which is the run of its child {child}. {of_child.answer if of_child else ''}"
        return _said(row, "child", told.rstrip(), child=child, because=of_child.nested() if of_child else None)
    jobs = why.open_jobs(look.connection, look.tables, row["id"], Role.STEP, limit=steps.SHOWN)
    if jobs:
        because = of_job(look, jobs[0])
        if "total" in runtime and not runtime.get("reducing"):
            return _said(row, "fan_out", *steps.fan_out(look, row, name, jobs, because))
        reason = "running" if because.reason == "running" else "step"
        return _said(row, reason, f"stands at step {name}. {because.answer}", because=because.nested())
    return _without_jobs(look, row, step, name)


def _without_jobs(look: Look, row: Record, step: StepOutline | None, name: str) -> Why:
    due_us = kept(row).get("due_us")
    if step is not None and step.kind == DELAY and due_us is not None:
        told = f"is delayed at step {name}: it goes on {look.when(due_us)}."
        return _said(row, "delayed", told, step_name=step.name, due_at=words.iso(due_us))
    letter = why.first_letter(look.connection, look.tables, row["id"], moving=True)
    if letter is not None:
        told = f"stands at step {name} and goes on as soon as a worker looks: its next message is due "
        return _said(row, "continuing", f"{told}{look.when(letter['due_us'])}.", due_at=words.iso(letter["due_us"]))
    return _said(
        row,
        "stranded",
        f"stands at step {name}, and nothing will ever move it: it has no open job, no timer and no message. Rows were "
        f"changed by hand, or this is a bug; report what `queuety workflow timeline {row['id']}` shows.",
    )


def _with_first(
    look: Look, row: Record, reason: str, answer: str, details: dict[str, Any], above: tuple[int, ...]
) -> Why:
    """The answer for a run that waits for others, and that of the first one that is left."""
    left: list[dict[str, Any]] = details["left"]
    because = _other(look, int(left[0]["id"]), row, above) if left else None
    if because is None:
        return _said(row, reason, answer, details)
    first = "" if len(details["waiting_for"]) == 1 else " The first of them:"
    return _said(row, reason, f"{answer}{first} {because.answer}", {**details, "because": because.nested()})


def _other(look: Look, workflow_id: int, row: Record, above: tuple[int, ...]) -> Why | None:
    """The answer for another run that this one stands still for; None if it is not there, or far enough away."""
    if len(above) >= DEPTH:
        return None
    other = workflows.found(look.connection, look.tables, workflow_id)
    if other is None:
        return None
    path = (*above, row["id"])
    if workflow_id not in path:
        return of_run(look, other, path)
    circle = path[path.index(workflow_id) :]
    told = (
        "is asked about already: these wait for each other, and stand still unless something else moves one of them. "
    )
    return _said(other, "in_circle", f"{told}`queuety workflow cancel {row['id']}` ends it.", circle=list(circle))
