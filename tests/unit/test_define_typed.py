"""Objects of users' classes: read from the state, and turned back into JSON."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import typing
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import pydantic
import pytest

from queuety.define import typed
from queuety.define.typed import builtins_of, json_form, reader
from queuety.errors import DefinitionError, PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nowhere import Order  # type: ignore[import-not-found]


class Colour(enum.Enum):
    RED = "red"


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: dt.datetime
    count: int = pydantic.Field(0, alias="howMany")


@dataclass
class Everything:
    colour: Colour
    id: uuid.UUID
    price: decimal.Decimal
    raw: bytes
    pair: tuple[int, str]
    tags: set[str]
    model: Strict
    inner: list[Everything] = field(default_factory=list)
    ready: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.ready = True


class Visit(TypedDict, total=False):
    at: dt.datetime
    who: Everything


@pydantic.dataclasses.dataclass
class Checked:
    n: int = pydantic.Field(gt=0)


@dataclass
class Left:
    a: int


@dataclass
class Right:
    b: int


@dataclass
class Either:
    side: Left | Right


AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def everything(*inner: Everything) -> Everything:
    return Everything(
        Colour.RED,
        uuid.UUID(int=7),
        decimal.Decimal("1.50"),
        b"\xff\0",
        (1, "x"),
        {"a"},
        Strict(at=AT, howMany=3),
        list(inner),
    )


@pytest.mark.parametrize(
    "value",
    [Strict(at=AT, howMany=3), everything(everything()), Checked(n=3), Either(Right(1)), Left(1)],
)
def test_an_object_survives_its_json_form(value: Any) -> None:
    form = json_form(value)
    assert type(form) is dict
    assert reader(type(value))(form, "state") == value


def test_a_typed_dict_is_read_and_written_by_its_annotation() -> None:
    visit: Visit = {"at": AT, "who": everything()}
    form = builtins_of(visit)
    assert form["at"] == "2026-01-02T03:04:05Z"
    assert reader(Visit)({**form, "other": 1}, "state") == visit


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (
            Strict,
            {"howMany": "3"},
            "state does not fit Strict: at: Field required; howMany: Input should be",
        ),
        (Left, {"a": "1"}, r"state does not fit Left: Expected `int`, got `str` - at `\$\.a`"),
        (Left, {}, "state does not fit Left: .*missing required field `a`"),
        (Checked, {"n": 0}, "n: Input should be greater than 0"),
        (Either, {"side": {}}, "state does not fit Either"),
        (Visit, {"at": "yesterday"}, "state does not fit Visit"),
    ],
)
def test_a_state_that_does_not_fit_says_where(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(PayloadError, match=message) as refused:
        reader(annotation)(value, "state")
    assert "\n" not in str(refused.value)


def test_an_object_without_a_json_form_is_refused() -> None:
    with pytest.raises(PayloadError, match="Left has no JSON form: object is neither JSON nor"):
        json_form(Left(object()))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 3, "x", [1], {"a": 1}, object(), Left, AT])
def test_anything_else_is_left_for_the_codec(value: Any) -> None:
    assert json_form(value) is value


@pytest.mark.parametrize("annotation", [Strict, Left, Visit, Checked, Annotated[Strict, "x"]])
def test_objects_are_told_from_plain_mappings(annotation: Any) -> None:
    assert typed.is_object(annotation)
    assert not typed.is_plain(annotation)


@pytest.mark.parametrize(
    "annotation",
    [dict, dict[str, Any], typing.Mapping[str, int], list[str | None], str | int, Any, None, Literal["a", 1], object],
)
def test_plain_json_needs_no_reading(annotation: Any) -> None:
    assert typed.is_plain(annotation)
    assert not typed.is_object(annotation)


@pytest.mark.parametrize("annotation", [dt.datetime, Colour, tuple[int, ...], set[int], list[uuid.UUID], int | Left])
def test_what_json_has_no_type_for_is_not_plain(annotation: Any) -> None:
    assert not typed.is_plain(annotation)


def mapping_for_checkers_only(state: Mapping[str, Any]) -> Mapping[str, Any]: ...


def order_for_checkers_only(state: Order) -> None: ...


def order_returned(state: dict[str, Any]) -> Order: ...


def test_annotations_are_looked_up_and_one_that_decides_must_be_there() -> None:
    names = frozenset({"state", "return"})
    assert typed.hints_of(mapping_for_checkers_only, what="f", of=names) == {"state": Any, "return": Any}
    assert typed.hints_of(order_returned, what="f", of=names) == {"state": dict[str, Any], "return": Any}
    with pytest.raises(DefinitionError, match="f: the annotation of 'state', 'Order', cannot be looked up"):
        typed.hints_of(order_for_checkers_only, what="f", of=names)
