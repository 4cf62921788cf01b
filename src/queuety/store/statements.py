"""The hot path's statements, made once per door. When they are run is said in `claims`, `load` and `settle`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from queuety.store.dialects.bulk import Bulk, Cursor
from queuety.store.schema import LOOKED_FOR, Tables

JOB_COLUMNS = (
    "id",
    "role",
    "phase",
    "queue",
    "priority_rank",
    "due_us",
    "wake_us",
    "handler",
    "attempts",
    "max_attempts",
    "token",
    "owner",
    "suspect",
    "workflow_id",
    "step_index",
    "visit",
    "branch",
    "entries",
    "payload",
    "config",
    "options",
    "created_us",
    "started_us",
)
CLAIM_COLUMNS = (
    "id",
    "role",
    "queue",
    "priority_rank",
    "handler",
    "attempts",
    "max_attempts",
    "due_us",
    "created_us",
    "payload",
    "config",
    "options",
    "workflow_id",
    "step_index",
    "visit",
    "branch",
    "entries",
    "unknown_since_us",
)
HISTORY_COLUMNS = (
    "run_id",
    "seq",
    "entry",
    "at_us",
    "started_us",
    "job_id",
    "token",
    "owner",
    "attempt",
    "step_index",
    "visit",
    "branch",
    "final",
    "changed",
    "removed",
    "control",
    "error",
)
WORKFLOW_COLUMNS = (
    "id",
    "name",
    "definition_hash",
    "status",
    "version",
    "visit",
    "current_step",
    "total_steps",
    "state",
    "state_version",
    "state_bytes",
    "delta_bytes",
    "runtime",
    "transitions",
    "parent_id",
    "parent_step",
    "idempotency_key",
    "error_message",
    "error_kind",
    "failed_step",
    "cleanup",
    "created_us",
    "completed_us",
    "failed_us",
    "cancelled_us",
    "loops",
    "watched",
    "deadline_us",
    "ledger",
)
PROGRESS_COLUMNS = (
    "status",
    "version",
    "visit",
    "current_step",
    "transitions",
    "runtime",
    "completed_us",
    "loops",
    "delta_bytes",
)
"""What a settled step changes in its workflow's row when the snapshot stays as it is."""

SNAPSHOT_COLUMNS = (*PROGRESS_COLUMNS, "state", "state_version", "state_bytes")
"""The same, with a new snapshot."""

BASE_COLUMNS = ("state", "state_version", "state_bytes", "delta_bytes")
"""A new snapshot of the state that the run has already."""

ENDING_COLUMNS = (
    "error_message",
    "error_kind",
    "failed_step",
    "cleanup",
    "failed_us",
    "cancelled_us",
    "watched",
    "ledger",
    "definition_hash",
    "total_steps",
    "deadline_us",
)
"""What changes only when a run fails, is cancelled, retried, cleaned up after, first watched or migrated; with every
step only where something of it is counted."""

CLOSE_COLUMNS = (
    "phase",
    "token",
    "owner",
    "due_us",
    "wake_us",
    "suspect",
    "entries",
    "error_message",
    "completed_us",
    "unknown_since_us",
)
"""What ends an attempt whose job's row stays."""

INBOX_COLUMNS = ("id", "workflow_id", "due_us", "kind", "visit", "body")
SIGNAL_COLUMNS = ("workflow_id", "seq", "name", "payload", "at_us")
GROUP_COLUMNS = ("workflow_id", "name", "ids")
WATCHER_COLUMNS = ("workflow_id", "waiter_id", "visit")
ARTIFACT_COLUMNS = (
    "workflow_id",
    "name",
    "kind",
    "content",
    "data",
    "metadata",
    "step_index",
    "created_us",
    "updated_us",
)
TAG_COLUMNS = ("tag", "workflow_id")
CHECKPOINT_COLUMNS = ("run_id", "seq", "state")
CHUNK_COLUMNS = ("workflow_id", "visit", "branch", "number", "content", "at_us")

RANGES_AT_ONCE = 50
"""Ranges that one statement reads: what is asked for many runs, each with bounds of its own."""


