"""Handlers by name: the aliases of an application, and the way from a name in a row to something to call.

A name can lead only to what carries our mark or derives from our base classes. What is found is remembered; what is
not found is looked for again the next time, since a deployment may bring it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from queuety.define.call import Plan, prepare
from queuety.define.handlers import Handler, check_call, check_use, handler_of, is_configured, options_of
from queuety.define.marks import BASES, Bound, HandlerKind, declared, mark_of
from queuety.define.names import attribute, check_name, importable_name, load_module, qualified_name
from queuety.errors import DefinitionError, HandlerNotFound
from queuety.model import HandlerRef, Json, Options, Use


class Registry:
    """The handlers that this process can name. Safe to use from several threads."""

    def __init__(self) -> None:
        self._aliases: dict[str, Handler] = {}
        self._found: dict[str, Handler] = {}
        self._refs: dict[tuple[Handler, HandlerKind, Use], Options] = {}

    def register(self, alias: str, handler: Any) -> None:
        """Adds a name for a handler. An alias is stored in definitions as it is and survives the moving of code.

        `module:qualname` of code that was moved or renamed makes a good alias too: rows that name it lead to the
        handler that is given here, whatever stands in that module now. Raises `DefinitionError` if the handler is
        none, or if the alias already means another one.
        """
        check_name(alias, what="an alias")
        if isinstance(handler, Bound):
            raise DefinitionError(f"alias {alias!r}: register the handler itself; bind where it is used")
        known = handler_of(handler, alias)
        other = self._aliases.setdefault(alias, known)
        if qualified_name(other.target) != qualified_name(handler):
            raise DefinitionError(f"alias {alias!r} already names {qualified_name(other.target)}")
        self._aliases[alias] = self._found[alias] = known

    def resolve(self, name: str) -> Handler:
        """The handler of that name, its module imported if need be.

        Raises `HandlerNotFound` that says why there is none here, whatever the import of its module raised.
        """
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._looked_for(name)
        return found

    def has_alias(self, name: str) -> bool:
        """True for a name that was registered here."""
        return name in self._aliases

    def forget(self, modules: Collection[str]) -> None:
        """Forgets what it has found in these modules, which this process has not imported after all."""
        for found in (self._found, self._aliases):
            for name in [name for name, handler in list(found.items()) if handler.target.__module__ in modules]:
                del found[name]

    def plan(self, name: str, config: Mapping[str, Json] | None = None, use: Use = Use.STEP) -> Plan:
        """How to call the handler of that name as `use`; worth keeping, it is made anew each time.

        Raises `HandlerNotFound`, also for a handler that can no longer be called with this configuration.
        """
        handler = self.resolve(name)
        try:
            check_use(handler, handler.kind, use)
            check_call(handler, config or {}, use)
            return prepare(handler, config, use)
        except DefinitionError as error:
            raise HandlerNotFound(f"{name!r} cannot be called as its definition says: {error}") from error

    def ref(self, target: Any, kind: HandlerKind, *, where: str, use: Use = Use.STEP) -> tuple[HandlerRef, Options]:
        """The name and configuration to store for a handler, an alias or a `bind`, and the handler's own options.

        `module:qualname` of a module that is not installed here is taken on trust: another service may have it. Raises
        `DefinitionError` naming `where` if the target cannot be used as that kind, or never be found again.
        """
        config: Mapping[str, Json] = {}
        if isinstance(target, Bound):
            target, config = target.target, target.config
        try:
            handler: Handler | None
            if isinstance(target, str):
                name, handler = target, self._named(target)
            else:
                name = self._name_of(target)
                handler = self._known(target, name)
            ref = HandlerRef(name, config or None)
            if handler is None:
                return ref, Options()
            options = None if config else self._refs.get((handler, kind, use))
            if options is None:
                options = _checked_use(handler, kind, use, config)
                if not config and not is_configured(handler):
                    self._refs[handler, kind, use] = options
            return ref, options
        except DefinitionError as error:
            raise DefinitionError(f"{where}: {error}") from error

    def _looked_for(self, name: str) -> Handler:
        target = declared(name)
        if target is None:
            try:
                target = _imported(name)
            except HandlerNotFound:
                target = declared(name)
                if target is None and name not in self._aliases:
                    raise
            # What is left of a module may have said, while it was imported, who has the name now.
            alias = self._aliases.get(name)
            if alias is not None:
                return alias
        try:
            return handler_of(target, name)
        except DefinitionError as error:
            raise HandlerNotFound(f"{name!r} names no handler: {error}") from error

    def _known(self, target: Any, name: str) -> Handler:
        found = self._found.get(name)
        if found is None or found.target is not target:
            alias = self._aliases.get(name)
            if alias is not None and qualified_name(alias.target) != qualified_name(target):
                raise DefinitionError(
                    f"{qualified_name(target)} would be stored as {name!r}, which is registered as a name of "
                    f"{qualified_name(alias.target)}; use that one, or register this one under a name of its own"
                )
            found = self._found[name] = handler_of(target, name)
        return found

    def _named(self, name: str) -> Handler | None:
        check_name(name, what="the name of a handler")
        module, colon, _ = name.partition(":")
        try:
            return self.resolve(name)
        except HandlerNotFound as error:
            missing = error.__cause__
            if colon and isinstance(missing, ModuleNotFoundError) and f"{module}.".startswith(f"{missing.name}."):
                return None
            raise DefinitionError(str(error)) from error

    def _name_of(self, target: Any) -> str:
        mark = mark_of(target)
        if isinstance(target, tuple(BASES)):
            raise DefinitionError(
                f"an instance of {type(target).__qualname__} was given; give the class, or "
                f"bind({type(target).__qualname__}, key=value)"
            )
        try:
            name = importable_name(target)
        except DefinitionError:
            alias = next((alias for alias, handler in self._aliases.items() if handler.target is target), None)
            if alias is None:
                raise
            return alias
        return mark.name if mark is not None and mark.name is not None else name


def _checked_use(handler: Handler, kind: HandlerKind, use: Use, config: Mapping[str, Json]) -> Options:
    check_use(handler, kind, use)
    check_call(handler, config, use)
    prepare(handler, config, use)
    return options_of(handler, config)


def _imported(name: str) -> Any:
    module_name, colon, qualname = name.partition(":")
    if not colon:
        raise HandlerNotFound(
            f"no handler is named {name!r} here; import the module that declares it, or register it with the app"
        )
    try:
        module = load_module(module_name)
    except (Exception, SystemExit) as error:
        raise HandlerNotFound(f"{name!r}: importing {module_name} raised {type(error).__name__}: {error}") from error
    found = attribute(module, qualname)
    if found is None:
        where = "this process's own script" if module_name == "__main__" else f"module {module_name}"
        raise HandlerNotFound(
            f"{name!r}: {where} has no {qualname}; if it was renamed, register this name for it: "
            f"app.register({name!r}, handler)"
        )
    return found
