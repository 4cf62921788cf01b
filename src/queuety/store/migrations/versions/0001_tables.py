"""The first tables.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, SmallInteger

from queuety.store.migrations.steps import create_index, create_table, identifier, insert_row, long_text, run_id

revision = "0001"
down_revision = None


def upgrade() -> None:
    create_table(
        "definitions",
        Column("hash", identifier(64), primary_key=True),
        Column("name", identifier(255), nullable=False),
        Column("version", identifier(255), nullable=True),
        Column("body", long_text(), nullable=False),
        Column("created_us", BigInteger, nullable=False),
    )
    create_table(
        "workflows",
        Column("id", run_id(), primary_key=True, autoincrement=False),
        Column("name", identifier(255), nullable=False),
        Column("definition_hash", identifier(64), nullable=False),
        Column("status", identifier(24), nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("visit", BigInteger, nullable=False),
        Column("current_step", Integer, nullable=False),
        Column("total_steps", Integer, nullable=False),
        Column("payload", long_text(), nullable=False),
        Column("state", long_text(), nullable=False),
        Column("state_version", BigInteger, nullable=False),
        Column("state_bytes", BigInteger, nullable=False),
        Column("delta_bytes", BigInteger, nullable=False),
        Column("runtime", long_text(), nullable=True),
        Column("transitions", BigInteger, nullable=False),
        Column("parent_id", BigInteger, nullable=True),
        Column("parent_step", Integer, nullable=True),
        Column("idempotency_key", identifier(255), nullable=True),
        Column("error_message", long_text(), nullable=True),
        Column("error_kind", identifier(32), nullable=True),
        Column("failed_step", Integer, nullable=True),
        Column("cleanup", identifier(16), nullable=False),
        Column("created_us", BigInteger, nullable=False),
        Column("completed_us", BigInteger, nullable=True),
        Column("failed_us", BigInteger, nullable=True),
        Column("cancelled_us", BigInteger, nullable=True),
    )
    create_index("workflows_status", "workflows", "status", "id")
    create_index(
        "workflows_key", "workflows", "name", "idempotency_key", where="idempotency_key IS NOT NULL", unique=True
    )
    create_table(
        "jobs",
        Column("id", run_id(), primary_key=True, autoincrement=False),
        Column("role", identifier(16), nullable=False),
        Column("phase", identifier(16), nullable=False),
        Column("queue", identifier(255), nullable=False),
        Column("priority_rank", SmallInteger, nullable=False),
        Column("due_us", BigInteger, nullable=False),
        Column("wake_us", BigInteger, nullable=True),
        Column("handler", identifier(500), nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("max_attempts", Integer, nullable=False),
        Column("token", BigInteger, nullable=True),
        Column("owner", BigInteger, nullable=True),
        Column("suspect", SmallInteger, nullable=False),
        Column("workflow_id", BigInteger, nullable=True),
        Column("step_index", Integer, nullable=True),
        Column("visit", BigInteger, nullable=True),
        Column("branch", Integer, nullable=True),
        Column("entries", Integer, nullable=False),
        Column("payload", long_text(), nullable=True),
        Column("config", long_text(), nullable=True),
        Column("options", long_text(), nullable=True),
        Column("progress", long_text(), nullable=True),
        Column("error_message", long_text(), nullable=True),
        Column("unknown_since_us", BigInteger, nullable=True),
        Column("created_us", BigInteger, nullable=False),
        Column("started_us", BigInteger, nullable=True),
        Column("completed_us", BigInteger, nullable=True),
    )
    create_index(
        "jobs_ready",
        "jobs",
        "phase",
        "queue",
        "priority_rank",
        "due_us",
        "id",
        where="phase IN ('ready', 'suspect', 'buried')",
    )
    create_index("jobs_wake", "jobs", "wake_us", where="wake_us IS NOT NULL")
    create_index("jobs_workflow", "jobs", "workflow_id", where="workflow_id IS NOT NULL")
    create_table(
        "history",
        Column("run_id", BigInteger, primary_key=True, autoincrement=False),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("entry", identifier(16), nullable=False),
        Column("at_us", BigInteger, nullable=False),
        Column("started_us", BigInteger, nullable=True),
        Column("job_id", BigInteger, nullable=True),
        Column("token", BigInteger, nullable=False),
        Column("owner", BigInteger, nullable=True),
        Column("attempt", Integer, nullable=True),
        Column("step_index", Integer, nullable=True),
        Column("visit", BigInteger, nullable=True),
        Column("branch", Integer, nullable=True),
        Column("final", SmallInteger, nullable=False),
        Column("changed", long_text(), nullable=True),
        Column("removed", long_text(), nullable=True),
        Column("control", long_text(), nullable=True),
        Column("error", long_text(), nullable=True),
    )
    create_index("history_job", "history", "job_id", where="job_id IS NOT NULL")
    create_table(
        "inbox",
        Column("id", run_id(), primary_key=True, autoincrement=False),
        Column("workflow_id", BigInteger, nullable=False),
        Column("due_us", BigInteger, nullable=False),
        Column("kind", identifier(16), nullable=False),
        Column("visit", BigInteger, nullable=True),
        Column("body", long_text(), nullable=True),
    )
    create_index("inbox_due", "inbox", "due_us")
    create_index("inbox_workflow", "inbox", "workflow_id")
    create_table(
        "queues",
        Column("name", identifier(255), primary_key=True),
        Column("paused_us", BigInteger, nullable=True),
        Column("changes", BigInteger, nullable=False),
    )
    create_table(
        "workers",
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("host", identifier(255), nullable=False),
        Column("pid", BigInteger, nullable=False),
        Column("queues", long_text(), nullable=False),
        Column("concurrency", Integer, nullable=False),
        Column("started_us", BigInteger, nullable=False),
        Column("seen_us", BigInteger, nullable=False),
        Column("sleeping", SmallInteger, nullable=False),
    )
    create_table(
        "ids",
        Column("name", identifier(32), primary_key=True),
        Column("next", BigInteger, nullable=False),
    )
    insert_row("ids", "name", {"name": "runs", "next": 1})
