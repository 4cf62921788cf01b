"""The tables, as SQLAlchemy Core sees them. What is written here is what the migrations build; a test compares the two.

JSON is text that the codec made and checked; times are microseconds since the epoch, UTC; identifiers compare exactly
(binary, no padding). Every index names the statement that it serves.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

NAME = 255
"""Longest identifier in characters: queues, workflow names, keys."""

HANDLER = 500
"""Longest handler name in characters; not indexed."""


LOOKED_FOR = "phase IN ('ready', 'suspect', 'buried')"
"""The phases that are looked for by name; of what runs, waits or is done no row stands in this index.

A query repeats it word for word: SQLite uses a partial index only then.
"""


def _name(length: int = NAME) -> TypeEngine[str]:
    return String(length)


def _text() -> TypeEngine[str]:
    """Text of any length that the size limit allows: MySQL's plain TEXT ends at 64 KiB."""
    return Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


class Tables:
    """Every table under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.metadata = MetaData()
        self.definitions = self._definitions()
        self.workflows = self._workflows()
        self.jobs = self._jobs()
        self.history = self._history()
        self.inbox = self._inbox()
        self.signals = self._signals()
        self.groups = self._groups()
        self.watchers = self._watchers()
        self.chunks = self._chunks()
        self.checkpoints = self._checkpoints()
        self.artifacts = self._artifacts()
        self.tags = self._tags()
        self.queues = self._queues()
        self.workers = self._workers()
        self.ids = self._ids()

    def _table(self, name: str, *parts: Column[object] | Index) -> Table:
        return Table(self.prefix + name, self.metadata, *parts)

    def _index(self, name: str, *columns: str, where: str | None = None, unique: bool = False) -> Index:
        """An index; `where` narrows it where the database has partial indexes (MySQL has none and keeps it whole)."""
        condition = text(where) if where else None
        return Index(
            f"ix_{self.prefix}{name}", *columns, unique=unique, postgresql_where=condition, sqlite_where=condition
        )

    def _definitions(self) -> Table:
        """What workflows do, once per hash; never rewritten."""
        return self._table(
            "definitions",
            Column("hash", String(64), primary_key=True),
            Column("name", _name(), nullable=False),
            Column("version", _name(), nullable=True),
            Column("body", _text(), nullable=False),
            Column("created_us", BigInteger, nullable=False),
        )

    def _workflows(self) -> Table:
        """One row per run. `state` is the snapshot as of `state_version`; the history holds the deltas since.

        `payload` is what the run was dispatched with: all deltas folded over it give any earlier state.
        """
        return self._table(
            "workflows",
            Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
            Column("name", _name(), nullable=False),
            Column("definition_hash", String(64), nullable=False),
            Column("status", String(24), nullable=False),
            Column("version", BigInteger, nullable=False),
            Column("visit", BigInteger, nullable=False),
            Column("current_step", Integer, nullable=False),
            Column("total_steps", Integer, nullable=False),
            Column("payload", _text(), nullable=False),
            Column("state", _text(), nullable=False),
            Column("state_version", BigInteger, nullable=False),
            Column("state_bytes", BigInteger, nullable=False),
            Column("delta_bytes", BigInteger, nullable=False),
            Column("runtime", _text(), nullable=True),
            Column("transitions", BigInteger, nullable=False),
            Column("parent_id", BigInteger, nullable=True),
            Column("parent_step", Integer, nullable=True),
            Column("idempotency_key", _name(), nullable=True),
            Column("error_message", _text(), nullable=True),
            Column("error_kind", String(32), nullable=True),
            Column("failed_step", Integer, nullable=True),
            Column("cleanup", String(16), nullable=False),
            Column("created_us", BigInteger, nullable=False),
            Column("completed_us", BigInteger, nullable=True),
            Column("failed_us", BigInteger, nullable=True),
            Column("cancelled_us", BigInteger, nullable=True),
            Column("loops", _text(), nullable=True),
            Column("watched", SmallInteger, nullable=False, server_default=text("0")),
            Column("deadline_us", BigInteger, nullable=True),
            Column("ledger", _text(), nullable=True),
            # list_workflows(status=…): newest first within a status; written twice in a run's life
            self._index("workflows_status", "status", "id"),
            # dispatch with a key: the first wins, whoever races
            self._index("workflows_key", "name", "idempotency_key", where="idempotency_key IS NOT NULL", unique=True),
            # list_workflows(parent_id=…): a run's children, newest first
            self._index("workflows_parent", "parent_id", "id", where="parent_id IS NOT NULL"),
            # logs of all runs: those that were started, newest first or since a moment; written once in a run's life
            self._index("workflows_created", "created_us"),
            # retention, logs: the runs that are over for good, the earliest first; a row comes in once in a run's life
            self._index("workflows_done", "completed_us", "id", where="completed_us IS NOT NULL"),
        )

    def _jobs(self) -> Table:
        """Open work, finished plain jobs, buried jobs. A step's job is deleted when it completes: its history stays.
        Completed with a message are those that were open when somebody skipped or completed their step by hand.

        `priority_rank` is 3 − priority, so that every index is read upwards. `wake_us` is when somebody must
        look at the row although nobody claims it: the due time of a delayed job, the end of a lease; else NULL.
        """
        return self._table(
            "jobs",
            Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
            Column("role", String(16), nullable=False),
            Column("phase", String(16), nullable=False),
            Column("queue", _name(), nullable=False),
            Column("priority_rank", SmallInteger, nullable=False),
            Column("due_us", BigInteger, nullable=False),
            Column("wake_us", BigInteger, nullable=True),
            Column("handler", String(HANDLER), nullable=False),
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
            Column("payload", _text(), nullable=True),
            Column("config", _text(), nullable=True),
            Column("options", _text(), nullable=True),
            Column("progress", _text(), nullable=True),
            Column("error_message", _text(), nullable=True),
            Column("unknown_since_us", BigInteger, nullable=True),
            Column("created_us", BigInteger, nullable=False),
            Column("started_us", BigInteger, nullable=True),
            Column("completed_us", BigInteger, nullable=True),
            # the claim: the first `limit` ready rows of a queue, in claim order; the suspects' own; what is buried
            self._index("jobs_ready", "phase", "queue", "priority_rank", "due_us", "id", where=LOOKED_FOR),
            # promotion of what is due, recovery of leases that have ended
            self._index("jobs_wake", "wake_us", where="wake_us IS NOT NULL"),
            # what a run still has open: cancel, failure, list_jobs(workflow_id=…)
            self._index("jobs_workflow", "workflow_id", where="workflow_id IS NOT NULL"),
            # retention: the plain jobs that are completed or buried, the earliest first
            self._index("jobs_done", "completed_us", "id", where="workflow_id IS NULL AND completed_us IS NOT NULL"),
        )

    def _history(self) -> Table:
        """One row per attempt, timer and command of a run; `run_id` is a workflow, or a job without one."""
        return self._table(
            "history",
            Column("run_id", BigInteger, primary_key=True, autoincrement=False),
            Column("seq", BigInteger, primary_key=True, autoincrement=False),
            Column("entry", String(16), nullable=False),
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
            Column("changed", _text(), nullable=True),
            Column("removed", _text(), nullable=True),
            Column("control", _text(), nullable=True),
            Column("error", _text(), nullable=True),
            # job_status of a step that is done; what became of an attempt whose commit is unknown
            self._index("history_job", "job_id", where="job_id IS NOT NULL"),
            # logs of all runs, newest first or since a moment
            self._index("history_at", "at_us"),
        )

    def _inbox(self) -> Table:
        """What will happen to a workflow: its timers, messages to it. Read and deleted under the workflow's lock."""
        return self._table(
            "inbox",
            Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
            Column("workflow_id", BigInteger, nullable=False),
            Column("due_us", BigInteger, nullable=False),
            Column("kind", String(16), nullable=False),
            Column("visit", BigInteger, nullable=True),
            Column("body", _text(), nullable=True),
            # what is due, oldest first
            self._index("inbox_due", "due_us"),
            # all that waits for one workflow
            self._index("inbox_workflow", "workflow_id"),
        )

    def _signals(self) -> Table:
        """Signals that no wait has used. `seq` is that of the history row that tells of it: the order of arrival."""
        return self._table(
            "signals",
            Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
            Column("seq", BigInteger, primary_key=True, autoincrement=False),
            Column("name", _name(), nullable=False),
            Column("payload", _text(), nullable=False),
            Column("at_us", BigInteger, nullable=False),
            # a wait: the signals of one name, first come first
            self._index("signals_name", "workflow_id", "name", "seq"),
        )

    def _groups(self) -> Table:
        """The runs that a step has started under a name: a JSON list of their ids. Read whole, by its key."""
        return self._table(
            "groups",
            Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
            Column("name", _name(), primary_key=True),
            Column("ids", _text(), nullable=False),
        )

    def _watchers(self) -> Table:
        """Who wants to be told, for which visit, when a run has ended. Written and deleted under that run's lock."""
        return self._table(
            "watchers",
            Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
            Column("waiter_id", BigInteger, primary_key=True, autoincrement=False),
            Column("visit", BigInteger, nullable=False),
            # purge of a run that has left its wait before all had ended
            self._index("watchers_waiter", "waiter_id"),
        )

    def _chunks(self) -> Table:
        """What a streaming step has yielded in its visit so far; `branch` is -1 where the step has none.

        Gone once the step is settled: its history row has them all. Read in the order of the key.
        """
        return self._table(
            "chunks",
            Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
            Column("visit", BigInteger, primary_key=True, autoincrement=False),
            Column("branch", Integer, primary_key=True, autoincrement=False),
            Column("number", BigInteger, primary_key=True, autoincrement=False),
            Column("content", _text(), nullable=False),
            Column("at_us", BigInteger, nullable=False),
        )

    def _checkpoints(self) -> Table:
        """The state of a run as of a history row, now and then, so that no earlier state is far from one.

        Where the first rows of the history were pruned, the earliest one stands for them.
        """
        return self._table(
            "checkpoints",
            Column("run_id", BigInteger, primary_key=True, autoincrement=False),
            Column("seq", BigInteger, primary_key=True, autoincrement=False),
            Column("state", _text(), nullable=False),
        )

    def _artifacts(self) -> Table:
        """What runs have put aside under a name: text and JSON in `content`, bytes in `data`; `metadata` is JSON."""
        return self._table(
            "artifacts",
            Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
            Column("name", _name(), primary_key=True),
            Column("kind", _name(), nullable=False),
            Column("content", _text(), nullable=True),
            Column("data", LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"), nullable=True),
            Column("metadata", _text(), nullable=False),
            Column("step_index", Integer, nullable=True),
            Column("created_us", BigInteger, nullable=False),
            Column("updated_us", BigInteger, nullable=False),
        )

    def _tags(self) -> Table:
        """The words that runs were given when they were started, to be found by."""
        return self._table(
            "tags",
            Column("tag", _name(), primary_key=True),
            Column("workflow_id", BigInteger, primary_key=True, autoincrement=False),
            # a run's own tags
            self._index("tags_workflow", "workflow_id"),
        )

    def _queues(self) -> Table:
        """A row per queue that was ever paused. `changes` rises with each pause and resume."""
        return self._table(
            "queues",
            Column("name", _name(), primary_key=True),
            Column("paused_us", BigInteger, nullable=True),
            Column("changes", BigInteger, nullable=False),
        )

    def _workers(self) -> Table:
        """A row per process that runs handlers, for people and for wake-ups; no lease depends on it."""
        return self._table(
            "workers",
            Column("id", BigInteger, primary_key=True, autoincrement=False),
            Column("host", _name(), nullable=False),
            Column("pid", BigInteger, nullable=False),
            Column("queues", _text(), nullable=False),
            Column("concurrency", Integer, nullable=False),
            Column("started_us", BigInteger, nullable=False),
            Column("seen_us", BigInteger, nullable=False),
            Column("sleeping", SmallInteger, nullable=False),
        )

    def _ids(self) -> Table:
        """The next free id, where the database has no sequence that every process may draw from."""
        return self._table(
            "ids",
            Column("name", String(32), primary_key=True),
            Column("next", BigInteger, nullable=False),
        )
