"""Waiting for signals, among them the decisions of people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuety.codec import checked_mapping
from queuety.define.forms.form import Form, Settings, only_given, optional_key, read_mode, required
from queuety.define.names import check_name
from queuety.define.options import plain_number, read_seconds
from queuety.errors import DefinitionError, PayloadError
from queuety.model import Json, WaitMode

HUMAN: Final = ("approval", "decision", "input")
"""What a wait may want of people. They see it, and `approve_workflow` and its kin know by it which signal to send."""

OUTCOMES: Final = ("approved", "rejected")


def signal_settings(given: Mapping[str, Any], where: str) -> Settings:
    """`names`, `mode` and what was given of the rest: one shape, whatever method or JSON it comes from."""
    names = read_names(required(given, "names", where), where)
    mode = read_mode(given.get("mode", WaitMode.ALL), WaitMode, f"{where}: mode", without=WaitMode.QUORUM)
    human = given.get("human")
    if human is not None and (not isinstance(human, str) or human not in HUMAN):
        raise DefinitionError(f"{where}: human must be one of {', '.join(HUMAN)}, not {human!r}")
    outcomes = given.get("outcomes")
    if (outcomes is not None) != (human == "decision"):
        raise DefinitionError(f"{where}: a decision, and nothing else, has outcomes")
    timeout = _timeout(given.get("timeout"), where)
    on_timeout = given.get("on_timeout")
    if on_timeout is not None and timeout is None:
        raise DefinitionError(f"{where}: on_timeout is where a timeout leads to; give timeout as well")
    return only_given(
        names=names,
        mode=mode.value,
        result_key=optional_key(given, "result_key", where),
        match_payload=_match_payload(given.get("match_payload"), where),
        correlation_key=optional_key(given, "correlation_key", where),
        timeout=timeout,
        on_timeout=None if on_timeout is None else check_name(on_timeout, what=f"{where}: on_timeout"),
        human=human,
        outcomes=None if outcomes is None else _outcomes(outcomes, names, mode, where),
    )


def read_names(value: object, where: str) -> list[str]:
    """Names of signals without the blanks around them, each once; at least one is left."""
    if not isinstance(value, list | tuple):
        raise DefinitionError(f"{where}: the names of signals must be a list, not {value!r}")
    names = [read_name(name, where) for name in value if not isinstance(name, str) or name.strip()]
    if not names:
        raise DefinitionError(f"{where}: it needs the name of a signal to wait for")
    return list(dict.fromkeys(names))


def read_name(value: object, where: str) -> str:
    """The name of a signal without the blanks around it; told apart exactly, at most 255 characters."""
    return check_name(value.strip() if isinstance(value, str) else value, what=f"{where}: the name of a signal")


def _match_payload(value: object, where: str) -> dict[str, Json] | None:
    """What a signal's payload must hold. An empty one asks for nothing: it is left out."""
    try:
        return (None if value is None else checked_mapping(value, what=f"{where}: match_payload")) or None
    except PayloadError as error:
        raise DefinitionError(str(error)) from error


def _timeout(value: object, where: str) -> int | float | None:
    if value is None:
        return None
    seconds = read_seconds(value, f"{where}: timeout")
    if seconds == 0:
        raise DefinitionError(f"{where}: timeout must be above 0 seconds; leave it out to wait for ever")
    return plain_number(seconds)


def _outcomes(value: object, names: list[str], mode: WaitMode, where: str) -> dict[str, Json]:
    if not isinstance(value, Mapping) or set(value) != set(OUTCOMES):
        raise DefinitionError(f"{where}: outcomes must name the signals of {' and '.join(OUTCOMES)}, not {value!r}")
    outcomes = {outcome: read_name(value[outcome], where) for outcome in OUTCOMES}
    approved, rejected = outcomes.values()
    if approved == rejected:
        raise DefinitionError(f"{where}: both outcomes are the signal {approved!r}; they need two different ones")
    if sorted(names) != sorted(outcomes.values()) or mode is not WaitMode.ANY:
        raise DefinitionError(
            f"{where}: a decision waits for any of {approved!r} and {rejected!r}, and no other signal"
        )
    return outcomes


FORM: Final = Form(
    keys=frozenset(
        {
            "names",
            "mode",
            "result_key",
            "match_payload",
            "correlation_key",
            "timeout",
            "on_timeout",
            "human",
            "outcomes",
        }
    ),
    settings=signal_settings,
)
