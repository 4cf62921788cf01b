"""Stored text made fit for a terminal: what somebody put into a row must not move a cursor or colour a line."""

from __future__ import annotations

import re
from typing import Final

_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters, of which ESC and CSI begin commands to the terminal
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # what turns the direction of writing, or ends a line
    "\ud800-\udfff]"  # halves of a character, which no encoding can write
)


def escaped(text: str) -> str:
    r"""The text on one line, with every character that a terminal would obey shown as an escape.

    >>> print(escaped("\x1b[31mred\nand more"))
    \x1b[31mred\nand more
    """
    return _UNSEEN.sub(lambda found: _NAMED.get(found[0]) or _escape(found[0]), text)


def escaped_lines(text: str) -> list[str]:
    r"""The lines of the text, each as `escaped` gives it.

    >>> escaped_lines("one\ntwo\x07\n")
    ['one', 'two\\x07']
    """
    return [escaped(line) for line in text.rstrip("\n").split("\n")]


def escaped_text(text: str) -> str:
    r"""The text with its line breaks and tabs as they are, and nothing else that a terminal would obey.

    >>> print(escaped_text("one\n\x1b[2Jtwo"))
    one
    \x1b[2Jtwo
    """
    return _UNSEEN.sub(lambda found: found[0] if found[0] in "\n\t" else escaped(found[0]), text)


def escaped_json(text: str) -> str:
    r"""A JSON text that means the same, with what a terminal would obey as JSON's own escapes.

    >>> print(escaped_json('{"a": "\x9b2J"}'))
    {"a": "\u009b2J"}
    """
    return _UNSEEN.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    r"""The text with its lines joined, and nothing that a terminal would obey.

    >>> one_line("first\n  second")
    'first second'
    """
    return escaped(" ".join(part.strip() for part in text.splitlines() if part.strip()))


_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
