"""The command line as tests use it: in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from queuety.cli.root import root

PROGRAM = (sys.executable, "-m", "queuety.cli")
COMMAND = get_command(root)
"""Made once for all tests: making it takes longer than most commands do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str


def queuety(*arguments: str, given: str | bytes | None = None) -> Answer:
    """What the command line answers in this process; `given` is its stdin. Fails if a traceback would be seen."""
    with CliRunner().isolation(input=given) as streams:
        with pytest.raises(SystemExit) as end:
            COMMAND.main(list(arguments), prog_name="queuety")
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = (stream.getvalue().decode().replace("\r\n", "\n") for stream in streams[:2])
    assert "Traceback" not in err
    assert isinstance(end.value.code, int)
    return Answer(end.value.code, out, err)


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
