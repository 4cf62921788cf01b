"""What a run waits for that waits, and what has come of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from queuety.codec import encode
from queuety.inspect.outline import Outline
from queuety.inspect.waits import Wait, dependencies, sort_out, wait_of
from queuety.inspect.why import words
from queuety.inspect.why.look import Look
from queuety.inspect.workflows import folded
from queuety.model import Json, WorkflowStatus
from queuety.store.queries import Record, why, workflows

_LONGEST: Final = 120
"""How many characters of data are said."""


def for_signals(look: Look, row: Record, outline: Outline) -> tuple[str, str, dict[str, Json]]:
    """Reason, answer and details."""
    state = folded(look.connection, look.tables, [row])[0]
    wait = wait_of(row, state, outline, {})
    assert wait is not None
    names, matched = wait.names, wait.details["matched"]
    remaining: list[str] = wait.details["remaining"]
    arrived = why.unused_signals(look.connection, look.tables, row["id"])
    unfit = {name: many for name, many in arrived.items() if name in remaining}
    asked = {name for step in outline.steps for name in step.entry.get("names", ())}
    stray = {name: many for name, many in sorted(arrived.items()) if name not in asked}
    quoted = [repr(name) for name in names]
    if len(names) == 1:
        what = f"the signal {quoted[0]}"
    else:
        what = f"{'any' if wait.mode == 'any' else 'all'} of the signals {words.listed(quoted)}"
    parts = [f"waits at step {wait.details['step_name']!r} for {what}."]
    if matched:
        left = words.listed([repr(name) for name in remaining])
        parts.append(f"{words.listed([repr(name) for name in matched])} has come, {left} is missing.")
    key, has_key = wait.details["correlation_key"], wait.details["correlation_key"] in state
    if key is not None:
        parts.append(_correlated(key, state) if has_key else _without_key(key))
    for name, many in sorted(unfit.items()):
        verb = "has" if many == 1 else "have"
        parts.append(f"{words.count(many, 'signal')} {name!r} {verb} come whose payload is not what it asks for.")
    if stray:
        of_no_use = words.listed([f"{name!r} ({many:,})" if many > 1 else repr(name) for name, many in stray.items()])
        parts.append(f"Unused, for no step of this run asks for them: {of_no_use}.")
    parts.append(_until(look, wait, outline, row))
    parts.append(_how(row["id"], wait, remaining) if key is None or has_key else "")
    details = {
        **wait.details,
        "waiting_for": names,
        "unfit": unfit,
        "unused": stray,
        "on_timeout": _entry(row, outline, "on_timeout"),
    }
    return "waiting_for_signal", " ".join(part for part in parts if part), details


def _correlated(key: str, state: Mapping[str, Json]) -> str:
    return f"Only data counts whose {key!r} is {words.quoted(encode(state[key]))}, as in the state."


def _without_key(key: str) -> str:
    return (
        f"Only data counts whose {key!r} is that of the state, and the state has no {key!r}: no signal can fit. A step "
        "before this one must return it, or the payload have it; start another run with it."
    )


def for_workflows(look: Look, row: Record, outline: Outline) -> tuple[str, str, dict[str, Json]]:
    """Reason, answer and details; `left` are those that have not ended, the first one first."""
    ids = dependencies(row)
    found = {one["id"]: one for one in workflows.named(look.connection, look.tables, ids)}
    standings = {id_: WorkflowStatus(one["status"]) for id_, one in found.items()}
    wait = wait_of(row, {}, outline, standings)
    assert wait is not None
    by = sort_out(ids, standings)
    quorum = wait.details["quorum"]
    needed = {"all": "all", "any": "any of"}.get(wait.mode, f"{quorum} of")
    what = f"workflow {ids[0]}" if len(ids) == 1 else f"{needed} {len(ids):,} workflows"
    parts = [f"waits at step {wait.details['step_name']!r} for {what}."]
    if by.completed and len(ids) > 1:
        parts.append(f"{len(by.completed):,} {'has' if len(by.completed) == 1 else 'have'} completed.")
    if by.lost:
        gone = [f"{id_} ({standings.get(id_, 'missing')})" for id_ in by.lost]
        parts.append(f"Lost: {words.listed(gone)}.")
    left = [{"id": str(id_), "name": found[id_]["name"], "status": found[id_]["status"]} for id_ in by.active]
    if left and len(ids) > 1:
        parts.append(f"Left: {words.listed([_named(one) for one in left])}.")
    parts.append(_until(look, wait, outline, row))
    details: dict[str, Any] = {**wait.details, "waiting_for": wait.names, "left": left[:50]}
    reason = "waiting_for_workflows"
    if by.is_decided(wait.mode, quorum):
        told = why.first_letter(look.connection, look.tables, row["id"], moving=True)
        reason = "waiting_for_workflows" if told else "not_told"
        parts.append(
            "That is decided, and it goes on as soon as a worker looks."
            if told
            else "That is decided, and no message tells it so yet; if this stays, the message was lost, which is a bug."
        )
    return reason, " ".join(part for part in parts if part), details


def _named(one: dict[str, Any]) -> str:
    return f"{one['id']} {one['name']} ({one['status']})"


def _entry(row: Record, outline: Outline, key: str) -> Any:
    step = outline.step(row["current_step"])
    return step.entry.get(key) if step else None


def _until(look: Look, wait: Wait, outline: Outline, row: Record) -> str:
    if wait.due_us is None:
        return ""
    target = _entry(row, outline, "on_timeout")
    then = "the run fails" if target is None else f"it goes on at step {target!r}"
    return f"It gives up {look.when(wait.due_us)}; then {then}."


def _how(workflow_id: int, wait: Wait, remaining: list[str]) -> str:
    """How a person lets it go on, with the data that it takes if it does not take all."""
    human, data = wait.details["human_wait"], _data(wait)
    if human == "approval":
        return f"`queuety workflow approve {workflow_id}{data}` answers it."
    if human == "decision":
        yes, no = (f"`queuety workflow {word} {workflow_id}{data}`" for word in ("approve", "reject"))
        return f"{yes} or {no} answers it."
    if human == "input":
        return f"`queuety workflow input {workflow_id}{data or ' JSON'}` answers it."
    return f"`queuety workflow signal {workflow_id} {shlex.quote(remaining[0])}{data}` sends it." if remaining else ""


def _data(wait: Wait) -> str:
    """The smallest data that the wait takes, as an argument for a shell; nothing if it takes any."""
    wanted = dict(wait.details["match_payload"] or {})
    if wait.details["correlation_key"] is not None:
        wanted[wait.details["correlation_key"]] = wait.details["correlation_value"]
    if not wanted:
        return ""
    text = encode(wanted)
    return f" {shlex.quote(text)}" if len(text) <= _LONGEST else " JSON"
