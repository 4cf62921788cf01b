"""Objects of users' classes and the JSON that stands for them: pydantic models, dataclasses and TypedDicts.

Pydantic reads and writes its own models, wherever they stand, and is imported only for them (or for types that msgspec
cannot tell apart); msgspec does the rest. What comes out of here is checked by the codec like everything else.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Final

import msgspec

from queuety.codec import SharedList
from queuety.errors import DefinitionError, PayloadError
from queuety.model import Json

Reader = Callable[[Json, str], Any]
"""Takes JSON and the name that messages give it; returns the object. Raises `PayloadError`."""

_PLAIN: Final = frozenset({
    Any, object, str, int, float, bool, type(None), inspect.Parameter.empty, dict, list,
    collections.abc.Mapping, collections.abc.MutableMapping, collections.abc.Sequence,
})  # fmt: skip

_PLAIN_NAMES: Final = ("dict", "Dict", "Mapping", "MutableMapping", "Any", "object", "Json", "State")


def hints_of(function: Any, *, what: str, of: frozenset[str]) -> dict[str, Any]:
    """The annotations of those parameters (`return` is one), with names in strings looked up.

    Raises `DefinitionError` for a parameter's that cannot be looked up, unless its name is one of a plain mapping:
    whether a handler wants an object or a dict must not depend on who imported what.
    """
    function = inspect.unwrap(function)
    annotations = inspect.get_annotations(function)
    scope = vars(sys.modules[function.__module__]) if function.__module__ in sys.modules else {}
    scope = getattr(function, "__globals__", scope)
    return {
        name: _looked_up(annotations[name], scope, f"{what}: the annotation of {name!r}")
        for name in of
        if name in annotations
    }


def is_object(annotation: Any) -> bool:
    """True for what a state is read into: a pydantic model, a dataclass, a TypedDict, `Annotated` or not."""
    if typing.get_origin(annotation) is typing.Annotated:
        return is_object(typing.get_args(annotation)[0])
    kind = typing.get_origin(annotation) or annotation
    return isinstance(kind, type) and (
        is_model(kind) or hasattr(kind, "__dataclass_fields__") or typing.is_typeddict(kind) or _is_typed_dict(kind)
    )


def is_typed_dict(annotation: Any) -> bool:
    """True for a TypedDict, of `typing` or of `typing_extensions`."""
    kind = typing.get_origin(annotation) or annotation
    return typing.is_typeddict(kind) or _is_typed_dict(kind)


def is_plain(annotation: Any) -> bool:
    """True if JSON's own types are all that the annotation asks for, so that a value can be passed on as it is."""
    origin = typing.get_origin(annotation)
    if origin is None:
        return annotation is None or (isinstance(annotation, Hashable) and annotation in _PLAIN)
    if origin is typing.Literal:
        return all(type(value) in (str, int, bool, type(None)) for value in typing.get_args(annotation))
    if origin in (typing.Union, types.UnionType) or origin in _PLAIN:
        return all(is_plain(part) for part in typing.get_args(annotation))
    return False


