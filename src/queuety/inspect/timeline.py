"""What has happened to a run, event by event, and what became of a job's attempts; both read from the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from queuety.engine.replay import delta
from queuety.errors import DefinitionError
from queuety.inspect.course import Course, Eras, states_as_of
from queuety.inspect.events import (
    Around,
    TimelineEvent,
    Told,
    duration_ms,
    error_of,
    events_of,
    is_cleanup,
    output_of,
    undone_at,
)
from queuety.inspect.limits import checked_count
from queuety.inspect.outline import Outline
from queuety.inspect.states import moment
from queuety.model import Json
from queuety.store.queries import Record, history, past, workflows
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["JobAttempt", "TimelineEvent", "job_history", "workflow_timeline"]


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """One attempt of a job that has ended, well if `error` is None. `is_final`: none followed, whatever was left."""

    job_id: int
    attempt: int
    started_at: datetime
    finished_at: datetime
    duration_ms: int
    output: dict[str, Json] | None
    error: dict[str, Json] | None
    error_message: str | None
    is_final: bool
    worker: int | None


def workflow_timeline(
    connection: Connection,
    tables: Tables,
    workflow_id: int,
    limit: int = 100,
    offset: int = 0,
    after_id: int | None = None,
) -> list[TimelineEvent]:
    """The events `offset` … `offset + limit` of a workflow, oldest first; none if there is no such workflow.

    With `after_id`, the id of the last one seen, those that follow it, which costs the same anywhere in a long run.
    Raises `DefinitionError` if a number is negative, and for `offset` and `after_id` together.
    """
    most, skipped = checked_count(limit, what="limit"), checked_count(offset, what="offset")
    seen = 0 if after_id is None else checked_count(after_id, what="after_id")
    if seen and skipped:
        raise DefinitionError(f"offset={offset!r} and after_id={after_id!r}: say one of them")
    run = workflows.standing(connection, tables, workflow_id)
    if run is None or not most:
        return []
    place = history.Place(seen // 2, 0)
    if skipped:
        place = history.place(connection, tables, workflow_id, offset=skipped, version=run["version"])
    before = skipped - place.events
    rows = history.page(connection, tables, workflow_id, after_seq=place.seq, limit=before + most)
    if rows and seen == 2 * rows[0]["seq"] - 1 and rows[0]["started_us"] is not None:
        before = 1  # the start of this attempt has been seen
    wanted, before = _window(rows, before, most)
    return _told(connection, tables, run, wanted)[before:][:most]


def _window(rows: Sequence[Record], before: int, most: int) -> tuple[Sequence[Record], int]:
    """The rows that tell of `most` events from `before` on, and how many of theirs come before those."""
    first, events = 0, 0
    for place, row in enumerate(rows):
        own = 1 if row["started_us"] is None else 2
        if not events and before >= own:
            first, before = place + 1, before - own
            continue
        events += own
        if events >= before + most:
            return rows[first : place + 1], before
    return rows[first:], before


def _told(connection: Connection, tables: Tables, run: Record, rows: Sequence[Record]) -> list[TimelineEvent]:
    """The events of these rows, which follow each other, with the states around them."""
    if not rows:
        return []
    run_id, first = run["id"], rows[0]["seq"]
    undone = {seq for row in rows if (seq := undone_at(row)) is not None}
    eras = Eras(connection, tables)
    eras.know({run_id: run["definition_hash"]})
    eras.look({run_id: min((first, *undone))})
    states = states_as_of(connection, tables, run_id, undone)
    walk = _Walk(connection, tables, run_id, first_row=rows[0])
    events: list[TimelineEvent] = []
    for row in rows:
        around = walk.around(row)
        at = undone_at(row)
        if at is not None:
            around = Around(states.get(at), around.before, around.after)
        told = Told(row, eras.outline(run_id, row["seq"] if at is None else at))
        events += events_of(row, told, around)
    return events


class _Walk:
    """The way along a run's rows, from the attempt that is shown before the first of them."""

    def __init__(self, connection: Connection, tables: Tables, run_id: int, *, first_row: Record) -> None:
        first = first_row["seq"]
        last = past.last_attempt(connection, tables, run_id, before_seq=first)
        begin = first_row if last is None else last
        # A state is known best where no visit is under way: what that has changed belongs to its attempts in part.
        start = past.before_visit(connection, tables, run_id, seq=begin["seq"], visit=begin["visit"])
        self._course = Course(states_as_of(connection, tables, run_id, [start]).get(start))
        self._given: dict[str, Json] | None = None
        self._is_first = last is None
        for row in past.deltas(connection, tables, run_id, after_seq=start, upto_seq=first - 1):
            if last is not None and row["seq"] >= last["seq"]:
                self._given, last = self._course.given(last["visit"], last["started_us"]), None
            self._course.take(row)
        if last is not None:
            self._given = self._course.given(last["visit"], last["started_us"])

    def around(self, row: Record) -> Around:
        """The states around this row, which is passed."""
        before = self._course.state
        given, news = before, None
        if row["started_us"] is not None and not is_cleanup(row):
            given = self._course.given(row["visit"], row["started_us"])
            news = self._news(given)
            self._given, self._is_first = given, False
        self._course.take(row)
        return Around(given, before, self._course.state, news)

    def _news(self, given: dict[str, Json] | None) -> dict[str, Json] | None:
        """How what an attempt was given differs from what the one before it was; all of it is new to the first."""
        if given is None or (self._given is None and not self._is_first):
            return None
        changed, removed = delta(self._given or {}, given)
        return {"changed": changed, "removed": list(removed)}


def job_history(connection: Connection, tables: Tables, job_id: int) -> list[JobAttempt]:
    """The attempts of a job that have ended, oldest first; none if there is no such job."""
    return [_attempt(row) for row in history.attempts(connection, tables, job_id)]


def _attempt(row: Record) -> JobAttempt:
    began_us = row["at_us"] if row["started_us"] is None else row["started_us"]
    error = error_of(row)
    return JobAttempt(
        job_id=row["job_id"],
        attempt=row["attempt"],
        started_at=moment(began_us),
        finished_at=moment(row["at_us"]),
        duration_ms=duration_ms(row) or 0,
        output=output_of(row, Told(row, Outline())) if row["step_index"] is not None else None,
        error=error,
        error_message=error["message"] if error else None,
        is_final=bool(row["final"]) or error is None,
        worker=row["owner"],
    )
