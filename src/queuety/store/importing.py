"""The rows of a run that comes from an export, under a new id. Inside an open transaction; nothing is decided here.

Rows are as `portable` gives them: by column, checked. The ids of jobs are those of another database, and are replaced
by new ones wherever they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from queuety.codec import encode
from queuety.model import Workflow
from queuety.store import settle
from queuety.store.load import Held
from queuety.store.statements import (
    ARTIFACT_COLUMNS,
    CHECKPOINT_COLUMNS,
    CHUNK_COLUMNS,
    GROUP_COLUMNS,
    HISTORY_COLUMNS,
    SIGNAL_COLUMNS,
    TAG_COLUMNS,
)
from queuety.store.tx import Tx

Row = Mapping[str, Any]

_JOB_COLUMNS: Final = (
    *("id", "role", "phase", "queue", "priority_rank", "due_us", "handler", "attempts", "max_attempts", "suspect"),
    *("workflow_id", "step_index", "visit", "branch", "entries", "payload", "config", "options", "progress"),
    *("error_message", "created_us", "started_us", "completed_us"),
)


@dataclass(frozen=True, slots=True)
class Belongings:
    """What a run has beside its own row: rows without the run's id, jobs that are closed, chunks apart."""

    history: Sequence[Row] = ()
    checkpoints: Sequence[Row] = ()
    jobs: Sequence[Row] = ()
    signals: Sequence[Row] = ()
    groups: Sequence[Row] = ()
    artifacts: Sequence[Row] = ()
    chunks: Sequence[Row] = ()
    tags: Sequence[str] = ()

    def job_ids(self) -> list[int]:
        """The ids of all jobs that are named, ascending, each once."""
        named = {row["job_id"] for row in self.history} | {row["id"] for row in self.jobs}
        return sorted(named - {None})


def add_run(tx: Tx, workflow: Workflow, payload: str) -> Held:
    """Adds the row of the run; gives back how it is stored. `payload` is JSON text."""
    # MySQL's packet may not hold two values of the largest size.
    is_apart = workflow.version > 0 and len(payload) > settle.LARGE_STATE
    settle.add_workflows(tx, [(workflow, "{}" if is_apart else payload)])
    if is_apart:
        p = tx.statements.parameter
        statement = f"UPDATE {tx.statements.workflows} SET payload = {p} WHERE id = {p}"
        tx.cursor.execute(statement, [payload, workflow.id])
    return Held(workflow, len(encode(workflow.state)), 0, workflow.version)


def add_belongings(tx: Tx, run_id: int, own: Belongings, job_ids: Mapping[int, int]) -> None:
    """Adds all rows but the chunks; `job_ids` has a new id for each of `own.job_ids()`."""
    statements, cursor = tx.statements, tx.cursor
    history = ({**row, "run_id": run_id, "job_id": job_ids.get(row["job_id"])} for row in own.history)
    if rows := _tuples(HISTORY_COLUMNS, history):
        statements.add_history(cursor, rows)
    if rows := _tuples(CHECKPOINT_COLUMNS, ({**row, "run_id": run_id} for row in own.checkpoints)):
        statements.keep_checkpoints(cursor, rows)
    if rows := _tuples(SIGNAL_COLUMNS, ({**row, "workflow_id": run_id} for row in own.signals)):
        statements.add_signals(cursor, rows)
    if rows := _tuples(GROUP_COLUMNS, ({**row, "workflow_id": run_id} for row in own.groups)):
        statements.keep_groups(cursor, rows)
    if rows := _tuples(TAG_COLUMNS, ({"tag": tag, "workflow_id": run_id} for tag in own.tags)):
        statements.add_tags(cursor, rows)
    jobs = ({**row, "id": job_ids[row["id"]], "suspect": 0, "workflow_id": run_id} for row in own.jobs)
    if rows := _tuples(_JOB_COLUMNS, jobs):
        statements.bulk.insert(tx.tables.jobs, _JOB_COLUMNS)(cursor, rows)
    for row in _tuples(ARTIFACT_COLUMNS, ({**row, "workflow_id": run_id} for row in own.artifacts)):
        statements.keep_artifacts(cursor, [row])  # each may be as large as a packet


def add_chunks(tx: Tx, run_id: int, chunks: Sequence[Row], *, visit: int) -> None:
    """Adds what a streaming step has yielded, as of this visit."""
    if rows := _tuples(CHUNK_COLUMNS, ({**row, "workflow_id": run_id, "visit": visit} for row in chunks)):
        tx.statements.bulk.insert(tx.tables.chunks, CHUNK_COLUMNS)(tx.cursor, rows)


def _tuples(columns: Sequence[str], rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in rows]
