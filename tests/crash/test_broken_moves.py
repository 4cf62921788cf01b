"""Moving a run to another definition, and back, broken before every statement: done whole, once, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queuety.model import Definition, Migrate
from tests.crash import test_every_statement as every
from tests.crash.test_every_statement import Kind
from tests.support.databases import Database
from tests.support.hands import definition, pause_of, single
from tests.support.scenes import Action, Scene

OLD = definition(single("one"), single("two"))
LONGER = definition(single("new"), single("one"), single("two"))
WAITING = definition(pause_of(60), single("two"), name="slow")
LATER = definition(single("new"), pause_of(60), single("two"), name="slow", deadline_s=90.0)


def moved(name: str, old: Definition, new: Definition, phases: list[str]) -> Kind:
    """A run is moved from one definition to the other; then its jobs stand so."""

    def prepare(scene: Scene) -> tuple[Action, Callable[[], None]]:
        run = scene.seen.dispatch(old)
        scene.seen.definitions.ensure(scene.seen.door, new)
        was = scene.seen.row("workflows", id=run)

        def verify() -> None:
            row = scene.seen.row("workflows", id=run)
            assert (row["definition_hash"], row["total_steps"]) == (new.hash, len(new.steps))
            assert row["current_step"] == was["current_step"] + len(new.steps) - len(old.steps)
            assert [row["entry"] for row in scene.seen.rows("history", run_id=run)] == ["migrated"]
            assert sorted(row["phase"] for row in scene.seen.rows("jobs", workflow_id=run)) == phases

        return lambda: scene.house.steer(run, Migrate(new)), verify

    return Kind(name, prepare)


KINDS = [
    moved("job-that-is-replaced", OLD, LONGER, ["buried", "ready"]),
    moved("delay-and-deadline", WAITING, LATER, []),
]


@pytest.mark.parametrize("what", KINDS, ids=str)
def test_a_move_that_is_broken_leaves_nothing(database: Database, what: Kind) -> None:
    every.test_what_is_broken_leaves_nothing_and_completes_when_done_again(database, what)


@pytest.mark.parametrize("what", KINDS, ids=str)
def test_a_move_that_is_broken_once_completes_by_itself(database: Database, what: Kind, rounds: int) -> None:
    every.test_what_is_broken_once_completes_by_itself(database, what, rounds)
