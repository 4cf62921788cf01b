"""How far the cleaning up after a run is: steps to be undone, handlers of the run itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from queuety.codec import decode
from queuety.inspect.outline import Outline
from queuety.inspect.waits import kept
from queuety.inspect.why.jobs import of_job
from queuety.inspect.why.look import Look, Why
from queuety.model import CleanupStatus, Role
from queuety.store.queries import Record, why

_DONE: Final = "It has been cleaned up after."
_FAILED: Final = (
    "Cleaning up after it has failed, at least in part: `queuety list --cleanup --status buried` shows what is left to "
    "do by hand."
)


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What is said of it. `reason` is None where nothing is left to be done."""

    answer: str
    reason: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


def of_run(look: Look, row: Record, outline: Outline, answer_of: Callable[[int], Why | None]) -> Cleaning:
    """How far it is with a run that has ended and is, or was, cleaned up after.

    `answer_of` is the answer for another run, which has to clean up first.
    """
    status: dict[str, Any] = {"compensation_status": row["cleanup"]}
    if row["cleanup"] != CleanupStatus.PENDING:
        return Cleaning(_FAILED if row["cleanup"] == CleanupStatus.FAILED else _DONE, None, status)
    jobs = why.open_jobs(look.connection, look.tables, row["id"], Role.CLEANUP, limit=1)
    if jobs:
        because = of_job(look, jobs[0])
        step = outline.step(jobs[0]["step_index"])
        told = "What cleans up after it has not run yet." if step is None else f"Step {step.name!r} is to be undone."
        return Cleaning(f"{told} {because.answer}", "cleaning_up", {**status, "because": because.nested()})
    left = (decode(row["ledger"]) if row["ledger"] else {}).get("left", [])
    own = kept(row)
    child = own["child"] if own.get("awaits") else min(left, default=None)
    if child is None:
        return Cleaning("It is to be cleaned up after, and nothing sees to it.", "cleaning_up", status)
    other = answer_of(child)
    told = f"It cleans up once its child {child} has. {other.answer if other else ''}".rstrip()
    return Cleaning(told, "awaits_child", {**status, "child": child, "because": other.nested() if other else None})
