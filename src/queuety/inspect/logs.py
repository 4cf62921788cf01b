"""The log: what happened to runs and jobs, line by line. Nothing of it is stored: it is read from the history.

Lines stand in the order in which they were recorded. What an attempt tells is recorded when it has ended, its start
too; so whoever follows the log by `since` misses none, and a long attempt's start stands beside its end. That a run has
completed is told beside what completed it, as long as it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from queuety.errors import DefinitionError
from queuety.inspect.course import Eras
from queuety.inspect.limits import checked_count, checked_text
from queuety.inspect.logged import EVENTS, LogRow, completed_line, entries_of, lines_of, started_line
from queuety.inspect.outline import users_of
from queuety.model import Entry
from queuety.store.queries import Record, logs
from queuety.store.queries.logs import Handled, Mark, Span
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["EVENTS", "LogRow", "read_log"]

PAGE: Final = 200
LARGEST_PAGE: Final = 2_000
"""How many rows are read at a time, first and at most: each page is twice as long as the one before it."""

Group = tuple[Mark, list[LogRow]]
"""What one row tells, in order, and its place in the log."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines somebody wants; None is no condition. Raises `DefinitionError` for an event that there is not, and
    for a handler that can be none."""

    workflow_id: int | None = None
    job_id: int | None = None
    handler: str | None = None
    event: str | None = None
    since_us: int | None = None

    def __post_init__(self) -> None:
        if self.handler is not None:
            checked_text(self.handler, what="handler")
        if self.event is not None and checked_text(self.event, what="event") not in EVENTS:
            raise DefinitionError(f"there is no log event {self.event!r}; there are {', '.join(EVENTS)}")

    @property
    def forwards(self) -> bool:
        """Whether the oldest comes first: of one run, of one job, and from a moment on."""
        return (self.workflow_id, self.job_id, self.since_us) != (None, None, None)

    @property
    def is_of_runs(self) -> bool:
        """Whether what runs tell as a whole may be among it."""
        return self.job_id is None and self.handler is None

    def takes(self, line: LogRow) -> bool:
        """Whether the line is wanted, as far as its time goes."""
        return (
            (self.event is None or line.event == self.event)
            and (self.handler is None or line.handler == self.handler)
            and (self.job_id is None or line.job_id == self.job_id)
            and (self.workflow_id is None or line.workflow_id == self.workflow_id)
        )


def read_log(connection: Connection, tables: Tables, wanted: Wanted, *, limit: int = 50) -> list[LogRow]:
    """The lines that are wanted, at most `limit`: the first ones of a run, a job or since a moment, else the newest.

    It reads pages from the edge of an index until there are enough, so a line that is rare among the others costs
    those that it stands behind. Raises `DefinitionError` for a negative `limit`.
    """
    most = checked_count(limit, what="limit")
    if not most:
        return []
    reading = _Reading(connection, tables, wanted, first=min(most, PAGE))
    found: list[LogRow] = []
    for _, lines in reading.groups():
        found += filter(wanted.takes, lines if wanted.forwards else reversed(lines))
        if len(found) >= most:
            break
    return found[:most]


class _Reading:
    """The sources of the log, each read page by page."""

    def __init__(self, connection: Connection, tables: Tables, wanted: Wanted, *, first: int) -> None:
        self._connection = connection
        self._tables = tables
        self._wanted = wanted
        self._first = first
        self._eras = Eras(connection, tables)
        run_id = wanted.workflow_id
        if run_id is None and wanted.job_id is not None:
            run_id = logs.run_of_job(connection, tables, wanted.job_id)
        if run_id is not None:
            self._eras.look({run_id: 0})
        self._has_looked = run_id is not None
        self._handled: Handled | None = None
        if wanted.handler is not None and run_id is None:
            self._handled = Handled(wanted.handler, users_of(connection, tables, wanted.handler))

    def groups(self) -> Iterator[Group]:
        """What every row tells, in the order of the log."""
        wanted, sources = self._wanted, []
        if entries := entries_of(wanted.event, of_handlers=not wanted.is_of_runs):
            sources.append(self._pages(lambda span, size: self._of_history(span, entries, size)))
        if wanted.is_of_runs and wanted.event in (None, "workflow_started"):
            sources.append(self._start() if wanted.workflow_id is not None else self._pages(self._of_starts))
        if wanted.is_of_runs and wanted.event == "workflow_completed":
            sources.append(self._pages(self._of_ends))
        return heapq.merge(*sources, key=lambda group: group[0], reverse=not wanted.forwards)

    def _pages(self, read: Callable[[Span, int], list[Group]]) -> Iterator[Group]:
        wanted, size = self._wanted, self._first
        span = Span(wanted.workflow_id, wanted.job_id, wanted.since_us, wanted.forwards)
        while page := read(span, size):
            yield from page
            if len(page) < size:
                return
            span, size = replace(span, after=page[-1][0]), min(2 * size, LARGEST_PAGE)

    def _start(self) -> Iterator[Group]:
        """The start of the one run that is wanted, which stands before all its rows."""
        span = Span(self._wanted.workflow_id, since_us=self._wanted.since_us)
        for row in logs.started(self._connection, self._tables, span, limit=1):
            yield (0, row["id"], 0), [started_line(row)]

    def _of_starts(self, span: Span, size: int) -> list[Group]:
        rows = logs.started(self._connection, self._tables, span, limit=size)
        return [((row["created_us"], row["id"], 0), [started_line(row)]) for row in rows]

    def _of_ends(self, span: Span, size: int) -> list[Group]:
        rows = logs.completed(self._connection, self._tables, span, limit=size)
        return [((row["completed_us"], row["id"], 0), [completed_line(row)]) for row in rows]

    def _of_history(self, span: Span, entries: Sequence[Entry], size: int) -> list[Group]:
        rows = logs.rows(self._connection, self._tables, span, entries, limit=size, handled=self._handled)
        plain = self._jobs(rows)
        runs = logs.runs_of(self._connection, self._tables, {row["run_id"] for row in rows} - plain.keys())
        self._look(rows, runs)
        return [
            (
                (row["seq"] if span.is_of_one else row["at_us"], row["run_id"], row["seq"]),
                lines_of(row, self._eras, runs.get(row["run_id"]), plain.get(row["run_id"]), self._wanted.handler),
            )
            for row in rows
        ]

    def _jobs(self, rows: Sequence[Record]) -> dict[int, tuple[str | None, str | None]]:
        """Handler and queue of the jobs without a workflow among these; of one that was deleted nothing is known."""
        ids = {row["run_id"] for row in rows if row["job_id"] == row["run_id"]}
        known = logs.jobs_of(self._connection, self._tables, ids) if ids else {}
        return {id_: known.get(id_, (None, None)) for id_ in ids}

    def _look(self, rows: Sequence[Record], runs: Mapping[int, Record]) -> None:
        """Finds the definitions of these runs, of now and of then."""
        self._eras.know({id_: run["definition_hash"] for id_, run in runs.items()})
        if self._has_looked:
            return
        if self._wanted.forwards:
            # The rows are in order, so that the first of a run comes last here, and stays.
            self._eras.look({row["run_id"]: row["seq"] for row in reversed(rows) if row["run_id"] in runs})
            return
        for row in rows:  # backwards, what changed a definition after a row was read before it
            if row["control"]:
                self._eras.note(row["run_id"], row["seq"], row["control"])
