"""Templates: workflows that an application knows by name, described once and started often."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, get_ident
from types import ModuleType
from typing import Any

from queuety.define.builder import WorkflowBuilder
from queuety.define.marks import mark_of
from queuety.define.registry import Registry
from queuety.define.wire import definition_to_json
from queuety.errors import DefinitionError, NotFoundError
from queuety.model import Definition, Json, Priority


@dataclass(frozen=True, slots=True)
class WorkflowTemplate:
    """A workflow that `run_workflow` starts by its name.

    `steps` are the names of its steps, `definition` is its JSON form (for `dispatch_definition`), `hash` that of the
    definition, 64 hex digits. `queue`, `priority`, `max_attempts` and `version` are None where it does not say.
    `source` is the file that it was loaded from, None for one that was registered by hand.
    """

    name: str
    steps: tuple[str, ...]
    hash: str
    version: str | None
    queue: str | None
    priority: Priority | None
    max_attempts: int | None
    definition: dict[str, Json] = field(repr=False, hash=False)
    source: str | None = None


class Templates:
    """The templates of an application, by name. Safe to use from several threads."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Definition, str | None]] = {}
        self._added: dict[int, set[str]] = {}
        self._lock = Lock()

    def add(self, definition: Definition, source: Path | None = None) -> WorkflowTemplate:
        """Adds a template in place of one of the same name. Raises as `add_all`."""
        self.add_all([(definition, source)])
        return _template(definition, None if source is None else str(source))

    def add_all(self, loaded: Iterable[tuple[Definition, Path | None]]) -> None:
        """Adds templates, all or none.

        Raises `DefinitionError` that names both files if one has a template that another file has brought.
        """
        with self._lock:
            known, added = dict(self._known), set[str]()
            for definition, path in loaded:
                source = None if path is None else str(path)
                _, other = known.get(definition.name, (None, None))
                if source is not None and other is not None and other != source:
                    raise DefinitionError(
                        f"workflow files {other} and {source} both have a template named {definition.name!r}; "
                        "rename one of the workflows"
                    )
                known[definition.name] = (definition, source)
                added.add(definition.name)
            self._known = known
            if (noted := self._added.get(get_ident())) is not None:
                noted |= added

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """If the block raises, what this thread has added in it is gone, and what that replaced is back."""
        me, before = get_ident(), self._known
        outer = self._added.get(me)
        self._added[me] = added = set[str]()
        try:
            yield
        except BaseException:
            with self._lock:
                kept = {name: entry for name, entry in self._known.items() if name not in added}
                self._known = kept | {name: before[name] for name in added & before.keys()}
            raise
        finally:
            if outer is None:
                del self._added[me]
            else:
                outer |= added
                self._added[me] = outer

    def definition(self, name: str) -> Definition:
        """The definition of the template. Raises `NotFoundError` that names those that are registered."""
        found = self._known.get(name)
        if found is not None:
            return found[0]
        there = f"there are {', '.join(map(repr, sorted(self._known)))}" if self._known else "there are none"
        raise NotFoundError(
            f"workflow template {name!r} is not registered here; {there} (register_workflow_template(builder), or "
            "load_workflows(folder))"
        )

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def all(self) -> dict[str, WorkflowTemplate]:
        """Every template by its name, sorted by it."""
        return {name: _template(*entry) for name, entry in sorted(self._known.items())}


def builder_given(value: Any) -> WorkflowBuilder:
    """What was given, if it is a builder. Raises `DefinitionError`."""
    if isinstance(value, WorkflowBuilder):
        return value
    what = f"an object of type {type(value).__name__}"
    raise DefinitionError(f"{what} is no workflow; give what define_workflow(name).then(…) gives back")


def builder_in(module: ModuleType, app: Any, path: Path) -> WorkflowBuilder | None:
    """The builder that a workflow file exposes: as `workflow`, or what its `define(app)` returns; None for no such.

    Raises `DefinitionError` that names the file if it has both, or `define` fails or returns something else.
    """
    found = vars(module).get("workflow")
    define = vars(module).get("define")
    is_defining = inspect.isfunction(define) and mark_of(define) is None
    if isinstance(found, WorkflowBuilder):
        if is_defining:
            raise DefinitionError(f"workflow file {path} has both `workflow` and `define(app)`; keep one of them")
        return found
    if not is_defining:
        return None
    try:
        made = define(app)  # type: ignore[misc]
    except Exception as error:  # the user's function runs here, and may raise anything
        raise DefinitionError(f"workflow file {path}: define(app) raised {type(error).__name__}: {error}") from error
    if not isinstance(made, WorkflowBuilder):
        raise DefinitionError(
            f"workflow file {path}: define(app) returned an object of type {type(made).__name__}; a builder, as "
            "app.workflow(name) makes, is needed"
        )
    return made


def built(builder: WorkflowBuilder, registry: Registry, path: Path) -> Definition:
    """What the builder of a file describes. Raises `DefinitionError` that names the file."""
    try:
        return builder.build(registry)
    except DefinitionError as error:
        raise DefinitionError(f"workflow file {path}: {error}") from error


def _template(definition: Definition, source: str | None) -> WorkflowTemplate:
    return WorkflowTemplate(
        name=definition.name,
        steps=tuple(spec.name for spec in definition.steps),
        hash=definition.hash,
        version=definition.version,
        queue=definition.queue,
        priority=definition.priority,
        max_attempts=definition.max_attempts,
        definition=definition_to_json(definition),
        source=source,
    )
