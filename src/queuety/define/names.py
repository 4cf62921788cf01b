"""Names: of handlers and exceptions (`package.module:qualname`), and what any name that people give may look like.

The script that Python was started with calls itself `__main__`, a name under which no other process finds it. Its
functions are named after the module that it would be when imported (`python app.py` and `python -m app` both give
`app:fetch`), and that name leads back to the running script instead of importing it a second time. Code without a file
(an interactive session, a notebook, `python -c`) keeps `__main__:fetch`, which works inside that one process only.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from queuety.errors import DefinitionError

MAX_NAME: Final = 255
"""Characters that a name may have; what an indexed column holds on every database."""

MAX_TAGS: Final = 50
"""Tags that a run may have."""

FILES: Final = "queuety_files"
"""The package that workflow files are modules of (`define/files.py`)."""

_MAIN: Final = ("__main__", "__mp_main__")  # the second one: the script in a child that `multiprocessing` spawned


def check_name(value: object, *, what: str) -> str:
    """`value`, if people and every database can tell it from others. Raises `DefinitionError` otherwise."""
    if type(value) is not str:
        raise DefinitionError(f"{what} must be a string, not {value!r}")
    if not value.strip():
        raise DefinitionError(f"{what} must not be empty")
    if len(value) > MAX_NAME:
        raise DefinitionError(f"{what} has {len(value)} characters; at most {MAX_NAME} are allowed")
    for char in value:
        if char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff":
            raise DefinitionError(f"{what} {value!a} contains the control character {char!a}; leave it out")
    return value


def check_tags(tags: Iterable[object], *, what: str) -> tuple[str, ...]:
    """The tags, each once, in the order given. Raises `DefinitionError` for one that is no name, or too many."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise DefinitionError(f"{what}={tags!r}: a list of tags is needed")
    found = tuple(dict.fromkeys(check_name(tag, what=what) for tag in tags))
    if len(found) > MAX_TAGS:
        raise DefinitionError(f"{what}: there are {len(found)}; at most {MAX_TAGS} are allowed")
    return found


def qualified_name(value: Any) -> str:
    """`module:qualname` of a function or a class, as another process would import it."""
    return f"{module_name(value.__module__)}:{value.__qualname__}"


def importable_name(value: Any) -> str:
    """`module:qualname` of a function or a class that can be found again by it.

    Raises `DefinitionError` that says why for lambdas, nested functions, bound methods, partials and instances, and
    for what its module no longer holds under that name.
    """
    if inspect.ismethod(value):
        raise DefinitionError(
            f"{value.__qualname__} is a bound method: another process has no such object to call it on; use a "
            "function of a module, or a class derived from Step"
        )
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str) or not isinstance(getattr(value, "__module__", None), str):
        hint = "bind(handler, key=value)" if hasattr(value, "func") else "the function or the class itself"
        raise DefinitionError(f"{_shown(value)} has no name that another process could import; give {hint}")
    if name.rpartition(".")[2] == "<lambda>":
        raise DefinitionError(
            f"a lambda in {value.__module__} has no name that another process could import; write a function with def"
        )
    if "<locals>" in name:
        raise DefinitionError(
            f"{name} is defined inside a function, where another process cannot import it; move it to the top of "
            f"{value.__module__}"
        )
    module = sys.modules.get(value.__module__)
    if module is not None and (found := attribute(module, name)) is not value:
        state = "no longer holds it" if found is None else f"now holds {_shown(found)} there"
        raise DefinitionError(
            f"{value.__module__}:{name} would not be found again: the module {state}; a decorator above ours must "
            "use functools.wraps, and the name must not be bound to something else"
        )
    return qualified_name(value)


def module_name(name: str) -> str:
    """The name under which another process can import the module that calls itself `name` here."""
    return (_script_name() or "__main__") if name in _MAIN else name


def load_module(name: str) -> ModuleType:
    """The module of that name, imported if need be; never the running script a second time. Raises what it raises.

    No name leads to a workflow file that was not loaded.
    """
    if name.startswith(f"{FILES}.") and name not in sys.modules:
        hint = "start with --workflows FOLDER, or call app.load_workflows(FOLDER)"
        raise ModuleNotFoundError(f"no workflow file is loaded here as {name}; {hint}", name=name)
    if name in _MAIN or (name not in sys.modules and name == _script_name()):
        return sys.modules["__main__"]
    return importlib.import_module(name)


def attribute(module: ModuleType, qualname: str) -> Any:
    """What the module holds under a dotted name, or None. Looks into classes and nothing else; runs nobody's code."""
    value: Any = module
    for index, part in enumerate(qualname.split(".")):
        if index == 0:
            value = vars(module).get(part)
        elif isinstance(value, type):
            value = inspect.getattr_static(value, part, None)
            value = value.__func__ if isinstance(value, staticmethod) else value
        else:
            return None
    return value


def _script_name() -> str | None:
    """The importable name of the script that this process runs, or None if there is none."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m package.module
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    return _name_of_file(file, tuple(sys.path))


@lru_cache(maxsize=8)
def _name_of_file(file: str, path: tuple[str, ...]) -> str | None:
    folder, stem = os.path.split(os.path.realpath(file)[: -len(".py")])
    roots = {os.path.realpath(entry) for entry in path}
    name, root = stem, folder
    while os.path.isfile(os.path.join(root, "__init__.py")):
        root, package = os.path.split(root)
        name = f"{package}.{name}"
    if root in roots and "." not in stem:
        return name
    return stem if folder in roots and "." not in stem else None


def _shown(value: object) -> str:
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else f"an object of type {type(value).__qualname__}"
