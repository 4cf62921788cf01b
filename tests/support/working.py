"""`queuety work` in real processes: an application whose handlers misbehave, and a witness who is told of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from queuety import Queuety

PATIENCE_S = 60.0
"""How long a test waits for what must happen."""

MODULE = "working_app"
APP = """
import os, re, socket, time
from queuety import Queuety, Settings, current, step, workflow

settings = Settings(lease_seconds=float(os.environ["WORKING_LEASE_S"]), idle_poll_seconds=0.1, patience_seconds=2.0)
app = Queuety(os.environ["WORKING_URL"], settings=settings)

def tell(word):
    '''Tells the witness, and waits for its answer.'''
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ["WORKING_WITNESS"])
        line.sendall(f"{word} {os.getpid()}\\n".encode())
        return line.makefile().readline().strip()

@step
def innocent(state):
    return {"pid": os.getpid()}

@step
def held(state):
    return {"answer": tell("held"), "attempt": current().attempt}

@step(backoff=[0])
def killer(state):
    os._exit(1)

@step(max_attempts=1, timeout=1)
def hog(state):
    tell("hog")
    re.match(r"(a+)+$", "a" * 60 + "b")  # one call of C code that lets nobody else in, for years

@step(max_attempts=1, timeout=0.5)
def sleeper(state):
    tell("sleeper")
    time.sleep(3600)

def run_of(handler):
    return app.workflow(handler.__name__).then(handler)
"""
WORK = f"""
import logging, os, sys
import {MODULE} as working
from queuety.worker.child import LOG_FORMAT
from queuety.worker.supervise import supervise

logging.basicConfig(format=LOG_FORMAT)
logging.getLogger("queuety").setLevel(logging.INFO)
workers, concurrency, grace_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
terms = working.app.terms("default", concurrency, grace_seconds=grace_s)
sys.exit(supervise("{MODULE}:app", working.app, terms, workers=workers))
"""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A handler that has told the witness where it is, and waits for an answer."""

    word: str
    pid: int
    line: socket.socket

    def answer(self, text: str = "go on") -> None:
        """Lets it go on."""
        with self.line:
            self.line.sendall(f"{text}\n".encode())


class Witness:
    """Where handlers in other processes tell that they run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(256)
        self._listener.settimeout(PATIENCE_S)
        self._lines: list[socket.socket] = []

    def sees(self) -> Sighting:
        """The next handler that tells where it is."""
        line, _ = self._listener.accept()
        line.settimeout(PATIENCE_S)
        self._lines.append(line)
        word, _, pid = line.makefile().readline().strip().partition(" ")
        return Sighting(word, int(pid), line)

    def close(self) -> None:
        for line in self._lines:
            line.close()
        self._listener.close()


class Works:
    """Supervisors over one database, and the application in this process to dispatch with."""

    def __init__(self, directory: Path, url: str, *, lease_s: float) -> None:
        (directory / f"{MODULE}.py").write_text(APP)
        self.directory = directory
        self.witness = Witness(directory / "witness")
        self.environment = {
            "WORKING_URL": url,
            "WORKING_LEASE_S": str(lease_s),
            "WORKING_WITNESS": str(self.witness.path),
        }
        self._said: list[str] = []
        self._has_said = threading.Condition()
        self._processes: list[subprocess.Popen[bytes]] = []

    def work(self, *, workers: int = 1, concurrency: int = 10, grace_s: float = 30.0) -> subprocess.Popen[bytes]:
        """Starts a supervisor; `waits_for` reads what it and its children log."""
        path = os.pathsep.join([str(self.directory), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-c", WORK, str(workers), str(concurrency), str(grace_s)],
            env={**os.environ, **self.environment, "PYTHONPATH": path},
            stderr=subprocess.PIPE,
        )
        self._processes.append(process)
        threading.Thread(target=self._read, args=(process.stderr,), daemon=True).start()
        return process

    def waits_for(self, text: str) -> str:
        """The first line with this text that any supervisor or child has logged or logs yet."""
        with self._has_said:
            assert self._has_said.wait_for(lambda: any(text in line for line in self._said), PATIENCE_S), self._said
            return next(line for line in self._said if text in line)

    def _read(self, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                sys.stderr.write(line.decode())  # pytest shows it if the test fails
                with self._has_said:
                    self._said.append(line.decode())
                    self._has_said.notify_all()

    def close(self) -> None:
        """Ends what still runs; children of a killed supervisor finish by themselves, so their handlers are let go."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGINT)
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.witness.close()


@contextmanager
def works_in(directory: Path, url: str, *, lease_s: float = 5.0) -> Iterator[tuple[Works, Queuety]]:
    """What is needed to see real workers at work; its module is imported here too, as `working_app`."""
    import importlib

    works = Works(directory, url, lease_s=lease_s)
    before = {name: os.environ.get(name) for name in works.environment}
    os.environ.update(works.environment)
    sys.path.insert(0, str(directory))
    sys.modules.pop(MODULE, None)
    try:
        importlib.invalidate_caches()
        app: Queuety = importlib.import_module(MODULE).app
        with app:
            yield works, app
    finally:
        works.close()
        sys.path.remove(str(directory))
        sys.modules.pop(MODULE, None)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
