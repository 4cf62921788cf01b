"""A worker in a process of its own, run by `app.worker().run()`: `python -m tests.support.remote`.

Its handlers are those of the modules under test. The application's address and settings come in the environment.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from queuety import step
from tests.support.flowing import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
READY = "works"


@step
def counted(state: dict[str, Any]) -> dict[str, Any]:
    """A step of a module that is quickly imported."""
    return {"count": state.get("count", 0) + 1}


class Remote:
    """A worker's process; `log` is what it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Tells it to end; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(PATIENCE_S)


@contextmanager
def remote_worker(
    url: str, log: Path, *, queues: str = "default", concurrency: int = 4, **settings: Any
) -> Iterator[Remote]:
    """A worker in a process of its own while the block runs; it has begun to work when the block begins."""
    given: Mapping[str, Any] = {"url": url, "queues": queues, "concurrency": concurrency, "settings": settings}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.remote"],
            cwd=ROOT,
            env={**os.environ, "REMOTE_WORKER": json.dumps(given)},
            stdout=out,
            stderr=out,
        )
    remote = Remote(process, log)
    try:
        until(lambda: READY in remote.log or process.poll() is not None)
        assert process.poll() is None, remote.log
        yield remote
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def main() -> None:
    from queuety import Queuety, Settings

    given = json.loads(os.environ["REMOTE_WORKER"])
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.INFO)
    with Queuety(given["url"], settings=Settings(**given["settings"])) as app:
        worker = app.worker(given["queues"], given["concurrency"], grace_seconds=app.settings.grace_seconds)
        assert app.door is not None
        print(READY, flush=True)
        worker.run()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
