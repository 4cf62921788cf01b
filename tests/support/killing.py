"""An application whose workers are killed, and those who kill them. `KILLING_URL` names its database.

Its steps do a little of everything: they loop, wait, fail once, are awaited. What each run must end with is known.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from queuety import Queuety, Settings, current, job, step
from queuety.define.builder import WorkflowBuilder
from tests.support.flowing import PATIENCE_S

ROOT = Path(__file__).parents[2]
WORK = ["-m", "queuety.cli", "--app", "tests.support.killing:app", "work", "--workers", "1", "--concurrency", "4"]
LEASE_S = 2.0
LAPS = 3

State = dict[str, Any]

app = Queuety(
    os.environ.get("KILLING_URL", "sqlite://"), settings=Settings(lease_seconds=LEASE_S, idle_poll_seconds=0.1)
)

_pause = threading.Event()


@step(name="killing.lap", max_attempts=1000, backoff=[0])
def lap(state: State) -> State:
    _pause.wait(random.random() * 0.02)
    return {"laps": [*state.get("laps", []), len(state.get("laps", []))]}


@step(name="killing.again", max_attempts=1000, backoff=[0])
async def again(state: State) -> State:
    await asyncio.sleep(random.random() * 0.02)
    return {"_next_step": "lap"} if len(state["laps"]) < LAPS else {"rounds": state.get("rounds", 0) + 1}


@step(name="killing.stumble", max_attempts=1000, backoff=[0])
def stumble(state: State) -> State:
    if current().attempt == 1:
        raise OSError("the first attempt always fails")
    return {"stumbled": True}


@step(name="killing.clean", max_attempts=1000, backoff=[0])
def clean(state: State) -> None:
    _pause.wait(random.random() * 0.02)


@job(name="killing.errand", max_attempts=1000, backoff=[0])
def errand(payload: State) -> None:
    _pause.wait(random.random() * 0.02)


def course() -> WorkflowBuilder:
    """What every run does; whatever happens, it ends with `OUTCOME`, or is cancelled."""
    return (
        app.workflow("course")
        .then(lap, name="lap")
        .then(again)
        .delay(seconds=0.05)
        .then(stumble)
        .on_cancel(clean)
        .max_attempts(1000)
    )


OUTCOME = {"laps": list(range(LAPS)), "rounds": 1, "stumbled": True}


class Workers:
    """`queuety work`, again and again: whoever is killed is replaced."""

    def __init__(self, url: str, log: Path, *, supervisors: int = 2) -> None:
        self._environment = {
            **os.environ,
            "KILLING_URL": url,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        self._log = log
        self._supervisors = [self._start() for _ in range(supervisors)]
        self.killed = 0

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, *WORK],
                cwd=ROOT,
                env=self._environment,
                stdout=out,
                stderr=out,
            )

    def kill_one(self) -> None:
        """Kills a worker process, or now and then a supervisor, in whose place another is started."""
        victims = [pid for process in self._supervisors for pid in _children(process.pid)]
        # A child that is killed again and again is replaced ever more slowly; a new supervisor begins anew.
        if victims and random.random() < 0.6:
            _kill(random.choice(victims))
        else:
            process = random.choice(self._supervisors)
            process.kill()
            process.wait()
            self._supervisors.remove(process)
            self._supervisors.append(self._start())
        self.killed += 1

    def stop(self) -> list[int]:
        """Tells them to end; their exit codes."""
        for process in self._supervisors:
            process.send_signal(signal.SIGTERM)
        codes = []
        for process in self._supervisors:
            try:
                codes.append(process.wait(PATIENCE_S))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
        return codes


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended by itself


def _children(pid: int) -> list[int]:
    """The processes that this one has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.name))
    return found
