"""Rows of the history: what has happened to a run, and the jobs whose only record it is."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, literal_column, select

from queuety.model import Entry
from queuety.store.queries import Record
from queuety.store.schema import Tables

SPAN = 32
"""To how many rows a place among the events is narrowed down by counting; the rest is read."""


@dataclass(frozen=True, slots=True)
class Place:
    """A row of a run, and how many events there are up to and including it."""

    seq: int
    events: int


def place(connection: Connection, tables: Tables, run_id: int, *, offset: int, version: int) -> Place:
    """A row with at most `offset` events up to it, and no more than `SPAN` rows before the event that follows them.

    An attempt's row tells of two events, its start and its end; any other of one; `noted` ones of none. Found by
    halving the run's rows, which are counted once altogether: 20,000 rows in 10 to 15 ms on each database, where a sum
    over a window took 30 to 110 ms.
    """
    below, above, events = 0, version, 0
    while offset and above - below > SPAN:
        middle = (below + above) // 2
        more = _events(connection, tables, run_id, after_seq=below, upto_seq=middle)
        if events + more > offset:
            above = middle
        else:
            below, events = middle, events + more
    return Place(below, events)


def _events(connection: Connection, tables: Tables, run_id: int, *, after_seq: int, upto_seq: int) -> int:
    columns = tables.history.c
    query = select(func.count() + func.count(columns.started_us)).where(
        columns.run_id == run_id, columns.seq > after_seq, columns.seq <= upto_seq, columns.entry != Entry.NOTED.value
    )
    return int(connection.execute(query).scalar_one())


def page(connection: Connection, tables: Tables, run_id: int, *, after_seq: int, limit: int) -> list[Record]:
    """The rows of a run after this one that tell of an event, oldest first, at most `limit`."""
    table = tables.history
    query = (
        _rows(tables)
        .where(table.c.run_id == run_id, table.c.seq > after_seq, table.c.entry != Entry.NOTED.value)
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


def completed_before_moves(connection: Connection, tables: Tables) -> list[Record]:
    """The same jobs one by one, of those runs that changed their definition afterwards. Reads every row.

    As `run_id`, `seq`, `step_index`, `own_branch` and the run's present `definition_hash`.
    """
    history, workflows = tables.history, tables.workflows
    moves = history.alias()
    last = (
        select(moves.c.run_id, func.max(moves.c.seq).label("seq"))
        .where(moves.c.entry == Entry.MIGRATED.value)
        .group_by(moves.c.run_id)
        .subquery()
    )
    branch = case((history.c.entry == Entry.BRANCH.value, history.c.branch)).label("own_branch")
    query = (
        select(history.c.run_id, history.c.seq, history.c.step_index, branch, workflows.c.definition_hash)
        .select_from(history)
        .join(last, and_(last.c.run_id == history.c.run_id, history.c.seq < last.c.seq))
        .join(workflows, workflows.c.id == history.c.run_id)
        .where(_is_completed_step(tables))
        .order_by(history.c.run_id, history.c.seq)
    )
    return list(connection.execute(query).mappings())


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
            history.c.seq,
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
        columns.removed,
        columns.control,
        columns.error,
    )
