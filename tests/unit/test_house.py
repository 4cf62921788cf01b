"""The laws of the house: what CONTRIBUTING.md promises about the source, read from the source.

An exception is a line in one of the tables below, with its reason. A table that has outlived its reason fails too.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import queuety

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "queuety"

LONGEST_FILE = 400
WIDEST_CLASS = 20

LONG_FILES: dict[str, str] = {
    "app/asynchronous.py": "generated: the async form of every verb of the face",
}
"""Files of more than 400 lines, and why that is right."""

WIDE_CLASSES = {
    "app/asynchronous.py:AsyncVerbs": "generated: the async form of every verb of the face",
}
"""Classes (`app/face.py:Queuety`) of more than 20 public methods, and why that is right."""

SLEEPERS = {
    "store/dialects/sqlite.py": "another process's write lock tells nobody when it is free",
}
"""Files that may call `time.sleep`, and why nothing can wake them sooner."""

EVALUATORS = {
    "define/typed.py": "the user's own annotation, looked up in the user's own module as typing.get_type_hints does",
}
"""Files that may evaluate code, and where that code comes from: never from a row."""

DATABASE_ROOMS = ("store/dialect.py", "store/dialects/")
"""Where the databases differ."""

DATABASE_NAMERS = {
    "store/schema.py": "one table for all, with the column types that a database wants otherwise beside the usual ones",
}
"""Other files that name a kind of database or a driver, and why that is no difference in behaviour."""

SQL = re.compile(
    r"^\s*(SELECT\s+\S+.*\sFROM|INSERT\s+(OR\s+\w+\s+|IGNORE\s+)?INTO|UPDATE\s+\S*.*\sSET|DELETE\s+FROM|MERGE\s+INTO"
    r"|(CREATE|ALTER|DROP|TRUNCATE)\s+(TABLE|INDEX|DATABASE)|PRAGMA\s|BEGIN\s+IMMEDIATE)\b",
    re.DOTALL,
)
"""How a statement begins."""

DATABASES = frozenset({"sqlite", "postgresql", "postgres", "mysql", "mariadb"})
DRIVERS = frozenset({"sqlite3", "psycopg", "pymysql"})
DIALECT_CLASS = re.compile(r"^(Sqlite|Postgres|Postgresql|Mysql|Mariadb)[A-Z]\w*$", re.IGNORECASE)


@cache
def _sources() -> dict[str, str]:
    """The text of every source file by its path below the package, sorted."""
    return {path.relative_to(SRC).as_posix(): path.read_text() for path in sorted(SRC.rglob("*.py"))}


@cache
def _tree(name: str) -> ast.Module:
    return ast.parse(_sources()[name], name)


def _found(finder: Iterable[tuple[str, ast.AST, str]]) -> list[str]:
    return [f"{name}:{getattr(node, 'lineno', 1)} {what}" for name, node, what in finder]


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    for name in _sources():
        for node in ast.walk(_tree(name)):
            yield name, node


def _imported(node: ast.AST) -> list[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module]
    return []


def _called(node: ast.AST) -> str:
    """The dotted name that is called, or nothing."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def test_no_file_outgrows_its_room() -> None:
    lines = {name: source.count("\n") for name, source in _sources().items()}
    long = {name for name, count in lines.items() if count > LONGEST_FILE}
    assert long == set(LONG_FILES), {name: lines.get(name) for name in long ^ set(LONG_FILES)}


def test_no_class_grows_wide() -> None:
    wide = {}
    for name, node in _nodes():
        if isinstance(node, ast.ClassDef):
            methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
            public = [method for method in methods if not method.startswith("_")]
            if len(public) > WIDEST_CLASS:
                wide[f"{name}:{node.name}"] = len(public)
    assert set(wide) == set(WIDE_CLASSES), wide


def test_the_public_names_are_sorted_and_complete() -> None:
    names = queuety.__all__
    assert list(names) == sorted(set(names))
    assert [name for name in names if not hasattr(queuety, name)] == []

    bound = set()
    for node in _tree("__init__.py").body:
        if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", None) != "__future__":
            bound |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    assert {name for name in bound if not name.startswith("_")} <= set(names)


def test_the_root_computes_nothing() -> None:
    """Imports, names, the version: whatever else stands in `__init__` runs in everybody's every process."""
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    _docstring, *rest = _tree("__init__.py").body
    assert [ast.unparse(node) for node in rest if not isinstance(node, allowed)] == []
    values = [node.value for node in rest if isinstance(node, ast.Assign | ast.AnnAssign)]
    assert [ast.unparse(value) for value in values if value and any(map(_called, ast.walk(value)))] == []


