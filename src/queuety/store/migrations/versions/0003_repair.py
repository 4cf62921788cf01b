"""Deadlines, budgets and cleanup of runs; checkpoints, artifacts, tags; what retention and the log look for.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, LargeBinary
from sqlalchemy.dialects import mysql

from queuety.store.migrations.steps import (
    Index,
    add_column,
    create_index,
    create_indexes,
    create_table,
    identifier,
    long_text,
)

revision = "0003"
down_revision = "0002"

INDEXES = (
    Index("workflows_created", "workflows", ("created_us",)),
    Index("workflows_done", "workflows", ("completed_us", "id"), where="completed_us IS NOT NULL"),
    Index("jobs_done", "jobs", ("completed_us", "id"), where="workflow_id IS NULL AND completed_us IS NOT NULL"),
    Index("watchers_waiter", "watchers", ("waiter_id",)),
    Index("history_at", "history", ("at_us",)),
)


def upgrade() -> None:
    add_column("workflows", Column("deadline_us", BigInteger, nullable=True))
    add_column("workflows", Column("ledger", long_text(), nullable=True))
    create_indexes(*INDEXES)
    create_table(
        "checkpoints",
        Column("run_id", BigInteger, primary_key=True, autoincrement=False),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("state", long_text(), nullable=False),
    )
    create_table(
        "artifacts",
        Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
        Column("name", identifier(255), primary_key=True),
        Column("kind", identifier(255), nullable=False),
        Column("content", long_text(), nullable=True),
        Column("data", LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"), nullable=True),
        Column("metadata", long_text(), nullable=False),
        Column("step_index", Integer, nullable=True),
        Column("created_us", BigInteger, nullable=False),
        Column("updated_us", BigInteger, nullable=False),
    )
    create_table(
        "tags",
        Column("tag", identifier(255), primary_key=True),
        Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
    )
    create_index("tags_workflow", "tags", "workflow_id")
