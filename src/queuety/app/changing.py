"""Verbs of changing a workflow while runs of it are under way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from queuety.app.core import Core, known_id, read_count
from queuety.app.results import BulkResult
from queuety.app.steering import checked_by
from queuety.codec import decode
from queuety.commands.steer import By, tell
from queuety.define.builder import WorkflowBuilder
from queuety.engine.migrating import Move, MoveVerdict
from queuety.errors import DefinitionError, InvalidStateError, NotFoundError
from queuety.inspect import diff, diff_runs, diff_versions
from queuety.inspect.diff import WorkflowDiff
from queuety.inspect.diff_versions import Version
from queuety.model import Commanded, Definition, Migrate
from queuety.store.queries import Record, changing

if TYPE_CHECKING:
    from sqlalchemy import Connection

AT_ONCE: Final = 200
"""Runs that are looked at before those of them that can be are moved."""

StepMap = Mapping[str, str]
NO_MAP: Final[StepMap] = {}


class ChangingVerbs(Core):
    """What can be done when a workflow has changed."""

    def workflow_diff(
        self,
        name: str,
        to: str | WorkflowBuilder | None = None,
        from_: str | None = None,
        *,
        step_map: Mapping[str, str] | None = None,
        limit: int = 100,
    ) -> WorkflowDiff:
        """The versions of a workflow, what changed, and whether each open run could move to the version `to`.

        `to` and `from_` are a version's label or its hash (the first 8 digits will do), `to` also a builder, which is
        not stored by this. Without `to` the version stored last is meant, without `from_` every other one that has open
        runs. At most `limit` runs are looked at. Raises `NotFoundError` for a workflow or version that is not stored,
        `DefinitionError` for a step map that does not fit.
        """
        wanted = self._wanted(to)
        with self.door.reading(one_moment=True) as connection:
            tables = self._door.tables
            versions = diff_versions.versions_of(connection, tables, name)
            target = diff.target_of(wanted, versions, name)
            return diff.workflow_diff(
                connection,
                tables,
                name,
                to=wanted,
                from_=from_,
                step_map=_checked_map(step_map, versions, target),
                limit=limit,
                now_us=self._door.now_us(),
            )

    def migrate_workflow(
        self,
        workflow_id: int,
        to: str | WorkflowBuilder,
        step_map: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Move:
        """Moves a run to another version of its workflow, where it goes on from then on; tells what that means for it.

        `to` is as in `workflow_diff`; a builder's definition is stored first. `step_map` says which steps are called
        otherwise there, old name to new. With `dry_run` nothing is written, and a run that cannot be moved is no error.
        Raises `InvalidStateError`, which says why, if the run cannot be moved as it stands, `NotFoundError` for an
        unknown run or version, `DefinitionError` for a step map that does not fit.
        """
        wanted, by = self._wanted(to), checked_by(actor, reason)
        with self.door.reading(one_moment=True) as connection:
            row, versions = self._standing(connection, workflow_id)
            name = changing.name_of(connection, self._door.tables, row["definition_hash"]) or row["name"]
            target = diff.target_of(wanted, versions, name)
            checked = _checked_map(step_map, versions, target)
            if dry_run:
                return self._moves(connection, [row], versions, target, checked)[workflow_id]
        self._store(wanted)
        operation = self._move(workflow_id, target.read(), checked, by)
        with self.door.reading() as connection:
            return _move_told(changing.control_of(connection, self._door.tables, workflow_id, operation))

    def migrate_workflows(
        self,
        name: str,
        to: str | WorkflowBuilder,
        step_map: Mapping[str, str] | None = None,
        *,
        ids: Iterable[int] | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """Moves the open runs of a workflow to another version of it, the oldest first, each in its own transaction.

        One that cannot be moved is told of and stops no other. `ids` are those that are meant, if not all; at most
        `limit` are moved. The rest as in `migrate_workflow`.
        """
        wanted, by = self._wanted(to), checked_by(actor, reason)
        most = None if limit is None else read_count(limit, "limit", least=1)
        chosen = None if ids is None else sorted({workflow_id for one in ids if (workflow_id := known_id(one, "ids"))})
        with self.door.reading(one_moment=True) as connection:
            versions = diff_versions.versions_of(connection, self._door.tables, name)
            target = diff.target_of(wanted, versions, name)
            checked = _checked_map(step_map, versions, target)
            definition = target.read()
        if not dry_run:
            self._store(wanted)
        result = BulkResult(dry_run=dry_run)
        for workflow_id, move in self._found(name, versions, target, checked, chosen):
            if most is not None and len(result.done) >= most:
                break
            if move.verdict is not MoveVerdict.SAFE:
                result.refused[workflow_id] = f"{move.verdict}: {move.reason}"
                continue
            try:
                if not dry_run:
                    self._move(workflow_id, definition, checked, by)
            except (InvalidStateError, NotFoundError) as error:  # it has gone on since it was looked at
                result.refused[workflow_id] = str(error)
            else:
                result.done.append(workflow_id)
        return result

    def _found(
        self, name: str, versions: Sequence[Version], target: Version, step_map: StepMap, ids: Sequence[int] | None
    ) -> Iterator[tuple[int, Move]]:
        """The runs that are meant with what is found of each, `AT_ONCE` at a time, in order of their ids."""
        after_id, tables = 0, self._door.tables
        hashes = [version.hash for version in versions if version.hash != target.hash]
        while True:
            with self.door.reading(one_moment=True) as connection:
                if ids is not None:
                    some = [workflow_id for workflow_id in ids if workflow_id > after_id][:AT_ONCE]
                    rows = changing.runs(connection, tables, some)
                else:
                    rows = changing.open_runs(connection, tables, hashes, after_id=after_id, limit=AT_ONCE)
                    some = [row["id"] for row in rows]
                own = [row for row in rows if row["definition_hash"] in {one.hash for one in versions}]
                moves = self._moves(connection, own, versions, target, step_map) if own else {}
            if not some:
                return
            strange = {row["id"] for row in rows} - moves.keys()
            for workflow_id in some:
                if workflow_id in moves:
                    yield workflow_id, moves[workflow_id]
                elif workflow_id in strange:
                    yield workflow_id, Move(MoveVerdict.BLOCKED, f"it is no run of workflow {name!r}")
                else:
                    yield workflow_id, Move(MoveVerdict.BLOCKED, f"no workflow has the id {workflow_id}")
            after_id = some[-1]

    def _moves(
        self,
        connection: Connection,
        rows: Sequence[Record],
        versions: Collection[Version],
        target: Version,
        step_map: StepMap,
    ) -> dict[int, Move]:
        known = {version.hash: version for version in (*versions, target)}
        return diff_runs.moves_of(
            connection,
            self._door.tables,
            rows,
            known.values(),
            target.read(),
            step_map,
            now_us=self._door.now_us(),
        )

    def _standing(self, connection: Connection, workflow_id: int) -> tuple[Record, list[Version]]:
        """Where the run stands, and the versions of its workflow. Raises `NotFoundError`."""
        known = known_id(workflow_id, "workflow_id")
        rows = [] if known is None else changing.runs(connection, self._door.tables, [known])
        if not rows:
            raise NotFoundError(f"no workflow has the id {workflow_id}")
        name = changing.name_of(connection, self._door.tables, rows[0]["definition_hash"])
        if name is None:
            raise NotFoundError(f"the definition of workflow {workflow_id} is not in the database; it cannot be moved")
        return rows[0], diff_versions.versions_of(connection, self._door.tables, name)

    def _wanted(self, to: Any) -> str | Definition | None:
        """The definition that a builder describes; what else may be said is left as it is. Raises `DefinitionError`."""
        if isinstance(to, WorkflowBuilder):
            return to.build(self.registry)
        if to is None or isinstance(to, str):
            return to
        raise DefinitionError(f"to={to!r}: a version's label, a hash, or what workflow(name).then(…) gives is needed")

    def _store(self, wanted: str | Definition | None) -> None:
        if isinstance(wanted, Definition):
            self.definitions.ensure(self.door, wanted)

    def _move(self, workflow_id: int, definition: Definition, step_map: StepMap, by: By) -> int:
        """Moves the run; gives back the operation under which its history has it."""
        made: list[int] = []

        def event(operation: int) -> Commanded:
            made.append(operation)
            return Commanded(Migrate(definition, step_map), operation, by.actor, by.reason)

        tell(self.door, self.definitions, workflow_id, event)
        self._ring()
        return made[-1]


def _move_told(control: str | None) -> Move:
    """What a migration has meant, as its row tells."""
    told = (decode(control) if control else {}).get("_migrated", {})
    return Move(MoveVerdict.SAFE, told.get("why", ""), told.get("to_step"), bool(told.get("keeps_visit")))


def _checked_map(step_map: Mapping[str, str] | None, versions: Iterable[Version], target: Version) -> StepMap:
    """The step map, if it leads from steps that there are or were to steps of the target. Raises `DefinitionError`."""
    given = dict(step_map or NO_MAP)
    there = {spec.name for spec in target.read().steps}
    known = {spec.name for one in versions if one.definition is not None for spec in one.definition.steps}
    for old, new in given.items():
        if old not in known:
            raise DefinitionError(
                f"step_map: no version of the workflow has a step {old!r}; there are {_listed(known)}"
            )
        if new not in there:
            raise DefinitionError(
                f"step_map: the definition {target.hash[:12]} has no step {new!r}; there are {_listed(there)}"
            )
    return given


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
