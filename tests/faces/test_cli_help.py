"""The help: every command under a subject with one short line, every argument and option explained, nothing heavy."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from queuety.cli.root import COMMANDS, WORKFLOW_COMMANDS
from tests.support.cli import COMMAND, done, refused

LONGEST_LINE = 59
"""What a line of the help has room for beside the names, in a terminal of 80 columns."""


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")


EVERY: dict[str, Any] = dict(_commands(COMMAND, "queuety"))


@pytest.mark.parametrize(("group", "panels"), [((), COMMANDS), (("workflow",), WORKFLOW_COMMANDS)])
def test_commands_stand_under_their_subjects_in_order(group: tuple[str, ...], panels: dict[str, Any]) -> None:
    lines = done(*group, "--help").splitlines()
    shown = [line.strip("│╭╮─ ").split("  ")[0].strip() for line in lines if line.startswith(("│ ", "╭"))]
    wanted = [part for panel, names in panels.items() for part in (panel, *names)]
    assert shown[-len(wanted) :] == wanted


def test_each_command_is_told_in_one_short_line() -> None:
    lines = {path: inspect.cleandoc(command.help or "").split("\n\n")[0] for path, command in EVERY.items()}
    assert len(lines) > 50
    wrong = {path: line for path, line in lines.items() if not 8 <= len(line) <= LONGEST_LINE or not line.endswith(".")}
    assert wrong == {}
    assert len(set(lines.values())) == len(lines)


def test_every_argument_and_option_is_explained() -> None:
    parts = [(path, part.name, part.help) for path, command in EVERY.items() for part in command.params]
    assert len(parts) > 400
    assert [(path, name) for path, name, text in parts if not text] == []


def test_every_option_says_in_a_word_what_it_takes() -> None:
    taking = [
        (path, part)
        for path, command in EVERY.items()
        for part in command.params
        if part.param_type_name == "option" and not part.is_flag and part.name != "form"
    ]
    assert [(path, part.name) for path, part in taking if not (part.metavar and part.metavar.isupper())] == []


@pytest.mark.parametrize("path", [path.split()[1:] for path in EVERY], ids=" ".join)
def test_the_help_is_not_filled_with_bounds_and_lists(path: list[str]) -> None:
    text = done(*path, "--help")
    assert path[-1] in text.splitlines()[1]
    assert [word for word in ("int range", "x<=", "|waiting", "|Child") if word in text] == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("timeline 1", "No such command 'timeline'; there is `queuety workflow timeline` (see `queuety --help`)"),
        ("workflow why 1", "No such command 'why'; there is `queuety why` (see `queuety workflow --help`)"),
        ("workflow rewnd 1", "No such command 'rewnd'. Did you mean 'rewind'? (see `queuety workflow --help`)"),
        ("workflow nothing", "No such command 'nothing' (see `queuety workflow --help`)"),
    ],
)
def test_a_command_of_the_other_group_is_pointed_at(asked: str, said: str) -> None:
    assert refused(*asked.split(), code=2) == said
