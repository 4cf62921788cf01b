"""Going back to an earlier step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuety.codec import checked
from queuety.define.forms.form import Form, Settings, only_given, optional_key, read_count, read_flag, required
from queuety.define.names import check_name
from queuety.errors import DefinitionError, PayloadError
from queuety.model import Use


def repeat_settings(given: Mapping[str, Any], where: str) -> Settings:
    """`until`, `target`, `max_iterations`, and `state_key` with `expected` (which may be None) or a `condition`."""
    state_key = optional_key(given, "state_key", where)
    has_condition = given.get("condition") is not None
    if (state_key is not None) == has_condition:
        found = "both are given" if has_condition else "neither is given"
        raise DefinitionError(f"{where}: it takes either state_key or condition; {found}")
    limit = given.get("max_iterations")
    settings = only_given(
        until=read_flag(required(given, "until", where), f"{where}: until"),
        target=check_name(required(given, "target", where), what=f"{where}: the target"),
        state_key=state_key,
        max_iterations=None if limit is None else read_count(limit, f"{where}: max_iterations"),
    )
    expected = given.get("expected", True)
    if state_key is None:
        if expected is not True:
            raise DefinitionError(f"{where}: expected is compared with state_key; leave it out beside a condition")
        return settings
    try:
        return {**settings, "expected": checked(expected, what=f"{where}: expected")}
    except PayloadError as error:
        raise DefinitionError(str(error)) from error


FORM: Final = Form(
    keys=frozenset({"until", "target", "state_key", "expected", "max_iterations"}),
    settings=repeat_settings,
    handler="condition",
    use=Use.CONDITION,
    needs_handler=False,
)
