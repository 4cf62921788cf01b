"""Rows of the history: what has happened to a run, and the jobs whose only record it is."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, literal_column, select

from queuety.model import Entry
from queuety.store.queries import Record
from queuety.store.schema import Tables


def page(connection: Connection, tables: Tables, run_id: int, *, limit: int, offset: int) -> list[Record]:
    """The rows of a run, oldest first, that hold the events `offset` … `offset + limit`.

    An attempt's row tells of two events, its start and its end; any other of one; `noted` ones of none, and they are
    left out. `upto` says how many events there are up to and including the row.
    """
    table = tables.history
    is_told = table.c.entry != Entry.NOTED.value
    weight = case((table.c.started_us.is_(None), 1), else_=2)
    counted = (
        select(table.c.seq, func.sum(weight).over(order_by=table.c.seq).label("upto"))
        .where(table.c.run_id == run_id, is_told)
        .subquery()
    )
    query = (
        _rows(tables)
        .add_columns(counted.c.upto)
        .join(counted, counted.c.seq == table.c.seq)
        .where(table.c.run_id == run_id, counted.c.upto > offset)
        .order_by(table.c.seq)
        .limit(limit)
    )
    return list(connection.execute(query).mappings())


def attempts(connection: Connection, tables: Tables, job_id: int) -> list[Record]:
    """The rows of a job's attempts, oldest first."""
    table = tables.history
    query = _rows(tables).where(table.c.job_id == job_id).order_by(table.c.seq)
    return list(connection.execute(query).mappings())


def completed_step(connection: Connection, tables: Tables, job_id: int) -> Record | None:
    """The row of the attempt that completed this step's job, and the workflow's `definition_hash`; or None."""
    query = _completed_steps(tables).where(tables.history.c.job_id == job_id).limit(1)
    return connection.execute(query).mappings().one_or_none()


def completed_steps(
    connection: Connection, tables: Tables, *, workflow_id: int | None, before_id: int | None, limit: int
) -> list[Record]:
    """The same for all steps' jobs, newest job first, at most `limit`.

    With a workflow it reads that run's rows, else the end of `history_job`.
    """
    table = tables.history
    query = _completed_steps(tables).order_by(table.c.job_id.desc()).limit(limit)
    if workflow_id is not None:
        query = query.where(table.c.run_id == workflow_id)
    if before_id is not None:
        query = query.where(table.c.job_id < before_id)
    return list(connection.execute(query).mappings())


def completed_counts(connection: Connection, tables: Tables) -> list[tuple[str, int, int | None, int]]:
    """How many jobs each step has completed, as (definition hash, step index, branch, count). Reads every row.

    Only branches that are handlers of their own are told apart; of items and of a step's only job the branch is None.
    """
    history, workflows = tables.history, tables.workflows
    # PostgreSQL takes two parameters for two expressions, and would not group by the first.
    is_branch = history.c.entry == literal_column(f"'{Entry.BRANCH.value}'")
    branch = case((is_branch, history.c.branch)).label("own_branch")
    query = (
        select(workflows.c.definition_hash, history.c.step_index, branch, func.count().label("many"))
        .select_from(history)
        .join(workflows, workflows.c.id == history.c.run_id)
        .where(_is_completed_step(tables))
        .group_by(workflows.c.definition_hash, history.c.step_index, branch)
    )
    return [(row[0], row[1], row[2], int(row[3])) for row in connection.execute(query)]


def last_of(connection: Connection, tables: Tables, run_id: int, entry: Entry) -> Record | None:
    """The latest row of a run that tells of this; it reads the run's rows from the end."""
    table = tables.history
    query = (
        _rows(tables)
        .where(table.c.run_id == run_id, table.c.entry == entry.value)
        .order_by(table.c.seq.desc())
        .limit(1)
    )
    return connection.execute(query).mappings().one_or_none()


_DONE = (Entry.COMPLETED, Entry.BRANCH, Entry.ITEM)
"""Entries that tell of a job that has completed, if they have a job."""


def _is_completed_step(tables: Tables) -> ColumnElement[bool]:
    columns = tables.history.c
    done = columns.entry.in_([entry.value for entry in _DONE])
    return and_(columns.job_id.is_not(None), columns.step_index.is_not(None), done)


def _completed_steps(tables: Tables) -> Select[tuple[object, ...]]:
    history, workflows = tables.history, tables.workflows
    return (
        select(
            history.c.job_id,
            history.c.run_id,
            history.c.step_index,
            history.c.entry,
            history.c.branch,
            history.c.attempt,
            history.c.started_us,
            history.c.at_us,
            workflows.c.definition_hash,
        )
        .select_from(history)
        .join(workflows, workflows.c.id == history.c.run_id)
        .where(_is_completed_step(tables))
    )


def _rows(tables: Tables) -> Select[tuple[object, ...]]:
    columns = tables.history.c
    return select(
        columns.run_id,
        columns.seq,
        columns.entry,
        columns.at_us,
        columns.started_us,
        columns.job_id,
        columns.owner,
        columns.attempt,
        columns.step_index,
        columns.visit,
        columns.branch,
        columns.final,
        columns.changed,
        columns.control,
        columns.error,
    )
