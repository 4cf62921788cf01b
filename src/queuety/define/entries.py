"""A step as an entry of a definition's JSON form, and the strict way back.

What the kinds differ in stands in `forms`; here are the parts that all are made of: handlers, options, branches and
the definitions of other runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from queuety.codec import copy_json
from queuety.define.forms import FORMS
from queuety.define.forms.form import Form
from queuety.define.marks import Bound, HandlerKind
from queuety.define.names import check_name
from queuety.define.options import OPTION_KEYS, merged, options_from, options_to_json
from queuety.define.registry import Registry
from queuety.errors import DefinitionError
from queuety.model import Branch, Definition, HandlerRef, Json, Options, StepSpec, Use

HANDLER_KEYS: Final = frozenset({"handler", "class"})
_CALL_KEYS: Final = OPTION_KEYS | {"retry", "resources", "config", "payload"}
_UNDO_KEYS: Final = frozenset({"compensation", "compensate_with"})
_STEP_KEYS: Final = frozenset({"type", "name"}) | _UNDO_KEYS
_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "retry": frozenset({"max_attempts", "backoff"}),
    "resources": frozenset({"cost_units"}),
}
"""Options that an entry may also give together, under these names."""


def step_to_json(spec: StepSpec, child_to_json: Callable[[Definition], Json]) -> dict[str, Json]:
    """The entry of a step."""
    form: dict[str, Json] = {"type": spec.kind, "name": spec.name}
    if spec.handler is not None:
        known = FORMS.get(spec.kind)
        form[(known and known.handler) or "handler"] = ref_to_json(spec.handler)
    form.update(options_to_json(spec.options))
    form.update(copy_json(dict(spec.settings)))
    if spec.branches:
        form["branches"] = [_branch_to_json(branch) for branch in spec.branches]
    if spec.reducer is not None:
        form["reducer"] = ref_to_json(spec.reducer)
    if spec.child is not None:
        form["workflow"] = child_to_json(spec.child)
    if spec.compensation is not None:
        form["compensation"] = ref_to_json(spec.compensation)
    return form


def ref_to_json(ref: HandlerRef) -> Json:
    """The name of a handler, or `{"handler": name, "config": {…}}` of one with a configuration."""
    return {"handler": ref.name, "config": copy_json(dict(ref.config))} if ref.config else ref.name


def step_from_json(
    entry: Json, index: int, registry: Registry | None, child_from_json: Callable[[Json, str], Definition]
) -> StepSpec:
    """The step of an entry; `child_from_json` reads the definition of the runs that it starts."""
    where = f"step {index}"
    if type(entry) is not dict:
        raise DefinitionError(f"{where} must be a JSON object, not {entry!r}")
    name = entry.get("name")
    if name is None:
        raise DefinitionError(f"{where}: name is missing")
    where = f"step {index} ({check_name(name, what=f'{where}: name')!r})"
    kind = entry.get("type")
    form = FORMS.get(kind) if isinstance(kind, str) else None
    if form is None:
        raise DefinitionError(f"{where}: type must be one of {', '.join(sorted(FORMS))}, not {kind!r}")
    known_keys(entry, _keys_of(form), where)
    ref, options = _handler_of(entry, form, registry, where)
    child = None
    if form.has_child:
        if entry.get("workflow") is None:
            raise DefinitionError(f"{where}: workflow is missing")
        child = child_from_json(entry["workflow"], where)
    reducer = entry.get("reducer")
    if reducer is not None:
        reducer, _ = ref_from_json(reducer, registry, f"{where}: reducer", Use.REDUCER)
    branches = _branches_of(entry, registry, where) if form.has_branches else ()
    undo = _undo_of(entry, registry, where)
    return StepSpec(str(kind), name, ref, options, form.settings(entry, where), branches, reducer, child, undo)


def ref_from_json(
    form: Json,
    registry: Registry | None,
    where: str,
    use: Use = Use.STEP,
    payload: Mapping[str, Json] | None = None,
) -> tuple[HandlerRef, Options]:
    """The handler of a name, or of an object that adds its configuration, and with a registry its own options.

    `payload` is configuration from elsewhere; what stands beside the name wins.
    """
    config: Json = None
    if type(form) is dict:
        known_keys(form, HANDLER_KEYS | {"config", "payload"}, where)
        config = _one_of(form, frozenset({"config", "payload"}), where, default={})
        form = _one_of(form, HANDLER_KEYS, where)
        if type(config) is not dict:
            raise DefinitionError(f"{where}: config must be a JSON object, not {config!r}")
    config = {**(payload or {}), **(config or {})}
    name = check_name(form, what=where)
    if registry is None:
        return HandlerRef(name, config or None), Options()
    return registry.ref(Bound(name, config), HandlerKind.STEP, where=where, use=use)


def known_keys(form: Mapping[str, Json], known: frozenset[str], where: str) -> None:
    """Raises `DefinitionError` that names a key which is not known, and those that are."""
    unknown = sorted(form.keys() - known)
    if unknown:
        raise DefinitionError(f"{where}: there is no key {unknown[0]!r}; there are {', '.join(sorted(known))}")


def _keys_of(form: Form) -> frozenset[str]:
    keys = _STEP_KEYS | form.keys
    if form.handler is not None:
        keys |= _CALL_KEYS | (HANDLER_KEYS if form.handler == "handler" else {form.handler})
    if form.has_branches:
        keys |= _CALL_KEYS | {"branches"}
    if form.has_reducer:
        keys |= {"reducer"}
    return keys | {"workflow"} if form.has_child else keys


def _handler_of(
    entry: Mapping[str, Json], form: Form, registry: Registry | None, where: str
) -> tuple[HandlerRef | None, Options]:
    if form.handler is None:
        return None, Options()
    options = _options_of(entry, where)
    keys = HANDLER_KEYS if form.handler == "handler" else frozenset({form.handler})
    if not form.needs_handler and entry.get(form.handler) is None:
        if entry.keys() & _CALL_KEYS:
            given = min(entry.keys() & _CALL_KEYS)
            raise DefinitionError(f"{where}: {given} says how a {form.handler} is called, and there is none")
        return None, options
    target = _one_of(entry, keys, where)
    ref, own = ref_from_json(target, registry, f"{where}: {form.handler}", form.use, _payload_of(entry, where))
    return ref, merged(options, own)


def _undo_of(entry: Mapping[str, Json], registry: Registry | None, where: str) -> HandlerRef | None:
    if all(entry.get(key) is None for key in _UNDO_KEYS):
        return None
    handler = _one_of(entry, _UNDO_KEYS, where)
    return ref_from_json(handler, registry, f"{where}: compensation", Use.CLEANUP)[0]


def _branch_to_json(branch: Branch) -> Json:
    form = ref_to_json(branch.handler)
    if branch.options == Options() and type(form) is str:
        return form
    return {"handler": form, **options_to_json(branch.options)}


def _branches_of(entry: Mapping[str, Json], registry: Registry | None, where: str) -> tuple[Branch, ...]:
    forms = entry.get("branches")
    if type(forms) is not list or not forms:
        raise DefinitionError(f"{where}: branches must be a list with at least one handler")
    options, payload = _options_of(entry, where), _payload_of(entry, where)
    branches = []
    for number, form in enumerate(forms):
        called = f"{where}: branch {number}"
        branch: Mapping[str, Json] = form if type(form) is dict else {"handler": form}
        known_keys(branch, HANDLER_KEYS | _CALL_KEYS, called)
        target = _one_of(branch, HANDLER_KEYS, called)
        ref, own = ref_from_json(target, registry, called, payload={**payload, **_payload_of(branch, called)})
        branches.append(Branch(ref, merged(merged(_options_of(branch, called), options), own)))
    return tuple(branches)


def _options_of(entry: Mapping[str, Json], where: str) -> Options:
    """The options of an entry: its own keys first, then those of `retry` and `resources`, then those of `config`."""
    given = {key: value for key, value in entry.items() if key in OPTION_KEYS}
    options = options_from(given, where=where, of_entry=True)
    for key, known in _PARTS.items():
        part = entry.get(key)
        if part is None:
            continue
        if type(part) is not dict:
            raise DefinitionError(f"{where}: {key} must be a JSON object, not {part!r}")
        known_keys(part, known, f"{where}: {key}")
        options = merged(options, options_from(part, where=f"{where}: {key}"))
    config = entry.get("config")
    if config is None:
        return options
    if type(config) is not dict:
        raise DefinitionError(f"{where}: config must be a JSON object with options, not {config!r}")
    known_keys(config, OPTION_KEYS | _PARTS.keys(), f"{where}: config")
    return merged(options, _options_of(config, f"{where}: config"))


def _payload_of(entry: Mapping[str, Json], where: str) -> Mapping[str, Json]:
    payload = entry.get("payload")
    if payload is None:
        return {}
    if type(payload) is not dict:
        raise DefinitionError(f"{where}: payload must be a JSON object, not {payload!r}")
    return payload


def _one_of(form: Mapping[str, Json], keys: frozenset[str], where: str, default: Json = None) -> Json:
    given = [key for key in sorted(keys) if form.get(key) is not None]
    if len(given) > 1:
        raise DefinitionError(f"{where}: {' and '.join(given)} say the same thing; give one of them")
    if not given and default is None:
        raise DefinitionError(f"{where}: {' or '.join(sorted(keys, reverse=True))} is missing")
    return form[given[0]] if given else default
