"""JSON at the door: what may be stored, and its text.

A value is stored only if JSON gives it back equal and of the same type; `checked` decides that, and everything that
comes from a user passes through it once. The other functions trust what it returned. How objects of users' classes
become JSON is not decided here (`queuety.define.typed`).

Text is compact UTF-8 with keys in insertion order. Control characters, NUL among them, are always escaped in it, so
it may be kept in any text column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn, SupportsIndex

import msgspec

from queuety.errors import PayloadError
from queuety.model import Json

MAX_DEPTH: Final = 128
"""How deep containers may be nested: every decoder and every language's JSON takes this much."""

MAX_VALUES: Final = 10_000_000
"""How many values one value may hold. A few lists that hold each other stand for more than any memory has."""

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder()


def encode(value: Json) -> str:
    """The compact JSON text of a value that `checked` has returned (anything else may be changed on the way)."""
    return _encoder.encode(value).decode()


def decode(text: str | bytes) -> Json:
    """The value of a text that `encode` made. Raises `PayloadError` if it is no JSON text."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PayloadError(f"a stored value is no JSON text: {error}") from error


def parsed(text: str | bytes, *, what: str, max_bytes: int | None = None) -> Json:
    """The value of a JSON text that comes from outside (a command line, a file, a request), checked like any other.

    Raises `PayloadError` also for what JSON's readers disagree about: NaN, a key that stands twice.
    """
    return checked(unchecked(text, what=what), what=what, max_bytes=max_bytes)


def unchecked(text: str | bytes, *, what: str) -> Any:
    """The same before it is checked, for a document whose parts are checked one by one."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"{what} is not valid JSON: {error}") from error


def canonical(value: Json) -> str:
    """The JSON text with keys sorted: equal for equal values, in every process and version; for hashes.

    >>> canonical({"b": 1, "a": [True, None]})
    '{"a":[true,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def size(text: str) -> int:
    """The bytes that a text takes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


