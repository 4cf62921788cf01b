"""The documents in a folder: which there are, and what they say. Nothing is written to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUFFIXES: Final = (".txt", ".md", ".rst")
MOST_DOCUMENTS: Final = 200
MOST_BYTES: Final = 2 * 1024 * 1024
"""Of one document."""
MOST_BYTES_IN_ALL: Final = 20 * 1024 * 1024
BUNDLED: Final = Path(__file__).parent / "documents"
"""Real texts that come with the package; their origins stand in `SOURCES` beside them."""

_LONGEST_TITLE: Final = 120
_PASSED_OVER: Final = frozenset({"node_modules", "__pycache__", "site-packages"})


class FolderError(Exception):
    """The folder cannot be reported on; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that will not be in the report, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The documents of a folder by their paths in it, sorted, and what was left out."""

    paths: Sequence[str]
    left_out: Sequence[LeftOut]


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it is read: its title and its text without markup."""

    title: str
    text: str


def list_documents(folder: str) -> Listing:
    """The text documents in the folder and below it, hidden ones and links to folders excepted.

    Raises `FolderError` if there is no such folder, if it cannot be read, or if there is no document in it.
    """
    root = Path(folder)
    if not root.exists():
        raise FolderError(f"there is no folder {folder}; name one that holds text documents")
    if not root.is_dir():
        raise FolderError(f"{folder} is no folder; name the one that it lies in")
    paths: list[str] = []
    left_out: list[LeftOut] = []
    total = 0
    for path in _walk(root):
        name = path.relative_to(root).as_posix()
        reason, size = _obstacle(path, name)
        if reason is None and len(paths) == MOST_DOCUMENTS:
            reason = f"the report holds {MOST_DOCUMENTS} documents at most"
        if reason is None and total + size > MOST_BYTES_IN_ALL:
            reason = f"the documents before it are {MOST_BYTES_IN_ALL // 1024**2} MiB already"
        if reason is None:
            paths.append(name)
            total += size
        else:
            left_out.append(LeftOut(_shown(name), reason))
    if not paths:
        why = f" ({left_out[0].path}: {left_out[0].reason})" if left_out else ""
        raise FolderError(f"no document in {folder}{why}; name a folder with {', '.join(SUFFIXES)} files")
    return Listing(paths, left_out)


def read_document(folder: str, path: str) -> Document:
    """The document at this path of the folder. Raises `FolderError` if it is no text, `OSError` if it is not read."""
    file = Path(folder, path)
    text = decoded(file.read_bytes())
    if "\0" in text:
        raise FolderError("it is no text")
    title, body = _parted(without_markup(text, file.suffix.lower()))
    return Document(title or file.stem, body)


def decoded(content: bytes) -> str:
    """The text of these bytes: UTF-16 or UTF-8 by its mark, else UTF-8, else Windows-1252 with what that lacks marked.

    >>> decoded("é".encode("utf-8-sig")), decoded("é".encode("utf-16")), decoded(b"\\xe9\\x81")
    ('é', 'é', 'é\\ufffd')
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", "replace")
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("cp1252", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_markup(text: str, suffix: str) -> str:
    """The text as it is read: of Markdown and reStructuredText without their marks and code; any other as it is.

    >>> without_markup("# A *title*\\n\\nSee [the docs](https://example.org) and `this`.", ".md")
    'A title\\n\\nSee the docs and this.'
    >>> without_markup("Title\\n=====\\n\\n.. note:: no\\n\\nSee `the docs <https://example.org>`_.", ".rst")
    'Title\\n\\n\\n\\nSee the docs.'
    """
    for pattern, instead in _MARKUP.get(suffix, ()):
        text = pattern.sub(instead, text)
    return text.strip()


_EMPHASIS: Final = (re.compile(r"(?<![\w*])\*{1,3}(?=\S)([^*\n]+(?:\n[^*\n]+)*)(?<=\S)\*{1,3}(?![\w*])"), r"\1")
_MARKUP: Final = {
    ".md": (
        (re.compile(r"\A---\n.*?\n---\n", re.DOTALL), ""),
        (re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.DOTALL | re.MULTILINE), ""),
        (re.compile(r"<!--.*?-->", re.DOTALL), ""),
        (re.compile(r"</?[A-Za-z][^<>\n]*>"), ""),
        (re.compile(r"!\[([^\]\n]*)\]\([^)\n]*\)"), r"\1"),
        (re.compile(r"\[([^\]\n]*)\](?:\([^)\n]*\)|\[[^\]\n]*\])"), r"\1"),
        (re.compile(r"^[ \t]*[-:| \t]{3,}$|^[=]{3,}$", re.MULTILINE), ""),
        # A row of a table or an item of a list is no part of the sentence before it.
        (re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])[ \t]+", re.MULTILINE), "\n"),
        (re.compile(r"^[ \t]*\|(.*)\|[ \t]*$", re.MULTILINE), r"\n\1"),
        (re.compile(r"^[ \t]*(?:#{1,6}|>)[ \t]*", re.MULTILINE), ""),
        _EMPHASIS,
        (re.compile(r"`+([^`\n]*)`+"), r"\1"),
    ),
    ".rst": (
        (re.compile(r"^\.\. .*$", re.MULTILINE), ""),
        (re.compile(r"^([^\w\s])\1{2,}[ \t]*\n?", re.MULTILINE), ""),
        (re.compile(r"^[ \t]+:[\w -]+:.*$", re.MULTILINE), ""),
        (re.compile(r":[\w:]+:`([^`<\n]*?)(?:\s*<[^`\n]*>)?`"), r"\1"),
        (re.compile(r"`([^`<\n]+?)\s*<[^`\n]*>`_{1,2}"), r"\1"),
        (re.compile(r"`+([^`\n]*)`+_{0,2}"), r"\1"),
        _EMPHASIS,
    ),
}


def _walk(root: Path) -> Iterator[Path]:
    """Files with the right ending, in order of their paths."""

    def refuse(error: OSError) -> None:
        if error.filename == str(root):
            raise FolderError(f"the folder {root} cannot be read: {error.strerror}") from error

    for place, folders, files in os.walk(root, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _PASSED_OVER)
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield Path(place, name)


def _obstacle(path: Path, name: str) -> tuple[str | None, int]:
    """Why the file cannot be in the report, if so, and its size in bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8", 0
    try:
        if not path.is_file():
            return "it is no file", 0
        size = path.stat().st_size
        if not os.access(path, os.R_OK):
            return "it may not be read", size
    except OSError as error:
        return f"it cannot be read: {error.strerror}", 0
    if size > MOST_BYTES:
        return f"it is larger than {MOST_BYTES // 1024**2} MiB", size
    return None, size


def _shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")


def _parted(text: str) -> tuple[str, str]:
    """The title and what follows it; a text that does not begin with a short line has none."""
    head, _, rest = text.partition("\n\n")
    title = " ".join(head.partition("\n")[0].split())
    is_title = 0 < len(title) <= _LONGEST_TITLE and head.count("\n") <= 2 and not head.rstrip().endswith((".", ","))
    return (title, rest.strip()) if is_title and rest.strip() else ("", text)
