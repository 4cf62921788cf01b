"""The story that README.md tells: the worker is killed in the middle of a step, another one finishes the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.pages import blocks

ROOT = Path(__file__).resolve().parents[2]
LEASE_S = 1


@contextmanager
def _worker(environment: dict[str, str], here: Path) -> Iterator[subprocess.Popen[str]]:
    """`queuety work` in a process group of its own, as a shell starts it."""
    command = ["queuety", "--app", "report:app", "work"]
    process = subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.timeout(60)
def test_another_worker_finishes_what_a_killed_one_began(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("QUEUETY_")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    environment["QUEUETY_LEASE_SECONDS"] = str(LEASE_S)
    (program,) = [block.code for block in blocks((ROOT / "README.md").read_text()) if block.value == "report.py"]
    assert "time.sleep(1)" in program
    (tmp_path / "report.py").write_text(program.replace("time.sleep(1)", "time.sleep(0.3)"))

    def said(*arguments: str) -> str:
        return subprocess.run(
            arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=30
        ).stdout

    assert said(sys.executable, "report.py") == "1\n"
    with _worker(environment, tmp_path) as first:
        assert [_line(first), _line(first)] == ["attempt 1 reads page 1 for Ada", "attempt 1 reads page 2 for Ada"]
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    status = said("queuety", "--app", "report:app", "workflow", "status", "1")
    assert "running" in status
    assert "1/3 summarise" in status

    with _worker(environment, tmp_path) as second:
        assert [_line(second) for _ in range(5)] == [f"attempt 2 reads page {n} for Ada" for n in range(1, 6)]
        said(sys.executable, "-c", "import report; report.app.wait(1, timeout=20)")
        second.terminate()
        assert second.wait(timeout=20) == 0
    assert "completed" in said("queuety", "--app", "report:app", "workflow", "status", "1")
    assert (tmp_path / "report.txt").read_text() == "Ada: 20 words\n"
    events = [
        line.split()[2:5] for line in said("queuety", "--app", "report:app", "workflow", "timeline", "1").splitlines()
    ]
    assert events[1:] == [
        ["step_started", "collect", "1"],
        ["step_completed", "collect", "1"],
        ["step_started", "summarise", "1"],
        ["step_failed", "summarise", "1"],
        ["step_started", "summarise", "2"],
        ["step_completed", "summarise", "2"],
        ["step_started", "publish", "1"],
        ["step_completed", "publish", "1"],
    ]
