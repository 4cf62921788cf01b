"""How the command line finds the application or the database, and what it says if it does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.cli import Project, done, queuety, refused, told

MAIL = ("shop:mail", "--payload", '{"to": "me"}')


@pytest.fixture
def bare(local: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose environment names neither application nor database."""
    monkeypatch.delenv("QUEUETY_APP")
    monkeypatch.delenv("QUEUETY_DATABASE_URL")
    return local


def module(project: Project, name: str, text: str) -> None:
    """A module of the user's."""
    (project.folder / f"{name}.py").write_text(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--app", "shop:app", "workflow", "list"),
        ("workflow", "--app", "shop:app", "list"),
        ("workflow", "list", "--app=shop:app"),
    ],
)
def test_common_options_stand_anywhere(bare: Project, arguments: tuple[str, ...]) -> None:
    assert done(*arguments) == "no workflows\n"


def test_the_later_option_wins(bare: Project) -> None:
    assert done("--app", "wrong:app", "status", "--app", "shop:app").endswith("no worker is alive\n")
    done("--app", "wrong:app", "migrate", "--database", bare.url)
    assert done("--database", "wrong", "list", "--app", "shop:app") == "no jobs\n"


def test_a_function_may_make_the_application(bare: Project) -> None:
    assert done("list", "--app", "shop:made") == "no jobs\n"


def test_an_application_may_be_an_attribute_of_something(bare: Project) -> None:
    module(bare, "nested", "import shop\nclass Holder:\n    app = shop.app\n")
    assert done("list", "--app", "nested:Holder.app") == "no jobs\n"


def test_pyproject_names_it_from_here_upwards(bare: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare.folder / "pyproject.toml").write_text('[tool.queuety]\napp = "shop:app"\n')
    below = bare.folder / "docs" / "deep"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    monkeypatch.chdir(below)
    assert told("flush") == {"ran": 0}
    assert sys.path[:2] == [str(below), str(bare.folder)]


def test_the_environment_wins_over_pyproject(bare: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare.folder / "pyproject.toml").write_text('[tool.queuety]\napp = "wrong:app"\n')
    monkeypatch.setenv("QUEUETY_APP", "shop:app")
    assert told("flush") == {"ran": 0}
    message = refused("flush", "--app", "other:app", code=2)
    assert message.startswith("other:app (from --app): there is no module other; looked in ")


@pytest.mark.parametrize("text", ["not toml", "[tool.queuety]\napp = 3\n", "[tool.queuety\n"])
def test_a_pyproject_that_is_wrong_is_named(bare: Project, text: str) -> None:
    (bare.folder / "pyproject.toml").write_text(text)
    assert str(bare.folder / "pyproject.toml") in refused("status", code=2)


@pytest.mark.parametrize("text", ["", "tool = 1\n", "[tool]\nqueuety = 1\n", "[tool.queuety]\nother = 1\n"])
def test_a_pyproject_that_says_nothing_is_passed_over(bare: Project, text: str) -> None:
    (bare.folder / "pyproject.toml").write_text(text)
    assert "needs an application" in refused("flush", code=2)


@pytest.mark.parametrize("command", ["flush", "work"])
def test_running_handlers_needs_an_application(bare: Project, command: str) -> None:
    message = refused(command, code=2)
    for tried in ("--app", "QUEUETY_APP", "[tool.queuety] app"):
        assert tried in message
    assert "and not only its database" in refused(command, "--database", bare.url, code=2)


def test_a_database_is_enough_to_read_and_to_steer(bare: Project) -> None:
    done("migrate", "--database", bare.url)
    workflow_id = str(told("workflow", "dispatch", "greeting", "--app", "shop:app")["id"])
    there = ("--database", "sqlite:///queuety.db")
    assert told(*there, "workflow", "pause", workflow_id)["status"] == "paused"
    assert told(*there, "workflow", "resume", workflow_id)["status"] == "running"
    assert told(*there, "workflow", "cancel", workflow_id)["status"] == "cancelled"
    assert [run["id"] for run in told(*there, "workflow", "list")] == [int(workflow_id)]
    for command in (("status",), ("list",), ("workflow", "timeline", workflow_id), ("recover",)):
        told(*there, *command)


