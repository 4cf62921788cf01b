"""What the command line writes: to a terminal, to a pipe, for scripts; and what it never does with stored text."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from queuety import Priority, WorkflowStatus
from queuety.cli.escapes import escaped, escaped_json
from queuety.cli.output import Column, plain, short, show_facts, show_json, show_table
from queuety.cli.times import ago, both, exact
from tests.support.cli import PROGRAM, Project, done, process, told

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

NASTY = "\x1b[31m\x07\x9b2J\r\u202e[bold]x[/bold] :smile: \ud800"


def seen(*arguments: str, folder: Path, **environment: str) -> str:
    """What a terminal of 80 columns shows of a command."""
    master, slave = pty.openpty()
    setting = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", **environment}
    with subprocess.Popen([*PROGRAM, *arguments], cwd=folder, env=setting, stdout=slave, stderr=slave):
        os.close(slave)
        parts = []
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # on Linux the end of a terminal is an error
                break
            if not part:
                break
            parts.append(part)
    os.close(master)
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "character", ["\x1b", "\x07", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028", "\ud800", "\r", "\n"]
)
def test_nothing_that_a_terminal_obeys_is_written(character: str) -> None:
    assert escaped(f"a{character}b").isprintable()
    assert json.loads(escaped_json(json.dumps(f"a{character}b", ensure_ascii=False))) == f"a{character}b"


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Zoë 猫 🐈 [bold] :smile: \\n"
    assert escaped(text) == text
    assert escaped_json(json.dumps(text, ensure_ascii=False)) == json.dumps(text, ensure_ascii=False)


def test_stored_text_is_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show_table((Column("name"),), [[NASTY]], empty="")
    show_facts(NASTY, [("name", NASTY)])
    show_json({"name": NASTY})
    out = capsys.readouterr().out
    assert set(out) & set("\x1b\x07\x9b\r\u202e\ud800") == set()
    assert out.count("[bold]x[/bold] :smile:") == 4
    assert json.loads(out[out.index("{") :]) == {"name": NASTY}


@dataclass(frozen=True)
class Sample:
    at: datetime
    status: WorkflowStatus
    priority: Priority
    names: tuple[str, ...]
    nothing: None = None


def test_json_has_the_fields_names_and_utc() -> None:
    east = timezone(timedelta(hours=2))
    sample = Sample(NOON.astimezone(east), WorkflowStatus.RUNNING, Priority.HIGH, ("a", "b"))
    assert plain([sample]) == [
        {
            "at": "2026-01-01T12:00:00.000000+00:00",
            "status": "running",
            "priority": 2,
            "names": ["a", "b"],
            "nothing": None,
        }
    ]


def test_times_are_relative_and_exact() -> None:
    assert exact(None) == ago(None, NOON) == both(None, NOON) == ""
    assert both(NOON - timedelta(seconds=90), NOON) == "2026-01-01 11:58:30 UTC (1 min ago)"
    assert both(NOON + timedelta(days=3), NOON) == "2026-01-04 12:00:00 UTC (in 3 d)"


def test_columns_are_aligned_by_what_a_terminal_shows(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(
        (Column("id", right=True), Column("name"), Column("end")), [["7", "猫", "x"], ["10", "cat", "y"]], empty=""
    )
    assert capsys.readouterr().out == "id  name  end\n 7  猫    x\n10  cat   y\n"


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_table((Column("id"),), [], empty="nothing here")
    assert capsys.readouterr().out == "nothing here\n"


def test_facts_leave_out_what_is_empty_and_indent_further_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show_facts("title", [("one", "1"), ("none", ""), ("three", "a\nb")])
    assert capsys.readouterr().out == "title\n  one    1\n  three  a\n         b\n"


def test_a_cell_holds_the_beginning() -> None:
    assert short(None) == ""
    assert short("x" * 100, 10) == "x" * 9 + "…"
    assert short("first\nsecond") == "first …"


def test_a_terminal_of_80_columns_keeps_ids_whole_and_folds_the_rest(local: Project) -> None:
    long = "shop:" + "mail" * 30
    told("dispatch", long.replace("shop", "unknown_module"), "--queue", "q" * 60)
    job_id = str(told("dispatch", "shop:mail", "--payload", '{"to": "me"}')["id"])
    shown = seen("list", folder=local.folder)
    lines = COLOUR.sub("", shown).splitlines()
    assert all(len(line) <= 80 for line in lines), lines
    assert "…" not in shown
    assert any(line.split()[:1] == [job_id] for line in lines)
    assert COLOUR.search(shown), "a terminal gets its titles in bold"


def test_a_terminal_sees_stored_text_as_text(local: Project) -> None:
    workflow_id = str(told("workflow", "dispatch", "greeting", "--payload", '{"name": "Eve"}')["id"])
    done("flush")
    for command in (("status", workflow_id), ("timeline", workflow_id)):
        shown = seen("workflow", *command, folder=local.folder)
        assert "[bold]Eve[/bold]" in shown
        assert "\\x1b[2J" in shown
        assert "\x1b[2J" not in shown


def test_no_color_is_obeyed(local: Project) -> None:
    workflow_id = str(told("workflow", "dispatch", "greeting")["id"])
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    assert coloured.search(seen("workflow", "status", workflow_id, folder=local.folder))
    assert not coloured.search(seen("workflow", "status", workflow_id, folder=local.folder, NO_COLOR="1"))


def test_a_pipe_gets_neither_colour_nor_folding(local: Project) -> None:
    told("dispatch", "unknown_module:" + "mail" * 30)
    ran = process("list", folder=local.folder, FORCE_COLOR="1", COLUMNS="40")
    assert "\x1b" not in ran.stdout
    assert "mail" * 30 in ran.stdout
    assert len(ran.stdout.splitlines()) == 2


def test_an_encoding_that_lacks_a_character_gets_an_escape(local: Project) -> None:
    told("dispatch", "shop:mail", "--payload", '{"to": "me"}', "--queue", "猫🐈")
    for command in (("list",), ("list", "--format", "json"), ("status",)):
        ran = process(*command, folder=local.folder, PYTHONIOENCODING="latin-1")
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "\\u732b" in ran.stdout
    ran = process("list", "--format", "json", folder=local.folder, PYTHONIOENCODING="latin-1")
    assert json.loads(ran.stdout)[0]["queue"] == "猫🐈"
