"""Finding the application that a command is about, or the database if there is none.

What the command line says wins over the environment, and the environment over pyproject.toml.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from queuety.cli.exits import Refusal, where

if TYPE_CHECKING:
    from queuety import Queuety
    from queuety.store.door import Door

APP_VARIABLE: Final = "QUEUETY_APP"
DATABASE_VARIABLE: Final = "QUEUETY_DATABASE_URL"
WORKFLOWS_VARIABLE: Final = "QUEUETY_WORKFLOWS"
TRIED: Final = (
    f"no --app, no {APP_VARIABLE} in the environment, no [tool.queuety] app in a pyproject.toml here or above"
)


@dataclass(frozen=True, slots=True)
class Target:
    """`module:attribute`, and where that was said. `folder` is looked in after the working directory."""

    name: str
    said_by: str
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """What a command line says about the application or the database; nothing is looked for before it is asked for."""

    app: str | None = None
    database: str | None = None
    table_prefix: str | None = None

    def target(self) -> Target | None:
        """The application that is meant; None if only a database is. Raises `Refusal` for what cannot be both."""
        if self.app is not None and self.database is not None:
            raise Refusal("--app and --database exclude each other: an application has its database already")
        if self.table_prefix is not None and self.database is None:
            raise Refusal("--table-prefix goes with --database; an application has its prefix already")
        if self.app is not None:
            return Target(self.app, "--app")
        if self.database is not None:
            return None
        named = os.environ.get(APP_VARIABLE, "").strip()
        return Target(named, APP_VARIABLE) if named else of_project(Path.cwd())

    def needed(self, command: str) -> Target:
        """The application, for a command that runs handlers. Raises `Refusal` if none is named."""
        target = self.target()
        if target is not None:
            return target
        if self.database is not None:
            raise Refusal(
                f"`queuety {command}` runs handlers, so it needs the application and not only its database; say --app "
                f"module:attribute (the application may read its database from {DATABASE_VARIABLE})"
            )
        raise Refusal(f"`queuety {command}` needs an application: {TRIED}; say --app module:attribute")

    @contextmanager
    def opened(self, *, makes_tables: bool = False, workflows: Sequence[str] | None = None) -> Iterator[Queuety]:
        """The application, closed at the end; without one, a bare one on the database.

        `makes_tables` is for what starts or runs work: a bare application makes its tables then, and the workflow files
        are loaded. They are too if `workflows` are given, the folders that the command line names; where it names none,
        the environment does. Nothing is connected to yet. Raises `Refusal`, and `DefinitionError` for a database URL
        that cannot be right, or a file that cannot be loaded.
        """
        target = self.target()
        look_in(Path.cwd(), None if target is None else target.folder)
        with load(target) if target is not None else self._bare(makes_tables=makes_tables) as app:
            if makes_tables or workflows is not None:
                for folder in workflow_folders(workflows or ()):
                    app.load_workflows(folder, recursive=True)
            yield app

    def _bare(self, *, makes_tables: bool) -> Queuety:
        from queuety import Queuety

        prefix = "queuety_" if self.table_prefix is None else self.table_prefix
        return Queuety(self.database, auto_migrate=makes_tables, table_prefix=prefix)


def workflow_folders(named: Sequence[str]) -> tuple[str, ...]:
    """The folders of workflow files, from the root: those named, else those of the environment. Raises `Refusal`."""
    given, said_by = named, "--workflows"
    if not given:
        given, said_by = os.environ.get(WORKFLOWS_VARIABLE, "").split(os.pathsep), WORKFLOWS_VARIABLE
    folders = [Path(folder.strip()) for folder in given if folder.strip()]
    for folder in folders:
        if not folder.is_dir():
            raise Refusal(f"{folder} (from {said_by}) is no folder; looked in {Path.cwd()}")
    return tuple(dict.fromkeys(str(folder.resolve()) for folder in folders))


def door_as_it_is(app: Queuety) -> Door:
    """The application's way to the database, its tables untouched: `app.door` would make or upgrade them first."""
    return app._door


