"""What the reference of runs is told in: marks of what happened, ways to end, and what is done to plain values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from queuety.model import Command, HandlerRef, State, StepSpec
from tests.support.definitions_at_random import Payload, Place

OVER = ("completed", "failed", "cancelled", "undone")
"""How a run stands that has ended: `undone` is one that has failed and cannot go on any more."""


@dataclass(frozen=True)
class Mark:
    """Something that happened to a run. `standing` is the status of every run just before, by id, and
    "running" for those that are started in the same transaction; `states` is that of every run.

    Of a job that has reported, `seen` is how many marks there were when it was taken in hand. Of a command, `given` is
    it, `error` why it was refused, and `delayed` says whether a job was waiting for its time.
    """

    what: str
    now_us: int
    standing: dict[int, str]
    states: dict[int, State]
    visit: int | None = None
    place: Place = None
    id: int | None = None
    command: str = ""
    signal: tuple[str, Payload] = ("", {})
    seen: int | None = None
    given: Command | None = None
    error: str = ""
    delayed: bool = False


class NothingMore(Exception):
    """Nothing else happens to the run: it stands where it stands."""


class Cancelled(Exception):
    """The run was cancelled."""


class Rewound(Exception):
    """The run goes back to where a place in its journal says."""

    def __init__(self, place: int, with_state: Payload) -> None:
        super().__init__(place)
        self.place = place
        self.with_state = with_state


class Left(Exception):
    """Somebody leaves the step by hand, with this output; `is_skipped`: as it was."""

    def __init__(self, changes: Payload, following: int, *, is_skipped: bool) -> None:
        super().__init__(following)
        self.changes = changes
        self.following = following
        self.is_skipped = is_skipped


class Failing(Exception):
    """The step cannot be settled; the run fails."""

    def __init__(self, kind: str, message: str | None = None) -> None:
        super().__init__(kind)
        self.kind = kind
        self.message = message


@dataclass(frozen=True)
class Report:
    """What a job has said: what it returned, or why it has failed for good; `cost` is what it costs if it returned."""

    place: Place
    output: Payload
    error: str | None
    cost: int = 0


def handler_of(spec: StepSpec) -> HandlerRef:
    assert spec.handler is not None
    return spec.handler


def size_of(state: Payload) -> int:
    """Bytes of compact JSON in UTF-8."""
    return len(json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode())


def is_written_alike(one: Any, other: Any) -> bool:
    """Whether two values are the same, down to the order of keys; ids of jobs, which the reference has none of, apart.

    >>> is_written_alike({"n": 1, "job_id": 7}, {"n": 1}), is_written_alike({"n": 1}, {"n": True})
    (True, False)
    """

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items() if key != "job_id"}
        return [plain(inner) for inner in value] if isinstance(value, list) else value

    return json.dumps(plain(one)) == json.dumps(plain(other))


def public(output: Payload) -> Payload:
    return {key: value for key, value in output.items() if not key.startswith("_")}


LOOSE: Final = frozenset({"job_id", "winner"})
"""Keys whose values depend on the order in which jobs came."""


def items_at(state: Payload, key: str) -> list[Any] | None:
    found = state.get(key)
    if isinstance(found, dict):
        return list(found.values())
    return [] if found is None else found if isinstance(found, list) else None


def is_same(one: Any, other: Any) -> bool:
    """Numbers by value; a boolean is no number."""
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def are_apart(spec: StepSpec) -> bool:
    """Whether no two branches set the same key."""
    keys = [key for branch in spec.branches for key in public(dict((branch.handler.config or {})["set"]))]
    return len(keys) == len(set(keys))


def signal_output(settings: Any, used: dict[str, Payload]) -> Payload:
    key = settings.get("result_key")
    if "outcomes" in settings:
        ((name, payload),) = used.items()
        if key is not None:
            return {key: {"outcome": name, "signal": name, "data": payload}}
        return {**public(payload), "decision_outcome": name, "decision_signal": name}
    if key is None:
        return {name: value for payload in used.values() for name, value in public(payload).items()}
    return {key: next(iter(used.values())) if len(settings["names"]) == 1 else used}
