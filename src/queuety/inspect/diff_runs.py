"""Which open runs could be moved to another definition of their workflow, as they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from queuety.codec import decode
from queuety.engine.migrating import NO_JOBS, Move, MoveVerdict, StepMap, assess
from queuety.inspect.diff_versions import Version
from queuety.model import CleanupStatus, Definition, Workflow, WorkflowStatus
from queuety.store.queries import Record, changing
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class RunMove:
    """A run that is not over, where it stands, and whether it could be moved; names of steps are None if unknown."""

    workflow_id: int
    status: WorkflowStatus
    definition_hash: str
    current_step: int
    current_step_name: str | None
    verdict: MoveVerdict
    reason: str
    to_step: int | None
    to_step_name: str | None
    keeps_visit: bool


def moves_of(
    connection: Connection,
    tables: Tables,
    rows: Sequence[Record],
    versions: Iterable[Version],
    target: Definition,
    step_map: StepMap,
    *,
    now_us: int,
) -> dict[int, Move]:
    """Whether each of these runs could be moved to the target, by id, in the order given."""
    known = {version.hash: version for version in versions}
    jobs = changing.open_jobs(connection, tables, [row["id"] for row in rows])
    found: dict[int, Move] = {}
    for row in rows:
        version = known.get(row["definition_hash"])
        if version is None or version.definition is None:
            why = (
                "its definition is not stored"
                if version is None
                else f"its definition cannot be read: {version.problem}"
            )
            found[row["id"]] = Move(MoveVerdict.BLOCKED, why)
            continue
        try:
            workflow = _standing(row)
        except ValueError as error:  # a status that only a newer version has
            found[row["id"]] = Move(MoveVerdict.BLOCKED, f"this version of queuety cannot read it: {error}")
            continue
        open_jobs = jobs.get(row["id"], NO_JOBS)
        found[row["id"]] = assess(workflow, version.definition, target, step_map, open_jobs=open_jobs, now_us=now_us)
    return found


def run_moves(
    rows: Sequence[Record], moves: Mapping[int, Move], versions: Iterable[Version], target: Definition
) -> tuple[RunMove, ...]:
    """The runs with what was found of each."""
    known = {version.hash: version.definition for version in versions}
    return tuple(
        RunMove(
            row["id"],
            WorkflowStatus(row["status"]),
            row["definition_hash"],
            row["current_step"],
            _name(known.get(row["definition_hash"]), row["current_step"]),
            move.verdict,
            move.reason,
            move.to_step,
            _name(target, move.to_step),
            move.keeps_visit,
        )
        for row in rows
        for move in (moves[row["id"]],)
    )


def _name(definition: Definition | None, index: int | None) -> str | None:
    if definition is None or index is None or index >= len(definition.steps):
        return None
    return definition.steps[index].name


def _standing(row: Record) -> Workflow:
    """The run as far as where it stands; its state is not read. Raises `ValueError`."""
    return Workflow(
        id=row["id"],
        name=row["name"],
        definition_hash=row["definition_hash"],
        status=WorkflowStatus(row["status"]),
        current_step=row["current_step"],
        total_steps=row["total_steps"],
        visit=row["visit"],
        version=row["version"],
        state={},
        created_us=row["created_us"],
        runtime=_decoded(row["runtime"]),
        cleanup=CleanupStatus(row["cleanup"]),
        loops=_decoded(row["loops"]),
        deadline_us=row["deadline_us"],
        ledger=_decoded(row["ledger"]),
    )


def _decoded(text: str | None) -> Any:
    return None if text is None else decode(text)
