"""Workflows as people see them. Every state is read from the database as it is now: a snapshot and the deltas since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from queuety.codec import decode
from queuety.inspect.budget import budget_of
from queuety.inspect.filters import WorkflowFilter, checked_age
from queuety.inspect.limits import checked_count
from queuety.inspect.outline import Outline, outlines
from queuety.inspect.states import WorkflowState, moment
from queuety.inspect.waits import Standings, standings_for, wait_of
from queuety.model import CleanupStatus, ErrorKind, Json, WorkflowStatus
from queuety.model.deltas import fold
from queuety.store.queries import Record, jobs, workflows
from queuety.store.queries.workflows import Match, Words
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

NO_FILTER: Final = WorkflowFilter()

NO_WORDS: Final = Words()

LOOKS: Final = 3
"""How often a run is read whose deltas go away after its row was read."""

PROGRESSES: Final = 50
"""How many jobs' progress is told of a step that runs several."""


def workflow_status(connection: Connection, tables: Tables, workflow_id: int) -> WorkflowState | None:
    """The workflow as it is now, with its running step's progress, or None if there is none with this id."""
    row = workflows.found(connection, tables, workflow_id)
    if row is None:
        return None
    state = _states(connection, tables, [row])[0]
    return state if state.status.is_terminal else replace(state, progress=progress(connection, tables, row))


def progress(connection: Connection, tables: Tables, row: Record) -> dict[str, Json] | None:
    """What the running jobs of the run's present visit have said of their progress (`WorkflowState.progress`)."""
    found = jobs.progresses(connection, tables, row["id"], row["visit"], limit=PROGRESSES)
    for branch, text in found:
        if branch is None:
            only: dict[str, Json] = decode(text)
            return only
    return {str(branch): decode(text) for branch, text in found} or None


def list_workflows(
    connection: Connection,
    tables: Tables,
    wanted: WorkflowFilter = NO_FILTER,
    *,
    now_us: int,
    limit: int = 50,
    before_id: int | None = None,
) -> list[WorkflowState]:
    """The workflows that meet the filter, newest first, at most `limit`; their `progress` is not read.

    Ages are counted back from `now_us`. The next page begins at `before_id`, the id of the last one seen. A page costs
    the same few statements however many it holds. Raises `DefinitionError` for a `limit` that is negative or too large.
    """
    most = checked_count(limit, what="limit")
    if before_id is not None:
        checked_count(before_id, what="before_id")
    rows = workflows.newest(connection, tables, matched(wanted, now_us=now_us), before_id=before_id, limit=most)
    return _states(connection, tables, rows)


def ids_of(
    connection: Connection,
    tables: Tables,
    wanted: WorkflowFilter,
    *,
    now_us: int,
    limit: int,
    before_id: int | None = None,
) -> list[int]:
    """The ids of the workflows that meet the filter, newest first, at most `limit`; no more of them is read.

    For what is done to many: with one `now_us` for all pages, who has reached an age meanwhile is not among them.
    """
    return workflows.newest_ids(
        connection,
        tables,
        matched(wanted, now_us=now_us),
        before_id=before_id,
        limit=checked_count(limit, what="limit"),
    )


def matched(wanted: WorkflowFilter, *, now_us: int) -> Match:
    """The filter as the store reads it."""
    return Match(
        statuses=_statuses(wanted),
        name=wanted.name,
        parent_id=_parent(wanted.parent_id),
        tag=wanted.tag,
        error_kind=None if wanted.error_kind is None else str(wanted.error_kind),
        until_us=_before(wanted.older_than, now_us),
        since_us=_before(wanted.newer_than, now_us),
    )


def _parent(id_: int | None) -> int | None:
    """The id, or one that no run has instead of a number that no column can hold."""
    return id_ if id_ is None or 0 < id_ < 1 << 63 else 0


def _statuses(wanted: WorkflowFilter) -> tuple[str, ...] | None:
    if wanted.status is None:
        return None
    return (str(wanted.status),) if isinstance(wanted.status, str) else tuple(str(one) for one in wanted.status)


def _before(age: timedelta | float | None, now_us: int) -> int | None:
    return None if age is None else now_us - round(checked_age(age, what="age") * 1_000_000)


def _states(connection: Connection, tables: Tables, rows: Sequence[Record]) -> list[WorkflowState]:
    states = folded(connection, tables, rows)
    known = outlines(connection, tables, {row["definition_hash"] for row in rows})
    standings = standings_for(connection, tables, rows)
    words = workflows.words(connection, tables, [row["id"] for row in rows])
    return [
        _state(row, state, known[row["definition_hash"]], standings, words.get(row["id"], NO_WORDS))
        for row, state in zip(rows, states, strict=True)
    ]


def folded(
    connection: Connection, tables: Tables, rows: Sequence[Record], *, looks: int = LOOKS
) -> list[dict[str, Json]]:
    """The state of each row. The deltas are those of the row's own version, whatever was written since it was read.

    A run whose deltas were pruned since is read again; of one that is gone the row is all that is left.
    """
    behind = {
        row["id"]: (row["state_version"], row["version"]) for row in rows if row["state_version"] < row["version"]
    }
    deltas = workflows.deltas(connection, tables, behind) if behind else {}
    again = {
        workflow_id: row
        for workflow_id in behind.keys() - deltas.keys()
        if looks > 1 and (row := workflows.found(connection, tables, workflow_id)) is not None
    }
    if again:
        newer = [again.get(row["id"], row) for row in rows]
        return folded(connection, tables, newer, looks=looks - 1)
    return [
        fold(
            decode(row["state"]),
            (
                (decode(changed) if changed else {}, decode(removed) if removed else ())
                for changed, removed in deltas.get(row["id"], ())
            ),
        )
        for row in rows
    ]


def _state(row: Record, state: dict[str, Json], outline: Outline, standings: Standings, words: Words) -> WorkflowState:
    step = outline.step(row["current_step"])
    wait = wait_of(row, state, outline, standings)
    return WorkflowState(
        id=row["id"],
        name=row["name"],
        status=WorkflowStatus(row["status"]),
        state=state,
        current_step=row["current_step"],
        current_step_name=step.name if step else None,
        total_steps=row["total_steps"],
        waiting_for=wait.names if wait else None,
        wait_type=wait.kind if wait else None,
        wait_mode=wait.mode if wait else None,
        wait_details=wait.details if wait else None,
        definition_version=outline.version,
        definition_hash=row["definition_hash"],
        idempotency_key=row["idempotency_key"],
        budget=budget_of(row, state, outline),
        artifact_count=len(words.artifacts),
        artifact_keys=tuple(sorted(words.artifacts)),
        parent_workflow_id=row["parent_id"],
        parent_step_index=row["parent_step"],
        error_message=row["error_message"],
        error_kind=ErrorKind(row["error_kind"]) if row["error_kind"] else None,
        failed_step=row["failed_step"],
        compensation_status=CleanupStatus(row["cleanup"]),
        created_at=moment(row["created_us"]),
        started_at=moment(row["created_us"]),
        completed_at=moment(row["completed_us"]),
        failed_at=moment(row["failed_us"]),
        cancelled_at=moment(row["cancelled_us"]),
        deadline_at=moment(row["deadline_us"]),
        tags=tuple(sorted(words.tags)),
    )
