"""The list of items that all items of a for-each step read: shared, unchangeable, and a list to everybody."""

from __future__ import annotations

import copy
import json
import operator
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel

from queuety import codec
from queuety.codec import SharedList
from queuety.define import typed
from queuety.errors import PayloadError
from queuety.model import Role, State, Use
from queuety.worker.inputs import Inputs
from queuety.worker.outcome import Work
from tests.support.executing import Rig, claimed

ITEMS: list[dict[str, Any]] = [{"n": 1, "tags": ["a"]}, {"n": 2, "tags": []}, {"n": 3, "tags": ["b"]}]


@pytest.fixture
def shared() -> SharedList:
    return SharedList(copy.deepcopy(ITEMS))


CHANGES: list[Callable[[Any], Any]] = [
    lambda items: items.append(4),
    lambda items: items.extend([4]),
    lambda items: items.insert(0, 4),
    lambda items: items.remove(ITEMS[0]),
    lambda items: items.pop(),
    lambda items: items.clear(),
    lambda items: items.sort(key=str),
    lambda items: items.reverse(),
    lambda items: items.__setitem__(0, 4),
    lambda items: items.__setitem__(slice(0, 1), [4]),
    lambda items: items.__delitem__(0),
    lambda items: items.__iadd__([4]),
    lambda items: items.__imul__(2),
    random.shuffle,
]


@pytest.mark.parametrize("change", CHANGES)
def test_it_cannot_be_changed(shared: SharedList, change: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"shared by all items of this step; copy it first: list\(state\[…\]\)"):
        change(shared)
    assert shared == ITEMS


READS: list[Callable[[Any], Any]] = [
    lambda items: [items[0], items[-1]],
    lambda items: items[1:],
    list,
    tuple,
    lambda items: [*items],
    lambda items: list(reversed(items)),
    lambda items: sorted(items, key=str),
    lambda items: operator.add(items, [{"n": 4, "tags": []}]),
    lambda items: operator.add([{"n": 4, "tags": []}], items),
    lambda items: items * 2,
    lambda items: 2 * items,
    lambda items: items.copy(),
    copy.copy,
    copy.deepcopy,
    lambda items: pickle.loads(pickle.dumps(items)),
    lambda items: [item for item in items if item["n"] > 1],
    lambda items: [max(items, key=lambda item: item["n"])],
    lambda items: codec.checked(items, what="it"),
    lambda items: json.loads(json.dumps(items)),
    lambda items: msgspec.json.decode(msgspec.json.encode(items)),
]


@pytest.mark.parametrize("read", READS)
def test_it_reads_as_a_list_and_what_is_read_may_be_changed(shared: SharedList, read: Callable[[Any], Any]) -> None:
    found = read(shared)
    assert found == read(copy.deepcopy(ITEMS))
    assert type(found) in (list, tuple)
    for item in found:
        item["tags"].append("changed")
    assert shared == ITEMS
    assert len(shared) == 3
    assert ITEMS[1] in shared
    assert shared.index(ITEMS[2]) == 2


class Fields(TypedDict):
    items: list[Any]


@dataclass
class Held:
    items: Any


@dataclass
class Other:
    n: int


class Model(BaseModel):
    items: list[dict[str, Any]]


@pytest.mark.parametrize("kind", [Fields, Held, Model])
def test_typed_states_hold_a_list_of_their_own(shared: SharedList, kind: Any) -> None:
    found = typed.reader(kind)({"items": shared}, "state")
    items = found["items"] if kind is Fields else found.items
    assert items == ITEMS
    items[0]["tags"].append("changed")
    items.append(4)
    assert shared == ITEMS


def test_a_typed_state_that_does_not_name_the_list_reads_none_of_it(shared: SharedList) -> None:
    class Watched(SharedList):
        def __iter__(self) -> Any:
            raise AssertionError("read")

    assert typed.reader(Other)({"n": 1, "items": Watched(ITEMS)}, "state") == Other(1)


