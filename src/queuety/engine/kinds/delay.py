"""`delay`: nothing happens until a time has passed; no worker is held. `settings` is `{"seconds": <number>}`."""

from __future__ import annotations

from typing import Final

from queuety.engine.jobs import no_task, nothing_held
from queuety.engine.protocol import Leave, Run, Stay, Verdict
from queuety.model import Commanded, DropTimers, Due, Event, RunNow, SetTimer

NAME: Final = "delay"
task = no_task
held = nothing_held


def enter(run: Run) -> Verdict:
    """Leave at once if there is nothing to wait for, else set the timer. Entered again, it keeps its first due time."""
    kept = run.workflow.runtime
    due_us = kept["due_us"] if kept else run.now_us + round(run.spec.settings["seconds"] * 1_000_000)
    return _until(due_us, run)


def resume(run: Run, event: Event) -> Verdict:
    """Leave once the time has come; a timer that fired too early (clocks differ a little) is set again."""
    kept = run.workflow.runtime
    if kept is None:
        return Stay()
    if isinstance(event, Commanded) and isinstance(event.command, RunNow):
        return Leave(effects=(DropTimers(run.workflow.id),))
    if not isinstance(event, Due):
        return Stay(runtime=kept)
    return _until(kept["due_us"], run)


def _until(due_us: int, run: Run) -> Verdict:
    if due_us <= run.now_us:
        return Leave()
    timer = SetTimer(run.workflow.id, run.workflow.visit, due_us)
    return Stay((timer,), runtime={"due_us": due_us})
