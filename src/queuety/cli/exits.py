"""Exit codes, and errors as one line on stderr. No command prints an error or chooses a code by itself."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from queuety.cli.escapes import one_line
from queuety.errors import DefinitionError, HandlerNotFound, PayloadError, QueuetyError, StoreError


class Code(IntEnum):
    """What the exit code of `queuety` says."""

    OK = 0
    NO = 1
    USAGE = 2
    DATABASE = 3


MEANINGS = (
    "Exit codes: 0 done; 1 it failed, or the answer is no (an unknown id, a status that forbids it, problems found by "
    "doctor); 2 wrong usage or bad input, nothing was written; 3 the database cannot be reached, or its tables are "
    "missing or of another version."
)


class Refusal(Exception):
    """A command that ends here, with a line that says why and the exit code that goes with it."""

    def __init__(self, message: str, code: Code = Code.USAGE) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: BaseException) -> Code:
    """The exit code that an error ends a command with."""
    if isinstance(error, Refusal):
        return error.code
    if isinstance(error, StoreError):
        return Code.DATABASE
    # A handler is named by the person who types, so one that is not there is bad input; an id may simply be gone.
    if isinstance(error, DefinitionError | PayloadError | HandlerNotFound):
        return Code.USAGE
    return Code.NO


@contextmanager
def reported(*, debug: bool) -> Iterator[None]:
    """Turns whatever is raised inside into one line on stderr and an exit code; with `debug` after a traceback."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:  # the user's own module runs in here too, and may raise anything
        if debug:
            traceback.print_exc()
        say_error(_line(error))
        raise typer.Exit(code_of(error)) from error


def say_error(message: str) -> None:
    """One line on stderr."""
    typer.echo(f"error: {one_line(message)}", err=True)


def where(error: BaseException) -> str:
    """The file and line that raised it, or nothing if no code did.

    >>> where(ValueError())
    ''
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f"{os.path.relpath(frames[-1].filename)}:{frames[-1].lineno}"


def _line(error: Exception) -> str:
    if isinstance(error, Refusal | QueuetyError):
        return str(error)
    name = type(error).__name__
    return f"unexpected {name}: {error} (at {where(error)}; --debug shows the traceback)"


def forgive_odd_terminals() -> None:
    """Writes what the terminal's encoding lacks as an escape instead of failing half-way through a table."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
