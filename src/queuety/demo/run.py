"""`queuety demo`: dispatches a run, kills its worker in the middle, starts another, and keeps accounts."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import typer

from queuety import Queuety, WorkflowState
from queuety.cli.escapes import one_line
from queuety.cli.output import Column, say, show_table
from queuety.cli.times import span
from queuety.demo.account import attempts, broken_promises, merges
from queuety.demo.folder import BUNDLED, SUFFIXES, FolderError, list_documents
from queuety.demo.process import WorkerProcess
from queuety.demo.steps import SETTINGS, report_workflow
from queuety.demo.view import View, view
from queuety.errors import QueuetyError
from queuety.worker.signals import STOPPING, StopSignals

OUTPUT: Final = "demo-report"
LOOK_EVERY_S: Final = 0.1
LONGEST_S: Final = 120.0
"""After so long something is wrong: it takes about twenty seconds."""
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class DemoFailed(Exception):
    """It did not go as it should; the message says how."""


class Interrupted(Exception):
    """Somebody wants it to end."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where things are, each path as it is shown."""

    output: Path
    database: Path
    report: Path
    log: Path

    @property
    def url(self) -> str:
        """The database as an application is told."""
        return f"sqlite:///{quote(str(self.database))}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A run at some moment; `done` of `of` documents are through `attempt` of `step`, if that has told."""

    run: WorkflowState
    step: str | None = None
    attempt: int = 0
    done: int = 0
    of: int = 0

    @property
    def is_in_the_middle(self) -> bool:
        """True when half of the documents are through the second step."""
        return self.step == "summarise" and self.of > 0 and self.done >= self.of // 2


def main(folder: str | os.PathLike[str] | None = None, *, output: str | os.PathLike[str] = OUTPUT) -> int:
    """Makes a report of the documents in `folder`, of those that come with Queuety without, in the folder `output`.

    Gives back an exit code: 0 if every step was merged once although a worker was killed, 1 if not, 2 for a folder that
    cannot be used, 130 if it was interrupted. No process outlives it.
    """
    try:
        source = BUNDLED if folder is None else Path(folder)
        count = len(list_documents(str(source)).paths)
        files = _files(Path(output))
        payload = {"folder": _text(source.resolve()), "output": _text(files.report.resolve())}
        with _prepared(files), StopSignals(_stopping()) as signals:
            _introduce(folder, source, count)
            return Demo(files, signals).play(payload)
    except FolderError as error:
        _complain(str(error))
        return USAGE
    except Interrupted:
        _complain("interrupted; no process is left")
        return INTERRUPTED
    except (DemoFailed, QueuetyError) as error:
        _complain(str(error))
        return FAILED


class Demo:
    """One performance."""

    def __init__(self, files: Files, signals: StopSignals) -> None:
        self._files = files
        self._signals = signals
        self._began = time.monotonic()
        self._end = self._began + LONGEST_S
        self._told = 0

    def play(self, payload: dict[str, Any]) -> int:
        """Plays it; the exit code. Raises `DemoFailed` and `Interrupted`."""
        with Queuety(self._files.url, settings=SETTINGS) as app:
            with view() as shown:
                run_id = app.dispatch_workflow(report_workflow(), payload)
                shown.say(f"Run {run_id} of the workflow `report` is dispatched: index, summarise, report.")
                killed = self._first_worker(app, run_id, shown)
                run = self._second_worker(app, run_id, shown, killed)
            return self._settle_accounts(app, run)

    def _first_worker(self, app: Queuety, run_id: int, shown: View) -> int:
        """Starts it and kills it in the middle; gives back the attempt that it was at."""
        with self._worker() as worker:
            shown.say(f"Worker 1 is started (process {worker.pid}).")
            seen = self._follow(app, run_id, worker, shown, until_the_middle=True)
            if seen.run.status.is_terminal:
                why = f": {seen.run.error_message}" if seen.run.error_message else " before the worker could be killed"
                raise DemoFailed(f"the run is {seen.run.status}{why}")
            worker.kill()
            shown.no_progress()
            shown.say(
                f"Worker 1 is killed with all its processes (SIGKILL), in the middle of {seen.step}: "
                f"{seen.done} of {seen.of} documents.",
                "bold red",
            )
            return seen.attempt

    def _second_worker(self, app: Queuety, run_id: int, shown: View, killed_attempt: int) -> WorkflowState:
        """Starts it, lets it finish the run, and stops it; gives back the run."""
        with self._worker() as worker:
            lease_s = app.settings.lease_seconds
            shown.say(
                f"Worker 2 is started (process {worker.pid}). It may take over when worker 1's lease of {lease_s:g} s "
                "has ended."
            )
            seen = self._follow(app, run_id, worker, shown, from_attempt=killed_attempt + 1)
            code = worker.stop()
            if code != 0:
                raise DemoFailed(f"worker 2 ended with exit code {code}: {worker.last_words()}")
            shown.say("Worker 2 is stopped (SIGTERM).")
        return seen.run

    def _worker(self) -> WorkerProcess:
        return WorkerProcess(self._files.url, self._files.log)

    def _follow(
        self,
        app: Queuety,
        run_id: int,
        worker: WorkerProcess,
        shown: View,
        *,
        until_the_middle: bool = False,
        from_attempt: int = 1,
    ) -> Seen:
        """Shows what happens until the run has ended, or is in its middle if that is wanted."""
        while True:
            seen = look(app, run_id)
            for step in merges(seen.run)[self._told :]:
                shown.no_progress()
                shown.say(f"{step} is completed.", "green")
                self._told += 1
            # The attempt that was cut short looks alive until its lease has ended.
            if seen.of and (seen.step != "summarise" or seen.attempt >= from_attempt):
                shown.progress(f"{seen.step}, attempt {seen.attempt}", seen.done, seen.of)
            if seen.run.status.is_terminal or (until_the_middle and seen.is_in_the_middle):
                return seen
            self._pause()
            code = worker.exit_code()
            if code is not None:
                raise DemoFailed(f"the worker ended by itself with exit code {code}: {worker.last_words()}")
            if time.monotonic() > self._end:
                raise DemoFailed(
                    f"the run is not through after {LONGEST_S:g} s; it is at {seen.run.current_step_name!r}, "
                    f"and the worker's log ends so: {worker.last_words()}"
                )

    def _pause(self) -> None:
        ready, _, _ = select.select([self._signals.fd], [], [], LOOK_EVERY_S)
        if ready:
            raise Interrupted

    def _settle_accounts(self, app: Queuety, run: WorkflowState) -> int:
        """Prints what ran how often; 0 if that is what was promised."""
        found = attempts(app.workflow_timeline(run.id))
        merged = merges(run)
        columns = [
            Column("Step", whole=True),
            Column("Attempt", right=True, whole=True),
            Column("Worker", right=True, whole=True),
            Column("Outcome", whole=True),
            Column("Took", right=True, whole=True),
            Column("Merged", right=True, whole=True),
        ]
        rows = [
            [
                one.step,
                str(one.attempt),
                str(one.worker),
                one.outcome,
                "" if one.took_ms is None else span(one.took_ms / 1000),
                f"{merged.count(one.step)} ×" if one.outcome == "completed" else "no",
            ]
            for one in found
        ]
        say("")
        show_table(columns, rows, empty="Nothing ran.")
        say("")
        broken = broken_promises(run, found)
        if not broken and not self._files.report.is_file():
            broken.append(f"{self._files.report} is not there")
        if broken:
            raise DemoFailed("; ".join(broken))
        say(f"Nothing was lost and nothing was merged twice. It took {time.monotonic() - self._began:.0f} s.")
        say(f"The report:  {self._files.report}")
        say(f"The history: {_command()} --database {self._files.url} workflow timeline {run.id}")
        return OK


