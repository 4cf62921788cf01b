"""`queuety work` as a real process: it works, it is seen, and it ends when it is told to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from queuety import Queuety
from tests.support.cli import PROGRAM, Project, process, refused, told

PATIENCE_S = 60.0


@contextmanager
def working(project: Project, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A supervisor at work in the project's folder; killed if the test leaves it behind."""
    with subprocess.Popen(
        [*PROGRAM, "work", *arguments], cwd=project.folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def test_it_runs_what_is_dispatched_and_stops_when_told(project: Project) -> None:
    with working(project, "--workers", "2", "--queue", "urgent,default", "--concurrency", "3", "--grace", "5") as child:
        workflow_id = told("workflow", "dispatch", "greeting", "--payload", '{"name": "Ada"}')["id"]
        with Queuety(project.url) as app:
            run = app.wait(workflow_id, timeout=PATIENCE_S)
        assert run.state["greeting"] == "Hello Ada"
        found = told("status")
        assert {tuple(worker["queues"]) for worker in found["workers"]} == {("urgent", "default")}
        assert {worker["concurrency"] for worker in found["workers"]} == {3}
        child.send_signal(signal.SIGTERM)
        _, log = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0, log
    assert re.search(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \d+ INFO queuety\.worker: ", log)
    assert "Traceback" not in log


@pytest.mark.parametrize("target", ["shop:app", "shop:made"])
def test_a_function_may_make_the_application_of_workers_too(local: Project, target: str) -> None:
    workflow_id = told("workflow", "dispatch", "greeting")["id"]
    with working(local, "--app", target, "--log-level", "error") as child:
        with Queuety(local.url) as app:
            assert app.wait(workflow_id, timeout=PATIENCE_S).state["greeting"] == "Hello nobody"
        child.send_signal(signal.SIGINT)
        _, log = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, log) == (0, "")


def test_a_real_process_answers_and_exits(local: Project) -> None:
    ran = process("workflow", "dispatch", "greeting", folder=local.folder)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert process("flush", folder=local.folder).stdout == "2 handlers ran\n"
    ran = process("workflow", "status", "99", folder=local.folder)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "error: no workflow has the id 99\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--workers", "0"),
        ("--workers", "many"),
        ("--concurrency", "0"),
        ("--grace", "-1"),
        ("--grace", "nan"),
        ("--grace", "inf"),
        ("--queue", ""),
        ("--queue", ","),
        ("--log-level", "loud"),
        ("--app", "shop:nothing"),
    ],
)
def test_bad_input_starts_no_worker(local: Project, arguments: tuple[str, ...]) -> None:
    refused("work", *arguments, code=2)


def test_nothing_is_left_when_it_has_ended(local: Project) -> None:
    with working(local) as child:
        workflow_id = told("workflow", "dispatch", "greeting")["id"]
        with Queuety(local.url) as app:
            app.wait(workflow_id, timeout=PATIENCE_S)
        pids = [worker["pid"] for worker in told("status")["workers"]]
        assert pids
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=PATIENCE_S)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert told("status")["workers"] == []
