"""Verbs that read what has happened: events, earlier states, all of a run at once, the log of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from queuety.app.core import Core, known_id
from queuety.errors import DefinitionError, NotFoundError
from queuety.inspect import logs, past, timeline, trace
from queuety.inspect.events import TimelineEvent
from queuety.inspect.filters import checked_age
from queuety.inspect.logged import LogRow
from queuety.inspect.states import microseconds
from queuety.model import Json


class HistoryVerbs(Core):
    """What can be read of the past."""

    def workflow_timeline(
        self, workflow_id: int, limit: int = 100, offset: int = 0, after_id: int | None = None
    ) -> Sequence[TimelineEvent]:
        """What happened to the run, oldest first, at most `limit`; empty for an unknown id.

        `offset` passes over as many events; `after_id`, the id of the last one seen, goes on after it, which costs the
        same anywhere in a long run. Raises `DefinitionError` for a negative number, and for both of these.
        """
        if known_id(workflow_id, "workflow_id") is None:
            return []
        with self.door.reading(one_moment=True) as connection:
            return timeline.workflow_timeline(
                connection, self._door.tables, workflow_id, limit=limit, offset=offset, after_id=after_id
            )

    def workflow_state_at(self, workflow_id: int, step_index: int | str) -> dict[str, Json] | None:
        """The run's state as it was once this step (its index, or its name) had settled last.

        None for an unknown id, a step that has not settled, and where the history was pruned. A run that was rewound
        since still tells it. Raises `DefinitionError` for what is neither an index nor a name.
        """
        if known_id(workflow_id, "workflow_id") is None:
            return None
        with self.door.reading(one_moment=True) as connection:
            return past.workflow_state_at(connection, self._door.tables, workflow_id, step_index)

    def workflow_trace(self, workflow_id: int, states: bool = True) -> dict[str, Json]:
        """All that is known of the run, as JSON: `workflow`, `steps`, `events`, `jobs`, `logs`, `artifacts` (without
        their content), `chunks`, `signals`, `wait_dependencies`.

        Times are in ISO 8601. Without `states` the events say nothing of states and inputs, which in a long run with a
        large state are most of it. As of one moment. Raises `NotFoundError` for an unknown id.
        """
        if known_id(workflow_id, "workflow_id") is not None:
            with self.door.reading(one_moment=True) as connection:
                found = trace.workflow_trace(connection, self._door.tables, workflow_id, states=states)
            if found is not None:
                return found
        raise NotFoundError(f"no workflow has the id {workflow_id}")

    def logs(
        self,
        workflow_id: int | None = None,
        job_id: int | None = None,
        handler: str | None = None,
        event: str | None = None,
        since: datetime | timedelta | float | None = None,
        limit: int = 50,
    ) -> list[LogRow]:
        """What happened to runs and jobs, line by line, at most `limit`.

        Of one run, of one job and since a moment the oldest come first, else the newest. `since` is an aware datetime,
        or how long ago, in seconds or as a `timedelta`: what was recorded then or later; an attempt is recorded when it
        has ended. Raises `DefinitionError` for an unknown event and for what cannot be right.
        """
        given = (workflow_id, "workflow_id"), (job_id, "job_id")
        if any(id_ is not None and known_id(id_, what) is None for id_, what in given):
            return []
        since_us = None if since is None else _moment_us(since, now_us=self.door.now_us())
        wanted = logs.Wanted(workflow_id, job_id, handler, event, since_us)
        with self.door.reading() as connection:
            return logs.read_log(connection, self._door.tables, wanted, limit=limit)


def _moment_us(since: Any, *, now_us: int) -> int:
    """The moment, in microseconds since the epoch, UTC. Raises `DefinitionError`."""
    if not isinstance(since, datetime):
        return now_us - round(checked_age(since, what="since") * 1_000_000)
    if since.tzinfo is None:
        raise DefinitionError(f"since={since!r}: a datetime with a time zone is needed, such as datetime.now(UTC)")
    return microseconds(since.astimezone(UTC))
