"""What JSON gives back as it was is let through, everything else is refused at the door with its path."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import math
import pathlib
import types
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety import codec
from queuety.errors import PayloadError

ints = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
atoms = st.none() | st.booleans() | ints | st.floats(allow_nan=False, allow_infinity=False) | texts
json_values = st.recursive(
    atoms, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    pass


@dataclass
class Point:
    x: int


Pair = collections.namedtuple("Pair", "a b")

strangers = st.sampled_from(
    [
        dt.datetime(2026, 1, 1),  # noqa: DTZ001
        dt.date(2026, 1, 1),
        dt.timedelta(1),
        decimal.Decimal("1.5"),
        uuid.UUID(int=7),
        b"x",
        bytearray(b"x"),
        {1, 2},
        frozenset({1}),
        Colour.RED,
        Level.LOW,
        Name("x"),
        Point(1),
        Pair(1, 2),
        object(),
        collections.OrderedDict(a=1),
        collections.Counter("a"),
        types.SimpleNamespace(a=1),
        pathlib.PurePosixPath("/x"),
        (n for n in ()),
        math.nan,
        math.inf,
        -math.inf,
        2**63,
        -(2**63) - 1,
        1j,
        "\ud800",
        {1: "a"},
        {None: "a"},
        {Colour.RED: 1},
        {"\udfff": 1},
    ]
)


def same(a: Any, b: Any) -> bool:
    """Equal and of the same types all the way down, the sign of zero included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


@given(json_values)
def test_every_json_value_comes_back_as_it_was(value: Any) -> None:
    stored = codec.encode(codec.checked(value, what="value"))
    assert same(codec.decode(stored), value)
    assert same(codec.parsed(stored, what="value"), value)
    assert same(codec.copy_json(value), value)
    assert "\0" not in stored
    assert codec.size(stored) == len(stored.encode())


@given(json_values, strangers, st.lists(texts | st.integers(0, 3), max_size=5))
def test_everything_else_is_refused_wherever_it_hides(beside: Any, stranger: Any, where: list[str | int]) -> None:
    value = stranger
    for place in where:
        value = {place: value} if isinstance(place, str) else [beside] * place + [value]
    with pytest.raises(PayloadError, match=r"^result"):
        codec.checked(value, what="result")


@given(json_values)
def test_nobody_shares_a_container_with_what_was_checked(value: Any) -> None:
    def containers(of: Any) -> set[int]:
        inner = list(of.values()) if isinstance(of, dict) else of if isinstance(of, list) else None
        return set() if inner is None else {id(of)}.union(*map(containers, inner))

    checked = codec.checked(value, what="value")
    copied = codec.copy_json(checked)
    assert not containers(value) & containers(checked)
    assert not containers(checked) & containers(copied)


@given(st.dictionaries(texts, json_values, max_size=5), st.randoms())
def test_the_canonical_text_does_not_know_the_order_of_keys(value: dict[str, Any], random: Any) -> None:
    keys = list(value)
    random.shuffle(keys)
    assert codec.canonical({key: value[key] for key in keys}) == codec.canonical(value)


def test_tuples_become_lists() -> None:
    assert codec.checked({"a": (1, (2, [3]))}, what="value") == {"a": [1, [2, [3]]]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"items": [1, {"when": dt.datetime.now(dt.UTC)}]}, r"result\.items\[1\]\.when: a datetime .* isoformat\(\)"),
        ({"price": decimal.Decimal(1)}, r"result\.price: a Decimal .* str\(\)"),
        ({"two words": b"x"}, r"result\['two words'\]: a bytes .* base64"),
        ({"tags": {1}}, r"result\.tags: a set .* sorted list"),
        ({"c": Colour.RED}, r"result\.c: a Colour .* its value"),
        ({"p": Point(1)}, r"result\.p: a Point .* dataclasses\.asdict"),
        ({"n": {1: 2}}, r"result\.n: the key 1 is an int; keys must be str"),
        ({"x": math.nan}, r"result\.x: nan is not JSON"),
        ({"x": 2**63}, r"result\.x: an integer outside -2\^63"),
        ({"x": "a\ud800"}, r"result\.x: half of a surrogate pair"),
        ({"\ud800": 1}, r"result: the key '\\ud800' holds half"),
        ({"x": collections.OrderedDict()}, r"result\.x: an OrderedDict .* dict\(\)"),
    ],
)
def test_a_refusal_names_the_path_and_what_to_use_instead(value: Any, message: str) -> None:
    with pytest.raises(PayloadError, match=message) as refused:
        codec.checked(value, what="result")
    str(refused.value).encode()


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = [loop]
    with pytest.raises(PayloadError, match=r"result\.again\[0\]: it contains itself"):
        codec.checked(loop, what="result")


def test_nesting_has_a_limit_that_every_decoder_takes() -> None:
    deep: Any = []
    for _ in range(codec.MAX_DEPTH - 1):
        deep = [deep]
    assert codec.decode(codec.encode(codec.checked(deep, what="value"))) == deep
    with pytest.raises(PayloadError, match=f"deeper than {codec.MAX_DEPTH}"):
        codec.checked([deep], what="value")


def test_a_few_lists_that_stand_for_more_than_memory_are_refused_at_once() -> None:
    bomb: Any = []
    for _ in range(100):
        bomb = [bomb, bomb]
    with pytest.raises(PayloadError, match="too many values, more than the limit of 100,000 bytes"):
        codec.checked(bomb, what="value", max_bytes=100_000)


@pytest.mark.parametrize("value", [["x" * 7], [1, 2, 3, 4, 5], {"k": 123}, "é" * 4 + "x"])
def test_the_limit_counts_encoded_bytes_and_is_inclusive(value: Any) -> None:
    found = codec.size(codec.encode(value))
    assert codec.checked(value, what="value", max_bytes=found) == value
    with pytest.raises(PayloadError, match=f"value is {found} bytes as JSON, more than the limit of {found - 1} bytes"):
        codec.checked(value, what="value", max_bytes=found - 1)


def test_any_mapping_will_do_outermost() -> None:
    checked = codec.checked_mapping(types.MappingProxyType({"a": 1}), what="payload")
    assert type(checked) is dict
    assert checked == {"a": 1}
    for value, kind in [([1], "a list"), (None, "None"), ("x", "a str"), (3, "an int")]:
        with pytest.raises(PayloadError, match=f"payload must be a mapping with string keys, not {kind}"):
            codec.checked_mapping(value, what="payload")


def test_a_hostile_key_cannot_hide_the_refusal() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(PayloadError, match="keys must be str"):
        codec.checked({Hostile(): 1}, what="payload")


@pytest.mark.parametrize(
    "text",
    ["", "{", "nan", "NaN", "[Infinity]", "1e999", '{"a":1,"a":2}', '"\\ud800"', "[" * 5000, "18446744073709551616"],
)
def test_text_from_outside_is_checked_like_a_value(text: str) -> None:
    with pytest.raises(PayloadError, match=r"^--payload"):
        codec.parsed(text, what="--payload")


def test_a_stored_text_that_is_no_json_is_our_error() -> None:
    for text in ("", "{", b"\xff", "[" * 5000):
        with pytest.raises(PayloadError, match="no JSON text"):
            codec.decode(text)
