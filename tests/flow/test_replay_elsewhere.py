"""Exports go from one kind of database to another, through files, and lose nothing on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queuety import Queuety, WorkflowStatus
from queuety.testing import ManualClock
from tests.support.databases import KINDS, Databases, Unreachable
from tests.support.exports import essence, passed
from tests.support.flowing import status_of
from tests.support.invariants import check
from tests.support.standings import STORIES


@pytest.fixture
def apps(databases: Databases, tmp_path: Path, clock: ManualClock) -> Iterator[list[Queuety]]:
    """An application on each kind of database that is there, SQLite first."""
    with ExitStack() as opened:
        made: list[Queuety] = []
        for kind in KINDS:
            try:
                place = databases.place(kind)
            except Unreachable:
                continue
            (tmp_path / kind).mkdir()
            made.append(opened.enter_context(Queuety(place.database(tmp_path / kind).url, clock=clock)))
        yield made
        for app in made:
            check(app.door)


def test_nothing_is_lost_on_the_way_through_all_databases(apps: list[Queuety], clock: ManualClock) -> None:
    """From each kind of database to the next, and back to the first: every run, from wherever it stood."""
    for number, (name, tell) in enumerate(STORIES.items()):
        if name == "waiting_for_workflows":  # elsewhere, what it waits for is not there
            continue
        begin = number % len(apps)
        way = [*apps[begin:], *apps[:begin], apps[begin]]
        run = tell(way[0], clock)
        data = passed(way[0].export_workflow(run))
        first = data
        for app in way[1:]:
            version = data["workflow"]["version"]
            again = passed(app.export_workflow(app.replay_workflow(data)))
            assert essence(again, version) == essence(data, version), name
            data = again
        cleanup = first["workflow"]["compensation_status"]
        assert data["workflow"]["compensation_status"] == ("failed" if cleanup == "pending" else cleanup)


def test_what_is_waited_for_is_looked_for_where_the_run_now_is(apps: list[Queuety], clock: ManualClock) -> None:
    here, there = apps[0], apps[-1]
    for _ in range(5):  # the ids of the others are none that the copy gets
        STORIES["fresh"](here, clock)
    run = STORIES["waiting_for_workflows"](here, clock)
    data = passed(here.export_workflow(run))
    others = data["wait_dependencies"]
    assert [(other["name"], other["status"]) for other in others] == [("other", "waiting_for_signal")] * 2
    if there is here:
        pytest.skip("there is one kind of database here")
    state = status_of(there, there.replay_workflow(data))
    assert state.status is WorkflowStatus.FAILED
    assert state.error_kind == "WaitUnsatisfiable"
    assert f"workflow {others[0]['workflow_id']} is not there" in (state.error_message or "")
