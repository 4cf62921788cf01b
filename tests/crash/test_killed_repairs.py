"""Workers killed with SIGKILL while runs are undone, cancelled, mended and purged: each ends as somebody wanted it."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import func, select

from queuety import Queuety, WorkflowStatus
from queuety.model import CleanupStatus
from tests.support import killing, repairing
from tests.support.databases import Database
from tests.support.flowing import status_of, until
from tests.support.invariants import check
from tests.support.repairing import State

pytestmark = [pytest.mark.paired, pytest.mark.slow, pytest.mark.timeout(3600)]

SAGAS = 3
FAMILIES = 3
FILLERS = 2
"""So many are started before each kill."""
KILLS = 3
ROUND_S = 120.0


@dataclass(slots=True)
class Round:
    """The runs of one round, by what each must come to.

    `asked` is what is still to be done to whom; `mended`, what those to whom it is done end with.
    """

    sagas: list[int]
    late: int
    families: list[int]
    broken: int
    asked: dict[int, tuple[repairing.Repair, State]]
    mended: dict[int, State] = field(default_factory=dict)


@pytest.fixture
def app(database: Database) -> Iterator[Queuety]:
    """The application whose workers are killed, as this process uses it."""
    with Queuety(database.url, settings=repairing.SETTINGS) as made:
        yield made


def test_whoever_is_killed_what_is_undone_mended_and_purged_ends_right(
    app: Queuety, database: Database, tmp_path: Path, rounds: int
) -> None:
    """H26: each step is undone, the last one first, those of a child before its parent's; nothing refers to nobody."""
    notes = repairing.Notes(str(tmp_path / "notes"))
    workers = killing.Workers(
        database.url, tmp_path / "log", app="tests.support.repairing:app", more={"KILLING_NOTES": notes.path}
    )
    many = max(rounds // 3, 1)
    try:
        for _ in range(many):
            one_round(app, workers, notes)
    except BaseException:
        print((tmp_path / "log").read_text()[-20_000:])
        raise
    finally:
        codes = workers.stop()
    assert set(codes) <= {0, 1, -signal.SIGTERM}
    assert workers.killed == many * KILLS


def one_round(app: Queuety, workers: killing.Workers, notes: repairing.Notes) -> None:
    runs = begun(app)
    to_cancel = [*runs.families]
    pause = threading.Event()
    # Processes need a moment to begin.
    until(lambda: pause.wait(0.01) or app.stats()["processing"] > 0, within_s=ROUND_S)
    for _ in range(KILLS):
        before = notes.count()
        app.dispatch_many(repairing.filler(), [{"family": "filler", "orders": [1, 2]}] * FILLERS)
        for _ in range(1 + random.randrange(5)):
            pause.wait(random.random() * 0.1)
            go_on(app, runs)
        until(lambda before=before: pause.wait(0.02) or notes.count() > before, within_s=ROUND_S)  # type: ignore[misc]
        workers.kill_one()
        if to_cancel:
            app.cancel_workflow(to_cancel.pop())
    # Not in every instant: who asks without end takes the time that the workers need.
    until(lambda: pause.wait(0.1) or all_are_over(app, runs), within_s=ROUND_S)
    check(app.door)
    for run in runs.sagas:
        is_undone(app, notes, run, [2, 1, 0])
    is_undone(app, notes, runs.late, [1, 0])
    for run in runs.families:
        is_undone_from_below(app, notes, run)
    for run, wanted in runs.mended.items():
        state = status_of(app, run)
        assert (state.status, state.state) == (WorkflowStatus.COMPLETED, {**wanted, "family": "mended"}), state
    purge_the_rest(app)


def begun(app: Queuety) -> Round:
    sagas = app.dispatch_many(repairing.saga(), [{"family": "saga"}] * SAGAS)
    (late,) = app.dispatch_many(repairing.late_saga(), [{"family": "saga"}])
    families = [
        app.dispatch_workflow(repairing.family(), {"family": f"family {sagas[0] + n}"}) for n in range(FAMILIES)
    ]
    broken = app.dispatch_workflow(repairing.broken(), {"family": "mended"})
    patients = app.dispatch_many(repairing.patient(), [{"family": "mended"}] * len(repairing.REPAIRS))
    asked = dict(zip(patients, repairing.REPAIRS.values(), strict=True))
    return Round(sagas, late, families, broken, {**asked, late: repairing.GO_BACK, broken: repairing.MEND})


def go_on(app: Queuety, runs: Round) -> None:
    """Does what has been asked for and can be done now, and lets fillers grow old that are over."""
    for run, (repair, wanted) in list(runs.asked.items()):
        is_refused, made = repairing.tried(repair, app, run)
        if is_refused:
            continue
        del runs.asked[run]
        for each in (run, made):
            if each is not None and each != runs.late:
                runs.mended[each] = wanted
    repairing.grow_old(app, "filler")


def all_are_over(app: Queuety, runs: Round) -> bool:
    """Whether all is done, and the fillers are purged."""
    go_on(app, runs)
    if runs.asked or any(app.list_workflows(name=name, limit=1) for name in repairing.FILLERS):
        return False
    found = app.list_workflows(limit=1000)
    return all(run.status.is_terminal and run.compensation_status is not CleanupStatus.PENDING for run in found)


def is_undone(app: Queuety, notes: repairing.Notes, run: int, steps: list[int]) -> None:
    """It has failed, and these steps have been undone in this order."""
    state = status_of(app, run)
    assert (state.status, state.error_message) == (WorkflowStatus.FAILED, repairing.BROKEN), state
    assert state.compensation_status is CleanupStatus.COMPLETED
    assert [noted.step for noted in notes.first("undid") if noted.run == run] == steps


def is_undone_from_below(app: Queuety, notes: repairing.Notes, run: int) -> None:
    """It is cancelled with all below it; what the youngest has done is undone first, and each is clean before the next
    one begins."""
    state = status_of(app, run)
    generations = [state]
    while children := app.list_workflows(parent_id=generations[0].id):
        generations = [*children, *generations]
    family = state.state["family"]
    wanted: list[tuple[str, int, int | None]] = []
    for each in generations:
        assert (each.status, each.compensation_status) == (WorkflowStatus.CANCELLED, CleanupStatus.COMPLETED), each
        settled = [event for event in app.workflow_timeline(each.id) if event.event == "step_completed"]
        done = [event.step_index for event in settled if event.step_index in repairing.UNDONE[each.name]]
        wanted += [("undid", each.id, index) for index in reversed(done)]
        wanted.append(("cleaned", each.id, None))
    found = [noted for noted in notes.first("undid", "cleaned") if noted.family == family]
    assert [(noted.word, noted.run, noted.step) for noted in found] == wanted


def purge_the_rest(app: Queuety) -> None:
    """The workers purge what is over for good, the operator what has failed; then nothing is left of anything."""
    repairing.grow_old(app)
    until(lambda: all(run.status is WorkflowStatus.FAILED for run in app.list_workflows(limit=1000)), within_s=ROUND_S)
    check(app.door)
    app.purge_workflows(0, ["failed", "completed", "cancelled"])
    assert app.list_workflows(limit=10) == []
    check(app.door)
    assert left_in(app) == {}


def left_in(app: Queuety) -> dict[str, int]:
    """How many rows are left in tables that belong to runs."""
    tables = app.door.tables
    kept = {tables.ids.name, tables.definitions.name, tables.workers.name}
    counts: dict[str, int] = {}
    with app.door.reading() as connection:
        for table in tables.metadata.sorted_tables:
            if table.name not in kept and (
                count := connection.execute(select(func.count()).select_from(table)).scalar()
            ):
                counts[table.name.removeprefix(tables.prefix)] = count
    return counts