def test_what_is_returned_with_it_is_stored_as_a_plain_list(shared: SharedList) -> None:
    stored = codec.checked_mapping({"rest": shared, "deep": [{"all": shared}]}, what="result")
    assert stored == {"rest": ITEMS, "deep": [{"all": ITEMS}]}
    assert type(stored["rest"]) is type(stored["deep"][0]["all"]) is list
    stored["rest"][0]["n"] = 9
    assert shared == ITEMS
    with pytest.raises(PayloadError, match=r"result.bad: a set is not JSON"):
        codec.checked_mapping({"rest": shared, "bad": set()}, what="result")
    with pytest.raises(PayloadError, match="more than the limit of 20 bytes"):
        codec.checked_mapping({"rest": shared}, what="result", max_bytes=20)
    assert typed.json_form(Held(shared)) == {"items": ITEMS}


# What jobs are given


def work(state: State, *, shared: str | None = "items", arguments: tuple[Any, ...] = ()) -> Work:
    return Work(claimed(), state=state, shared=shared, arguments=arguments, use=Use.ITEM)


def test_everything_but_the_shared_list_is_copied() -> None:
    state = {"before": {"a": [1]}, "items": copy.deepcopy(ITEMS), "after": [2]}
    inputs = Inputs()
    given, item, index = inputs.of(work(state, arguments=(state["items"][0], 0)))
    assert list(given) == ["before", "items", "after"]
    assert given == state
    given["before"]["a"].append(2)
    given["after"].append(3)
    given["items"] = None
    item["tags"].append("changed")
    assert state == {"before": {"a": [1]}, "items": ITEMS, "after": [2]}
    assert index == 0


def test_the_shared_list_is_made_once_for_each_list_that_was_read() -> None:
    inputs = Inputs()
    first, second = {"items": list(ITEMS)}, {"items": list(ITEMS)}
    shared = inputs.state_of(work(first))["items"]
    assert inputs.state_of(work(first))["items"] is shared
    assert inputs.state_of(work(second))["items"] is not shared
    for _ in range(10):  # none of these takes the place of one that is asked for
        inputs.state_of(work({"items": list(ITEMS)}))
    assert inputs.state_of(work(first))["items"] == ITEMS


@pytest.mark.parametrize("items", [None, {"a": {"b": 1}}, "text"])
def test_what_is_no_list_is_copied(items: Any) -> None:
    state = {"items": items}
    given = Inputs().state_of(work(state))
    assert given == state
    assert given["items"] is not items or not isinstance(items, dict)
    assert Inputs().state_of(work({}, shared="gone")) == {}


@pytest.mark.parametrize("count", [10, 50_000])
def test_a_job_copies_nothing_of_the_list_however_long_it_is(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = Inputs()
    state = {"items": [{"n": number} for number in range(count)], "name": "x"}
    inputs.state_of(work(state))
    copied: list[Any] = []
    monkeypatch.setattr("queuety.worker.inputs.copy_json", lambda value: copied.append(value) or value)
    for _ in range(100):
        inputs.state_of(work(state))
    assert copied == ["x"] * 100


def test_handlers_of_items_share_the_list_and_return_it() -> None:
    with Rig() as rig:

        def handle(state: Any, item: Any, index: int) -> Any:
            state["items"][0]["n"] = 99
            state["seen"].append(index)
            return {"all": state["items"], "item": item, "last": state["items"][-1]}

        def spoils(state: Any, item: Any, index: int) -> None:
            state["items"].append(item)

        state = {"items": copy.deepcopy(ITEMS), "seen": []}
        for index, item in enumerate(ITEMS):
            changes: dict[str, Any] = {"state": state, "shared": "items", "use": Use.ITEM, "branch": index}
            result = rig.run(handle, arguments=(item, index), **changes)
            assert result.output == {"all": ITEMS, "item": item, "last": ITEMS[-1]}
            failed = rig.run(spoils, arguments=(item, index), **changes)
            assert failed.error.type_name == "builtins:TypeError"
            assert "list(state[" in failed.error.message
        assert state == {"items": ITEMS, "seen": []}


def test_a_plain_job_has_no_shared_list() -> None:
    given = Work(claimed(role=Role.JOB, payload={"items": [1]}), shared="items")
    (payload,) = Inputs().of(given)
    payload["items"].append(2)
    assert given.job.payload == {"items": [1]}
