"""Workflow files: Python modules of a folder, under names that are the same in every process that loads the folder.

`reports/daily.py` of a loaded folder is the module `queuety_files.reports.daily`, so that its handlers are called
`queuety_files.reports.daily:fetch` in every row. Nothing but what was loaded here has such a name, and no name in a row
causes a file to be loaded (`names.load_module`). A file is imported once in a process, like any module.

Files of a folder may import each other by relative imports (`from ._shared import fetch`), those too whose names start
with `_`; a file that is loaded by itself stands alone.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Final

from queuety.define import marks
from queuety.define.names import FILES, check_name
from queuety.define.registry import Registry
from queuety.errors import DefinitionError, NotFoundError

_PREFIX: Final = f"{FILES}."
_INIT: Final = "__init__.py"


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A file and the name of its module."""

    path: Path
    module: str


def file_at(path: str | os.PathLike[str]) -> WorkflowFile:
    """The file; one that a folder has brought already keeps the name it has there.

    Raises `NotFoundError` if there is none, `DefinitionError` if it is no module of Python.
    """
    found = _path(path, "path")
    if not found.is_file():
        raise NotFoundError(f"there is no workflow file {str(path)!r} (looked in {Path.cwd()})")
    if found.suffix != ".py":
        raise DefinitionError(f"{found} is no workflow file: a Python module, whose name ends in .py, is needed")
    found = found.parent.resolve() / found.name
    known = next((name for name, file in _loaded() if file == found), None)
    return WorkflowFile(found, _module_of(found.relative_to(found.parent)) if known is None else known)


def files_in(directory: str | os.PathLike[str], *, recursive: bool) -> tuple[Path, list[WorkflowFile]]:
    """The folder, and its files in the order of their paths; those in it whose names start with `_` or `.` are not
    among them, and with `recursive` no such folder's.

    Raises `NotFoundError` if there is no such folder, `DefinitionError` for a file that cannot have a name.
    """
    root = _path(directory, "directory")
    if not os.fspath(directory) or not root.is_dir():  # an empty text would mean the working directory
        raise NotFoundError(f"there is no folder {str(directory)!r} (looked in {Path.cwd()})")
    root = root.resolve()
    paths: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if recursive and not name.startswith(("_", "."))]
        paths += [Path(folder, name) for name in names if name.endswith(".py") and not name.startswith(("_", "."))]
    ordered = sorted(path.relative_to(root) for path in paths)
    return root, [WorkflowFile(root / path, _module_of(path)) for path in ordered]


def _path(given: object, what: str) -> Path:
    """The place that was given. Raises `DefinitionError` for what is none."""
    if not isinstance(given, str | os.PathLike) or (isinstance(given, str) and "\0" in given):
        raise DefinitionError(f"{what}={given!r}: the path of a file or folder is needed")
    return Path(given)


def imported(file: WorkflowFile) -> ModuleType:
    """The module of the file, imported unless it has been. Raises `DefinitionError` that names the file and the cause.

    Only while `loading`, with the file's folder or the file itself.
    """
    other = _file_of(sys.modules.get(file.module)) or _finder.place(file.module)
    if other is not None and other != file.path:
        raise _twice(file.module, other, file.path)
    try:
        return importlib.import_module(file.module)
    except (Exception, SystemExit) as error:  # the user's module runs here, and may raise anything
        raise DefinitionError(
            f"workflow file {file.path} cannot be loaded: {type(error).__name__}: {error}{_line(error, file.path)}"
        ) from error


@contextmanager
def loading(registry: Registry, files: Sequence[WorkflowFile], root: Path | None = None) -> Iterator[None]:
    """While this is open these files can be imported, those of the folder `root` or single ones; one thread at a time.

    If the block raises, every module that was imported in it is forgotten, with its handlers. Raises `DefinitionError`
    if a file that is loaded has a namesake in the folder, or is to be loaded under another name.
    """
    with _lock:
        roots, singles, known = list(_finder.roots), dict(_finder.singles), set(sys.modules)
        try:
            _finder.open(files, root)
            yield
        except BaseException:
            _finder.roots[:], _finder.singles = roots, singles
            _forget([name for name in sys.modules if name not in known and name.startswith(_PREFIX)], registry)
            raise


