"""The JSON form of a definition, its hash, and the strict way back.

`definition_to_json` writes one shape for one meaning, so that equal definitions have equal hashes. The way back also
takes the other shapes of the specification (4.14): `class` for `handler`, `retry`, `timeout` as `{"seconds": …}`,
options inside `config`. The form::

    {"name": "report", "queue": …, "priority": "high", "max_attempts": …, "version": …, "on_cancel": HANDLER,
     "steps": [{"type": "single", "name": "fetch", "handler": HANDLER, "timeout": 30, …},
               {"type": "delay", "name": "delay_0", "seconds": 60}]}

where HANDLER is a name or `{"handler": name, "config": {…}}`, and what is not set is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from queuety.codec import canonical, checked_mapping, copy_json
from queuety.define.marks import Bound, HandlerKind
from queuety.define.names import check_name
from queuety.define.options import (
    OPTION_KEYS,
    merged,
    options_from,
    options_to_json,
    plain_number,
    read_attempts,
    read_priority,
    read_queue,
    read_seconds,
)
from queuety.define.registry import Registry
from queuety.errors import DefinitionError, PayloadError
from queuety.model import Definition, HandlerRef, Json, Options, State, StepSpec

MAX_STEPS: Final = 10_000


def definition_to_json(definition: Definition) -> dict[str, Json]:
    """The definition as JSON, without its hash; a fresh copy."""
    form: dict[str, Json] = {"name": definition.name}
    for key in ("version", "queue", "max_attempts"):
        if (value := getattr(definition, key)) is not None:
            form[key] = value
    if definition.priority is not None:
        form["priority"] = definition.priority.name.lower()
    if definition.on_cancel is not None:
        form["on_cancel"] = _ref_to_json(definition.on_cancel)
    form["steps"] = [_step_to_json(spec) for spec in definition.steps]
    return form


def definition_hash(definition: Definition) -> str:
    """64 hex digits over the JSON form: equal for equal definitions, whatever process, order of keys or payload."""
    return hashlib.sha256(canonical(definition_to_json(definition)).encode()).hexdigest()


def hashed(definition: Definition) -> Definition:
    """The definition with its hash filled in."""
    return replace(definition, hash=definition_hash(definition))


def definition_from_json(form: Any, registry: Registry | None = None) -> Definition:
    """The definition that a JSON form describes, with its hash.

    With a registry every handler is looked up and its own options fill what the step leaves open, as in the builder;
    None takes a stored definition as it is, whether or not its handlers can be found here. Raises `DefinitionError`
    naming the step and the key.
    """
    try:
        form = checked_mapping(form, what="definition")
    except PayloadError as error:
        raise DefinitionError(str(error)) from error
    _known_keys(form, _WORKFLOW_KEYS, "definition")
    name = check_name(form.get("name"), what="definition: name")
    entries = form.get("steps")
    if type(entries) is not list or not entries:
        raise DefinitionError(f"workflow {name!r}: steps must be a list with at least one step")
    if len(entries) > MAX_STEPS:
        raise DefinitionError(f"workflow {name!r} has {len(entries)} steps; at most {MAX_STEPS} are allowed")
    steps: list[StepSpec] = []
    taken: dict[str, int] = {}
    for index, entry in enumerate(entries):
        spec = _step_from_json(entry, index, registry)
        other = taken.setdefault(spec.name, index)
        if other != index:
            raise DefinitionError(f"step {index}: step {other} already has the name {spec.name!r}")
        steps.append(spec)
    options: dict[str, Any] = {
        key: read(form[key], f"workflow {name!r}: {key}")
        for key, read in _RUN_READERS.items()
        if form.get(key) is not None
    }
    on_cancel = form.get("on_cancel")
    if on_cancel is not None:
        on_cancel, _ = _ref_from_json(on_cancel, registry, f"workflow {name!r}: on_cancel")
    return hashed(Definition(name=name, steps=tuple(steps), on_cancel=on_cancel, **options))


def nested(definition: Definition) -> Iterator[Definition]:
    """The definitions of the runs that this one starts, and of those that they start, each before its own."""
    for spec in definition.steps:
        if spec.child is not None:
            yield spec.child
            yield from nested(spec.child)


def read_label(value: object, where: str) -> str:
    """A version or a key as a user gave it, without the blanks around it."""
    return check_name(value.strip() if isinstance(value, str) else value, what=where)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a step's kind is read: whether it has a handler, which keys are its own, and what settings they give."""

    has_handler: bool
    keys: frozenset[str] = frozenset()
    settings: Callable[[Mapping[str, Json], str], State] = lambda _entry, _where: {}


def delay_settings(parts: Mapping[str, Any], where: str) -> State:
    """`{"seconds": total}` of the parts `seconds`, `minutes`, `hours` and `days` that are given; 0 is allowed."""
    total: float = 0
    for unit, seconds in _UNITS.items():
        part = parts.get(unit, 0)
        if isinstance(part, bool) or not isinstance(part, int | float):
            raise DefinitionError(f"{where}: {unit} must be a number, not {part!r}")
        total += part * seconds
    return {"seconds": plain_number(read_seconds(total, f"{where}: the sum"))}