def is_model(kind: Any) -> bool:
    """True for a class of pydantic's, known by what it carries and not by importing pydantic."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


@lru_cache(maxsize=1024)
def reader(annotation: Any) -> Reader:
    """What reads JSON into that type. Raises `DefinitionError` if neither msgspec nor pydantic knows how."""
    if is_model(typing.get_origin(annotation) or annotation):
        return _pydantic_reader(annotation)
    try:
        msgspec.json.Decoder(annotation)
    except (TypeError, ValueError, NameError) as error:
        try:
            return _pydantic_reader(annotation)
        except DefinitionError:
            raise DefinitionError(f"no JSON can be read into {_shown(annotation)}: {error}") from error

    declared = _declared(annotation)

    def read(value: Json, what: str) -> Any:
        try:
            return msgspec.convert(_unshared(value, declared), annotation, dec_hook=_decode_model)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise PayloadError(f"{what} does not fit {_shown(annotation)}: {error}") from error

    return read


def json_form(value: Any) -> Any:
    """The JSON of an object, not yet checked; what this page does not know is returned as it is.

    Raises `PayloadError` for an object that holds something which has no JSON form.
    """
    kind = type(value)
    if kind in _UNTOUCHED or isinstance(value, type):
        return value
    if is_model(kind):
        return _model_json(value)
    if not dataclasses.is_dataclass(value):
        return value
    return builtins_of(value)


def builtins_of(value: Any) -> Any:
    """The JSON of a value whose class may be anything that `reader` reads: enums, datetimes, UUIDs, objects, …"""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_model_json)
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(f"{type(value).__qualname__} has no JSON form: {error}") from error


_UNTOUCHED: Final = frozenset({dict, list, str, int, float, bool, type(None)})


def _looked_up(annotation: Any, scope: dict[str, Any], what: str) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        # The user's own annotation in the user's own module: what typing.get_type_hints does, for one of them.
        return eval(annotation, scope)  # noqa: S307
    except Exception as error:  # an annotation is code and may raise anything
        head = annotation.partition("[")[0].rpartition(".")[2].strip()
        if head in _PLAIN_NAMES or what.endswith(" 'return'"):
            return Any
        raise DefinitionError(
            f"{what}, {annotation!r}, cannot be looked up ({type(error).__name__}: {error}); import it outside "
            "`if TYPE_CHECKING`, so that workers know what to pass"
        ) from error


def _declared(annotation: Any) -> frozenset[str]:
    """The names of the fields of a dataclass or a TypedDict."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _declared(typing.get_args(annotation)[0])
    kind = typing.get_origin(annotation) or annotation
    if is_typed_dict(kind):
        return frozenset(kind.__required_keys__ | kind.__optional_keys__)
    return frozenset(getattr(kind, "__dataclass_fields__", ()))


def _unshared(value: Json, declared: frozenset[str]) -> Json:
    """The value with a list of its own where it holds one that is shared: msgspec keeps what may be anything as it is.

    A shared list that nobody asks for stays: it may be large, and this is done for each of its items.
    """
    if type(value) is not dict or not any(type(each) is SharedList for each in value.values()):
        return value
    return {key: list(each) if type(each) is SharedList and key in declared else each for key, each in value.items()}


def _is_typed_dict(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__total__")


@lru_cache(maxsize=1024)
def _adapter(annotation: Any) -> Any:
    try:
        from pydantic import TypeAdapter
    except ImportError as error:
        raise DefinitionError(f"{_shown(annotation)} needs pydantic: pip install 'queuety[pydantic]'") from error
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(annotation)
    except (PydanticUserError, TypeError, NameError) as error:
        raise DefinitionError(f"pydantic cannot read JSON into {_shown(annotation)}: {error}") from error


def _pydantic_reader(annotation: Any) -> Reader:
    adapter = _adapter(annotation)

    def read(value: Json, what: str) -> Any:
        try:
            # As JSON and not as Python objects: a strict model then still takes a datetime from its text.
            return adapter.validate_json(msgspec.json.encode(value))
        except ValueError as error:
            raise PayloadError(f"{what} does not fit {_shown(annotation)}: {_in_one_line(error)}") from error

    return read


def _in_one_line(error: ValueError) -> str:
    """What a ValidationError of pydantic's says, without the values that it was given."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    found = errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in found)


def _decode_model(kind: type, value: Any) -> Any:
    if not is_model(kind):
        raise TypeError(f"no JSON can be read into {_shown(kind)}")
    return _pydantic_reader(kind)(value, "the value")


def _model_json(value: Any) -> Any:
    kind: Any = type(value)
    if not is_model(kind):
        raise TypeError(f"{kind.__qualname__} is neither JSON nor an object that has a JSON form")
    try:
        # By alias, as validation reads it: what one step returns, the next one takes.
        return _adapter(kind).dump_python(value, mode="json", by_alias=True)
    except ValueError as error:
        raise PayloadError(f"{kind.__qualname__} has no JSON form: {error}") from error


def _shown(annotation: Any) -> str:
    return getattr(annotation, "__qualname__", None) or str(annotation)
