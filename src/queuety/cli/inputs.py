"""JSON, priorities and files as people give them on a command line; refused before anything is written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queuety import codec
from queuety.cli.exits import Refusal

if TYPE_CHECKING:
    from queuety.model import Priority

PAYLOAD_HELP = "A JSON object; @FILE reads it from a file, - from stdin."
STEP_HELP = "its index, from 0, or its name (=2 for one that is called 2)"
LONGEST_INDEX = 10
PRIORITY_HELP = "low, normal, high, urgent, or 0 to 3."


def payload(text: str | None, *, what: str = "--payload") -> dict[str, Any] | None:
    """The JSON object that is given: as text, as `@file`, or `-` for stdin. Raises `PayloadError` or `Refusal`."""
    if text is None:
        return None
    if text == "-" or text.startswith("@"):
        return file_object(text.removeprefix("@"), what=what)
    return _object(text, what=what)


def file_object(name: str, *, what: str) -> dict[str, Any]:
    """The JSON object that a file holds, or stdin for `-`. Raises `PayloadError` or `Refusal`."""
    what = f"{what} from {'stdin' if name == '-' else name}"
    try:
        return _object((sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode(), what=what)
    except OSError as error:
        raise Refusal(f"{what} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Refusal(f"{what} is no text in UTF-8: {error}") from error


def _object(text: str, *, what: str) -> dict[str, Any]:
    return codec.checked_mapping(codec.parsed(text, what=what), what=what)


def step(text: str) -> int | str:
    """A step as it is typed: a number is its index, unless it is written as a name, `=2`.

    >>> step("2"), step("=2"), step("pay")
    (2, '2', 'pay')
    """
    if text.startswith("="):
        return text[1:]
    return int(text) if text.isascii() and text.isdigit() and len(text) < LONGEST_INDEX else text


def priority(text: str | None) -> Priority | None:
    """The priority by its name or number. Raises `Refusal` that names those that there are."""
    from queuety.model import Priority

    if text is None:
        return None
    for known in Priority:
        if text.strip().lower() in (known.name.lower(), str(known.value)):
            return known
    raise Refusal(f"--priority {text!r}: {PRIORITY_HELP.rstrip('.')} is needed")
