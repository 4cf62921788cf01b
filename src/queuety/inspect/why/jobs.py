"""Why a job is not running."""

from __future__ import annotations

from typing import Any, Final

from queuety.codec import decode
from queuety.inspect.why import words
from queuety.inspect.why.look import Look, Why
from queuety.model import JobPhase, JobStatus, Json, Role
from queuety.store.queries import Record, Tally, why

CAP: Final = 1_000
"""How far the jobs are counted that stand before this one."""


def of_job(look: Look, row: Record) -> Why:
    """The answer for a job that has a row."""
    phase = JobPhase(row["phase"])
    if phase is JobPhase.COMPLETED and row["error_message"]:
        return _settled(look, row)
    if phase is JobPhase.COMPLETED:
        return _said(row, "completed", f"was completed {look.when(row['completed_us'])}.")
    if phase is JobPhase.BURIED:
        return _buried(look, row)
    if phase is JobPhase.LEASED:
        return _leased(look, row)
    if phase is JobPhase.DELAYED:
        return _delayed(look, row)
    return _waiting(look, row)


def of_completed_step(look: Look, row: Record) -> Why:
    """The answer for a step's job whose only record is the history."""
    return Why(
        row["job_id"],
        "job",
        JobStatus.COMPLETED,
        "completed",
        f"Job {row['job_id']} was completed {look.when(row['at_us'])}.",
        {"workflow_id": row["run_id"], "step_index": row["step_index"], "completed_at": words.iso(row["at_us"])},
    )


def _said(row: Record, reason: str, answer: str, **details: Json) -> Why:
    """An answer about the job; it begins with its name."""
    told: dict[str, Any] = {
        "handler": row["handler"],
        "queue": row["queue"],
        "attempts": row["attempts"],
        "max_attempts": row["max_attempts"],
        "error_message": row["error_message"],
        "workflow_id": row["workflow_id"],
        "step_index": row["step_index"],
        "branch": row["branch"],
    }
    name = f"Job {row['id']} ({row['handler']})"
    return Why(row["id"], "job", JobPhase(row["phase"]).status, reason, f"{name} {answer}", {**told, **details})


def _settled(look: Look, row: Record) -> Why:
    message = words.quoted(row["error_message"])
    then = f"Workflow {row['workflow_id']} went on without it."
    return _said(row, "completed", f"was taken out {look.when(row['completed_us'])}: {message}. {then}")


def _buried(look: Look, row: Record) -> Why:
    run, message = row["workflow_id"], words.quoted(row["error_message"])
    if row["role"] == Role.CLEANUP:
        then = f"It was to clean up after workflow {run}, which stays as it is."
    elif run is not None:
        then = f"It belongs to workflow {run}; `queuety why {run}` tells how that stands."
    else:
        then = "Nothing runs it again; dispatch another one once the cause is gone."
    tries = (
        f"after attempt {row['attempts']} of {row['max_attempts']}" if row["attempts"] else "before its first attempt"
    )
    ended_us = row["completed_us"]
    gone = "" if ended_us is None else f" {look.when(ended_us)}"
    return _said(row, "failed", f"was given up{gone}, {tries}: {message}. {then}")


