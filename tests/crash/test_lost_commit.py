"""A COMMIT whose answer is lost, and somebody who is quicker than the one who asks again."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queuety import Queuety, job, step
from queuety.commands.signals import send_signal
from queuety.errors import LeaseLost
from queuety.model import Cancel, StepSpec
from queuety.store import chunks, patience
from queuety.worker.maintain import recover
from queuety.worker.streaming import StoredChunks
from tests.support.databases import Database
from tests.support.hands import definition, single
from tests.support.invariants import check
from tests.support.scenes import Scene, scene_of


@step
def note(state: dict[str, object]) -> None:
    """Nothing."""


@job
def mail(payload: dict[str, object]) -> None:
    """Nothing."""


def stranger(url: str, what: str) -> int:
    """Another process dispatches; the id that it got."""
    code = f"from tests.crash.test_lost_commit import *; app = Queuety({url!r}); print({what})"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    return int(done.stdout)


def lose_first_commit(app: Queuety, meanwhile: Callable[[], object]) -> None:
    """The first COMMIT is lost with the disk; then `meanwhile` is done before anything else."""
    seen: list[str] = []

    def hook(statement: str) -> None:
        seen.append(statement)
        if statement == "COMMIT" and seen.count("COMMIT") == 1:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            error.sqlite_errorname = "SQLITE_IOERR"
            raise error
        if statement.startswith("BEGIN IMMEDIATE") and seen.count("COMMIT") == 1 and "done" not in seen:
            seen.append("done")
            meanwhile()

    app.door.on_statement = hook


def test_a_stranger_s_run_under_the_same_id_is_not_taken_for_ours(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'queuety.db'}"
    with Queuety(url) as ours:
        flow = ours.workflow("ours").then(note)
        flow.dispatch()
        strangers: list[int] = []
        lose_first_commit(ours, lambda: strangers.append(stranger(url, "app.workflow('theirs').then(note).dispatch()")))
        run = flow.dispatch({"mine": True})
        ours.door.on_statement = None
        assert strangers
        assert run not in strangers
        state = ours.workflow_status(run)
        assert state is not None
        assert (state.name, state.state) == ("ours", {"mine": True})


def test_a_stranger_s_job_under_the_same_id_is_not_taken_for_ours(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'queuety.db'}"
    with Queuety(url) as ours:
        ours.dispatch(mail, {"n": 0})
        strangers: list[int] = []
        lose_first_commit(ours, lambda: strangers.append(stranger(url, "app.dispatch(mail)")))
        made = ours.dispatch(mail, {"n": "ours"})
        ours.door.on_statement = None
        assert strangers
        assert made not in strangers
        state = ours.job_status(made)
        assert state is not None
        assert state.payload == {"n": "ours"}


class Loses:
    """Loses a COMMIT through the broken door, and has something happen before it is asked again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.is_done = False

    def first(self, scene: Scene, point: str, meanwhile: Callable[[], object]) -> None:
        """The next COMMIT is lost before (`COMMIT`) or after it was done (`COMMITTED`); then comes `meanwhile`."""
        for _ in range(4):
            scene.door.write(lambda tx: tx.reserve(1))  # some are left then, and none is drawn beside
        said = scene.break_at(point)

        def pause_s(*_: Any) -> float:
            assert not self.is_done
            assert said[-1] == point
            self.is_done = True
            scene.door.on_statement = None
            meanwhile()
            return 0.0

        self._monkeypatch.setattr(patience, "pause_s", pause_s)


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Loses:
    return Loses(monkeypatch)


@pytest.mark.parametrize(("point", "kept"), [("COMMIT", ["late", "end"]), ("COMMITTED", ["early", "late"])])
def test_a_chunk_of_which_nobody_knows_is_kept_once_or_its_attempt_is_fenced(
    database: Database, lose: Loses, point: str, kept: list[str]
) -> None:
    """Another attempt has taken over before it is asked again; it has read what is kept, and goes on after that."""
    with scene_of(database, patient=True) as scene:
        seen = scene.seen
        run = seen.dispatch(definition(single(backoff=(0.0,))))
        (first,) = seen.hand().claim()
        mine, others = (StoredChunks(door, lease_s=30) for door in (scene.door, seen.door))

        def another_takes_over() -> None:
            seen.clock.advance(31)
            assert recover(seen.door, seen.definitions) == 1
            (second,) = seen.hand().claim()
            assert second.attempt == 2
            for chunk in ("late", "end")[: 2 - len(others.existing(second))]:
                others.append(second, len(others.existing(second)), chunk)

        lose.first(scene, point, another_takes_over)
        with pytest.raises(LeaseLost, match="chunk 0 was not kept"):
            mine.append(first, 0, "early")
        assert lose.is_done
        assert seen.door.read(lambda tx: chunks.existing(tx, run, 1, None)) == kept
        check(seen.door)


@pytest.mark.parametrize("point", ["COMMIT", "COMMITTED"])
def test_a_chunk_of_which_nobody_knows_is_kept_once_where_the_lease_is_held(
    database: Database, lose: Loses, point: str
) -> None:
    with scene_of(database, patient=True) as scene:
        run = scene.seen.dispatch(definition(single()))
        (work,) = scene.seen.hand().claim()
        kept = StoredChunks(scene.door, lease_s=30)
        kept.append(work, 0, "a")
        lose.first(scene, point, lambda: None)
        kept.append(work, 1, "b")
        assert lose.is_done
        assert kept.existing(work) == ["a", "b"]
        assert [row["number"] for row in scene.seen.rows("chunks", workflow_id=run)] == [0, 1]
        check(scene.seen.door)


@pytest.mark.parametrize("point", ["COMMIT", "COMMITTED"])
def test_a_signal_of_which_nobody_knows_is_kept_once_whatever_the_run_has_done_since(
    database: Database, lose: Loses, point: str
) -> None:
    """It was used at once, or the run is cancelled before it is asked again: it has been sent all the same, once."""
    wait = StepSpec("wait_for_signal", "hear", settings={"names": ["go"], "mode": "all", "result_key": "heard"})
    with scene_of(database, patient=True) as scene:
        run = scene.seen.dispatch(definition(wait, single()))
        lose.first(scene, point, lambda: scene.seen.steer(run, Cancel()))
        send_signal(scene.door, scene.house.definitions, run, "go", {"n": 1})
        assert lose.is_done
        told = [row for row in scene.seen.rows("history", run_id=run) if row["entry"] == "signalled"]
        assert len(told) == 1
        assert scene.seen.state(run) == ({"heard": {"n": 1}} if point == "COMMITTED" else {})
        assert len(scene.seen.rows("signals")) == (0 if point == "COMMITTED" else 1)
        check(scene.seen.door)
