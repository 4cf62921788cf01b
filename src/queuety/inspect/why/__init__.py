"""Why is it not running? One plain answer for any workflow or job; reads only.

The reads are not of one moment. What is said of a run or a job was true of it when it was looked at; of others that it
depends on, a moment later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuety.inspect.why.jobs import of_completed_step, of_job
from queuety.inspect.why.look import Look, Why
from queuety.inspect.why.runs import of_run
from queuety.store.queries.history import completed_step
from queuety.store.queries.jobs import found as found_job
from queuety.store.queries.workflows import found as found_run
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Why", "explain"]


def explain(connection: Connection, tables: Tables, id_: int, *, now_us: int, lease_s: float) -> Why | None:
    """The answer for the workflow or the job with this id (they are numbered together); None for an unknown id."""
    look = Look(connection, tables, now_us, lease_s)
    run = found_run(connection, tables, id_)
    if run is not None:
        return of_run(look, run)
    job = found_job(connection, tables, id_)
    if job is not None:
        return of_job(look, job)
    done = completed_step(connection, tables, id_)
    return None if done is None else of_completed_step(look, done)