class _Finder(MetaPathFinder):
    """Finds the modules of the folders and files that are loaded, and no others."""

    def __init__(self) -> None:
        self.roots: list[Path] = []
        self.singles: dict[str, Path] = {}

    def open(self, files: Sequence[WorkflowFile], root: Path | None) -> None:
        """Has the files found, and all that stands beside them in their folder. Raises `DefinitionError`."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        if FILES not in sys.modules:
            package = ModuleType(FILES, "The workflow files that this process has loaded.")
            package.__path__ = []
            sys.modules[FILES] = package
        loaded = _loaded()
        name_of = {path: name for name, path in loaded}
        for file in files:
            if (known := name_of.get(file.path, file.module)) != file.module:
                raise DefinitionError(
                    f"workflow file {file.path} is loaded as {known}, and would be {file.module} as well; a file has "
                    "one name: load it in one way"
                )
        if root is None:
            self.singles |= {file.module: file.path for file in files}
        elif root not in self.roots:
            for name, path in loaded:
                if (namesake := _within(root, name)) is not None and namesake.is_file() and namesake != path:
                    raise _twice(name, path, namesake)
            self.roots.append(root)

    def place(self, name: str) -> Path | None:
        """Where the module or package of this name is. Raises `DefinitionError` if two folders have it."""
        found = {place for root in self.roots if (place := _within(root, name)) is not None and place.is_file()}
        if name in self.singles:
            found.add(self.singles[name])
        if len(found) > 1:
            raise _twice(name, *sorted(found)[:2])
        return next(iter(found), None)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """As the import system asks for it."""
        if not fullname.startswith(_PREFIX):
            return None
        place = self.place(fullname)
        if place is not None:
            inner: list[str] | None = [] if place.name == _INIT else None
            return spec_from_file_location(fullname, place, submodule_search_locations=inner)
        is_folder = any(_within(root, fullname) is not None for root in self.roots)
        return ModuleSpec(fullname, None, is_package=True) if is_folder else None


_finder: Final = _Finder()
_lock: Final = RLock()


def _within(root: Path, name: str) -> Path | None:
    """The file of that module under the folder, or the folder that is a package without a file."""
    place = root.joinpath(*name.removeprefix(_PREFIX).split("."))
    for file in (place / _INIT, place.with_name(f"{place.name}.py")):
        if file.is_file():
            return file
    return place if place.is_dir() else None


def _module_of(path: Path) -> str:
    """The name of the module that stands there in its folder."""
    parts = path.with_suffix("").parts
    for part in parts:
        if not part.replace("-", "_").isidentifier():
            raise DefinitionError(
                f"workflow file {path}: {part!r} cannot be part of the name of a module; use letters, digits, _ and -"
            )
    return check_name(_PREFIX + ".".join(parts), what=f"the name of workflow file {path}")


def _loaded() -> list[tuple[str, Path]]:
    """The modules of workflow files that this process has imported, and their files."""
    modules = [(name, _file_of(module)) for name, module in list(sys.modules.items()) if name.startswith(_PREFIX)]
    return [(name, file) for name, file in modules if file is not None]


def _file_of(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if isinstance(file, str) else None


def _twice(name: str, one: Path, other: Path) -> DefinitionError:
    return DefinitionError(f"workflow files {one} and {other} would both be the module {name}; rename one of them")


def _line(error: BaseException, path: Path) -> str:
    """Where in the file it was raised, if it was there."""
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)
    return "" if line is None else f" (line {line})"


def _forget(names: Sequence[str], registry: Registry) -> None:
    for name in names:
        del sys.modules[name]
        parent, _, own = name.rpartition(".")
        if parent in sys.modules:
            vars(sys.modules[parent]).pop(own, None)
    gone = set(names)
    marks.undeclare(gone)
    registry.forget(gone)
