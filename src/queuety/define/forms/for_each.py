"""A handler for each item of a list in the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuety.define.forms.form import Form, Settings, only_given, read_key, read_mode, read_quorum, required
from queuety.model import ForEachMode, Use


def for_each_settings(given: Mapping[str, Any], where: str) -> Settings:
    """`items_key`, `result_key` (`<name of the step>_results` if none is given), `mode` and, in that mode, `quorum`."""
    mode = read_mode(given.get("mode", ForEachMode.ALL), ForEachMode, f"{where}: mode")
    result_key = given.get("result_key")
    return only_given(
        items_key=read_key(required(given, "items_key", where), f"{where}: items_key"),
        result_key=read_key(f"{given['name']}_results" if result_key is None else result_key, f"{where}: result_key"),
        mode=mode.value,
        quorum=read_quorum(given.get("quorum"), mode, where),
    )


FORM: Final = Form(
    keys=frozenset({"items_key", "result_key", "mode", "quorum"}),
    settings=for_each_settings,
    handler="handler",
    use=Use.ITEM,
    has_reducer=True,
)
