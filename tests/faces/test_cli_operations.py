"""`queuety migrate`, `doctor`, `version`, the help, and what happens when the database is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

import queuety as package
from tests.support.cli import PROGRAM, Project, done, process, queuety, refused, told
from tests.support.databases import Database


def record_revision(url: str, revision: str) -> None:
    """Has the tables say that another version made them."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE queuety_schema_version SET version_num = :revision"), {"revision": revision})
    engine.dispose()


def test_migrate_makes_the_tables_once(folder: Path, fresh_database: Database) -> None:
    there = ("--database", fresh_database.url)
    assert "run `queuety migrate`" in refused("status", *there, code=3)
    first = told("migrate", *there)
    assert first["found"] is None
    assert told("migrate", *there) == {**first, "found": first["now"]}
    assert f"the tables are current (revision {first['now']})" in done("migrate", *there)
    assert told("list", *there) == []


def test_migrate_says_what_it_did(local: Project) -> None:
    assert "the tables were made (revision " in done("migrate")


def test_doctor_changes_nothing(folder: Path, fresh_database: Database) -> None:
    there = ("--database", fresh_database.url)
    answer = queuety("doctor", *there)
    assert answer.code == 3
    assert "error: there are no tables" in answer.out
    assert "run `queuety migrate`" in answer.out
    assert "run `queuety migrate`" in refused("list", *there, code=3)


def test_doctor_finds_nothing_on_a_new_database(project: Project) -> None:
    assert told("doctor")["health"]["workers"] == []
    people = done("doctor")
    assert people.splitlines()[0] == "database"
    assert people.splitlines()[-1] == "no problems"


def test_doctor_says_what_why_and_what_to_do(project: Project) -> None:
    told("dispatch", "shop:mail", "--payload", '{"to": "nobody"}', "--max-attempts", "1")
    done("flush")
    told("dispatch", "shop:mail", "--payload", '{"to": "me"}', "--queue", "letters")
    answer = queuety("doctor")
    assert answer.code == 1
    for said in ("error: no worker is alive and work is waiting", "`queuety work --queue letters`", "1 job buried"):
        assert said in answer.out
    assert answer.out.count("  why") == answer.out.count("  do") == 2
    assert answer.out.splitlines()[-1] == "2 problems"

    scripts = queuety("doctor", "--format", "json")
    assert scripts.code == 1
    assert '"severity": "error"' in scripts.out


def test_tables_of_a_newer_version_are_refused(project: Project) -> None:
    record_revision(project.url, "9999")
    for command in (("status",), ("list",), ("workflow", "list"), ("migrate",), ("dispatch", "unknown_module:f")):
        assert "9999" in refused(*command, code=3)
    answer = queuety("doctor")
    assert answer.code == 3
    assert "error: the tables are at revision 9999" in answer.out


@pytest.mark.parametrize("command", [("status",), ("doctor",), ("dispatch", "shop:mail", "--payload", '{"to": "x"}')])
def test_an_unreachable_database_is_one_line(
    local: Project, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUETY_PATIENCE_SECONDS", "0.1")
    for url in (
        "postgresql+psycopg://somebody:secret@127.0.0.1:1/nowhere",
        "mysql+pymysql://u:secret@127.0.0.1:1/nowhere",
    ):
        monkeypatch.setenv("QUEUETY_DATABASE_URL", url)
        message = refused(*command, code=3)
        assert "127.0.0.1:1" in message
        assert "secret" not in message
        sys.modules.pop("shop", None)


def test_a_file_that_is_no_database_is_one_line(local: Project) -> None:
    (local.folder / "text.db").write_text("this is a letter, and no database at all\n" * 100)
    assert "not an SQLite database" in refused("status", "--database", "sqlite:///text.db", code=3)
    assert "directory does not exist" in refused("status", "--database", "sqlite:///nowhere/x.db", code=3)


@pytest.mark.parametrize("url", ["nonsense", "oracle://host/database", "sqlite+other:///x.db"])
def test_a_url_that_cannot_be_right_is_bad_input(local: Project, url: str) -> None:
    refused("status", "--database", url, code=2)


def test_version() -> None:
    assert done("version") == done("--version") == f"queuety {package.__version__}\n"


def test_the_help_tells_the_exit_codes_and_every_command() -> None:
    out = done("--help")
    assert out == done() == done("-h")
    for said in ("Exit codes: 0 done; 1", "2 wrong usage", "3 the database", "QUEUETY_APP", "QUEUETY_DATABASE_URL"):
        assert said in " ".join(out.replace("│", " ").split())
    commands = "work flush demo dispatch list inspect status pause resume recover migrate doctor version workflow"
    for command in commands.split():
        assert "--help" in done(command, "--help")
    for command in ("dispatch", "status", "list", "timeline", "pause", "resume", "retry", "cancel"):
        assert "--app" in done("workflow", command, "--help")
    assert "timeline" in done("workflow")


def test_a_mistyped_command_is_guessed() -> None:
    message = refused("lst", code=2)
    assert message.startswith("No such command 'lst'. Did you mean 'list'?")
    assert message.endswith(" (see `queuety --help`)")


def test_the_help_loads_no_driver() -> None:
    heavy = ("alembic", "psycopg", "pymysql", "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite", "fastapi")
    heavy += ("pydantic", "rich", "queuety.worker.supervise", "queuety.demo.run")
    program = f"import sys, queuety.cli.root; print(*[name for name in {heavy!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_shells_complete_commands(local: Project) -> None:
    asked = {"_QUEUETY_COMPLETE": "complete_bash", "COMP_WORDS": "queuety wo", "COMP_CWORD": "1"}
    ran = process(folder=local.folder, **asked)
    assert sorted(ran.stdout.split()) == ["work", "workflow"]


def test_a_reader_that_goes_away_is_no_error(local: Project) -> None:
    for _ in range(3):
        told("dispatch", "shop:mail", "--payload", '{"to": "me"}')
    read, write = os.pipe()
    os.close(read)
    command = [*PROGRAM, "list", "--format", "json"]
    ran = subprocess.run(command, cwd=local.folder, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert ran.returncode == 1
    assert ran.stderr == ""
