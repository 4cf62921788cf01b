"""How much somebody asks to see."""

from __future__ import annotations

from queuety.errors import DefinitionError


def checked_count(value: object, *, what: str) -> int:
    """The value, if it is a whole number that is not negative. Raises `DefinitionError` naming `what`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise DefinitionError(f"{what}={value!r}: a whole number that is not negative is needed")
    return value
