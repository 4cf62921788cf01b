"""A run as one JSON document: all that is kept of it, lossless, so that it can be made again elsewhere.

`workflow` is the run itself with its `state`; `definition` what it does, the definitions of its children inside, and
`earlier_definitions` by hash those that it did before it was migrated; `events` the rows of its history as they are,
and `checkpoints` the states that stand for rows which were pruned; `jobs` those that are open, or closed and kept;
`signals` those that no wait has used; `groups`, `artifacts` and `chunks` what it keeps beside itself. What it waits
for, `wait_dependencies` and `timers`, and the `logs` are there to be read: a replay finds all of that out anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from queuety.codec import decode
from queuety.inspect.logs import Wanted, read_log
from queuety.inspect.trace import ALL, as_json
from queuety.model import Entry, Json
from queuety.model.deltas import fold
from queuety.store import portable
from queuety.store.queries import definitions
from queuety.store.queries import export as rows
from queuety.store.queries import workflows as runs
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


def export_workflow(
    connection: Connection, tables: Tables, workflow_id: int, *, now_us: int, package_version: str
) -> dict[str, Json] | None:
    """The run as JSON, a document of its own; None for an unknown id.

    The connection's transaction must see one moment (`Door.reading(one_moment=True)`). Nothing is locked.
    """
    run = rows.run(connection, tables, workflow_id)
    if run is None:
        return None
    history = rows.history(connection, tables, workflow_id)
    events = [portable.shown(portable.EVENT, row) for row in history]
    first_seq = history[0]["seq"] if history else run["version"] + 1
    checkpoints: Sequence[rows.Row] = []
    if first_seq > 1:
        checkpoints = rows.checkpoints(connection, tables, workflow_id, from_seq=first_seq - 1)
    forms = _definitions(connection, tables, run["definition_hash"], events)
    definition = forms.pop(run["definition_hash"], None)
    return {
        "format_version": portable.FORMAT_VERSION,
        "queuety_version": package_version,
        "exported_at": portable.Moment().shown(now_us),
        "workflow": {
            **portable.shown(portable.WORKFLOW, run),
            "started_at": portable.Moment().shown(run["created_us"]),
            "state": _state(run, history),
            "definition_version": None if definition is None else definition.get("version"),
            "tags": list(rows.tags(connection, tables, workflow_id)),
        },
        "definition": definition,
        "earlier_definitions": forms,
        "events": events,
        "checkpoints": [portable.shown(portable.CHECKPOINT, row) for row in checkpoints],
        "jobs": [portable.shown(portable.JOB, row) for row in rows.jobs(connection, tables, workflow_id)],
        "signals": [portable.shown(portable.SIGNAL, row) for row in rows.signals(connection, tables, workflow_id)],
        "groups": [portable.shown(portable.GROUP, row) for row in rows.groups(connection, tables, workflow_id)],
        "artifacts": [portable.artifact_shown(row) for row in rows.artifacts(connection, tables, workflow_id)],
        "chunks": [portable.shown(portable.CHUNK, row) for row in rows.chunks(connection, tables, workflow_id)],
        "wait_dependencies": _dependencies(connection, tables, run),
        "logs": [as_json(line) for line in read_log(connection, tables, Wanted(workflow_id), limit=ALL)],
        "timers": [portable.shown(portable.TIMER, row) for row in rows.timers(connection, tables, workflow_id)],
    }


def _state(run: rows.Row, history: Sequence[rows.Row]) -> dict[str, Json]:
    """The snapshot, and the deltas since."""
    return fold(
        decode(run["state"]),
        (
            (decode(row["changed"]) if row["changed"] else {}, decode(row["removed"]) if row["removed"] else ())
            for row in history
            if row["seq"] > run["state_version"]
        ),
    )


def _definitions(
    connection: Connection, tables: Tables, present: str, events: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What the run does, and did before it was migrated, by hash; what the database does not have is left out."""
    hashes = {present}
    for event in events:
        if event["entry"] == Entry.MIGRATED:
            told = (event["control"] or {}).get("_migrated") or {}
            hashes.update(hash_ for hash_ in (told.get("from"), told.get("to")) if isinstance(hash_, str))
    return {hash_: decode(body) for hash_, body in sorted(definitions.bodies(connection, tables, hashes).items())}


def _dependencies(connection: Connection, tables: Tables, run: rows.Row) -> list[Json]:
    """The runs that this one waits for, as the step that waits has named them; without status those that are gone."""
    runtime: Mapping[str, Any] = decode(run["runtime"]) if run["runtime"] else {}
    ids: list[int] = list(runtime.get("ids", ()))
    if "child" in runtime:
        ids.append(runtime["child"])
    known = {row["id"]: row for row in runs.named(connection, tables, ids)}
    return [
        {
            "workflow_id": id_,
            "name": known[id_]["name"] if id_ in known else None,
            "status": known[id_]["status"] if id_ in known else None,
        }
        for id_ in ids
    ]
