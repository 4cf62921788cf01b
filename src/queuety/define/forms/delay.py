"""A durable pause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuety.define.forms.form import Form, Settings
from queuety.define.options import plain_number, read_seconds
from queuety.errors import DefinitionError

_UNITS: Final = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}


def delay_settings(parts: Mapping[str, Any], where: str) -> Settings:
    """`{"seconds": total}` of the parts `seconds`, `minutes`, `hours` and `days` that are given; 0 is allowed."""
    total: float = 0
    for unit, seconds in _UNITS.items():
        part = parts.get(unit, 0)
        if isinstance(part, bool) or not isinstance(part, int | float):
            raise DefinitionError(f"{where}: {unit} must be a number, not {part!r}")
        total += part * seconds
    return {"seconds": plain_number(read_seconds(total, f"{where}: the sum"))}


FORM: Final = Form(keys=frozenset(_UNITS), settings=delay_settings)
