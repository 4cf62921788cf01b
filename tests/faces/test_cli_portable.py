"""`queuety workflow export` and `queuety workflow replay`, by files and by pipes; on the three databases."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Project, done, queuety, refused, told


@pytest.fixture
def run(project: Project) -> str:
    """A run that is over, with a value that terminals and other formats change."""
    return greeted(project)


@pytest.fixture
def mine(local: Project) -> str:
    """The same where the kind of database does not matter."""
    return greeted(local)


def greeted(project: Project) -> str:
    (project.folder / "payload.json").write_text(json.dumps({"name": "Zoë\0\u001b[2J 😀", "one": 1.0}))
    found = str(told("workflow", "dispatch", "greeting", "--payload", "@payload.json")["id"])
    done("flush")
    return found


def test_a_run_goes_through_a_file(project: Project, run: str) -> None:
    answer = done("workflow", "export", run, "--output", "run.json")
    assert answer == f"workflow {run} was exported to run.json\n"
    data = json.loads((project.folder / "run.json").read_text("utf-8"))
    assert data["workflow"]["id"] == int(run)
    said = done("workflow", "replay", "run.json", "--actor", "Ann", "--reason", "look")
    new = said.split()[1]
    name = told("workflow", "status", new)["name"]
    assert said == f"workflow {new} was replayed as {name}; it is completed\n"
    assert name.startswith("greeting_replay_")
    last = told("workflow", "timeline", new)[-1]
    assert last["event"] == "workflow_replayed"
    assert json.loads(done("workflow", "export", new))["events"][-1]["control"]["_by"] == {
        "actor": "Ann",
        "reason": "look",
    }


def test_a_run_goes_through_a_pipe(run: str) -> None:
    text = done("workflow", "export", run)
    data = json.loads(text)
    assert data["workflow"]["payload"] == {"name": "Zoë\0\u001b[2J 😀", "one": 1.0}
    answer = json.loads(done("workflow", "replay", "-", "--json", given=text))
    assert answer["status"] == "completed"
    again = json.loads(done("workflow", "export", str(answer["id"])))
    assert again["workflow"]["state"] == data["workflow"]["state"]
    assert repr(again["workflow"]["state"]["one"]) == "1.0"


def test_a_waiting_run_goes_on_in_another_database(project: Project, tmp_path: Path) -> None:
    old = str(told("workflow", "dispatch", "slow")["id"])
    done("workflow", "export", old, "-o", "slow.json")
    url = f"sqlite:///{tmp_path / 'other.db'}"
    answer = json.loads(done("workflow", "--database", url, "replay", "slow.json", "--json"))
    assert answer["status"] == "running"
    assert told("workflow", "status", str(answer["id"]), "--database", url)["current_step_name"] == "delay_0"


def test_a_file_that_is_there_stays_unless_it_is_to_go(local: Project, mine: str) -> None:
    path = local.folder / "run.json"
    path.write_text("mine")
    said = refused("workflow", "export", mine, "--output", "run.json", code=2)
    assert said == "run.json is there already; name another file, or say --force"
    assert path.read_text() == "mine"
    done("workflow", "export", mine, "--output", "run.json", "--force")
    assert json.loads(path.read_text("utf-8"))["workflow"]["id"] == int(mine)
    assert [entry for entry in os.listdir(local.folder) if entry.endswith(".part")] == []


def test_what_cannot_be_written_or_read_is_said(mine: str) -> None:
    assert "nowhere" in refused("workflow", "export", mine, "--output", "nowhere/run.json", code=2)
    assert refused("workflow", "export", mine, "--force", code=2).startswith("--force goes with --output")
    assert refused("workflow", "replay", "nowhere.json", code=2).startswith("nowhere.json cannot be read")


def test_an_unknown_id_is_a_no(mine: str) -> None:
    assert refused("workflow", "export", "999999", code=1) == "no workflow has the id 999999"
    assert refused("workflow", "export", "999999", "-o", "x.json", code=1) == "no workflow has the id 999999"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Invalid export data: stdin is not valid JSON"),
        ("{", "Invalid export data: stdin is not valid JSON"),
        ('{"workflow": NaN}', "Invalid export data: stdin is not valid JSON: NaN is not JSON"),
        ('{"workflow": 1, "workflow": 2}', "stands twice"),
        ("[]", "Invalid export data: an object is needed, not list"),
        ("{}", "Invalid export data: workflow is missing"),
    ],
)
def test_bad_data_is_one_line_and_starts_nothing(local: Project, text: str, said: str) -> None:
    told("workflow", "dispatch", "slow")
    assert said in refused("workflow", "replay", "-", code=2, given=text)
    assert len(told("workflow", "list")) == 1


def test_an_edited_file_is_refused_by_the_key(local: Project) -> None:
    found = str(told("workflow", "dispatch", "slow")["id"])
    data: Any = json.loads(done("workflow", "export", found))
    data["workflow"]["status"] = "asleep"
    answer = queuety("workflow", "replay", "-", given=json.dumps(data))
    assert answer.code == 2
    assert answer.err.startswith("error: Invalid export data: workflow.status: one of running, ")
