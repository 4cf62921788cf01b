"""`wait_for_signal`: the run stands still until signals have come that it asks for; no worker is held.

`settings` is `{"names", "mode": "all" | "any", "result_key"?, "match_payload"?, "correlation_key"?, "timeout"? (s),
"on_timeout"? (name of a step), "human"?, "outcomes"? ({"approved": name, "rejected": name}, of a decision)}`.

A signal serves one wait: the earliest that nobody has used is taken, and used once the wait is satisfied. What an
unsatisfied wait has found stays free to be read again: it is still the earliest then, so the choice is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from queuety.engine import facts
from queuety.engine.jobs import no_task, nothing_held
from queuety.engine.matching import is_same, is_subset
from queuety.engine.output import split
from queuety.engine.protocol import Fail, Leave, Part, Run, Stay, Verdict
from queuety.model import (
    Commanded,
    DropTimers,
    Due,
    Effect,
    Entry,
    ErrorInfo,
    ErrorKind,
    Event,
    PatchState,
    SetTimer,
    Signalled,
    State,
    UseSignals,
    WorkflowStatus,
)
from queuety.model.needs import Signal

NAME: Final = "wait_for_signal"
task = no_task
held = nothing_held

_SHOWN: Final = 10
"""How many of the missing signals a message names."""


def enter(run: Run) -> Verdict:
    """Leave if all that is waited for is there, else wait; a retry waits anew, as long as the first time."""
    settings = run.spec.settings
    chosen = _choose(run)
    if _is_enough(settings, chosen):
        return _leave(run, chosen)
    timeout_s = settings.get("timeout")
    due_us = None if timeout_s is None else run.now_us + round(timeout_s * 1_000_000)
    waiting = {"wait_type": "signal", "waiting_for": list(settings["names"]), "wait_mode": settings["mode"]}
    part = Part(Entry.WAITING, control={"_waiting": waiting})
    return _stay(chosen, due_us, () if due_us is None else (_timer(run, due_us),), part)


def resume(run: Run, event: Event) -> Verdict:
    """Leave once what was missing has come, or the time is over."""
    settings, kept = run.spec.settings, run.workflow.runtime or {}
    if isinstance(event, Signalled):
        return _hear(run, event, kept)
    if isinstance(event, Due) and "due_us" in kept:
        return _end(run, kept["due_us"])
    if isinstance(event, Commanded) and isinstance(event.command, PatchState):
        chosen = _choose(run)  # another value to correlate with
        return _leave(run, chosen) if _is_enough(settings, chosen) else _stay(chosen, kept.get("due_us"))
    return Stay(runtime=run.workflow.runtime)


def _hear(run: Run, signal: Signalled, kept: State) -> Verdict:
    """Look at the new signal alone; what came before it was looked at when it came.

    So a wait that ignores a thousand signals reads none of them again, and one for many names reads once, at its end.
    """
    settings, matched = run.spec.settings, kept.get("matched", [])
    if signal.name not in settings["names"] or not _matches(run, signal.payload):
        return Stay(runtime=run.workflow.runtime)
    found = [name for name in settings["names"] if name in matched or name == signal.name]
    if _is_enough(settings, found):
        return _leave(run, _choose(run))
    return _stay(found, kept.get("due_us"))


def _end(run: Run, due_us: int) -> Verdict:
    """The time is over, if it is; a signal that has come by then wins."""
    if due_us > run.now_us:
        return Stay((_timer(run, due_us),), runtime=run.workflow.runtime)
    settings, chosen = run.spec.settings, _choose(run)
    if _is_enough(settings, chosen):
        return _leave(run, chosen)
    target = settings.get("on_timeout")
    if target is not None:
        return Leave(control={"_next_step": target})
    missing = [name for name in settings["names"] if name not in chosen]
    return Fail(ErrorInfo(_too_late(run, missing), "WaitTimeout", kind=ErrorKind.WAIT_TIMEOUT))


def _choose(run: Run) -> dict[str, Signal]:
    """The signals that the wait would use, by name in the configured order: the earliest of each, or the earliest."""
    settings = run.spec.settings
    is_picky = bool(settings.get("match_payload")) or settings.get("correlation_key") is not None
    at_once = facts.SIGNALS_AT_ONCE if is_picky else 1
    facts.expect_signals(run, settings["names"], at_once=at_once)
    found: dict[str, Signal] = {}
    for name in settings["names"]:
        for signal in facts.signals(run, name, at_once=at_once):
            if _matches(run, signal.payload):
                found[name] = signal
                break
    if settings["mode"] == "any" and found:
        first = min(found.values(), key=lambda signal: signal.seq)
        return {first.name: first}
    return found


def _matches(run: Run, payload: State) -> bool:
    """Whether a signal with this payload is meant: it has what was asked for, and belongs to the same thing."""
    settings, state = run.spec.settings, run.workflow.state
    if not is_subset(settings.get("match_payload") or {}, payload):
        return False
    key = settings.get("correlation_key")
    return key is None or (key in payload and key in state and is_same(payload[key], state[key]))


def _is_enough(settings: State, found: Collection[str]) -> bool:
    return bool(found) if settings["mode"] == "any" else all(name in found for name in settings["names"])


def _stay(found: Iterable[str], due_us: int | None, effects: tuple[Effect, ...] = (), part: Part | None = None) -> Stay:
    runtime: dict[str, Any] = {"matched": list(found)}
    if due_us is not None:
        runtime["due_us"] = due_us
    return Stay(effects, runtime, WorkflowStatus.WAITING_FOR_SIGNAL, part)


def _leave(run: Run, chosen: Mapping[str, Signal]) -> Leave:
    used = UseSignals(run.workflow.id, tuple(sorted(signal.seq for signal in chosen.values())))
    has_timer = "due_us" in (run.workflow.runtime or {}) and not run.is_retry
    effects: tuple[Effect, ...] = (used, DropTimers(run.workflow.id)) if has_timer else (used,)
    return Leave(_output(run.spec.settings, chosen), effects=effects)


def _output(settings: State, chosen: Mapping[str, Signal]) -> State:
    """What is merged: the payloads, under the result key as they were sent, or at top level without their `_` keys."""
    result_key, outcomes = settings.get("result_key"), settings.get("outcomes")
    if outcomes is not None:
        return _decision(result_key, outcomes, next(iter(chosen.values())))
    if result_key is None:
        merged: dict[str, Any] = {}
        for signal in chosen.values():
            merged |= split(signal.payload)[0]
        return merged
    if len(settings["names"]) == 1:
        return {result_key: next(iter(chosen.values())).payload}
    return {result_key: {name: signal.payload for name, signal in chosen.items()}}


def _decision(result_key: str | None, outcomes: State, signal: Signal) -> State:
    outcome = next(outcome for outcome, name in outcomes.items() if name == signal.name)
    if result_key is not None:
        return {result_key: {"outcome": outcome, "signal": signal.name, "data": signal.payload}}
    said = {"decision_outcome": outcome, "decision_signal": signal.name}
    return {**said, **split(signal.payload)[0], **said}  # said last: a payload may not decide otherwise


def _timer(run: Run, due_us: int) -> SetTimer:
    return SetTimer(run.workflow.id, run.workflow.visit, due_us)


def _too_late(run: Run, missing: list[str]) -> str:
    settings = run.spec.settings
    shown = ", ".join(repr(name[:100]) for name in missing[:_SHOWN])
    if len(missing) > _SHOWN:
        shown += f" and {len(missing) - _SHOWN} others"
    what = "signal" if len(missing) == 1 else "any of the signals" if settings["mode"] == "any" else "the signals"
    return (
        f"step {run.spec.name!r} of workflow {run.workflow.id} has waited {settings['timeout']} s "
        f"for {what} {shown}, in vain"
    )
