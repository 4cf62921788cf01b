"""What runs put aside: text, JSON and bytes come back as they were, under exactly their key; and the tags of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from queuety.store import artifacts, tags
from queuety.store.artifacts import Artifact
from tests.support.hands import House, definition

GONE = 10**9


def put(house: House, run: int, key: str, **more: Any) -> bool:
    usual: dict[str, Any] = {"kind": "text", "content": "one", "data": None, "metadata": "{}", "step_index": None}
    return house.door.write(lambda tx: artifacts.put(tx, run, key, now_us=house.clock.us, **(usual | more)))


def get(house: House, run: int, key: str) -> Artifact | None:
    return house.door.read(lambda tx: artifacts.get(tx, run, key))


def listed(house: House, run: int, *, with_content: bool = False) -> list[Artifact]:
    return house.door.read(lambda tx: artifacts.listed(tx, run, with_content=with_content))


def keys(house: House, ids: Sequence[int]) -> dict[int, list[str]]:
    return house.door.read(lambda tx: artifacts.keys(tx, ids))


def test_what_is_put_comes_back_and_a_second_one_takes_its_place(house: House) -> None:
    run = house.dispatch(definition())
    began = house.clock.us
    assert get(house, run, "report") is None
    assert put(house, run, "report", kind="json", content='{"a":[1,null]}', metadata='{"by":"me"}', step_index=3)
    assert get(house, run, "report") == Artifact(
        "report", "json", '{"a":[1,null]}', None, '{"by":"me"}', 3, began, began
    )
    house.clock.advance(5)
    assert put(house, run, "report", kind="pdf", content=None, data=b"%PDF")
    assert get(house, run, "report") == Artifact("report", "pdf", None, b"%PDF", "{}", None, began, house.clock.us)
    assert house.door.write(lambda tx: artifacts.delete(tx, run, "report"))
    assert not house.door.write(lambda tx: artifacts.delete(tx, run, "report"))
    assert get(house, run, "report") is None


@pytest.mark.parametrize(
    "data",
    [b"", bytes(range(256)) * 5, b"'; \\' %s \x00\xff", b"\xff" * 1_500_000],
    ids=["none", "all", "odd", "large"],
)
def test_bytes_come_back_as_they_were(house: House, data: bytes) -> None:
    run = house.dispatch(definition())
    put(house, run, "bytes", content=None, data=data)
    found = get(house, run, "bytes")
    assert found is not None
    assert found.data == data


def test_a_large_text_comes_back(house: House) -> None:
    run = house.dispatch(definition())
    text = "\U0001f600 " * 600_000
    put(house, run, "text", content=text)
    found = get(house, run, "text")
    assert found is not None
    assert found.content == text


def test_they_are_listed_by_key_and_with_their_content_only_if_wanted(house: House) -> None:
    one, two = house.dispatch_many(definition(), [{}, {}])
    for key in ("b", "a", "B", "a ", "ä"):
        put(house, one, key, content=key, data=b"x")
    put(house, two, "other")
    ordered = sorted(("b", "a", "B", "a ", "ä"), key=str.encode)
    assert [(each.key, each.content, each.data) for each in listed(house, one)] == [
        (key, None, None) for key in ordered
    ]
    assert [(each.key, each.content, each.data) for each in listed(house, one, with_content=True)] == [
        (key, key, b"x") for key in ordered
    ]
    assert keys(house, [two, one, GONE]) == {two: ["other"], one: ordered, GONE: []}
    assert keys(house, []) == {}


def test_of_a_run_that_is_not_there_nothing_is_kept(house: House) -> None:
    assert not put(house, GONE, "report")
    assert house.rows("artifacts") == []


def test_a_run_is_locked_while_something_is_put_and_not_by_who_holds_its_job(house: House) -> None:
    run = house.dispatch(definition())
    said: list[str] = []
    house.door.on_statement = said.append
    put(house, run, "a")
    put(house, run, "a", is_fenced=True)
    house.door.on_statement = None
    locking = [text for text in said if text.startswith("SELECT 1")]
    assert len(locking) == 1
    assert locking[0].endswith(house.door.dialect.bulk.for_update_waiting)


def test_the_tags_of_runs(house: House) -> None:
    one, two, three = house.dispatch_many(definition(), [{}, {}, {}])
    house.door.write(lambda tx: tags.add(tx, [(one, "b"), (one, "a"), (two, "a"), (one, "b"), (one, "a ")]))
    house.door.write(lambda tx: tags.add(tx, []))
    found = house.door.read(lambda tx: tags.of(tx, [three, two, one]))
    assert found == {three: (), two: ("a",), one: ("a", "a ", "b")}
    assert house.door.read(lambda tx: tags.of(tx, [])) == {}
