"""What has surprised somebody who knew the documentation only: each command answers as the others of its kind do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Project, done, refused, told


@pytest.fixture
def run(local: Project) -> str:
    return str(told("workflow", "dispatch", "shop:greeting")["id"])


def test_both_an_id_and_a_filter_are_too_much(run: str) -> None:
    for command in (("pause", run), ("skip-step", run), ("rewind", run, "0")):
        assert "which runs are meant (--status, --name, --tag, …), not both" in refused(
            "workflow", *command, "--status", "running", code=2
        )


def test_neither_an_id_nor_a_filter_is_too_little(local: Project) -> None:
    for command in ("pause", "skip-step"):
        assert refused("workflow", command, code=2).startswith("say either the ID of a run or which runs")
    assert "say which one: --step" in refused("workflow", "skip-step", "--status", "failed", code=2)


def test_the_log_of_what_there_is_not_is_no_empty_log(run: str) -> None:
    assert "no workflow has the id 999" in refused("log", "--workflow", "999", code=1)
    assert "no job has the id 999" in refused("log", "--job", "999", code=1)
    assert f"{run} is a workflow and no job" in refused("log", "--job", run, code=1)
    job = str(told("list")[0]["id"])
    assert done("log", "--job", job) == "nothing is logged\n"
    assert f"{job} is a job and no workflow" in refused("log", "--workflow", job, code=1)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("pause", "mail"), {"queue": "mail", "paused": True}),
        (("resume", "mail"), {"queue": "mail", "paused": False}),
        (("workflow", "delete-artifact", "1", "k"), {"id": 1, "key": "k"}),
    ],
)
def test_what_does_something_answers_in_json(run: str, command: tuple[str, ...], answer: Any) -> None:
    assert run == "1"
    assert told(*command) == answer


def test_no_picture_is_written_that_its_name_does_not_promise(run: str) -> None:
    for name in ("a.pdf", "a.png", "a.json"):
        assert f"{name} is to be neither .svg, .mmd nor .txt" in refused(
            "workflow", "graph", run, "--output", name, code=2
        )
        assert not Path(name).exists()
    done("workflow", "graph", run, "--output", "a.doc", "--format", "mermaid")
    assert Path("a.doc").read_text().startswith("flowchart")


def test_a_dash_is_stdout_wherever_a_file_is_written(run: str) -> None:
    assert done("workflow", "graph", run, "--output", "-") == done("workflow", "graph", run)
    assert f'"id": {run}' in done("workflow", "export", run, "--output", "-")
    assert not Path("-").exists()
