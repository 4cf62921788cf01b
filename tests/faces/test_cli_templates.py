"""Templates and workflow files on the command line, and workers that load the same folder."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuety import Queuety
from tests.support.cli import PROGRAM, Project, done, refused, told
from tests.support.filed import forgotten

PATIENCE_S = 60.0
DAILY = """
from queuety import step, workflow as described

@step
def fetch(state):
    return {"fetched": state.get("page", "none")}

workflow = described("daily").version("3").then(fetch, "fetch")
"""


@pytest.fixture
def flows(folder: Path) -> Iterator[Path]:
    """A folder of workflow files beside the project, one of them in a folder of its own."""
    place = folder / "flows"
    (place / "reports").mkdir(parents=True)
    (place / "reports" / "daily.py").write_text(DAILY)
    (place / "weekly.py").write_text(DAILY.replace("daily", "weekly"))
    with forgotten():
        yield place


def test_the_templates_of_a_folder_are_listed(local: Project, flows: Path) -> None:
    assert done("workflow", "templates") == "no templates\n"
    found = told("workflow", "templates", "--workflows", "flows")
    assert [(each["name"], each["steps"], each["version"]) for each in found] == [
        ("daily", ["fetch"], "3"),
        ("weekly", ["fetch"], "3"),
    ]
    assert found[0]["source"] == str(flows.resolve() / "reports" / "daily.py")
    table = done("workflow", "templates", "--workflows", "./flows").splitlines()
    assert table[0].split() == ["name", "steps", "version", "definition", "from"]


def test_a_template_is_started_and_its_steps_run(
    project: Project, flows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUETY_WORKFLOWS", "flows")
    first = told("workflow", "run", "daily", "--payload", '{"page": "front"}', "--key", "monday", "--tag", "red")["id"]
    assert done("workflow", "run", "daily", "--key", "monday") == f"workflow {first} has the key monday\n"
    done("flush")
    run = told("workflow", "status", str(first))
    assert (run["state"], run["tags"]) == ({"page": "front", "fetched": "front"}, ["red"])


def test_the_applications_own_templates_are_there_too(local: Project) -> None:
    (local.folder / "own.py").write_text("from shop import app, greeting\napp.register_workflow_template(greeting)\n")
    assert [each["name"] for each in told("workflow", "templates", "--app", "own:app")] == ["greeting"]
    assert done("workflow", "run", "greeting", "--app", "own:app").startswith("workflow ")
    assert done("workflow", "graph", "greeting", "--app", "own:app").startswith("greeting  2 steps")


def test_whoever_takes_a_template_for_a_workflow_is_told(local: Project) -> None:
    lines = ("from shop import app", "app.register_workflow_template(app.workflow('w').delay(1))")
    (local.folder / "own.py").write_text("\n".join((*lines, "built = app.workflow('built').delay(1)")))
    said = refused("workflow", "dispatch", "w", "--app", "own:app", code=2)
    assert said == "'w' is the name of a template; `queuety workflow run w` starts it"
    said = refused("workflow", "run", "built", "--app", "own:app", code=1)
    assert said == "'built' is no template; `queuety workflow dispatch built` starts the workflow of that name"
    assert "is not registered here" in refused("workflow", "run", "nothing", "--app", "own:app", code=1)


def test_a_database_and_a_folder_are_enough_to_start(local: Project, flows: Path) -> None:
    done("workflow", "run", "weekly", "--database", local.url, "--workflows", "flows")
    assert [run["name"] for run in told("workflow", "list")] == ["weekly"]


def test_the_command_line_wins_over_the_environment(
    local: Project, flows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUETY_WORKFLOWS", "nowhere")
    message = refused("workflow", "run", "daily", code=2)
    assert message.startswith("nowhere (from QUEUETY_WORKFLOWS) is no folder; looked in ")
    assert len(told("workflow", "templates", "--workflows", "flows")) == 2
    assert done("workflow", "list") == "no workflows\n"


def test_bad_folders_and_files_are_said(local: Project, flows: Path) -> None:
    (flows / "broken.py").write_text("1 / 0\n")
    (local.folder / "empty").mkdir()
    for command in (("workflow", "templates"), ("workflow", "run", "daily"), ("flush",), ("work",)):
        message = refused(*command, "--workflows", "flows", code=2)
        assert f"{flows.resolve() / 'broken.py'} cannot be loaded: ZeroDivisionError" in message
        assert "(from --workflows) is no folder" in refused(*command, "--workflows", "missing", code=2)
    message = refused("workflow", "run", "daily", "--workflows", "empty", code=1)
    assert "workflow template 'daily' is not registered here; there are none" in message


def test_the_processes_of_a_worker_load_the_folder(local: Project, flows: Path) -> None:
    workflow_id = told("workflow", "run", "daily", "--workflows", "flows")["id"]
    command = [*PROGRAM, "work", "--workflows", "flows", "--log-level", "error"]
    with subprocess.Popen(command, cwd=local.folder, stderr=subprocess.PIPE, text=True) as child:
        try:
            with Queuety(local.url) as app:
                assert app.wait(workflow_id, timeout=PATIENCE_S).state == {"fetched": "none"}
            child.send_signal(signal.SIGTERM)
            _, log = child.communicate(timeout=PATIENCE_S)
        finally:
            if child.poll() is None:
                child.kill()
    assert (child.returncode, log) == (0, "")
