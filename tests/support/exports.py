"""Exports as tests look at them: out of a file, and without what may differ between a run and its replay."""

from __future__ import annotations

import json
from typing import Any

Export = dict[str, Any]

_OWN = (
    *("id", "name", "visit", "version", "runtime", "parent_workflow_id", "parent_step_index", "idempotency_key"),
    *("deadline_at", "compensation_status", "completed_at"),
)
"""What a replay has of its own in `workflow`. What was to be cleaned up is compared apart."""


def passed(data: Export) -> Export:
    """The export as it comes out of a file."""
    read: Export = json.loads(json.dumps(data, allow_nan=False))
    return read


def essence(data: Export, version: int) -> str:
    """All of an export that a replay must keep, as text in which order, 1 and 1.0 differ: the run up to `version`.

    Ids of jobs are numbered by their first mention: they are new in every database.
    """
    events = data["events"][:version]
    jobs = [job for job in data["jobs"] if job["phase"] in ("completed", "buried")]
    mentioned = [row["job_id"] for row in events] + [job["id"] for job in jobs]
    number: dict[int | None, int | None] = {None: None}
    for job_id in mentioned:
        number.setdefault(job_id, len(number))
    kept = {
        "workflow": {key: value for key, value in data["workflow"].items() if key not in _OWN},
        "events": [{**row, "job_id": number[row["job_id"]]} for row in events],
        "jobs": sorted(({**job, "id": number[job["id"]]} for job in jobs), key=lambda job: str(job["id"])),
        "chunks": [{**chunk, "visit": None} for chunk in data["chunks"]],
    }
    same = ("definition", "earlier_definitions", "checkpoints", "signals", "groups", "artifacts")
    return json.dumps({**kept, **{key: data[key] for key in same}}, ensure_ascii=False)
