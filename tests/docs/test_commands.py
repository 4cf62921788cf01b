"""docs/cli.md tells of every command, in the order of the help, with all of its options."""

from __future__ import annotations

import re
from typing import Any

import pytest

from queuety.cli.root import COMMANDS, WORKFLOW_COMMANDS
from tests.docs.test_docs import ROOT
from tests.support.cli import COMMAND

PAGE = (ROOT / "docs" / "cli.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
TITLES = {"Chores, which workers do by themselves": "Chores"}
"""Subjects that are headed otherwise on the page."""

EVERYWHERE = {"--app", "--database", "--table-prefix", "--debug", "--format", "--json", "--help", "-h"}
"""What the page says once, before its first section or under the exit codes."""

OF_MANY = {"--status", "--name", "--tag", "--error-kind", "--older-than", "--newer-than", "--limit", "--dry-run"}
OF_HISTORY = {"--actor", "--reason"}
"""What the section about steering says for the others, too."""

GROUPS = [("queuety workflow", panel, names) for panel, names in WORKFLOW_COMMANDS.items()]
GROUPS += [("queuety", panel, names) for panel, names in COMMANDS.items()]


def _command(path: str) -> Any:
    found: Any = COMMAND
    for name in path.split()[1:]:
        found = found.commands[name]
    return found


def _options(path: str) -> set[str]:
    """Of a switch that is on from the beginning, the one that turns it off."""
    parts = [part.secondary_opts or part.opts for part in _command(path).params if part.param_type_name == "option"]
    return {opt for opts in parts for opt in opts if opt.startswith("--")} - EVERYWHERE


def test_the_sections_stand_in_the_order_of_the_help() -> None:
    subjects = [TITLES.get(panel, panel) for _, panel, _ in GROUPS]
    assert [title for title in SECTIONS if title != "Exit codes"] == subjects


@pytest.mark.parametrize(("group", "panel", "names"), GROUPS, ids=lambda part: part if isinstance(part, str) else "")
def test_every_command_is_described_with_its_options(group: str, panel: str, names: tuple[str, ...]) -> None:
    section = SECTIONS[TITLES.get(panel, panel)]
    rows = re.findall(rf"^\| `{group} ([a-z-]+|…)", section, re.MULTILINE)
    assert list(dict.fromkeys("workflow" if row == "…" else row for row in rows)) == list(names)
    for name in names:
        known = set(re.findall(r"(?<![\w-])--[a-z-]+", section)) | (
            OF_HISTORY if panel in ("Steer", "Repair") else set()
        )
        is_for_many = {"--dry-run", "--tag", "--actor"} <= _options(f"{group} {name}")
        assert _options(f"{group} {name}") - known - (OF_MANY if is_for_many else set()) == set(), name


def test_what_commands_have_in_common_is_described() -> None:
    before = PAGE.split("\n## Start")[0]
    assert [option for option in sorted(EVERYWHERE - {"-h"}) if f"`{option}" not in before] == []
    steering = SECTIONS["Steer"]
    assert [option for option in sorted(OF_MANY | OF_HISTORY) if f"`{option}" not in steering] == []
    for name in ("signal", *WORKFLOW_COMMANDS["Steer"], *WORKFLOW_COMMANDS["Repair"]):
        is_for_many = {"--dry-run", "--tag"} <= _options(f"queuety workflow {name}")
        assert is_for_many == (name not in ("fork", "complete-step", "patch-state"))


def test_the_groups_own_commands_are_described() -> None:
    assert list(_command("queuety log").commands) == ["purge"]
    assert "| `queuety log purge --older-than SPAN` |" in SECTIONS["Workflows"]
