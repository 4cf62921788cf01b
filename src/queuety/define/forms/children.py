"""Starting other workflows: one that the run waits for, or one for each item that goes its own way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuety.define.forms.form import Form, Settings, only_given, read_flag, read_key, required
from queuety.define.forms.workflows import read_group
from queuety.errors import DefinitionError


def start_settings(given: Mapping[str, Any], where: str) -> Settings:
    """`items_key`, `result_key`, `payload_key`, `inherit_state` and, if one is given, `group`."""
    group = given.get("group")
    keys = {
        key: read_key(required({**_DEFAULTS, **given}, key, where), f"{where}: {key}")
        for key in ("items_key", "result_key", "payload_key")
    }
    if keys["payload_key"] == "start_item_index":
        raise DefinitionError(f"{where}: payload_key: start_item_index holds the item's index; choose another name")
    return only_given(
        **keys,
        inherit_state=read_flag(given.get("inherit_state", True), f"{where}: inherit_state"),
        group=None if group is None else read_group(group, f"{where}: group"),
    )


_DEFAULTS: Final = {"result_key": "started_workflow_ids", "payload_key": "item"}

START_FORM: Final = Form(
    keys=frozenset({"items_key", "result_key", "payload_key", "inherit_state", "group"}),
    settings=start_settings,
    has_child=True,
)

RUN_FORM: Final = Form(has_child=True)
