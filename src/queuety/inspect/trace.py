"""All that is known of one run, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from queuety.codec import decode
from queuety.inspect.jobs import list_jobs
from queuety.inspect.logs import Wanted, read_log
from queuety.inspect.states import moment
from queuety.inspect.timeline import workflow_timeline
from queuety.inspect.waits import kept
from queuety.inspect.workflows import workflow_status
from queuety.model import Json
from queuety.store.queries import Record, streams, trace, workflows
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

EVENTS_AT_ONCE: Final = 1_000

ALL: Final = 2**31 - 1
"""More than a run has of anything."""

_OF_STATES: Final = ("input", "state_before", "state_after")


def workflow_trace(
    connection: Connection, tables: Tables, workflow_id: int, *, states: bool = True
) -> dict[str, Json] | None:
    """The bundle that `Queuety.workflow_trace` describes; None for an unknown id.

    The connection's transaction must see one moment. Values are shared between the events: copy what you change.
    """
    run = workflow_status(connection, tables, workflow_id)
    if run is None:
        return None
    events = list(_events(connection, tables, workflow_id, states=states))
    jobs = list_jobs(connection, tables, workflow_id=workflow_id, cleanup=True, limit=ALL)
    lines = read_log(connection, tables, Wanted(workflow_id), limit=ALL)
    return {
        "workflow": as_json(run),
        "steps": _steps(events),
        "events": events,
        "jobs": [as_json(job) for job in reversed(jobs)],
        "logs": [as_json(line) for line in lines],
        "artifacts": [_artifact(row) for row in trace.artifacts(connection, tables, workflow_id)],
        "chunks": [_chunk(row) for row in trace.chunks(connection, tables, workflow_id)],
        "signals": _signals(connection, tables, workflow_id),
        "wait_dependencies": _dependencies(connection, tables, workflow_id),
    }


def as_json(value: Any) -> dict[str, Json]:
    """A dataclass as JSON by its fields; what is JSON already is not copied."""
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: Any) -> Json:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return list(value) if isinstance(value, tuple) else value


def _events(connection: Connection, tables: Tables, workflow_id: int, *, states: bool) -> Iterator[dict[str, Json]]:
    after_id: int | None = None
    while page := workflow_timeline(connection, tables, workflow_id, EVENTS_AT_ONCE, after_id=after_id):
        for event in page:
            told = as_json(event)
            yield told if states else {key: value for key, value in told.items() if key not in _OF_STATES}
        after_id = page[-1].id


def _steps(events: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
    """The steps that something is told of, in order of their indices, each with its events and the latest of them.

    A step of an earlier definition that has another name stands apart.
    """
    found: dict[tuple[int, str], list[Mapping[str, Json]]] = {}
    for event in events:
        if event["step_index"] is not None and event["step_name"] is not None:
            found.setdefault((event["step_index"], event["step_name"]), []).append(event)
    return [
        {
            "step_index": index,
            "step_name": name,
            "step_type": own[-1]["step_type"],
            "handler": next((event["handler"] for event in own if event["handler"] is not None), None),
            "events": own,
            "latest": own[-1],
        }
        for (index, name), own in sorted(found.items(), key=lambda item: item[0])
    ]


def _artifact(row: Record) -> dict[str, Json]:
    return {
        "key": row["name"],
        "kind": row["kind"],
        "metadata": decode(row["metadata"]),
        "step_index": row["step_index"],
        "created_at": _iso(row["created_us"]),
        "updated_at": _iso(row["updated_us"]),
    }


def _chunk(row: Record) -> dict[str, Json]:
    return {
        "visit": row["visit"],
        "branch": None if row["branch"] == streams.ALONE else row["branch"],
        "index": row["number"],
        "content": decode(row["content"]),
        "created_at": _iso(row["at_us"]),
    }


def _signals(connection: Connection, tables: Tables, workflow_id: int) -> list[Json]:
    """All signals in the order of arrival, whether or not a wait has used them."""
    unused = {row["seq"]: row for row in trace.unused_signals(connection, tables, workflow_id)}
    told: dict[int, dict[str, Json]] = {}
    for row in trace.arrivals(connection, tables, workflow_id):
        signal: Mapping[str, Json] = decode(row["control"])["_signal"]
        told[row["seq"]] = _signal(row, signal["name"], signal["payload"], is_used=row["seq"] not in unused)
    for seq, row in unused.items():
        told.setdefault(seq, _signal(row, row["name"], decode(row["payload"]), is_used=False))
    return [told[seq] for seq in sorted(told)]


def _signal(row: Record, name: str, payload: Json, *, is_used: bool) -> dict[str, Json]:
    return {"name": name, "payload": payload, "received_at": _iso(row["at_us"]), "used": is_used}


def _dependencies(connection: Connection, tables: Tables, workflow_id: int) -> list[Json]:
    """The runs that this one stands still for; without name and status those that are gone."""
    row = workflows.found(connection, tables, workflow_id)
    runtime: Mapping[str, Any] = {} if row is None else kept(row)
    ids: list[int] = [*runtime.get("ids", ()), *([runtime["child"]] if "child" in runtime else [])]
    known = {one["id"]: one for one in workflows.named(connection, tables, ids)}
    return [
        {
            "workflow_id": id_,
            "name": known[id_]["name"] if id_ in known else None,
            "status": known[id_]["status"] if id_ in known else None,
        }
        for id_ in ids
    ]


def _iso(us: int) -> str:
    return moment(us).isoformat(timespec="microseconds")
