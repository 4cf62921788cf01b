"""Which open runs could be moved to another definition of their workflow, as they stand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from queuety.codec import decode
from queuety.engine.migrating import NO_JOBS, Move, MoveVerdict, assess
from queuety.engine.pairing import Pairing, StepMap, paired
from queuety.inspect.diff_versions import Version
from queuety.model import CleanupStatus, Definition, Workflow, WorkflowStatus
from queuety.model.needs import OpenJobs
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


@dataclass(frozen=True, slots=True)
class Plan:
    """Where runs of a workflow are to be moved, from any of its versions. Made once for many runs."""

    name: str
    versions: Sequence[Version]
    target: Version
    step_map: StepMap
    pairings: Mapping[str, Pairing]


def plan_of(name: str, versions: Sequence[Version], target: Version, step_map: StepMap) -> Plan:
    """The plan, if the target can be read. Raises `DefinitionError`."""
    new = target.read()
    known = [one.definition for one in versions if one.definition is not None and one.hash != target.hash]
    return Plan(name, versions, target, step_map, {old.hash: paired(old, new, step_map) for old in known})


def moves_of(
    connection: Connection, tables: Tables, rows: Sequence[Record], plan: Plan, *, now_us: int
) -> dict[int, Move]:
    """Whether each of these runs could be moved, by id, in the order given."""
    known = {version.hash: version for version in (*plan.versions, plan.target)}
    jobs = changing.open_jobs(connection, tables, [row["id"] for row in rows])
    return {
        row["id"]: _move(row, known.get(row["definition_hash"]), plan, jobs.get(row["id"], NO_JOBS), now_us)
        for row in rows
    }


def moves_of_open(
    connection: Connection,
    tables: Tables,
    plan: Plan,
    *,
    ids: Collection[int] | None,
    after_id: int,
    limit: int,
    now_us: int,
) -> dict[int, Move]:
    """Whether the next runs could be moved, in order of their ids, at most `limit` of them with higher ids: the open
    ones under other versions than the target, or with `ids` those, whatever they are."""
    if ids is None:
        hashes = [version.hash for version in plan.versions if version.hash != plan.target.hash]
        rows = changing.open_runs(connection, tables, hashes, after_id=after_id, limit=limit) if hashes else []
        return moves_of(connection, tables, rows, plan, now_us=now_us)
    some = sorted(workflow_id for workflow_id in ids if workflow_id > after_id)[:limit]
    moves = moves_of(connection, tables, changing.runs(connection, tables, some), plan, now_us=now_us)
    return {
        workflow_id: moves.get(workflow_id) or Move(MoveVerdict.BLOCKED, f"no workflow has the id {workflow_id}")
        for workflow_id in some
    }


def _move(row: Record, version: Version | None, plan: Plan, open_jobs: OpenJobs, now_us: int) -> Move:
    if version is None:
        return Move(MoveVerdict.BLOCKED, f"it is no run of workflow {plan.name!r}")
    if version.definition is None:
        return Move(MoveVerdict.BLOCKED, f"its definition cannot be read: {version.problem}")
    try:
        workflow = _standing(row)
    except ValueError as error:  # a status that only a newer version has
        return Move(MoveVerdict.BLOCKED, f"this version of queuety cannot read it: {error}")
    return assess(
        workflow,
        version.definition,
        plan.target.read(),
        plan.step_map,
        open_jobs=open_jobs,
        now_us=now_us,
        pairing=plan.pairings.get(version.hash),
    )


def run_moves(rows: Sequence[Record], moves: Mapping[int, Move], plan: Plan) -> tuple[RunMove, ...]:
    """The runs with what was found of each."""
    known = {version.hash: version.definition for version in plan.versions}
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
            _name(plan.target.definition, move.to_step),
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
