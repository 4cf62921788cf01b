"""Text for pictures: names are data, so whatever could be read as something else is shown as an escape."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from queuety.model import HandlerRef

LONGEST: Final = 80
"""Characters of a line that are shown; the whole is had elsewhere."""

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def plain(text: str) -> str:
    r"""The text on one line, with every character as an escape that is not seen, turns the direction of writing, ends a
    line or cannot be written; spaces of any width are spaces.

    >>> print(plain("a\nb\u202ec"))
    a\nb\u202ec
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _shown(char) for char in text)


def short(text: str, most: int = LONGEST) -> str:
    """The beginning of the text, plain.

    >>> short("abcdef", 4)
    'abc…'
    """
    shown = plain(text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def duration(seconds: float) -> str:
    """A number of seconds for people, in at most two units.

    >>> duration(90), duration(0.5), duration(90_061), duration(0)
    ('1 min 30 s', '0.5 s', '1 d 1 h', '0 s')
    """
    if seconds < 60:
        return f"{seconds:g} s"
    whole, parts = round(seconds), []
    for size, unit in _UNITS:
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def handler(ref: HandlerRef | None) -> str:
    """A handler as people call it: without its module, with its configuration.

    >>> handler(HandlerRef("shop.steps:Pay.fast", {"cents": 5}))
    'Pay.fast(cents=5)'
    """
    if ref is None:
        return "?"
    return f"{called(ref.name)}{_config(ref.config)}"


def called(name: str) -> str:
    """The name of a handler without its module; an alias as it is.

    >>> called("shop.steps:pay"), called("billing")
    ('pay', 'billing')
    """
    return name.partition(":")[2] or name


def value(given: Any) -> str:
    """A JSON value on one line.

    >>> value({"a": True})
    '{"a": true}'
    """
    return short(json.dumps(given, ensure_ascii=False), 40)


def counted(count: int, one: str, many: str | None = None) -> str:
    """
    >>> counted(1, "step"), counted(1200, "step"), counted(2, "branch", "branches")
    ('1 step', '1,200 steps', '2 branches')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: tuple[str, ...] | list[str], word: str) -> str:
    """
    >>> listed(["a", "b", "c"], "or"), listed(["a"], "or"), listed([], "or")
    ('a, b or c', 'a', 'nothing')
    """
    if len(names) < 2:
        return names[0] if names else "nothing"
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


def _config(config: Mapping[str, Any] | None) -> str:
    if not config:
        return ""
    return f"({', '.join(f'{key}={value(each)}' for key, each in list(config.items())[:3])}{', …' * (len(config) > 3)})"


def _shown(char: str) -> str:
    if unicodedata.category(char) == "Zs":
        return " "
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if named is not None:
        return named
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