def test_a_database_is_enough_to_dispatch_what_can_be_imported(bare: Project) -> None:
    job_id = told("dispatch", *MAIL, "--database", bare.url)["id"]
    assert told("inspect", str(job_id), "--database", bare.url)["handler"] == "shop:mail"
    workflow_id = told("workflow", "dispatch", "shop:greeting", "--database", bare.url)["id"]
    assert told("workflow", "status", str(workflow_id), "--database", bare.url)["name"] == "greeting"
    message = refused("workflow", "dispatch", "greeting", "--database", bare.url, code=2)
    assert "no application is named whose module could have it" in message


def test_the_default_is_a_file_here(bare: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "run `queuety migrate`" in refused("status", code=3)
    done("dispatch", *MAIL)
    assert [job["handler"] for job in told("list")] == ["shop:mail"]
    assert (bare.folder / "queuety.db").is_file()
    monkeypatch.setenv("QUEUETY_DATABASE_URL", bare.url)
    done("migrate")
    assert told("list") == []


def test_a_prefix_goes_with_a_database(bare: Project) -> None:
    there = ("--database", bare.url, "--table-prefix", "other_")
    done(*there, "dispatch", *MAIL)
    assert len(told(*there, "list")) == 1
    assert "queuety migrate" in refused("list", "--database", bare.url, code=3)
    assert "--table-prefix goes with --database" in refused("list", "--app", "shop:app", "--table-prefix", "x_", code=2)


def test_app_and_database_exclude_each_other(bare: Project) -> None:
    assert "exclude each other" in refused("list", "--app", "shop:app", "--database", bare.url, code=2)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop", "names no application; module:attribute is needed"),
        ("shop:", "names no application"),
        (":app", "names no application"),
        ("shop:app()", "names no application"),
        ("../shop:app", "names no application"),
        ("", "names no application"),
        ("shap:app", "shap:app (from --app): there is no module shap; looked in "),
        ("shop.jobs:app", "there is no module shop.jobs"),
        ("shop:ap", "module shop has no ap; it has shop:app"),
        ("shop:SHOP.app", "module shop has no SHOP.app"),
        ("shop:greeting", "is an object of type WorkflowBuilder; a Queuety, or a function"),
        ("shop:Queuety", "is the class Queuety; a Queuety, or a function"),
        ("shop:fetch", "is a handler; a Queuety, or a function"),
        ("shop:building", "is a function that cannot be called here: missing a required argument: 'app'"),
    ],
)
def test_what_names_no_application_is_refused(bare: Project, target: str, said: str) -> None:
    assert said in refused("status", "--app", target, code=2)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import nothing_there", "ModuleNotFoundError: No module named 'nothing_there' (at broken.py:1)"),
        ("\n\nraise RuntimeError('no\\nsettings')", "RuntimeError: no settings (at broken.py:3)"),
        ("def (", "SyntaxError: "),
        ("raise SystemExit(0)", "SystemExit: 0 (at broken.py:1)"),
        ("from queuety import Queuety\napp = Queuety('nonsense')", "DefinitionError: the database URL cannot be read"),
    ],
)
def test_an_error_in_the_users_module_names_it_and_the_cause(bare: Project, text: str, cause: str) -> None:
    module(bare, "broken", text)
    message = refused("status", "--app", "broken:app", code=2)
    assert message.startswith("importing broken for broken:app (from --app) failed: ")
    assert cause in message


def test_an_error_in_the_users_function_names_it_and_the_cause(bare: Project) -> None:
    module(bare, "failing", "def make():\n    return {}['key']\n")
    message = refused("status", "--app", "failing:make", code=2)
    assert message == "calling failing:make (from --app) failed: KeyError: 'key' (at failing.py:2)"


def test_debug_shows_the_traceback(bare: Project) -> None:
    from typer.testing import CliRunner

    from queuety.cli.root import root

    module(bare, "broken", "1 / 0")
    for arguments in (("--debug", "status"), ("status", "--debug")):
        result = CliRunner().invoke(root, [*arguments, "--app", "broken:app"])
        assert result.exit_code == 2
        assert "Traceback (most recent call last)" in result.stderr
        assert "ZeroDivisionError" in result.stderr.splitlines()[-1]


def test_a_module_here_wins_over_one_that_is_installed(bare: Project, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shop.py").write_text("raise RuntimeError('the wrong one')")
    sys.path.insert(0, str(elsewhere))
    assert queuety("list", "--app", "shop:app").code == 0