def look(app: Queuety, run_id: int) -> Seen:
    """The run as it is now, and how far its current step is."""
    run = app.workflow_status(run_id)
    if run is None:
        raise DemoFailed(f"run {run_id} is gone from the database")
    if run.status.is_terminal:
        return Seen(run)
    for job in app.list_jobs(workflow_id=run_id, status="processing"):
        told = job.progress
        # What an attempt has told stays when it is cut short.
        if job.step_index == run.current_step and isinstance(told, dict) and told.get("attempt") == job.attempts:
            return Seen(run, run.current_step_name, job.attempts, int(str(told["done"])), int(str(told["of"])))
    return Seen(run, run.current_step_name)


def _introduce(folder: str | os.PathLike[str] | None, source: Path, count: int) -> None:
    documents = "1 document" if count == 1 else f"{count} documents"
    where = "that come with Queuety" if folder is None else f"in {source}"
    say(f"A report on {documents} {where} ({', '.join(SUFFIXES)}).")


def _command() -> str:
    """What to type for `queuety` here."""
    if shutil.which("queuety"):
        return "queuety"
    return f"{min(sys.executable, os.path.relpath(sys.executable), key=len)} -m queuety.cli"


def _stopping() -> tuple[signal.Signals, ...]:
    """The signals that end the demo; nohup has it outlive the terminal."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (*STOPPING, signal.SIGHUP) if hangs_up else STOPPING


def _files(output: Path) -> Files:
    return Files(output, output / "queuety-demo.db", output / "report.html", output / "worker.log")


@contextmanager
def _prepared(files: Files) -> Iterator[None]:
    """The output folder with nothing of an earlier run in it, for this process alone. Raises `FolderError`."""
    try:
        files.output.mkdir(parents=True, exist_ok=True)
        lock = os.open(files.output / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise FolderError(f"the report cannot be written to {files.output}: {error.strerror}") from error
    try:
        _clear(files, lock)
        yield
    finally:
        os.close(lock)


def _clear(files: Files, lock: int) -> None:
    database = files.database
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in (database, *(database.with_name(database.name + end) for end in ("-wal", "-shm", "-journal"))):
            path.unlink(missing_ok=True)
        files.report.unlink(missing_ok=True)
        files.log.write_bytes(b"")
    except BlockingIOError as error:
        raise FolderError(f"another demo is under way in {files.output}; wait until it has ended") from error
    except OSError as error:
        raise FolderError(f"{error.filename or files.output} cannot be replaced: {error.strerror}") from error


def _text(path: Path) -> str:
    """The path as it can be stored. Raises `FolderError` if it is no text."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "replace")
        raise FolderError(f"the path {shown} is not UTF-8; use a folder with another name") from None
    return str(path)


def _complain(message: str) -> None:
    typer.echo(f"error: {one_line(message)}", err=True)
