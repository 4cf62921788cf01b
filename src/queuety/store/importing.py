"""The rows of a run that comes from an export, under a new id. Inside an open transaction; nothing is decided here.

Rows are as `portable` gives them: by column, checked. The ids of jobs are those of another database, and are replaced
by new ones wherever they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Table

from queuety.codec import encode
from queuety.model import Workflow
from queuety.store import settle
from queuety.store.load import Held
from queuety.store.statements import CHUNK_COLUMNS, GROUP_COLUMNS, HISTORY_COLUMNS, SIGNAL_COLUMNS
from queuety.store.tx import Tx

Row = Mapping[str, Any]

_CHECKPOINT_COLUMNS: Final = ("run_id", "seq", "state")
_TAG_COLUMNS: Final = ("tag", "workflow_id")
_ARTIFACT_COLUMNS: Final = (
    *("workflow_id", "name", "kind", "content", "data", "metadata", "step_index", "created_us", "updated_us"),
)
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
    tables = tx.tables
    history = ({**row, "job_id": job_ids.get(row["job_id"])} for row in own.history)
    _add(tx, tables.history, HISTORY_COLUMNS, history, run_id=run_id)
    _add(tx, tables.checkpoints, _CHECKPOINT_COLUMNS, own.checkpoints, run_id=run_id)
    jobs = ({**row, "id": job_ids[row["id"]], "suspect": 0} for row in own.jobs)
    _add(tx, tables.jobs, _JOB_COLUMNS, jobs, workflow_id=run_id)
    _add(tx, tables.signals, SIGNAL_COLUMNS, own.signals, workflow_id=run_id)
    _add(tx, tables.groups, GROUP_COLUMNS, own.groups, workflow_id=run_id)
    _add(tx, tables.tags, _TAG_COLUMNS, ({"tag": tag} for tag in own.tags), workflow_id=run_id)
    for row in own.artifacts:
        _add_artifact(tx, {**row, "workflow_id": run_id})


def add_chunks(tx: Tx, run_id: int, chunks: Sequence[Row], *, visit: int) -> None:
    """Adds what a streaming step has yielded, as of this visit."""
    rows = ({**row, "visit": visit} for row in chunks)
    _add(tx, tx.tables.chunks, CHUNK_COLUMNS, rows, workflow_id=run_id)


def _add(tx: Tx, table: Table, columns: Sequence[str], rows: Iterable[Row], **same: Any) -> None:
    found = [tuple({**row, **same}[name] for name in columns) for row in rows]
    if found:
        tx.statements.bulk.insert(table, columns)(tx.cursor, found)


def _add_artifact(tx: Tx, row: Row) -> None:
    """One at a time: arrays of bytes are nothing that every driver knows."""
    values = ", ".join([tx.statements.parameter] * len(_ARTIFACT_COLUMNS))
    tx.cursor.execute(
        f"INSERT INTO {tx.tables.artifacts.name} ({', '.join(_ARTIFACT_COLUMNS)}) VALUES ({values})",
        [row[name] for name in _ARTIFACT_COLUMNS],
    )
