"""When JSON values are the same, and when a payload has all that a pattern asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety.engine.matching import is_same, is_subset

atoms = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, -0.0, 1.0, 0.5]) | st.text(max_size=1)
values = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def canonical(value: Any) -> str:
    """The text of a value with sorted keys, and every number written as a float: equal texts are equal values."""

    def plain(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {key: plain(one) for key, one in inner.items()}
        if isinstance(inner, list):
            return [plain(one) for one in inner]
        return float(inner) + 0.0 if type(inner) in (int, float) else inner

    return json.dumps(plain(value), sort_keys=True)


@pytest.mark.parametrize("one", ["1", 1, True, None, "", [], {}, [1], {"1": 1}, "true", "null"])
@pytest.mark.parametrize("other", ["1", 1, True, None, "", [], {}, [1], {"1": 1}, "true", "null"])
def test_values_of_different_types_are_different(one: Any, other: Any) -> None:
    assert is_same(one, other) is (one is other or repr(one) == repr(other))


def test_false_is_not_nought_at_any_depth() -> None:
    assert not is_same({"a": [{"b": 0}]}, {"a": [{"b": False}]})
    assert not is_subset({"a": [{"b": 0}]}, {"a": [{"b": False}]})


def test_large_numbers_are_compared_exactly() -> None:
    assert not is_same(2**53 + 1, float(2**53))
    assert is_same(2**53, float(2**53))


@given(values, values)
def test_sameness_is_that_of_the_canonical_text(one: Any, other: Any) -> None:
    assert is_same(one, other) is (canonical(one) == canonical(other))
    assert is_same(one, other) is is_same(other, one)


@given(values)
def test_everything_is_the_same_as_itself_written_in_another_order(value: Any) -> None:
    def turned(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {key: turned(inner[key]) for key in reversed(inner)}
        return [turned(one) for one in inner] if isinstance(inner, list) else inner

    assert is_same(value, turned(value))


@given(objects, objects)
def test_an_object_is_a_subset_of_all_that_add_keys_to_it(pattern: Any, more: Any) -> None:
    assert is_subset(pattern, {**more, **pattern})
    assert is_subset({"deep": pattern}, {"deep": {**more, **pattern}, "beside": more})


@given(values, values)
def test_subsets_both_ways_are_the_same(one: Any, other: Any) -> None:
    assert (is_subset(one, other) and is_subset(other, one)) is is_same(one, other)


@pytest.mark.parametrize(
    ("pattern", "value", "is_in"),
    [
        ({}, {}, True),
        ({}, {"a": 1}, True),
        ({"a": {}}, {"a": {"b": 1}}, True),
        ({"a": {}}, {"a": []}, False),
        ({"a": {}}, {"a": None}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, False),
        ({"a": []}, {"a": [1]}, False),
        ({"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": "x", "d": 1}, "e": 2}}, True),
        ({"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": "y"}}}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"A": 1}, {"a": 1}, False),
    ],
)
def test_a_payload_has_what_the_pattern_asks_for(pattern: Any, value: Any, is_in: bool) -> None:
    assert is_subset(pattern, value) is is_in
