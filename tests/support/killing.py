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
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from queuety import Fail, ForEachMode, Queuety, Settings, StreamingStep, current, job, step
from queuety.define.builder import WorkflowBuilder
from tests.support.flowing import PATIENCE_S

ROOT = Path(__file__).parents[2]
APP = "tests.support.killing:app"
WORK = ["work", "--workers", "1", "--concurrency", "4"]
LEASE_S = 2.0
LAPS = 3
CHUNKS = 12

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


@step(name="killing.left", max_attempts=1000, backoff=[0])
def left(state: State) -> State:
    _pause.wait(random.random() * 0.02)
    return {"left": state.get("left", 0) + 1}


@step(name="killing.right", max_attempts=1000, backoff=[0])
async def right(state: State) -> State:
    await asyncio.sleep(random.random() * 0.02)
    return {"right": state.get("right", 0) + 1}


@step(name="killing.item", max_attempts=1000, backoff=[0])
def item(state: State, item: int, index: int) -> State:
    _pause.wait(random.random() * 0.02)
    return {"of": [item, index]}


@step(name="killing.total", max_attempts=1000, backoff=[0])
def total(state: State, for_each: State) -> State:
    found = [result["output"]["of"] for result in for_each["results"]]
    assert all(item == index + 100 for item, index in found)
    return {"out": len({index for _, index in found}), "totals": state.get("totals", 0) + 1}


@step(name="killing.written", max_attempts=1000, backoff=[0])
def written(state: State) -> bool:
    _pause.wait(random.random() * 0.01)
    return bool(state["written"] >= 2)


@step(name="killing.end", max_attempts=1000, backoff=[0])
def end(state: State) -> State:
    return {"ends": state.get("ends", 0) + 1}


class Writing(StreamingStep):
    """Yields `[number, attempt]`, and fails if what was kept before is not as it was yielded.

    `holds_at` is before which number one that begins anew waits to be killed.
    """

    pause_s = 0.005

    def stream(self, state: State, existing_chunks: list[Any]) -> Iterator[Any]:
        if [number for number, _ in existing_chunks] != list(range(len(existing_chunks))):
            raise Fail(f"a chunk was lost or doubled: {existing_chunks}")
        for number in range(len(existing_chunks), state.get("chunks", CHUNKS)):
            if number == state.get("holds_at") and not existing_chunks:
                _pause.wait()
            _pause.wait(random.random() * self.pause_s)
            yield [number, current().attempt]

    def on_complete(self, chunks: list[Any], state: State) -> State:
        if [number for number, _ in chunks] != list(range(state.get("chunks", CHUNKS))):
            raise Fail(f"a chunk was lost or doubled: {chunks}")
        return {"written": state.get("written", 0) + 1}

    def config(self) -> State:
        return {"max_attempts": 1000, "backoff": [0]}


class WritingAsync(Writing):
    async def stream(self, state: State, existing_chunks: list[Any]) -> AsyncIterator[Any]:  # type: ignore[override]
        for chunk in super().stream(state, existing_chunks):
            await asyncio.sleep(0)
            yield chunk

    def on_complete(self, chunks: list[Any], state: State) -> State:
        super().on_complete(chunks, state)
        return {"beside": state.get("beside", 0) + 1}


def everything() -> WorkflowBuilder:
    """A run that has a step of each kind; it ends with `WHOLE` once it was sent the signal `go`, or is cancelled."""
    order = app.workflow("order").then(end).delay(seconds=0.02).max_attempts(1000)
    child = app.workflow("child").parallel([left, right]).then(end).on_cancel(clean).max_attempts(1000)
    return (
        app.workflow("everything")
        .parallel([left, right, WritingAsync])
        .for_each("items", item, "out", mode=ForEachMode.QUORUM, quorum=3, reducer=total)
        .then(Writing, name="write")
        .repeat_until("write", condition=written)
        .run_workflow("child", child)
        .start_workflows("orders", order, group_key="orders", inherit_state=False)
        .wait_for_workflow_group("orders", result_key="done")
        .wait_for_signal("go", result_key="go")
        .delay(seconds=0.02)
        .then(end)
        .on_cancel(clean)
        .max_attempts(1000)
    )


GIVEN: State = {"items": [100, 101, 102, 103], "orders": [{"n": 1}, {"n": 2}]}
WHOLE: State = {
    **GIVEN,
    "left": 2,
    "right": 2,
    "beside": 1,
    "out": 3,
    "totals": 1,
    "written": 2,
    "ends": 2,
    "go": {"said": "once"},
}
"""What it ends with, beside the ids of what it has started (`started_workflow_ids`, and the keys of `done`)."""


class Workers:
    """`queuety work`, again and again: whoever is killed is replaced. `more` is what their environment has besides."""

    def __init__(
        self, url: str, log: Path, *, supervisors: int = 2, app: str = APP, more: dict[str, str] | None = None
    ) -> None:
        self._command = [sys.executable, "-m", "queuety.cli", "--app", app, *WORK]
        self._environment = {
            **os.environ,
            "KILLING_URL": url,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            **(more or {}),
        }
        self._log = log
        self._supervisors = [self._start() for _ in range(supervisors)]
        self.killed = 0

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as out:
            return subprocess.Popen(
                self._command,
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

    def kill_all(self) -> None:
        """Kills every one of them, and starts others."""
        before, self._supervisors = self._supervisors, []
        for pid in [pid for process in before for pid in _children(process.pid)]:
            _kill(pid)
        for process in before:
            process.kill()
            process.wait()
            self._supervisors.append(self._start())

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