def now_of(app: Queuety) -> datetime:
    """The time by the application's own clock, the database's if it has none: what the times in its rows go by."""
    from queuety.inspect.states import moment

    return moment(app.door.now_us())


def look_in(*folders: Path | None) -> None:
    """Has modules looked for in these folders, in this order, before anywhere else."""
    for folder in reversed(folders):
        if folder is not None:
            sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]


def of_project(folder: Path) -> Target | None:
    """What the nearest pyproject.toml with `[tool.queuety] app` names, from this folder upwards. Raises `Refusal`."""
    for place in (folder, *folder.parents):
        path = place / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            content: Mapping[str, Any] = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise Refusal(f"{path} cannot be read: {error}; mend it, or say --app or --database") from error
        tool = content.get("tool")
        ours = tool.get("queuety") if isinstance(tool, Mapping) else None
        named = ours.get("app") if isinstance(ours, Mapping) else None
        if named is None:
            continue
        if not isinstance(named, str):
            raise Refusal(f'{path}: [tool.queuety] app = {named!r}; "module:attribute" is needed')
        return Target(named, f"[tool.queuety] in {path}", place)
    return None


def load(target: Target) -> Queuety:
    """The application that it names. Raises `Refusal` that says what was tried and why that is none."""
    from queuety import Queuety

    found = find(target, what="application")
    if makes_things(found):
        found = call(found, target)
    if isinstance(found, Queuety):
        return found
    raise Refusal(
        f"{target.name} (from {target.said_by}) is {kind_of(found)}; a Queuety, or a function without arguments that "
        "returns one, is needed"
    )


def find(target: Target, *, what: str) -> Any:
    """The object that `module:attribute` names. Raises `Refusal`; `what` says there what it should have been."""
    name, colon, path = target.name.partition(":")
    if not (colon and name and path and all(part.isidentifier() for part in (*name.split("."), *path.split(".")))):
        raise Refusal(
            f"{target.name!r} (from {target.said_by}) names no {what}; module:attribute is needed, "
            "such as shop.jobs:app"
        )
    module = import_module(name, target)
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Refusal(
                f"{target.name} (from {target.said_by}): module {name} has no {path}{_instead(module)}"
            ) from None
    return found


def import_module(name: str, target: Target) -> ModuleType:
    """The module. Raises `Refusal` that names it and the cause."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Refusal(
                f"{target.name} (from {target.said_by}): there is no module {error.name}; looked in {Path.cwd()} and "
                "among the packages that are installed"
            ) from error
        raise _broken(name, target, error) from error
    except (Exception, SystemExit) as error:  # the user's module runs here, and may raise anything
        raise _broken(name, target, error) from error


def makes_things(value: object) -> bool:
    """True for a plain function: one that may be called for what it returns, and is no handler to be run by workers."""
    from queuety.define.marks import mark_of

    return inspect.isroutine(value) and mark_of(value) is None


def call(function: Callable[..., Any], target: Target, *arguments: Any) -> Any:
    """What the function returns. Raises `Refusal` if it cannot be called so, and for whatever it raises."""
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        raise Refusal(
            f"{target.name} (from {target.said_by}) is {kind_of(function)} that cannot be called here: {error}"
        ) from error
    try:
        return function(*arguments)
    except Exception as error:  # the user's function runs here, and may raise anything
        raise Refusal(
            f"calling {target.name} (from {target.said_by}) failed: {type(error).__name__}: {error} (at {where(error)})"
        ) from error


def _broken(name: str, target: Target, error: BaseException) -> Refusal:
    place = "" if isinstance(error, SyntaxError) else f" (at {where(error)})"
    return Refusal(
        f"importing {name} for {target.name} (from {target.said_by}) failed: {type(error).__name__}: {error}{place}"
    )


def _instead(module: ModuleType) -> str:
    from queuety import Queuety

    names = [name for name, value in vars(module).items() if isinstance(value, Queuety)]
    return f"; it has {', '.join(f'{module.__name__}:{name}' for name in names)}" if names else ""


def kind_of(value: object) -> str:
    if inspect.isroutine(value):
        return "a function" if makes_things(value) else "a handler"
    return f"the class {value.__qualname__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"