def _leased(look: Look, row: Record) -> Why:
    """It runs, or whoever held it is gone."""
    until_us, started_us = row["wake_us"], row["started_us"] or row["due_us"]
    holder = next((worker for worker in look.workers if worker.id == row["owner"]), None)
    progress = decode(row["progress"]) if row["progress"] else None
    details: dict[str, Any] = {
        "worker": row["owner"],
        "started_at": words.iso(started_us),
        "lease_until": words.iso(until_us),
        "progress": progress,
    }
    if holder is not None:
        details |= {"host": holder.host, "pid": holder.pid, "seen_at": holder.seen_at.isoformat()}
    if until_us < look.now_us:
        helper = "a living worker takes it back by itself" if look.servers(row["queue"]) else _nobody(look, row)
        return _said(
            row,
            "lease_ended",
            f"is held by a process whose lease ended {look.when(until_us)}: it died or was cut off; {helper}.",
            **details,
        )
    if holder is not None and holder.is_alive:
        so_far = "" if progress is None else f" Its progress: {words.quoted(str(progress))}."
        return _said(
            row,
            "running",
            f"is being run by process {holder.pid} on {holder.host}, {look.since(started_us)}, attempt "
            f"{row['attempts']} of {row['max_attempts']}.{so_far}",
            **details,
        )
    seen = "" if holder is None else f", last seen {holder.seen_at.strftime('%Y-%m-%dT%H:%M:%SZ')}"
    who = "a process that is in no register" if holder is None else f"process {holder.pid} on {holder.host}"
    return _said(
        row,
        "holder_not_seen",
        f"has been in the hands of {who}{seen}, {look.since(started_us)}. If that is gone, the lease ends "
        f"{look.when(until_us)} and another worker takes the job.",
        **details,
    )


def _nobody(look: Look, row: Record) -> str:
    found = look.obstacle(row["queue"])
    return f"no worker takes it back: {found.answer}".rstrip(".") if found else "no worker takes it back"


def _delayed(look: Look, row: Record) -> Why:
    due_us = row["wake_us"]
    found = look.obstacle(row["queue"])
    more = f" {found.answer}" if found else ""
    details: dict[str, Any] = {"due_at": words.iso(due_us)}
    if due_us <= look.now_us:
        overdue = f"has been due {look.since(due_us)}, and no worker has looked yet."
        return _said(row, found.reason if found else "due", f"{overdue}{more}", **details)
    if row["unknown_since_us"] is not None:
        return _unknown(look, row, more)
    if row["attempts"]:
        return _said(
            row,
            "backing_off",
            f"failed in attempt {row['attempts']} of {row['max_attempts']}: {words.quoted(row['error_message'])}. "
            f"The next attempt is due {look.when(due_us)}.{more}",
            **details,
        )
    return _said(row, "delayed", f"comes due {look.when(due_us)}.{more}", **details)


def _unknown(look: Look, row: Record, more: str) -> Why:
    since_us, due_us = row["unknown_since_us"], row["wake_us"]
    return _said(
        row,
        "handler_unknown",
        f"waits for a worker that knows its handler, {look.since(since_us)}; another is asked {look.when(due_us)}. "
        f"The last one said: {words.quoted(row['error_message'])}. Start a worker with the code that has it.{more}",
        due_at=words.iso(due_us),
        unknown_since=words.iso(since_us),
    )


def _waiting(look: Look, row: Record) -> Why:
    """It may be claimed, and nobody has done it yet."""
    found = look.obstacle(row["queue"])
    before = why.ahead(look.connection, look.tables, row, cap=CAP)
    details: dict[str, Any] = {"due_at": words.iso(row["due_us"]), "ahead": before.count}
    is_suspect = row["phase"] == JobPhase.SUSPECT
    lone = "was in hand when a process died, so it is to be run alone, by a process that holds nothing else."
    if found is not None:
        told = lone if is_suspect else f"has been ready {look.since(row['due_us'])}."
        return _said(row, found.reason, f"{told} {found.answer}", **details, **found.details)
    if is_suspect:
        return _said(row, "suspect", f"{lone} {_turn(before, 'suspect')}", **details)
    asked = ""
    if row["unknown_since_us"] is not None:
        asked = f" No worker that was asked so far knows its handler, {look.since(row['unknown_since_us'])}."
    workers = words.count(len(look.servers(row["queue"])), "living worker")
    return _said(
        row,
        "ready",
        f"is ready and waits its turn in queue {row['queue']!r} ({workers}). {_turn(before, 'job')}{asked}",
        **details,
    )


def _turn(before: Tally, thing: str) -> str:
    if not before:
        return "It is the next one."
    return f"{before} {thing}{' stands' if before == Tally(1) else 's stand'} before it."
