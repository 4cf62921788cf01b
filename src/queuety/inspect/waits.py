"""What a run waits for: from its definition, from what the visit keeps, and from how the others stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from queuety.codec import decode
from queuety.inspect.outline import WAIT_FOR_SIGNAL, Outline, StepOutline, outlines
from queuety.inspect.states import moment
from queuety.model import Json, WorkflowStatus
from queuety.store.queries import Record, workflows
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

Standings = Mapping[int, WorkflowStatus]
"""How runs stand, by their ids; those that are not there are left out."""

_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait fields of a run that waits. `due_us` is when it gives up waiting, None for never."""

    kind: str
    names: list[str]
    mode: str
    details: dict[str, Json]
    due_us: int | None = None


def standings_for(connection: Connection, tables: Tables, rows: Iterable[Record]) -> dict[int, WorkflowStatus]:
    """How all those stand that the runs of these rows wait for, in one statement for hundreds of them."""
    ids = {id_ for row in rows if row["status"] == WorkflowStatus.WAITING_FOR_WORKFLOWS for id_ in dependencies(row)}
    return {id_: WorkflowStatus(status) for id_, status in workflows.statuses(connection, tables, ids).items()}


def dependencies(row: Record) -> list[int]:
    """The ids that a run waits for, in the order in which it named them."""
    ids: list[int] = kept(row).get("ids", [])
    return ids


def kept(row: Record) -> Mapping[str, Any]:
    """What the run's present visit keeps; empty for nothing."""
    runtime: Mapping[str, Any] | None = decode(row["runtime"]) if row["runtime"] else None
    return runtime or _NOTHING


def wait_of(row: Record, state: Mapping[str, Json], outline: Outline, standings: Standings) -> Wait | None:
    """What the run waits for; None unless its status says that it waits. `state` is its public state."""
    step = outline.step(row["current_step"])
    if row["status"] == WorkflowStatus.WAITING_FOR_SIGNAL:
        return _for_signals(row, state, step)
    if row["status"] == WorkflowStatus.WAITING_FOR_WORKFLOWS:
        return _for_workflows(row, step, standings)
    return None


def _for_signals(row: Record, state: Mapping[str, Json], step: StepOutline | None) -> Wait:
    settings, runtime = step.entry if step else _NOTHING, kept(row)
    names: list[str] = list(settings.get("names", ()))
    matched: list[str] = [name for name in names if name in runtime.get("matched", ())]
    mode: str = settings.get("mode", "all")
    key = settings.get("correlation_key")
    details = {
        "step_name": step.name if step else None,
        "result_key": settings.get("result_key"),
        "human_wait": settings.get("human"),
        "match_payload": settings.get("match_payload"),
        "correlation_key": key,
        "correlation_value": None if key is None else state.get(key),
        "wait_mode": mode,
        "matched": matched,
        "remaining": [name for name in names if name not in matched],
    }
    return _until(Wait("signal", names, mode, details), runtime)


def _for_workflows(row: Record, step: StepOutline | None, standings: Standings) -> Wait:
    settings, runtime = step.entry if step else _NOTHING, kept(row)
    ids = dependencies(row)
    mode: str = settings.get("mode", "all")
    sorted_ = sort_out(ids, standings)
    details = {
        "step_name": step.name if step else None,
        "group_key": settings.get("group"),
        "result_key": settings.get("result_key"),
        "quorum": settings.get("quorum"),
        "wait_mode": mode,
        "matched": [str(id_) for id_ in sorted_.completed],
        "remaining": [str(id_) for id_ in sorted_.active],
        "failed": [str(id_) for id_ in sorted_.lost],
    }
    return _until(Wait("workflow", [str(id_) for id_ in ids], mode, details), runtime)


def _until(wait: Wait, runtime: Mapping[str, Any]) -> Wait:
    """The wait with the moment at which it ends by itself, if there is one."""
    due_us: int | None = runtime.get("due_us")
    if due_us is None:
        return wait
    due_at = moment(due_us).isoformat(timespec="microseconds")
    return Wait(wait.kind, wait.names, wait.mode, {**wait.details, "due_at": due_at}, due_us)


@dataclass(frozen=True, slots=True)
class Sorted:
    """The runs that one waits for, by what can still come of them; each in the order in which they were named."""

    completed: tuple[int, ...]
    active: tuple[int, ...]
    lost: tuple[int, ...]

    def is_decided(self, mode: str, quorum: int | None) -> bool:
        """Whether nothing that the active ones do can change what the wait leads to.

        >>> Sorted((1,), (2,), ()).is_decided("all", None), Sorted((1,), (2,), ()).is_decided("any", None)
        (False, True)
        >>> Sorted((1,), (2,), (3,)).is_decided("quorum", 2), Sorted((1,), (2,), (3, 4)).is_decided("quorum", 3)
        (False, True)
        """
        if mode == "all":
            return bool(self.lost) or not self.active
        needed = 1 if mode == "any" else quorum or 1
        return len(self.completed) >= needed or len(self.completed) + len(self.active) < needed


def sort_out(ids: Sequence[int], standings: Standings) -> Sorted:
    """These runs by how they stand. What is not there is lost."""
    completed, active, lost = [], [], []
    for id_ in ids:
        status = standings.get(id_)
        if status is WorkflowStatus.COMPLETED:
            completed.append(id_)
        elif status is None or status.is_terminal:
            lost.append(id_)
        else:
            active.append(id_)
    return Sorted(tuple(completed), tuple(active), tuple(lost))


def awaited_signal(
    connection: Connection, tables: Tables, workflow_id: int, *, human: str | None, outcome: str | None
) -> str | None:
    """The name of the signal that answers the person's step at which the run waits now; None if it is at no such step.

    `human` is `"approval"`, `"input"` or None for neither; a decision gives the name that it has for `outcome`.
    """
    row = workflows.found(connection, tables, workflow_id)
    if row is None or row["status"] != WorkflowStatus.WAITING_FOR_SIGNAL:
        return None
    hash_ = row["definition_hash"]
    step = outlines(connection, tables, [hash_])[hash_].step(row["current_step"])
    if step is None or step.kind != WAIT_FOR_SIGNAL:
        return None
    named: str | None = None
    if human is not None and step.entry.get("human") == human:
        named = next(iter(step.entry.get("names", ())), None)
    elif step.entry.get("human") == "decision" and outcome is not None:
        named = step.entry.get("outcomes", _NOTHING).get(outcome)
    return named
