"""A COMMIT whose answer is lost, and somebody who draws the same id before it is asked again."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from queuety import Queuety, job, step


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
