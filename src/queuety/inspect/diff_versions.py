"""The versions of a workflow's definition that the database has, and which of them is meant by what somebody says."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from queuety.codec import decode
from queuety.define.wire import definition_from_json
from queuety.errors import DefinitionError, NotFoundError, PayloadError
from queuety.inspect.limits import checked_text
from queuety.model import Definition
from queuety.store.queries import Record, changing
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

SHORTEST: Final = 8
"""How many digits of a hash say which one is meant."""

_SHOWN: Final = 20
"""How many steps a message names."""

_HASH: Final = re.compile(rf"[0-9a-f]{{{SHORTEST},64}}")


@dataclass(frozen=True, slots=True)
class Version:
    """A definition, with the label that it was given and when it was stored; None for one that is not.

    `definition` is None where this version of the package cannot read it, which `problem` then says.
    """

    hash: str
    label: str | None
    stored_us: int | None
    definition: Definition | None
    problem: str | None = None

    def read(self) -> Definition:
        """The definition. Raises `DefinitionError` if it cannot be read."""
        if self.definition is None:
            raise DefinitionError(f"definition {self.hash[:12]} cannot be read: {self.problem}; upgrade this process")
        return self.definition


def versions_of(connection: Connection, tables: Tables, name: str) -> list[Version]:
    """Every version of the workflow that is stored, the last one first.

    Raises `NotFoundError` if there is none, `DefinitionError` for what can be no name.
    """
    found = [_version(row) for row in changing.versions(connection, tables, checked_text(name, what="name"))]
    if not found:
        raise NotFoundError(f"no definition of a workflow named {name!r} is stored: none was ever dispatched")
    return found


def of_code(definition: Definition, among: Sequence[Version]) -> Version:
    """The version that the code describes: the stored one, if it is."""
    for version in among:
        if version.hash == definition.hash:
            return version
    return Version(definition.hash, definition.version, None, definition)


def meant(said: str, among: Sequence[Version], name: str) -> Version:
    """The version with this label, or whose hash begins so.

    Raises `NotFoundError` if there is none, `DefinitionError` if there are several.
    """
    if not isinstance(said, str):
        raise DefinitionError(f"{said!r} is no version; a label or a hash is needed")
    found = [version for version in among if version.label == said]
    if not found and _HASH.fullmatch(said):
        found = [version for version in among if version.hash.startswith(said)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{one.hash[:12]}{f' ({one.label})' if one.label else ''}" for one in found or among)
    if found:
        raise DefinitionError(f"{said!r} is meant by {len(found)} definitions of {name!r}: {known}; give one's hash")
    raise NotFoundError(
        f"no definition of workflow {name!r} has the version {said!r}, or a hash that begins so (at least {SHORTEST} "
        f"digits); stored are {known}"
    )


def checked_map(step_map: Mapping[str, str] | None, versions: Iterable[Version], target: Version) -> dict[str, str]:
    """The step map, if it leads from steps that there are or were to steps of the target. Raises `DefinitionError`."""
    if not isinstance(step_map, Mapping | None):
        raise DefinitionError(f"step_map={step_map!r}: a mapping of the names of steps is needed")
    given = dict(step_map or {})
    there = {spec.name for spec in target.read().steps}
    known = {spec.name for one in versions if one.definition is not None for spec in one.definition.steps}
    for old, new in given.items():
        if old not in known:
            raise DefinitionError(f"step_map: no version has a step {old!r}; there are {_listed(known)}")
        if new not in there:
            raise DefinitionError(
                f"step_map: the definition {target.hash[:12]} has no step {new!r}; there are {_listed(there)}"
            )
    return given


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _version(row: Record) -> Version:
    """The version that a row holds. It goes by the hash under which it is stored, as its runs do."""
    definition, problem = None, None
    try:
        definition = replace(definition_from_json(decode(row["body"]), None), hash=row["hash"])
    except (PayloadError, DefinitionError) as error:
        problem = str(error)
    return Version(row["hash"], row["version"], row["created_us"], definition, problem)
