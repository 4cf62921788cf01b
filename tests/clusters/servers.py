"""Servers that are made for one test in a folder of its own, and gone with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from queuety import Queuety
from tests.clusters.load import TAKEN_BACK, UNSURE, Crew
from tests.conftest import MISSING
from tests.support.flowing import until

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parent / "fixtures"


def need(what: str, programs: Sequence[str], *paths: Path | None) -> None:
    """Skips the test unless it is root, who may start servers as other users, and has all of these."""
    missing = [program for program in programs if shutil.which(program) is None]
    if None in paths:
        missing.append("the server's own files")
    if os.geteuid() != 0:
        missing.append("root")
    if missing:
        pytest.skip(f"{MISSING}{what}: {', '.join(missing)} is missing")


@contextmanager
def folder(owner: str) -> Iterator[Path]:
    """An empty folder that this user may write, removed at the end."""
    made = Path(tempfile.mkdtemp(prefix="queuety-cluster-"))
    try:
        made.chmod(0o755)
        shutil.chown(made, owner)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


class Script:
    """A fixture that is told what to do."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self._name = name
        self._environment = {**os.environ, **environment}

    def __call__(self, *words: str, must: bool = True) -> str:
        """What it says. Its servers write into files of their own, so nobody waits for their end."""
        done = subprocess.run(
            ["bash", str(FIXTURES / self._name), *words],
            cwd="/",
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert not must or done.returncode == 0, f"{self._name} {' '.join(words)}: {done.stdout}"
        return done.stdout


class Workers:
    """One worker process at each of these addresses."""

    def __init__(self, urls: Sequence[str], logs: Path) -> None:
        self._logs = [logs / f"worker {number}.log" for number in range(len(urls))]
        self._processes = []
        for url, log in zip(urls, self._logs, strict=True):
            path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
            with log.open("wb") as out:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.clusters.worker"],
                    cwd=ROOT,
                    env={**os.environ, "CLUSTER_URL": url, "PYTHONPATH": path},
                    stdout=out,
                    stderr=out,
                )
            self._processes.append(process)
        try:
            until(lambda: all("works" in log.read_text() for log in self._logs))
        except BaseException:
            self.stop()
            raise

    @property
    def log(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in self._logs)

    @property
    def unsure(self) -> int:
        """How many commits ended so that nobody knew whether they were done."""
        return self.log.count(UNSURE)

    @property
    def taken_back(self) -> int:
        """How many commits the database refused for another transaction's sake."""
        return self.log.count(TAKEN_BACK)

    def alive(self) -> int:
        return sum(process.poll() is None for process in self._processes)

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def workers_at(urls: Sequence[str], logs: Path) -> Iterator[Workers]:
    """A worker process at each of these addresses while the block runs; what they said, if it fails."""
    with Queuety(urls[0]) as app:
        app.migrate()
    workers = Workers(urls, logs)
    try:
        yield workers
    except BaseException:
        print(workers.log[-30_000:])
        raise
    finally:
        workers.stop()


def tell(app: Queuety, crew: Crew, workers: Workers, *, kills: int) -> None:
    """Prints what the test has gone through."""
    print(
        f"\n{len(crew.runs)} runs dispatched, {len(app.list_workflows(limit=1_000_000))} in all, {kills} kills, "
        f"commits of unknown outcome: {workers.unsure} of workers, {crew.unsure} of callers; "
        f"{workers.taken_back} taken back; callers had to turn to another node: {dict(crew.seen)}"
    )
