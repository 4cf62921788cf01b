"""Workflows of a folder of files: started in one process, run by the workers that have loaded the same folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuety import JobStatus, Queuety, WorkflowStatus
from queuety.errors import HandlerNotFound
from queuety.model import ErrorKind
from queuety.testing import ManualClock
from tests.support.filed import forgotten
from tests.support.flowing import status_of

DAILY = """
from queuety import step, workflow as described
from ._shared import Publish

@step
def fetch(state):
    return {"fetched": state["page"]}

workflow = described("daily").then(fetch, "fetch").then(Publish, "publish")
"""
SHARED = """
from queuety import Step

class Publish(Step):
    def handle(self, state):
        return {"published": state["fetched"].upper()}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a workflow file in a folder of its own; what was loaded from it is forgotten afterwards."""
    here = tmp_path / "flows"
    (here / "reports").mkdir(parents=True)
    (here / "reports" / "daily.py").write_text(DAILY)
    (here / "reports" / "_shared.py").write_text(SHARED)
    with forgotten():
        yield here


def test_a_file_is_a_template_and_its_steps_run(app: Queuety, folder: Path) -> None:
    assert app.load_workflows(folder, recursive=True) == 1
    run = app.run_workflow("daily", {"page": "front"})
    assert [job.handler for job in app.list_jobs(workflow_id=run)] == ["queuety_files.reports.daily:fetch"]
    app.run_until_idle()
    done = status_of(app, run)
    assert (done.status, done.state["published"]) == (WorkflowStatus.COMPLETED, "FRONT")


def test_a_worker_without_the_folder_leaves_the_run_to_one_that_has_it(
    app: Queuety, clock: ManualClock, folder: Path
) -> None:
    with forgotten():
        app.load_workflows(folder, recursive=True)
        run = app.run_workflow("daily", {"page": "front"})
    # The modules are gone, as in a process that has never loaded them; the application has found none of them yet.
    with Queuety(app.door.engine, clock=clock) as other:
        assert other.run_until_idle() == 0
        (waiting,) = other.list_jobs(workflow_id=run)
        assert (waiting.status, waiting.attempts) == (JobStatus.PENDING, 0)
        assert "no workflow file is loaded here as queuety_files.reports.daily" in (waiting.error_message or "")
        assert "--workflows FOLDER" in (waiting.error_message or "")
        assert "--workflows FOLDER" in other.why(run).answer
        other.load_workflows(folder, recursive=True)
        clock.advance(minutes=1)
        assert other.run_until_idle() == 2
        assert status_of(other, run).state["published"] == "FRONT"


def test_without_the_folder_it_is_buried_after_its_grace_time(app: Queuety, clock: ManualClock, folder: Path) -> None:
    with forgotten():
        app.load_workflows(folder, recursive=True)
        run = app.run_workflow("daily", {"page": "front"})
    with Queuety(app.door.engine, clock=clock) as other:
        other.run_until_idle()
        clock.advance(seconds=3620)
        other.run_until_idle()
        failed = status_of(other, run)
        assert (failed.status, failed.error_kind) == (WorkflowStatus.FAILED, ErrorKind.HANDLER_NOT_FOUND)
        assert "--workflows FOLDER" in (failed.error_message or "")


def test_a_row_cannot_have_a_file_loaded(app: Queuety, clock: ManualClock, folder: Path) -> None:
    (folder / "reports" / "trap.py").write_text("raise SystemExit('a row has loaded this file')")
    (folder / "a.py").write_text("")
    app.load_workflows(folder)
    form = {"name": "w", "steps": [{"type": "single", "name": "s", "handler": "queuety_files.reports.trap:fetch"}]}
    run = app.dispatch_definition(form)
    assert app.run_until_idle() == 0
    (waiting,) = app.list_jobs(workflow_id=run)
    assert "no workflow file is loaded here as queuety_files.reports.trap" in (waiting.error_message or "")
    with pytest.raises(HandlerNotFound):
        app.registry.resolve("queuety_files.reports.trap:fetch")


def test_two_processes_find_each_others_handlers(tmp_path: Path, folder: Path) -> None:
    """The names are the same wherever the folder is: here it is loaded by another path in another process."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    (folder.parent / "link").symlink_to(folder)
    program = (
        "import sys\n"
        "from queuety import Queuety\n"
        "with Queuety(sys.argv[1]) as app:\n"
        "    app.load_workflows('link', recursive=True)\n"
        "    print(app.run_workflow('daily', {'page': 'front'}))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, url], cwd=folder.parent, capture_output=True, text=True, check=True
    )
    with Queuety(url) as app:
        app.load_workflows(folder, recursive=True)
        app.run_until_idle()
        assert status_of(app, int(ran.stdout)).state["published"] == "FRONT"
