"""How much somebody asks to see, and by what words: checked before it reaches a database."""

from __future__ import annotations

from typing import Final

from queuety.errors import DefinitionError

MOST: Final = 10**18
"""The largest number that may be asked for: the sum of a few of them still fits into 64 bits."""


def checked_count(value: object, *, what: str) -> int:
    """The value, if it is a whole number that is not negative and at most `MOST`. Raises `DefinitionError` naming
    `what`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise DefinitionError(f"{what}={value!r}: a whole number that is not negative is needed")
    if value > MOST:
        raise DefinitionError(f"{what}={value!r}: a whole number of at most {MOST} is needed")
    return value


def checked_text(value: object, *, what: str) -> str:
    """The value, if it is a text that every database can be asked for. Raises `DefinitionError` naming `what`.

    PostgreSQL refuses NUL, where others find nothing, and no driver can send half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise DefinitionError(f"{what}={value!r}: a text is needed")
    for char in value:
        if char == "\0" or "\ud800" <= char <= "\udfff":
            raise DefinitionError(f"{what}={value!a} contains the character {char!a}, which no name has; leave it out")
    return value
