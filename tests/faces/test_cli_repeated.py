"""Options that are given again: those that take several values take them all, the others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cli import COMMAND, Project, done, refused, told


def _commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from _commands(command, *path, name)


def test_whatever_takes_one_value_is_refused_when_it_is_given_twice(local: Project) -> None:
    tried = 0
    for path, command in _commands(COMMAND):
        for param in command.params:
            if param.param_type_name == "option" and not (param.multiple or param.is_flag or param.count):
                option = param.opts[0]
                said = refused(*path, option, "1", option, "1", code=2)
                assert f"{option} was given 2 times; it takes one value" in said, path
                tried += 1
    assert tried > 200


def test_runs_and_jobs_of_either_status(local: Project) -> None:
    ids = [int(told("workflow", "dispatch", "shop:greeting")["id"]) for _ in range(3)]
    done("workflow", "pause", str(ids[0]))
    done("workflow", "cancel", str(ids[1]))
    either = ("--status", "paused", "--status", "cancelled")
    assert [run["id"] for run in told("workflow", "list", *either)] == [ids[1], ids[0]]
    assert [run["id"] for run in told("workflow", "list", "--status", "running")] == [ids[2]]
    both = ("--status", "paused", "--status", "running")
    assert told("workflow", "cancel", *both, "--dry-run")["done"] == [ids[2], ids[0]]
    jobs = told("list", "--status", "pending", "--status", "buried")
    assert sorted(job["status"] for job in jobs) == ["buried", "pending", "pending"]
    assert len(told("list", "--status", "PENDING")) == 2


def test_a_status_that_there_is_not_among_several(local: Project) -> None:
    assert "'nowhere'" in refused("workflow", "list", "--status", "failed", "--status", "nowhere", code=2)


def test_flags_and_the_common_options_may_stand_twice(local: Project) -> None:
    assert done("--app", "shop:app", "workflow", "--app", "shop:app", "list", "--json", "--json", "--app", "shop:app")


@pytest.mark.parametrize("status", [[], "nowhere", ["failed", "nowhere"], [5]])
def test_python_callers_are_told_too(local: Project, status: Any) -> None:
    from queuety import Queuety, WorkflowFilter, errors

    with pytest.raises(errors.DefinitionError, match="status"):
        WorkflowFilter(status=status)
    with Queuety(local.url) as app, pytest.raises(errors.DefinitionError, match="status"):
        app.list_jobs(status=status)
