"""Signals, groups, watchers and chunks; what a run remembers of its loops and of who watches it.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, SmallInteger, text

from queuety.store.migrations.steps import add_column, create_index, create_table, identifier, long_text

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # MySQL and MariaDB add such columns at the end without touching a row, PostgreSQL and SQLite anywhere.
    add_column("workflows", Column("loops", long_text(), nullable=True))
    add_column("workflows", Column("watched", SmallInteger, nullable=False, server_default=text("0")))
    create_index("workflows_parent", "workflows", "parent_id", "id", where="parent_id IS NOT NULL")
    create_table(
        "signals",
        Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("name", identifier(255), nullable=False),
        Column("payload", long_text(), nullable=False),
        Column("at_us", BigInteger, nullable=False),
    )
    create_index("signals_name", "signals", "workflow_id", "name", "seq")
    create_table(
        "groups",
        Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
        Column("name", identifier(255), primary_key=True),
        Column("ids", long_text(), nullable=False),
    )
    create_table(
        "watchers",
        Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
        Column("waiter_id", BigInteger, primary_key=True, autoincrement=False),
        Column("visit", BigInteger, nullable=False),
    )
    create_table(
        "chunks",
        Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
        Column("visit", BigInteger, primary_key=True, autoincrement=False),
        Column("branch", Integer, primary_key=True, autoincrement=False),
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("content", long_text(), nullable=False),
        Column("at_us", BigInteger, nullable=False),
    )