class SharedList(list[Any]):
    """Checked JSON that many read and nobody changes, made without copying what is in it.

    It reads like the list that it is. What is taken out of it is a copy, and so is a slice, a plain list. `copy_json`
    passes it on as it is; stored, copied or pickled it is a plain list again. Made of 50,000 small mappings it costs
    0.6 ms, once, where copying them costs every reader 25 ms.
    """

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        return copy_json(super().__getitem__(index))

    def __iter__(self) -> Iterator[Any]:
        return map(copy_json, super().__iter__())

    def __reversed__(self) -> Iterator[Any]:
        return map(copy_json, super().__reversed__())

    def __add__(self, other: Any) -> Any:
        return list(self) + other

    def __radd__(self, other: Any) -> Any:
        return other + list(self)

    def __mul__(self, times: SupportsIndex) -> list[Any]:
        return list(self) * times

    def __rmul__(self, times: SupportsIndex) -> list[Any]:
        return list(self) * times

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return list, (list(self),)

    def copy(self) -> list[Any]:
        return list(self)

    def _refuse_change(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("the list of items is shared by all items of this step; copy it first: list(state[…])")

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse_change
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse_change


def copy_json(value: Any) -> Any:
    """A copy of checked JSON with containers of its own; nobody who changes it changes the original."""
    kind = type(value)
    if kind is dict:
        return {
            key: copy_json(item) if type(item) is dict or type(item) is list else item for key, item in value.items()
        }
    if kind is list:
        return [copy_json(item) if type(item) is dict or type(item) is list else item for item in value]
    return value


def checked(value: Any, *, what: str, max_bytes: int | None = None) -> Json:
    """A private copy of `value` as plain JSON, with tuples as lists.

    Exactly None, bool, int, float, str, list, tuple and dict with string keys are let through, no subclasses but
    `SharedList`; integers are those of 64 bits with a sign. `what` names the value in messages, `max_bytes` limits its
    encoded size. Raises `PayloadError` that names the path of the offending value and what to use instead.
    """
    try:
        # Every value inside takes two bytes at least, so a value too large is given up before it is copied whole.
        copied = _copy(value, MAX_DEPTH, [MAX_VALUES if max_bytes is None else max_bytes // 2 + 1])
    except (_NotJson, UnicodeEncodeError):
        _refuse(value, what, max_bytes)
    if max_bytes is not None:
        found = len(_encoder.encode(copied))
        if found > max_bytes:
            raise PayloadError(f"{what} is {found:,} bytes as JSON, {_too_large(max_bytes)}")
    return copied


def checked_mapping(value: Any, *, what: str, max_bytes: int | None = None) -> dict[str, Json]:
    """Like `checked`, for a value that must be a mapping; of the outermost one any kind of mapping will do."""
    if type(value) is not dict:
        if not isinstance(value, Mapping):
            raise PayloadError(f"{what} must be a mapping with string keys, not {_kind(value)}")
        value = dict(value)
    copied: dict[str, Json] = checked(value, what=what, max_bytes=max_bytes)
    return copied


# The quick way, which only finds out that something is wrong. It is run for every payload and every result: 1.3 us for
# a flat mapping of five keys (CPython 3.11).


class _NotJson(Exception):
    """Something in the value is not JSON; `_refuse` finds out what."""


def _copy(value: Any, depth: int, left: list[int]) -> Any:
    kind = type(value)
    if kind is dict:
        return _copy_mapping(value, depth, left)
    if kind is list or kind is tuple:
        left[0] -= len(value)
        if depth <= 0 or left[0] < 0:
            raise _NotJson
        return [_copy(item, depth - 1, left) for item in value]
    if kind is str:
        if not value.isascii():
            value.encode()
    elif kind is float:
        if value - value != 0.0:  # NaN and the infinities
            raise _NotJson
    elif kind is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise _NotJson
    elif kind is SharedList:
        return _copy(list.copy(value), depth, left)
    elif value is not None and kind is not bool:
        raise _NotJson
    return value


def _copy_mapping(value: dict[Any, Any], depth: int, left: list[int]) -> dict[str, Any]:
    left[0] -= len(value)
    if depth <= 0 or left[0] < 0:
        raise _NotJson
    mapping = {}
    for key, item in value.items():
        if type(key) is not str:
            raise _NotJson
        if not key.isascii():
            key.encode()
        if type(item) is str and item.isascii():
            mapping[key] = item
        else:
            mapping[key] = _copy(item, depth - 1, left)
    return mapping


# The slow way, which says what is wrong and where


def _refuse(value: Any, what: str, max_bytes: int | None) -> NoReturn:
    fault = _fault(value, what, (), {})
    if fault is None:
        raise PayloadError(f"{what} holds too many values, {_too_large(max_bytes)}")
    raise PayloadError("{}: {}".format(*fault))


def _too_large(max_bytes: int | None) -> str:
    limit = f"{MAX_VALUES:,} values" if max_bytes is None else f"{max_bytes:,} bytes"
    return f"more than the limit of {limit}; store it elsewhere and pass a reference"


def _fault(value: Any, path: str, outer: tuple[int, ...], sound: dict[int, int]) -> tuple[str, str] | None:
    """The path and reason of the first fault. `sound` holds the containers found good, and at what depth."""
    if type(value) not in (dict, list, tuple, SharedList):
        reason = _reason(value)
        return (path, reason) if reason else None
    if id(value) in outer:
        return path, "it contains itself, which JSON cannot hold"
    if len(outer) >= MAX_DEPTH:
        return path, f"nested deeper than {MAX_DEPTH} levels"
    if sound.get(id(value), -1) >= len(outer):
        return None
    inner = (*outer, id(value))
    for key_fault, item_path, item in _items(value, path):
        found = (item_path, key_fault) if key_fault else _fault(item, item_path, inner, sound)
        if found:
            return found
    sound[id(value)] = len(outer)
    return None


def _items(value: Any, path: str) -> Iterator[tuple[str | None, str, Any]]:
    if type(value) is not dict:
        for index, item in enumerate(list.__iter__(value) if type(value) is SharedList else value):
            yield None, f"{path}[{index}]", item
        return
    for key, item in value.items():
        if type(key) is not str:
            yield f"the key {_shown(key)} is {_kind(key)}; keys must be str", path, item
        elif not _is_text(key):
            yield f"the key {_shown(key)} holds half of a surrogate pair, which is no text", path, item
        else:
            yield None, f"{path}.{key}" if key.isidentifier() else f"{path}[{_shown(key)}]", item


def _reason(value: Any) -> str | None:
    """Why this single value is not JSON and what to use instead, or None if it is."""
    kind = type(value)
    if kind is str:
        return None if _is_text(value) else "half of a surrogate pair, which is no text; replace it"
    if kind is float:
        return None if value - value == 0.0 else f"{value!r} is not JSON; use None or a string instead"
    if kind is int:
        inside = _INT_MIN <= value <= _INT_MAX
        return None if inside else "an integer outside -2^63 … 2^63-1; use its str() instead"
    if value is None or kind is bool:
        return None
    return f"{_kind(value)} is not JSON; use {_instead(kind)} instead"


_INSTEAD: Final = {
    "datetime:datetime": "its isoformat()",
    "datetime:date": "its isoformat()",
    "datetime:time": "its isoformat()",
    "datetime:timedelta": "its total_seconds()",
    "decimal:Decimal": "its str()",
    "fractions:Fraction": "its str()",
    "uuid:UUID": "its str()",
    "pathlib:PurePath": "its str()",
    "ipaddress:_IPAddressBase": "its str()",
    "builtins:bytes": "its hex() or base64 text",
    "builtins:bytearray": "its hex() or base64 text",
    "builtins:memoryview": "its hex() or base64 text",
    "builtins:set": "a sorted list",
    "builtins:frozenset": "a sorted list",
    "builtins:complex": "a list of its two parts",
    "enum:Enum": "its value",
    "pydantic.main:BaseModel": 'its model_dump(mode="json")',
    "numpy:generic": "its item()",
    "numpy:ndarray": "its tolist()",
    "builtins:int": "int() of it",
    "builtins:float": "float() of it",
    "builtins:str": "str() of it",
    "builtins:dict": "dict() of it",
    "builtins:list": "list() of it",
    "builtins:tuple": "list() of it",
    "builtins:BaseException": "its str()",
    "types:GeneratorType": "list() of it",
    "builtins:generator": "list() of it",
    "builtins:coroutine": "what it gives when awaited",
}


def _instead(kind: type) -> str:
    for base in kind.__mro__:
        if base.__module__ == "enum":
            return "its value"
        found = _INSTEAD.get(f"{base.__module__}:{base.__qualname__}")
        if found:
            return found
    return "dataclasses.asdict() of it" if "__dataclass_fields__" in vars(kind) else "a dict, list, str or number"


def _kind(value: Any) -> str:
    """What a value is, for people: `a datetime`, `an Order`."""
    if value is None:
        return "None"
    name = type(value).__qualname__.rpartition(".")[2]
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _shown(value: Any) -> str:
    """A short and safe picture of a key, whatever its class does when asked for one."""
    if type(value) not in (str, int, float, bool, bytes, type(None)):
        return f"of type {type(value).__qualname__}"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {_shown(twice)} stands twice in one object")
    return mapping