_UNITS: Final = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}

_KINDS: Final[Mapping[str, _Kind]] = {
    "single": _Kind(has_handler=True),
    "delay": _Kind(has_handler=False, keys=frozenset(_UNITS), settings=delay_settings),
}

_RUN_READERS: Final[Mapping[str, Callable[[object, str], Any]]] = {
    "version": read_label,
    "queue": read_queue,
    "priority": read_priority,
    "max_attempts": read_attempts,
}

_WORKFLOW_KEYS: Final = frozenset({"name", "steps", "on_cancel", *_RUN_READERS})
_HANDLER_KEYS: Final = frozenset({"handler", "class"})
_STEP_KEYS: Final = frozenset({"type", "name"})


def _step_to_json(spec: StepSpec) -> dict[str, Json]:
    form: dict[str, Json] = {"type": spec.kind, "name": spec.name}
    if spec.handler is not None:
        form["handler"] = _ref_to_json(spec.handler)
    return {**form, **options_to_json(spec.options), **copy_json(dict(spec.settings))}


def _ref_to_json(ref: HandlerRef) -> Json:
    return {"handler": ref.name, "config": copy_json(dict(ref.config))} if ref.config else ref.name


def _step_from_json(entry: Json, index: int, registry: Registry | None) -> StepSpec:
    where = f"step {index}"
    if type(entry) is not dict:
        raise DefinitionError(f"{where} must be a JSON object, not {entry!r}")
    name = entry.get("name")
    if name is None:
        raise DefinitionError(f"{where}: name is missing")
    where = f"step {index} ({check_name(name, what=f'{where}: name')!r})"
    kind_name = entry.get("type")
    kind = _KINDS.get(kind_name) if isinstance(kind_name, str) else None
    if kind is None:
        raise DefinitionError(f"{where}: type must be one of {', '.join(sorted(_KINDS))}, not {kind_name!r}")
    if not kind.has_handler:
        _known_keys(entry, _STEP_KEYS | kind.keys, where)
        return StepSpec(str(kind_name), name, settings=kind.settings(entry, where))
    _known_keys(entry, _STEP_KEYS | _HANDLER_KEYS | kind.keys | OPTION_KEYS | {"retry", "config"}, where)
    target = _one_of(entry, _HANDLER_KEYS, where)
    ref, own = _ref_from_json(target, registry, f"{where}: handler")
    options = merged(_entry_options(entry, where), own)
    return StepSpec(str(kind_name), name, ref, options, kind.settings(entry, where))


def _entry_options(entry: Mapping[str, Json], where: str) -> Options:
    """The options of an entry: its own keys first, then those of `retry`, then those of `config`."""
    given = {key: value for key, value in entry.items() if key in OPTION_KEYS}
    options = options_from(given, where=where, of_entry=True)
    retry = entry.get("retry")
    if retry is not None:
        if type(retry) is not dict:
            raise DefinitionError(f"{where}: retry must be a JSON object, not {retry!r}")
        _known_keys(retry, frozenset({"max_attempts", "backoff"}), f"{where}: retry")
        options = merged(options, options_from(retry, where=f"{where}: retry"))
    config = entry.get("config")
    if config is None:
        return options
    if type(config) is not dict:
        raise DefinitionError(f"{where}: config must be a JSON object with options, not {config!r}")
    _known_keys(config, OPTION_KEYS | {"retry"}, f"{where}: config")
    return merged(options, _entry_options(config, f"{where}: config"))


def _ref_from_json(form: Json, registry: Registry | None, where: str) -> tuple[HandlerRef, Options]:
    config: Json = None
    if type(form) is dict:
        _known_keys(form, _HANDLER_KEYS | {"config", "payload"}, where)
        config = _one_of(form, frozenset({"config", "payload"}), where, default={})
        form = _one_of(form, _HANDLER_KEYS, where)
        if type(config) is not dict:
            raise DefinitionError(f"{where}: config must be a JSON object, not {config!r}")
    name = check_name(form, what=where)
    if registry is None:
        return HandlerRef(name, config or None), Options()
    return registry.ref(Bound(name, config or {}), HandlerKind.STEP, where=where)


def _one_of(form: Mapping[str, Json], keys: frozenset[str], where: str, default: Json = None) -> Json:
    given = [key for key in sorted(keys) if form.get(key) is not None]
    if len(given) > 1:
        raise DefinitionError(f"{where}: {' and '.join(given)} say the same thing; give one of them")
    if not given and default is None:
        raise DefinitionError(f"{where}: {' or '.join(sorted(keys, reverse=True))} is missing")
    return form[given[0]] if given else default


def _known_keys(form: Mapping[str, Json], known: frozenset[str], where: str) -> None:
    unknown = sorted(form.keys() - known)
    if unknown:
        raise DefinitionError(f"{where}: there is no key {unknown[0]!r}; there are {', '.join(sorted(known))}")
