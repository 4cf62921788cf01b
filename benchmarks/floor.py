"""The floor: the writes of a settled step through the bare driver, ten steps in a transaction, and nothing else.

No engine, no handlers, no JSON: the statements are those of the hot path, their values are made beforehand.
"""

from __future__ import annotations

import time
from typing import Any

from queuety.app.application import Queuety
from queuety.store.rows import TOP_RANK
from queuety.store.statements import HISTORY_COLUMNS, JOB_COLUMNS, SNAPSHOT_COLUMNS, WORKFLOW_COLUMNS

BATCH = 10
STATE = '{"customer":"' + "c" * 40 + '","note":"' + "n" * 120 + '","amount":1234,"lines":[1,2,3,4,5,6,7,8],"done":1234}'


def steps_per_second(app: Queuety, *, number: int, seconds: float = 3.0, batch: int = BATCH) -> float:
    """How many steps a second the database settles when nobody thinks about them; `number` counts the measurements."""
    door = app.door
    statements = door.statements
    pooled = door.engine.raw_connection()
    connection: Any = pooled.driver_connection
    cursor = connection.cursor()
    begins = door.dialect.writer_key() is not None  # SQLite's driver begins nothing by itself here
    first = 1_000_000_000 * (number + 1)
    _add_workflows(statements, cursor, first, batch, begins=begins)
    job_id, version = first, 0
    statements.add_jobs(cursor, [_job(job_id + n, first + n) for n in range(batch)])
    connection.commit()
    done = 0
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        if begins:
            cursor.execute("BEGIN IMMEDIATE")
        version += 1
        ids = [first + n for n in range(batch)]
        statements.select_among(cursor, ("id", "version"), statements.workflows, "id", ids, statements.bulk.for_update)
        statements.delete_held_jobs(cursor, [(job_id + n, job_id + n) for n in range(batch)])
        statements.add_history(cursor, [_history(first + n, version, job_id + n) for n in range(batch)])
        statements.save_snapshot(cursor, [_progress(first + n, version) for n in range(batch)])
        cursor.execute(statements.claim_ready, ["default", batch])
        cursor.fetchall()
        job_id += batch
        statements.add_jobs(cursor, [_job(job_id + n, first + n) for n in range(batch)])
        connection.commit()
        done += batch
    pooled.close()
    return done / spent


def _add_workflows(statements: Any, cursor: Any, first: int, batch: int, *, begins: bool) -> None:
    if begins:
        cursor.execute("BEGIN IMMEDIATE")
    values: dict[str, Any] = dict.fromkeys(WORKFLOW_COLUMNS)
    values |= {"name": "floor", "definition_hash": "0" * 64, "status": "running", "cleanup": "none", "state": STATE}
    values |= dict.fromkeys(
        ("version", "visit", "current_step", "total_steps", "state_version", "state_bytes", "delta_bytes"), 1
    )
    values |= {"transitions": 0, "created_us": 1, "watched": 0}
    rows = [[(values | {"id": first + n})[name] for name in WORKFLOW_COLUMNS] + ["{}"] for n in range(batch)]
    statements.add_workflows(cursor, rows)


def _job(job_id: int, workflow_id: int) -> list[Any]:
    values: dict[str, Any] = dict.fromkeys(JOB_COLUMNS)
    values |= {"id": job_id, "role": "step", "phase": "leased", "queue": "floor", "priority_rank": TOP_RANK}
    values |= {"due_us": 1_700_000_000_000_000, "wake_us": 4_000_000_000_000_000, "handler": "benchmarks.flow:empty"}
    values |= {"attempts": 1, "max_attempts": 3, "token": job_id, "owner": 1, "suspect": 0, "workflow_id": workflow_id}
    values |= {"step_index": 0, "visit": 1, "entries": 0, "created_us": 1_700_000_000_000_000, "started_us": 1}
    return [values[name] for name in JOB_COLUMNS]


def _history(run_id: int, seq: int, job_id: int) -> list[Any]:
    values: dict[str, Any] = dict.fromkeys(HISTORY_COLUMNS)
    values |= {"run_id": run_id, "seq": seq, "entry": "completed", "at_us": 1_700_000_000_000_000, "started_us": 1}
    values |= {"job_id": job_id, "token": job_id, "owner": 1, "attempt": 1, "step_index": 0, "visit": 1, "final": 0}
    values |= {"changed": '{"done":1234}'}
    return [values[name] for name in HISTORY_COLUMNS]


def _progress(workflow_id: int, version: int) -> list[Any]:
    values: dict[str, Any] = dict.fromkeys(SNAPSHOT_COLUMNS)
    values |= {"status": "running", "version": version, "visit": version, "current_step": 1, "transitions": version}
    values |= {"delta_bytes": 0, "state": STATE, "state_version": version, "state_bytes": len(STATE)}
    return [workflow_id, *(values[name] for name in SNAPSHOT_COLUMNS)]
