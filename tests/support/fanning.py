"""Handlers that are run side by side by workers in other processes: a module that is quickly imported.

`log` in the state is a file to which they write a line each time they run.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from queuety import current, step
from tests.support.flowing import PATIENCE_S

State = dict[str, Any]

_pause = threading.Event()


def _told(state: State, word: str) -> None:
    """Writes down that this has run here: one line, whole, whoever else writes."""
    line = f"{word} {current().workflow_id} {os.getpid()}\n".encode()
    file = os.open(state["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def told(log: Path) -> list[tuple[str, int, int]]:
    """What was written down: the word, the run, the process."""
    if not log.exists():
        return []
    lines = [line.split(" ") for line in log.read_text().splitlines()]
    return [(word, int(run), int(pid)) for word, run, pid in lines]


def _meets(state: State) -> None:
    """Waits until a second process has begun with this work too: neither can do it alone."""
    end = time.monotonic() + PATIENCE_S
    log, work = Path(state["log"]), state["work"]
    log.with_name(f"{work}-{os.getpid()}").touch()
    while len(list(log.parent.glob(f"{work}-*"))) < 2:
        if time.monotonic() > end:
            raise TimeoutError(f"nobody else has come for {work}")
        _pause.wait(0.005)


@step
def branch(state: State, *, number: int) -> State:
    return {f"branch {number}": number}


@step
def after(state: State) -> State:
    """The step after the group: which branches it sees."""
    _told(state, "after")
    return {"seen": sorted(value for key, value in state.items() if key.startswith("branch "))}


@step
def shared_branch(state: State, *, number: int) -> State:
    _meets(state)
    return {f"branch {number}": os.getpid()}


@step
def shared_item(state: State, item: Any, index: int) -> State:
    _meets(state)
    return {"pid": os.getpid()}


@step
def shared_run(state: State) -> State:
    """A step of a run that another one has started."""
    _meets(state)
    return {"pid": os.getpid()}


@step
def lap(state: State) -> State:
    return {"laps": [*state.get("laps", []), os.getpid()]}


@step
def enough(state: State) -> bool:
    return len(state["laps"]) >= 5


@step
def where(state: State) -> State:
    return {"pids": sorted({*state.get("pids", []), os.getpid()})}
