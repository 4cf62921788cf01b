"""Which workflow `queuety workflow dispatch` means."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from queuety.cli.exits import Refusal
from queuety.cli.target import Target, call, find, kind_of, makes_things

if TYPE_CHECKING:
    from queuety import Queuety
    from queuety.define.builder import WorkflowBuilder


def builder_of(name: str, app: Queuety, target: Target | None) -> WorkflowBuilder:
    """The builder that `module:attribute` names, or that the module of the application has under this name.

    The attribute may also be a function without arguments, or of one, the application, that returns the builder.
    Raises `Refusal`.
    """
    if ":" not in name:
        try:
            return _named(name, target)
        except Refusal as refusal:
            if name in app.workflow_templates():
                raise Refusal(
                    f"{name!r} is the name of a template; `queuety workflow run {name}` starts it"
                ) from refusal
            raise
    from queuety.define.builder import WorkflowBuilder

    there = Target(name, "the command line", None if target is None else target.folder)
    found = find(there, what="workflow")
    if makes_things(found):
        found = call(found, there, *([app] if _takes_one(found) else []))
    if isinstance(found, WorkflowBuilder):
        return found
    raise Refusal(
        f"{name} is {kind_of(found)}; a builder as app.workflow(…) makes, or a function that returns one, is needed"
    )


def _named(name: str, target: Target | None) -> WorkflowBuilder:
    """The one among the builders that the application's module holds."""
    if target is None:
        raise Refusal(
            f"{name!r} is the name of a workflow, and no application is named whose module could have it; say --app, "
            "or module:attribute of the builder, or --definition FILE"
        )
    module_name = target.name.partition(":")[0]
    builders = _builders(sys.modules[module_name])
    if name in builders:
        return builders[name]
    known = f"it has {', '.join(sorted(builders))}" if builders else "it has none; say module:attribute of the builder"
    raise Refusal(f"{module_name} has no workflow named {name!r}; {known}")


def is_built(name: str, target: Target | None) -> bool:
    """True if the module of the application, which has been loaded, has a builder of this name."""
    return target is not None and name in _builders(sys.modules[target.name.partition(":")[0]])


def _builders(module: ModuleType) -> dict[str, WorkflowBuilder]:
    from queuety.define.builder import WorkflowBuilder

    return {value.name: value for value in vars(module).values() if isinstance(value, WorkflowBuilder)}


def _takes_one(function: Any) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # built-in code without a signature
        return False
    return False
