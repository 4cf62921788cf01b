"""What has changed in a workflow since its runs have begun, and which of them could go on under another version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from queuety.errors import DefinitionError
from queuety.inspect.diff_runs import RunMove, moves_of, plan_of, run_moves
from queuety.inspect.diff_steps import DefinitionChange, changes_between
from queuety.inspect.diff_versions import Version, checked_map, meant, of_code, versions_of
from queuety.inspect.limits import checked_count
from queuety.inspect.states import moment
from queuety.model import Definition
from queuety.store.queries import changing
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

CAP: Final = 10_000
"""How far open runs are counted."""


@dataclass(frozen=True, slots=True)
class DefinitionVersion:
    """A version of a workflow: its label, when it was first dispatched, how many runs under it are not over.

    Failed runs count, since they can be retried. `stored_at` is None for what the code has and nobody has dispatched.
    """

    hash: str
    version: str | None
    stored_at: datetime | None
    open_runs: int


@dataclass(frozen=True, slots=True)
class WorkflowDiff:
    """The versions of a workflow, the one stored last first, and what moving to `target`, a hash, would mean.

    `changes` compares the target with each other version that has open runs. `runs` are open runs under those versions,
    the oldest first; with `has_more_runs` there are more. Open runs are counted up to 10,000 of all versions together.
    """

    name: str
    target: str
    versions: tuple[DefinitionVersion, ...]
    changes: tuple[DefinitionChange, ...]
    runs: tuple[RunMove, ...]
    has_more_runs: bool


def workflow_diff(
    connection: Connection,
    tables: Tables,
    name: str,
    *,
    to: str | Definition | None,
    from_: str | None,
    step_map: Mapping[str, str] | None,
    limit: int,
    now_us: int,
) -> WorkflowDiff:
    """What changed between versions, and whether each open run, at most `limit` of them, could move to the target.

    Without `to` that is the version stored last. With `from_` only that version and its runs are compared. Raises
    `NotFoundError` for a name or version that is not stored, `DefinitionError` for one that cannot be read, or a step
    map that does not fit.
    """
    most = checked_count(limit, what="limit")
    versions = versions_of(connection, tables, name)
    target = target_of(to, versions, name)
    if target.stored_us is None:
        versions = [target, *versions]
    counts = changing.open_counts(connection, tables, [one.hash for one in versions], cap=CAP)
    if from_ is None:
        sources = [one for one in versions if one.hash != target.hash and counts.get(one.hash)]
    else:
        sources = [meant(from_, versions, name)]
        if sources[0].hash == target.hash:
            raise DefinitionError(f"from_={from_!r} is the definition {target.hash[:12]} itself; name two versions")
    plan = plan_of(name, versions, target, checked_map(step_map, versions, target))
    hashes = [one.hash for one in sources]
    rows = changing.open_runs(connection, tables, hashes, limit=most + 1) if hashes else []
    shown = rows[:most]
    moves = moves_of(connection, tables, shown, plan, now_us=now_us)
    return WorkflowDiff(
        name,
        target.hash,
        tuple(_shown(one, counts.get(one.hash, 0)) for one in versions),
        tuple(changes_between(plan.pairings[hash_]) for hash_ in hashes if hash_ in plan.pairings),
        run_moves(shown, moves, plan),
        len(rows) > most,
    )


def target_of(to: str | Definition | None, versions: Sequence[Version], name: str) -> Version:
    """The version that is meant: by what somebody says, as the code has it, or the one stored last.

    Raises `NotFoundError`, and `DefinitionError` for a definition of another workflow.
    """
    if to is None:
        return versions[0]
    if isinstance(to, str):
        return meant(to, versions, name)
    if to.name != name:
        raise DefinitionError(f"that is a definition of workflow {to.name!r}, not of {name!r}")
    return of_code(to, versions)


def _shown(version: Version, open_runs: int) -> DefinitionVersion:
    return DefinitionVersion(
        version.hash,
        version.label,
        None if version.stored_us is None else moment(version.stored_us),
        open_runs,
    )
