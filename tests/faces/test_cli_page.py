"""What docs/cli.md shows is what the command line answers, but for times, and it is so in one process and quickly."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.cli import queuety
from tests.support.pages import blocks

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
CHANGING = (
    (r"\d+-\d\d-\d\d[ T]\d\d:\d\d:\d\d(Z| UTC)?", "<when>"),
    (r"\b(\d[\d.]* (ms|s|min|h)\b ?)+( ago)?|\bnow\b", "<span> "),
    (r"_(replay|fork)_\d+", r"_\1_<when>"),
    (r"SQLite file \S+", "SQLite file <place>"),
    (r"\s+", " "),
)
"""What is not the same each time, and what stands for it here."""


def _same(text: str) -> str:
    for pattern, instead in CHANGING:
        text = re.sub(pattern, instead, text)
    return text.strip()


def _examples(text: str) -> list[tuple[str, str]]:
    """The commands of a block, each with what it shows below it."""
    found = re.findall(r"^\$ queuety (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
    assert len(found) == text.count("$ ")
    return found


def test_the_page_shows_what_is_answered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUETY_ACTOR", "grace")
    shown = 0
    for block in blocks(PAGE):
        if block.verb == "file":
            (folder / block.value).write_text(block.code)
        for command, text in _examples(block.code) if block.language == "console" else ():
            answer = queuety(*shlex.split(command))
            assert _same(answer.out + answer.err) == _same(text), command
            shown += 1
    assert shown > 30
