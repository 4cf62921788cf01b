"""What ran how often, read from the history of a run, and whether it is what the demo promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from queuety import WorkflowState
from queuety.inspect.timeline import TimelineEvent

PROMISED: Final = (
    ("index", 1, "completed"),
    ("summarise", 1, "killed"),
    ("summarise", 2, "completed"),
    ("report", 1, "completed"),
)
"""Step, attempt, outcome, in the order in which they end."""
KILLED: Final = "queuety.errors:LeaseLost"
"""The error of an attempt whose worker has died."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that has ended. `worker` counts from 1, as they appear; `took_ms` is None if it was cut short."""

    step: str
    attempt: int
    outcome: str
    worker: int
    took_ms: int | None


def attempts(timeline: Sequence[TimelineEvent]) -> list[Attempt]:
    """The attempts that a timeline tells of, in the order in which they ended."""
    workers: dict[int | None, int] = {}
    found: list[Attempt] = []
    for event in timeline:
        if event.event not in ("step_completed", "step_failed"):
            continue
        worker = workers.setdefault(event.worker, len(workers) + 1)
        outcome = "completed" if event.event == "step_completed" else _failure(event.error)
        took_ms = None if outcome == "killed" else event.duration_ms
        found.append(Attempt(event.step_name or "", event.attempt or 0, outcome, worker, took_ms))
    return found


def merges(run: WorkflowState) -> list[str]:
    """The steps whose results the state holds, in the order in which they were merged, each as often as it was."""
    finished = run.state.get("finished")
    return [str(name) for name in finished] if isinstance(finished, list) else []


def broken_promises(run: WorkflowState, found: Sequence[Attempt]) -> list[str]:
    """In which way this run is not what the demo promises; nothing if it is."""
    broken: list[str] = []
    if run.status != "completed":
        broken.append(f"the run is {run.status}" + (f": {run.error_message}" if run.error_message else ""))
    ran = tuple((one.step, one.attempt, one.outcome) for one in found)
    if ran != PROMISED:
        broken.append(f"the attempts were {_told(ran)}, and should have been {_told(PROMISED)}")
    steps = list(dict.fromkeys(step for step, _, _ in PROMISED))
    if merges(run) != steps:
        broken.append(f"the state holds the results of {', '.join(merges(run)) or 'no step'}, once each it should")
    return broken


def _failure(error: dict[str, Any] | None) -> str:
    return "killed" if error is not None and error.get("class") == KILLED else "failed"


def _told(ran: Sequence[tuple[str, int, str]]) -> str:
    return ", ".join(f"{step} {attempt} {outcome}" for step, attempt, outcome in ran) or "none"