def test_only_the_store_speaks_sql() -> None:
    """Its text, too; the import contracts hold the libraries back."""

    def finder() -> Iterator[tuple[str, ast.AST, str]]:
        for name, node in _nodes():
            if name.startswith("store/"):
                continue
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "_" for part in node.values)
            else:
                text = str(node.value) if isinstance(node, ast.Constant) else ""
            if SQL.match(text):
                yield name, node, repr(text)

    assert _found(finder()) == []


def test_the_databases_differ_in_one_place() -> None:
    def finder() -> Iterator[tuple[str, ast.AST, str]]:
        for name, node in _nodes():
            if name.startswith(DATABASE_ROOMS) or name in DATABASE_NAMERS or name.startswith("store/migrations/"):
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if node.value.partition("+")[0].lower() in DATABASES:
                    yield name, node, repr(node.value)
            elif isinstance(node, ast.Compare) or _called(node).endswith("startswith"):
                # A URL may stand as a default; what asks which URL it is makes a difference.
                for part in ast.walk(node):
                    if (
                        isinstance(part, ast.Constant)
                        and str(part.value).partition("+")[0].partition(":")[0] in DATABASES
                    ):
                        yield name, node, ast.unparse(node)
            elif isinstance(node, ast.Name | ast.Attribute):
                called = node.id if isinstance(node, ast.Name) else node.attr
                if DIALECT_CLASS.match(called):
                    yield name, node, called
            for module in _imported(node):
                if {module.partition(".")[0], module.rpartition(".")[2]} & (DRIVERS | DATABASES):
                    yield name, node, f"import {module}"

    assert _found(finder()) == []


def test_nothing_runs_what_a_row_says() -> None:
    """No pickle, no eval: what stands in the database is data."""
    modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    calls = {"eval", "exec", "compile", "__import__"}

    def finder() -> Iterator[tuple[str, ast.AST, str]]:
        for name, node in _nodes():
            for module in _imported(node):
                if module.partition(".")[0] in modules:
                    yield name, node, f"import {module}"
            if _called(node) in calls and name not in EVALUATORS:
                yield name, node, f"{_called(node)}()"

    assert _found(finder()) == []


def test_nothing_sleeps_where_it_could_be_woken() -> None:
    sleepers = {name for name, node in _nodes() if _called(node) in {"time.sleep", "sleep"}}
    assert sleepers == set(SLEEPERS)


def test_nothing_is_left_for_later() -> None:
    later = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
    left = [
        f"{name}:{number} {line.strip()}"
        for name, source in _sources().items()
        for number, line in enumerate(source.splitlines(), 1)
        if later.search(line)
    ]
    assert left == []


def test_no_path_of_somebodys_machine() -> None:
    """In no file of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    machine = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/\w|[A-Z]:\\\\Users")
    own = Path(__file__).relative_to(ROOT).as_posix()
    found = []
    for name in sorted(set(listed.stdout.decode().split("\0")) - {"", own}):
        path = ROOT / name
        text = path.read_bytes().decode(errors="replace") if path.is_file() else ""
        found += [f"{name}: {hit.group()}" for hit in machine.finditer(text)]
    assert found == []


def test_the_decision_names_no_step_kind() -> None:
    """A kind is one file in `engine/kinds`; `decide` finds it by the name in the definition."""
    kinds = {Path(name).stem for name in _sources() if name.startswith("engine/kinds/")} - {"__init__"}
    named = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name, node in _nodes()
        if name == "engine/decide.py"
        and (
            (isinstance(node, ast.Constant) and node.value in kinds)
            or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("queuety.engine.kinds."))
        )
    ]
    assert named == []


def test_imports_look_only_down() -> None:
    """The contracts stand in pyproject.toml."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    options = ["--no-logo", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(SRC.parent)}
    checked = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_importing_the_package_stays_light() -> None:
    heavy = ["alembic", "typer", "rich", "fastapi", "pydantic", "psycopg", "pymysql"]
    heavy += ["sqlalchemy.ext.asyncio", "greenlet"]  # absent unless the user's own code wants them
    program = f"import sys, queuety; print(*[name for name in {heavy!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=SRC.parent)
    assert ran.stdout.split() == []


def test_every_exception_has_a_reason() -> None:
    tables = (LONG_FILES, WIDE_CLASSES, SLEEPERS, EVALUATORS, DATABASE_NAMERS)
    assert [name for table in tables for name, reason in table.items() if len(reason.split()) < 4] == []
    assert [name for table in (EVALUATORS, DATABASE_NAMERS) for name in table if name not in _sources()] == []
