"""How far a step is that runs several jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from queuety.inspect.waits import kept
from queuety.inspect.why import words
from queuety.inspect.why.look import Look, Why
from queuety.model import JobPhase, Json
from queuety.store.queries import Record, why

SHOWN: Final = 5
"""How many of the jobs that are left are named."""


def fan_out(look: Look, row: Record, name: str, jobs: Sequence[Record], because: Why) -> tuple[str, dict[str, Json]]:
    """What is said of it, and the details; `jobs` are the first that are left, `because` the answer for the first."""
    runtime = kept(row)
    total, done, failed = runtime["total"], runtime.get("done", 0), runtime.get("failed", 0)
    phases = why.phases(look.connection, look.tables, row["id"])
    running = phases.get(JobPhase.LEASED.value, 0)
    thing = "items" if "next" in runtime else "branches"
    lost = f" and {failed:,} failed" if failed else ""
    left = [{"branch": job["branch"], "job_id": job["id"], "status": JobPhase(job["phase"]).status} for job in jobs]
    named = words.listed([f"{job['branch']} (job {job['job_id']}, {job['status']})" for job in left])
    details: dict[str, Any] = {
        "total": total,
        "done": done,
        "failed": failed,
        "running": running,
        "open_jobs": sum(phases.values()),
        "left": left,
        "because": because.nested(),
    }
    left_are = "Left are, among others," if total - done - failed > len(left) else "Left:"
    done_are = f"{done:,} of {total:,} {thing} are done{lost}, {running:,} are being run."
    return f"stands at step {name}: {done_are} {left_are} {named}. {because.answer}", details