class Statements:
    """Every statement of the hot path, for one database and one set of tables."""

    def __init__(self, tables: Tables, bulk: Bulk) -> None:
        self.bulk = bulk
        p = bulk.parameter
        jobs, workflows, inbox = tables.jobs.name, tables.workflows.name, tables.inbox.name
        self.jobs = jobs
        self.workflows = workflows
        self.history = tables.history.name
        self.inbox = inbox
        self.signals = tables.signals.name
        self.groups = tables.groups.name
        self.watchers = tables.watchers.name
        self.chunks = tables.chunks.name
        self.checkpoints = tables.checkpoints.name
        self.artifacts = tables.artifacts.name
        self.tags = tables.tags.name
        self.add_jobs = bulk.insert(tables.jobs, JOB_COLUMNS)
        self.add_workflows = bulk.insert(tables.workflows, (*WORKFLOW_COLUMNS, "payload"))
        self.add_history = bulk.insert(tables.history, HISTORY_COLUMNS)
        self.add_inbox = bulk.insert(tables.inbox, INBOX_COLUMNS)
        self.add_signals = bulk.insert(tables.signals, SIGNAL_COLUMNS)
        self.keep_checkpoints = bulk.insert(tables.checkpoints, CHECKPOINT_COLUMNS, replaces=True)
        self.keep_artifacts = bulk.insert(tables.artifacts, ARTIFACT_COLUMNS, replaces=True, keeps="created_us")
        self.add_tags = bulk.insert(tables.tags, TAG_COLUMNS)
        self.keep_groups = bulk.insert(tables.groups, GROUP_COLUMNS, replaces=True)
        # A letter of an earlier visit may be opened late; what it says is no longer wanted.
        self.keep_watchers = bulk.insert(tables.watchers, WATCHER_COLUMNS, replaces=True, highest="visit")
        self.delete_watchers = bulk.delete_by(tables.watchers, WATCHER_COLUMNS)
        self.delete_signals = bulk.delete_by(tables.signals, ("workflow_id", "seq"))
        self.delete_chunks = bulk.delete_by(tables.chunks, ("workflow_id", "visit", "branch"))
        self.save_progress = bulk.update(tables.workflows, PROGRESS_COLUMNS)
        self.save_snapshot = bulk.update(tables.workflows, SNAPSHOT_COLUMNS)
        self.save_base = bulk.update(tables.workflows, BASE_COLUMNS)
        self.save_ending = bulk.update(tables.workflows, ENDING_COLUMNS)
        self.close_jobs = bulk.update(tables.jobs, CLOSE_COLUMNS, fence="token")
        self.delete_held_jobs = bulk.delete_held(tables.jobs)
        # The condition of the partial index stands here word for word, see `LOOKED_FOR`.
        where = f"WHERE phase = {{phase}} AND {LOOKED_FOR} AND queue = {p}"
        claim = f"SELECT {', '.join(CLAIM_COLUMNS)} FROM {jobs} {where}"
        order = f" ORDER BY priority_rank, due_us, id LIMIT {p}{bulk.for_update}"
        self.claim_ready = claim.format(phase="'ready'") + order
        self.claim_suspects = claim.format(phase="'suspect'") + order
        self.drop_jobs = (
            f"UPDATE {jobs} SET phase = {p}, token = NULL, owner = NULL, wake_us = NULL, error_message = {p}, "
            f"completed_us = {p} WHERE workflow_id = {p} AND role <> 'cleanup' "
            f"AND phase IN ('ready', 'delayed', 'suspect', 'leased')"
        )
        # cleanup too: whoever waits for the end of a back-off waits for that one as well
        self.hurry_jobs = (
            f"UPDATE {jobs} SET phase = 'ready', due_us = {p}, wake_us = NULL WHERE workflow_id = {p} "
            f"AND phase = 'delayed'"
        )
        self.due_inbox = f"SELECT workflow_id FROM {inbox} WHERE due_us <= {p} ORDER BY due_us LIMIT {p}"
        self.parameter = p

    def select_among(
        self,
        cursor: Cursor,
        columns: Sequence[str],
        table: str,
        column: str,
        values: Sequence[int],
        tail: str = "",
        *more: Any,
    ) -> list[tuple[Any, ...]]:
        """The rows of `table` whose `column` is one of `values` (at least one)."""
        condition, parameters = self.bulk.among(column, values)
        cursor.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {condition}{tail}", [*parameters, *more])
        return list(cursor.fetchall())

    def select_ranges(self, cursor: Cursor, part: str, ranges: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """What `part` (a SELECT) gives for each of these sets of its parameters, in no order.

        A part of its own for each: every database reads that as a range of the key.
        """
        found: list[tuple[Any, ...]] = []
        pending = iter(ranges)
        while some := list(islice(pending, RANGES_AT_ONCE)):
            cursor.execute(" UNION ALL ".join([part] * len(some)), [value for values in some for value in values])
            found.extend(cursor.fetchall())
        return found

    def change_among(
        self, cursor: Cursor, head: str, column: str, values: Sequence[int], tail: str = "", *before: Any
    ) -> None:
        """Runs `head` (an UPDATE or a DELETE up to its WHERE) for the rows whose `column` is one of `values`."""
        condition, parameters = self.bulk.among(column, values)
        cursor.execute(f"{head} WHERE {condition}{tail}", [*before, *parameters])
