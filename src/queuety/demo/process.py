"""A worker as the demo starts it: the command that everybody types, in a process group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

COMMAND: Final = (
    *(sys.executable, "-m", "queuety.cli", "--app", "queuety.demo.app:app"),
    *("work", "--workers", "1", "--concurrency", "4"),
)
STOP_S: Final = 8.0
"""How long it may take to stop when it is told to: a little longer than the grace time of the demo's application."""
_LAST_LINES: Final = 5


class WorkerProcess:
    """`queuety work` on this database, its output at the end of the file `log`. Leaving the context kills what lives.

    The supervisor and its children are one process group, so that one signal reaches them all.
    """

    def __init__(self, database_url: str, log: Path, *, command: Sequence[str] = COMMAND) -> None:
        self._log = log
        self._is_ended = False
        # The demo's own settings are the application's; what else is set here must not change them.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("QUEUETY_")}
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and command
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, "QUEUETY_DATABASE_URL": database_url},
                process_group=0,
            )

    @property
    def pid(self) -> int:
        """The process, which is its group too."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def exit_code(self) -> int | None:
        """Its exit code if it has ended by itself; what it may have left is killed then."""
        code = self._process.poll()
        if code is not None:
            self._kill_group()
        return code

    def kill(self) -> None:
        """SIGKILL for the whole group, which nothing can catch or tidy up after."""
        self._kill_group()
        self._process.wait()

    def stop(self) -> int:
        """Tells it to stop as anybody would (SIGTERM), waits, and gives back its exit code."""
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode
        self._kill_group()
        return code

    def last_words(self) -> str:
        """The last lines of its log."""
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])

    def _kill_group(self) -> None:
        # Once its processes are gone the number may be another's.
        if self._is_ended:
            return
        self._is_ended = True
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # nothing of it is left
        except PermissionError:
            return  # macOS says so of a group of which only zombies are left
