"""What was described of a workflow so far, and how a step is added to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from queuety.define.aliases import is_alias, looked_up
from queuety.define.checks import MAX_NESTING, MAX_STEPS, check_deadline, check_jumps, count_steps, depth
from queuety.define.forms import FORMS
from queuety.define.forms.form import Settings
from queuety.define.marks import Bound, HandlerKind, HandlerLike
from queuety.define.names import MAX_NAME, check_name
from queuety.define.registry import Registry
from queuety.define.wire import hashed
from queuety.errors import DefinitionError
from queuety.model import Branch, Definition, HandlerRef, Options, StepSpec, Use


class Draft:
    """A workflow that is being described. A call that is refused leaves it as it was."""

    def __init__(self, name: str, registry: Registry | None) -> None:
        self._name = check_name(name, what="the name of a workflow")
        self._registry = registry
        self._run = Definition(self._name, ())
        self._steps: list[StepSpec] = []
        self._index_of: dict[str, int] = {}
        self._explicit: set[str] = set()
        self._size = 0  # steps with those of the children
        self._built: tuple[Registry, Definition] | None = None  # of the last call, for dispatch upon dispatch

    def _captured(self, registry: Registry | None) -> Definition:
        """What was described so far; without its hash where its aliases still wait for a registry."""
        if not self._steps:
            raise DefinitionError(f"workflow {self._name!r} has no steps; add one with then()")
        known = registry if self._registry is None else self._registry
        if self._built is not None and self._built[0] is known:
            return self._built[1]
        definition = replace(self._run, steps=tuple(self._steps))
        check_jumps(definition)
        check_deadline(definition)
        if known is None:
            return definition
        # With a registry of its own every alias was looked up at its call.
        definition = looked_up(definition, known) if self._registry is None else hashed(definition)
        self._built = (known, definition)
        return definition

    def _add(
        self,
        kind: str,
        name: str | None,
        default_name: str,
        settings: Settings | None = None,
        *,
        handler: HandlerRef | None = None,
        options: Options = Options(),
        branches: tuple[Branch, ...] = (),
        reducer: HandlerRef | None = None,
        child: Definition | None = None,
    ) -> Self:
        called = self._step_name(name, default_name)
        spec = StepSpec(kind, called, handler, options, settings or {}, branches, reducer, child)
        size = count_steps((spec,))
        if self._size + size > MAX_STEPS:
            raise DefinitionError(f"workflow {self._name!r} has more than {MAX_STEPS} steps")
        if child is not None and depth(child) >= MAX_NESTING:
            raise DefinitionError(f"{self._where(name)}: workflows stand more than {MAX_NESTING} levels deep in it")
        if name is not None:
            self._explicit.add(called)
        self._index_of[called] = len(self._steps)
        self._steps.append(spec)
        self._size += size
        self._built = None
        return self

    def _settings(self, kind: str, name: str | None, default_name: str, **given: Any) -> Settings:
        """The settings of a step that is about to be added, as its form reads them."""
        called = self._step_name(name, default_name)
        return FORMS[kind].settings({**given, "name": called}, self._where(name))

    def _step_name(self, name: str | None, default: str) -> str:
        """The name that the next step will have."""
        return self._unused(default) if name is None else self._chosen(name)

    def _chosen(self, name: str) -> str:
        where = f"workflow {self._name!r}: the name of step {len(self._steps)}"
        check_name(name, what=where)
        if name in self._index_of:
            raise DefinitionError(f"{where}: step {self._index_of[name]} already has the name {name!r}")
        return name

    def _unused(self, default: str) -> str:
        """The default name, with _2, _3, … if another step got it by default; one chosen by hand is in the way."""
        name, count = default[:MAX_NAME], 1
        if name in self._explicit:
            raise DefinitionError(
                f"workflow {self._name!r}: step {len(self._steps)} would be named {name!r}, as another step was by "
                "hand; give one of them another name"
            )
        while name in self._index_of:
            count += 1
            name = f"{default[: MAX_NAME - len(str(count)) - 1]}_{count}"
        return name

    def _ref(self, handler: HandlerLike, where: str, use: Use = Use.STEP) -> tuple[HandlerRef, Options]:
        """The handler's name and configuration, and its own options.

        An alias waits for an application if this builder has none.
        """
        if self._registry is None:
            target = handler if isinstance(handler, Bound) else Bound(handler, {})
            if isinstance(target.target, str) and is_alias(target.target):
                check_name(target.target, what=f"{where}: the name of a handler")
                return HandlerRef(target.target, target.config or None), Options()
        return (self._registry or Registry()).ref(handler, HandlerKind.STEP, where=where, use=use)

    def _child(self, builder: Draft, where: str) -> Definition:
        """What another builder has described up to this moment."""
        if not isinstance(builder, Draft):
            raise DefinitionError(
                f"{where}: it starts what a builder describes, such as workflow(name), not {builder!r}"
            )
        try:
            return builder._captured(self._registry)
        except DefinitionError as error:
            raise DefinitionError(f"{where}: {error}") from error

    def _set(self, **values: Any) -> Self:
        self._run = replace(self._run, **values)
        self._built = None
        return self

    def _where(self, name: str | None) -> str:
        called = "" if name is None else f" ({name!r})"
        return f"step {len(self._steps)}{called} of workflow {self._name!r}"

    def _index(self) -> str:
        """The index that the next step will have, as the text that names it."""
        return str(len(self._steps))
