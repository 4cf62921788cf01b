"""The command line as tests use it: in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from queuety.cli.root import root

PROGRAM = (sys.executable, "-m", "queuety.cli")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str


def queuety(*arguments: str, given: str | bytes | None = None) -> Answer:
    """What the command line answers in this process; `given` is its stdin. Fails if a traceback would be seen."""
    result = CliRunner().invoke(root, list(arguments), input=given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    return Answer(result.exit_code, result.stdout, result.stderr)


def done(*arguments: str, given: str | bytes | None = None) -> str:
    """What a command wrote that must succeed without a word on stderr."""
    answer = queuety(*arguments, given=given)
    assert (answer.code, answer.err) == (0, ""), answer
    return answer.out


def told(*arguments: str) -> Any:
    """The one JSON document that a command gives back, and nothing else."""
    return json.loads(done(*arguments, "--format", "json"))


def refused(*arguments: str, code: int, given: str | bytes | None = None) -> str:
    """The one line on stderr with which a command is refused; nothing is on stdout."""
    answer = queuety(*arguments, given=given)
    assert (answer.code, answer.out) == (code, ""), answer
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    return answer.err.removeprefix("error: ").rstrip("\n")


def process(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own, run to its end in that folder."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with a module `shop`, and the database that its application uses."""

    folder: Path
    url: str
