"""What went wrong, as text that any database stores: valid, bounded, and made without ever raising.

An exception is the user's object: its `__str__` may raise or return ten megabytes, its chain may run in a circle.
Nothing here decides anything; `outcome` does.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final

from queuety.define.names import qualified_name
from queuety.model import ErrorInfo

MESSAGE_BYTES: Final = 8 * 1024
TRACEBACK_BYTES: Final = 32 * 1024
_NAME_CHARACTERS: Final = 255
_NOTE_BYTES: Final = 64
_FRAMES: Final = 64
_CHAIN: Final = 64

# NUL: PostgreSQL refuses it in text. A lone surrogate has no UTF-8 form.
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_OUR_ROOMS: Final = (
    os.path.dirname(__file__) + os.sep,
    os.path.join(os.path.dirname(os.path.dirname(__file__)), "define") + os.sep,
)


def storable(text: str, *, max_bytes: int) -> str:
    """The text with what no database stores replaced by U+FFFD, at most `max_bytes` in UTF-8: its head and its tail.

    >>> storable("a\\x00b", max_bytes=100)
    'a\ufffdb'
    """
    if len(text) <= max_bytes:
        clean = _UNSTORABLE.sub("\ufffd", text)
        if clean.isascii() or len(clean.encode()) <= max_bytes:
            return clean
    room = max_bytes - _NOTE_BYTES
    tail_bytes = room // 4
    head_bytes = room - tail_bytes
    head = _UNSTORABLE.sub("\ufffd", text[:head_bytes]).encode()[:head_bytes].decode("utf-8", "ignore")
    tail = _UNSTORABLE.sub("\ufffd", text[-tail_bytes:]).encode()[-tail_bytes:].decode("utf-8", "ignore")
    return f"{head}\n… {len(text) - len(head) - len(tail)} characters left out …\n{tail}"


def error_info(exc: BaseException) -> ErrorInfo:
    """The exception as it is stored: message, `module:qualname` and traceback."""
    return ErrorInfo(message=message_of(exc), type_name=type_name(type(exc)), traceback=traceback_of(exc))


def message_of(exc: BaseException) -> str:
    """The exception's text, else its `repr`, else its type's name; never empty."""
    if isinstance(exc, SystemExit):
        return storable(f"the handler called sys.exit({_text(exc.code, repr)})", max_bytes=MESSAGE_BYTES)
    text = _text(exc, str)
    if isinstance(exc, KeyError) and text.strip():
        text = f"KeyError: {text}"  # its text is the key alone
    if text.strip():
        return storable(text, max_bytes=MESSAGE_BYTES)
    return storable(type_name(type(exc)).rpartition(":")[2], max_bytes=MESSAGE_BYTES)


def _text(value: object, render: Callable[[object], str]) -> str:
    """What `render` makes of the value, as a plain `str`."""
    for attempt in (render, repr):
        try:
            return str.__str__(attempt(value))
        except BaseException:  # noqa: BLE001 - user code may raise anything; there is another way to tell of it
            continue
    return f"<{type_name(type(value))} whose text cannot be made>"


def type_name(cls: type) -> str:
    """`module:qualname` of a class: the form in which `retry_on` and `give_up_on` name exceptions.

    >>> type_name(KeyError)
    'builtins:KeyError'
    """
    try:
        name = qualified_name(cls)
    except BaseException:  # noqa: BLE001 - a metaclass of the user's may raise anything
        name = "unknown:unknown"
    return storable(name, max_bytes=_NAME_CHARACTERS)


def traceback_of(exc: BaseException) -> str | None:
    """The rendered traceback from the user's first frame on, causes first; None if no frame is the user's."""
    for render in (_whole, _plain):
        try:
            frames = _from_user_code(exc.__traceback__)
            if frames is None and exc.__cause__ is None and exc.__context__ is None:
                return None
            return storable("".join(render(exc, frames)), max_bytes=TRACEBACK_BYTES)
        except BaseException:  # noqa: BLE001 - it calls the user's __str__, and may run out of stack; the plain form does not
            continue
    return None


def _from_user_code(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OUR_ROOMS):
        frames = frames.tb_next
    return frames


def _whole(exc: BaseException, frames: TracebackType | None) -> Iterator[str]:
    if _is_large(exc):  # a group of 100,000 exceptions took seconds to render, only to be cut afterwards
        yield from _plain(exc, frames)
        return
    whole = traceback.TracebackException(type(exc), exc, frames, limit=-_FRAMES, compact=True)
    for line in whole.format():
        yield storable(line, max_bytes=MESSAGE_BYTES)


def _plain(exc: BaseException, frames: TracebackType | None) -> Iterator[str]:
    yield from traceback.format_tb(frames, limit=-_FRAMES)
    yield f"{type_name(type(exc))}: {message_of(exc)}\n"


def _is_large(exc: BaseException) -> bool:
    """True if more than a few dozen exceptions hang together here."""
    seen: set[int] = set()
    ahead = [exc]
    while ahead:
        one = ahead.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if len(seen) > _CHAIN:
            return True
        ahead.extend(near for near in (one.__cause__, one.__context__) if near is not None)
        if isinstance(one, BaseExceptionGroup):
            ahead.extend(one.exceptions[: _CHAIN + 1])
    return False
