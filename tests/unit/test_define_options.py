"""Options are checked the same wherever they are given, and errors are matched along their bases."""

from __future__ import annotations

import dataclasses
import decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety.define.options import gives_up, merged, options_from, options_to_json
from queuety.errors import DefinitionError, Fail
from queuety.model import Options, Priority


class Refused(Exception): ...


class CardRefused(Refused): ...


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"queue": "mail"}, "queue", "mail"),
        ({"priority": Priority.URGENT}, "priority", Priority.URGENT),
        ({"priority": 2}, "priority", Priority.HIGH),
        ({"priority": "High"}, "priority", Priority.HIGH),
        ({"max_attempts": 1}, "max_attempts", 1),
        ({"backoff": "linear"}, "backoff", "linear"),
        ({"backoff": [0, 2.5]}, "backoff", (0.0, 2.5)),
        ({"timeout": 0.5}, "timeout_s", 0.5),
        ({"timeout": {"seconds": 30}}, "timeout_s", 30.0),
        ({"cost_units": 0}, "cost_units", 0),
        ({"cost_units": 10**9}, "cost_units", 10**9),
        ({"retry_on": OSError}, "retry_on", ("builtins:OSError",)),
        ({"give_up_on": (Refused, decimal.Overflow)}, "give_up_on", (f"{__name__}:Refused", "decimal:Overflow")),
        ({"give_up_on": ["a.b:C"]}, "give_up_on", ("a.b:C",)),
        ({"queue": None}, "queue", None),
    ],
)
def test_an_option_is_read(given: dict[str, Any], field: str, value: object) -> None:
    assert options_from(given, where="here") == dataclasses.replace(Options(), **{field: value})


@pytest.mark.parametrize(
    "given",
    [
        {"queue": ""},
        {"queue": "a\0"},
        {"queue": "x" * 256},
        {"queue": 3},
        {"priority": 4},
        {"priority": -1},
        {"priority": True},
        {"priority": "soon"},
        {"priority": 1.0},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": 2.0},
        {"max_attempts": 10**9},
        {"backoff": "quadratic"},
        {"backoff": []},
        {"backoff": [-1]},
        {"backoff": [True]},
        {"backoff": ["1"]},
        {"backoff": [float("nan")]},
        {"backoff": 5},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": "30"},
        {"timeout": float("inf")},
        {"timeout": 10**400},
        {"timeout": {"minutes": 1}},
        {"cost_units": -1},
        {"cost_units": 10**9 + 1},
        {"cost_units": True},
        {"cost_units": 1.0},
        {"cost_units": "2"},
        {"retry_on": ()},
        {"retry_on": "ValueError"},
        {"retry_on": KeyboardInterrupt},
        {"retry_on": ValueError("an instance")},
        {"give_up_on": (int,)},
    ],
)
def test_an_option_that_cannot_be_right_is_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=f"^here: {next(iter(given))}"):
        options_from(given, where="here")


@pytest.mark.parametrize("key", ["concurrency_group", "rate_limit", "resources", "retries", "delay", "timeout_s"])
def test_an_unknown_option_is_refused_and_the_known_ones_are_named(key: str) -> None:
    with pytest.raises(
        DefinitionError, match=f"no option '{key}'; there are backoff, cost_units, give_up_on, max_attempts"
    ):
        options_from({key: 1}, where="here")


def test_an_entry_of_a_definition_also_takes_a_delay() -> None:
    assert options_from({"delay": 3}, where="here", of_entry=True) == Options(delay_s=3.0)


seconds = st.floats(0.001, 1e6) | st.integers(1, 10**6).map(float)
options = st.builds(
    Options,
    queue=st.none() | st.sampled_from(["a", "ü"]),
    priority=st.none() | st.sampled_from(list(Priority)),
    max_attempts=st.none() | st.integers(1, 100),
    backoff=st.none() | st.sampled_from(["fixed", "linear"]) | st.lists(seconds, min_size=1, max_size=3).map(tuple),
    timeout_s=st.none() | seconds,
    retry_on=st.none() | st.just(("builtins:OSError",)),
    give_up_on=st.none() | st.just(("builtins:KeyError", "m:N")),
    delay_s=st.none() | seconds,
    cost_units=st.none() | st.integers(0, 10**9),
)


@given(options)
def test_options_survive_their_json_form(value: Options) -> None:
    assert options_from(options_to_json(value), where="here", of_entry=True) == value


@given(options, options)
def test_the_first_level_wins_option_by_option(first: Options, then: Options) -> None:
    both = merged(first, then)
    for field in dataclasses.fields(Options):
        own = getattr(first, field.name)
        assert getattr(both, field.name) == (getattr(then, field.name) if own is None else own)


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({}, ValueError(), False),
        ({}, Fail("no"), True),
        ({"give_up_on": Refused}, CardRefused(), True),
        ({"give_up_on": CardRefused}, Refused(), False),
        ({"retry_on": OSError}, ConnectionError(), False),
        ({"retry_on": OSError}, KeyError(), True),
        ({"retry_on": Refused, "give_up_on": CardRefused}, CardRefused(), True),
        ({"retry_on": Refused, "give_up_on": CardRefused}, Refused(), False),
    ],
)
def test_errors_are_matched_with_their_bases(options: dict[str, Any], error: Exception, expected: bool) -> None:
    assert gives_up(options_from(options, where="here"), error) is expected


def test_a_queue_whose_name_no_worker_could_list_is_refused() -> None:
    with pytest.raises(DefinitionError, match="comma"):
        options_from({"queue": "mail,sms"}, where="step 0")
