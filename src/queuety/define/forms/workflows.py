"""Waiting for other workflows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuety.define.forms.form import (
    MAX_ID,
    Form,
    Settings,
    only_given,
    optional_key,
    read_flag,
    read_key,
    read_mode,
    read_quorum,
    required,
)
from queuety.define.names import check_name
from queuety.errors import DefinitionError
from queuety.model import WaitMode


def workflow_settings(given: Mapping[str, Any], where: str) -> Settings:
    """`workflows` (ids in their order, each once, or the state key that holds them) or `group`; `mode` and the rest.

    `keyed` is False if the result is the one workflow's state itself, and not states by id.
    """
    mode = read_mode(given.get("mode", WaitMode.ALL), WaitMode, f"{where}: mode")
    quorum = read_quorum(given.get("quorum"), mode, where)
    workflows: str | list[int] | None = None
    group = given.get("group")
    if group is None:
        workflows = _workflows(required(given, "workflows", where), where)
        if quorum is not None and isinstance(workflows, list) and quorum > len(workflows):
            raise DefinitionError(f"{where}: a quorum of {quorum} among {len(workflows)} workflows cannot be reached")
    elif given.get("workflows") is not None:
        raise DefinitionError(f"{where}: it takes either workflows or group; both are given")
    keyed = read_flag(given.get("keyed", True), f"{where}: keyed")
    if not keyed and (
        mode is not WaitMode.ALL or (workflows is None or (isinstance(workflows, list) and len(workflows) != 1))
    ):
        raise DefinitionError(f"{where}: only what waits for one workflow may give its state without its id")
    return only_given(
        workflows=workflows,
        group=None if group is None else read_group(group, f"{where}: group"),
        mode=mode.value,
        quorum=quorum,
        result_key=optional_key(given, "result_key", where),
        keyed=keyed,
    )


def read_group(value: object, where: str) -> str:
    """The name of a group of workflows that one step has started and another waits for."""
    name = check_name(value, what=where)
    if name.startswith("_"):
        raise DefinitionError(f"{where} {name!r}: names that start with _ are reserved; choose another one")
    return name


def read_id(value: object, where: str) -> int:
    """A workflow's id."""
    if type(value) is not int or not 1 <= value <= MAX_ID:
        raise DefinitionError(f"{where} must be an integer from 1 to 2^63-1, not {value!r}")
    return value


def _workflows(value: object, where: str) -> str | list[int]:
    if isinstance(value, str):
        return read_key(value, f"{where}: the state key of workflows")
    if not isinstance(value, list | tuple):
        raise DefinitionError(
            f"{where}: workflows must be a list of ids, or the state key that holds it, not {value!r}"
        )
    return list(dict.fromkeys(read_id(item, f"{where}: workflows[{index}]") for index, item in enumerate(value)))


FORM: Final = Form(
    keys=frozenset({"workflows", "group", "mode", "quorum", "result_key", "keyed"}), settings=workflow_settings
)
