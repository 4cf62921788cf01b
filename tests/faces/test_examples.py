"""The programs under `examples/` do what their pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.agents import flow
from examples.agents.model import Model
from queuety import Queuety

ROOT = Path(__file__).resolve().parents[2]
SHORT = "This is about {}. Of what {} need much is known. That is all."


def test_the_agents_revise_until_they_are_approved(
    app: Queuety, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "model", Model(pause_s=0))
    run = app.dispatch_workflow(flow.article, {"topic": "owls", "folder": str(tmp_path)})
    app.run_until_idle()
    asked = app.workflow_status(run)
    assert asked is not None
    assert (asked.status, asked.current_step_name) == ("waiting_for_signal", "review")
    assert list(asked.state["agent_results"]) == [str(each) for each in asked.state["agent_workflow_ids"]]
    assert asked.state["article"].count("much is known") == 3

    app.reject_workflow(run, {"note": "shorter, please"})
    app.run_until_idle()
    app.approve_workflow(run)
    app.run_until_idle()
    done = app.workflow_status(run)
    assert done is not None
    assert done.status == "completed"
    assert [file.read_text() for file in tmp_path.glob("*.txt")] == [f"Owls\n\n{SHORT.format('owls', 'owls')}\n"]


def test_the_agents_give_up_after_three_revisions(
    app: Queuety, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "model", Model(pause_s=0))
    run = app.dispatch_workflow(flow.article, {"topic": "owls", "folder": str(tmp_path)})
    for _ in range(4):
        app.run_until_idle()
        app.reject_workflow(run)
    app.run_until_idle()
    failed = app.workflow_status(run)
    assert failed is not None
    assert (failed.status, failed.error_kind) == ("failed", "ConstraintViolation")
    assert list(tmp_path.glob("*.txt")) == []


@pytest.mark.paired
def test_the_agents_play_their_example_and_survive_a_kill() -> None:
    # Unbuffered, each print is two writes, and the lines of the processes run into each other.
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("QUEUETY_") and key != "PYTHONUNBUFFERED"
    }
    played = subprocess.run(
        [sys.executable, "-m", "examples.agents"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert played.returncode == 0, played.stderr
    lines = [line.strip() for line in played.stdout.splitlines()]
    said = [line for line in lines if not line.startswith("[")]
    kill = next(index for index, line in enumerate(said) if line.startswith("kill -9"))
    first = [
        "This is about street trees.",
        "Of what street trees need much is known.",
        "Of what street trees cost much is known.",
        "Of who looks after street trees much is known.",
        "That is all.",
    ]
    assert said[1:kill] + said[kill + 1 : 7] == first, "a sentence was lost, or written twice"
    assert sum(line.startswith("[research]") for line in lines) == 3
    goes_on = [re.search(r"draft 1, attempt 2, goes on after (\d)", line) for line in lines]
    assert [int(found[1]) >= 2 for found in goes_on if found] == [True]
    assert sum(line.startswith("[publish]") for line in lines) == 1
    assert said[7:9] == ["Ada rejects the draft: shorter, please", first[0]]
    assert said[-3:] == ["Street Trees", "", SHORT.format("street trees", "street trees")]
