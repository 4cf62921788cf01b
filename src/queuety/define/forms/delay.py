"""A durable pause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuety.define.forms.form import Form, Settings
from queuety.define.options import UNITS, plain_number, read_sum


def delay_settings(parts: Mapping[str, Any], where: str) -> Settings:
    """`{"seconds": total}` of the parts `seconds`, `minutes`, `hours` and `days` that are given; 0 is allowed."""
    return {"seconds": plain_number(read_sum(parts, where))}


FORM: Final = Form(keys=frozenset(UNITS), settings=delay_settings)
