"""Replaying a run, broken before every statement: there is a whole copy, once, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queuety.commands.replay import replay
from queuety.inspect.export import export_workflow
from queuety.model import StepSpec
from tests.crash import test_every_statement as every
from tests.crash.test_every_statement import Kind
from tests.support.databases import Database
from tests.support.hands import definition, failed, single, succeeded
from tests.support.scenes import Action, Scene

WAIT = StepSpec("wait_for_signal", "hear", settings={"names": ["go"], "mode": "all", "result_key": "heard"})
WAITING = definition(single("one"), WAIT, single("two"))
FAILING = definition(single("one", max_attempts=1), name="failing")


def export(scene: Scene, run: int) -> dict[str, Any]:
    with scene.seen.door.reading(one_moment=True) as connection:
        data = export_workflow(connection, scene.seen.door.tables, run, now_us=scene.seen.clock.us, package_version="1")
    assert data is not None
    return data


def replayed(name: str, prepare: Callable[[Scene], int], jobs: int, *, once: bool) -> Kind:
    """What `prepare` makes is replayed; the copy has so many jobs. `once`: there is one copy, and not at least one."""

    def make(scene: Scene) -> tuple[Action, Callable[[], None]]:
        run = prepare(scene)
        data = export(scene, run)

        def act() -> None:
            replay(scene.door, scene.house.definitions, data, max_bytes=1 << 20)

        def verify() -> None:
            copies = [row for row in scene.seen.rows("workflows") if "_replay_" in row["name"]]
            assert len(copies) == 1 if once else copies
            for copy in copies:
                told = [row["entry"] for row in scene.seen.rows("history", run_id=copy["id"])]
                was = [row["entry"] for row in scene.seen.rows("history", run_id=run)]
                assert told[: len(was) + 1] == [*was, "replayed"]
                assert len(scene.seen.rows("jobs", workflow_id=copy["id"])) == jobs
                assert copy["state"] == scene.seen.row("workflows", id=run)["state"]

        return act, verify

    return Kind(name, make)


def failing(scene: Scene) -> int:
    run = scene.seen.dispatch(FAILING)
    scene.seen.hand().work(failed)
    return run


def waiting(scene: Scene) -> int:
    run = scene.seen.dispatch(WAITING)
    scene.seen.hand().work(lambda job: succeeded(job, {"n": 1}))
    return run


RUNS: dict[str, tuple[Callable[[Scene], int], int]] = {"failing": (failing, 1), "waiting": (waiting, 0)}


@pytest.mark.parametrize("name", RUNS)
def test_a_replay_that_is_broken_leaves_nothing(database: Database, name: str) -> None:
    what = replayed(name, *RUNS[name], once=False)
    every.test_what_is_broken_leaves_nothing_and_completes_when_done_again(database, what)


@pytest.mark.parametrize("name", RUNS)
def test_a_replay_that_is_broken_once_completes_by_itself(database: Database, name: str, rounds: int) -> None:
    """Once, also where nobody knows whether the COMMIT was done."""
    what = replayed(name, *RUNS[name], once=True)
    every.test_what_is_broken_once_completes_by_itself(database, what, rounds)
