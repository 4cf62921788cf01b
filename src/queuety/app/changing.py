"""Verbs of changing a workflow while runs of it are under way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from queuety.inspect.diff_runs import Plan
from queuety.model import Commanded, Definition, Migrate
from queuety.store.queries import changing

if TYPE_CHECKING:
    from sqlalchemy import Connection

AT_ONCE: Final = 200
"""Runs that are looked at before those of them that can be are moved."""


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
        with self.door.reading(one_moment=True) as connection:
            return diff.workflow_diff(
                connection,
                self._door.tables,
                name,
                to=self._wanted(to),
                from_=from_,
                step_map=step_map,
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
            name = self._name_of(connection, workflow_id)
            plan = self._plan(connection, name, wanted, step_map)
            if dry_run:
                return self._moves(connection, plan, [workflow_id])[workflow_id]
        self._store(wanted)
        operation = self._move(workflow_id, plan, by)
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
        if not isinstance(ids, Iterable | None):
            raise DefinitionError(f"ids={ids!r}: a list of the ids of runs is needed, or None for all")
        chosen = None if ids is None else sorted({workflow_id for one in ids if (workflow_id := known_id(one, "ids"))})
        with self.door.reading(one_moment=True) as connection:
            plan = self._plan(connection, name, wanted, step_map)
        if not dry_run:
            self._store(wanted)
        result = BulkResult(dry_run=dry_run)
        for workflow_id, move in self._found(plan, chosen):
            if most is not None and len(result.done) >= most:
                break
            if move.verdict is not MoveVerdict.SAFE:
                result.refused[workflow_id] = f"{move.verdict}: {move.reason}"
                continue
            try:
                if not dry_run:
                    self._move(workflow_id, plan, by)
            except (InvalidStateError, NotFoundError) as error:  # it has gone on since it was looked at
                result.refused[workflow_id] = str(error)
            else:
                result.done.append(workflow_id)
        return result

    def _found(self, plan: Plan, ids: Sequence[int] | None) -> Iterator[tuple[int, Move]]:
        """The runs that are meant with what is found of each, `AT_ONCE` at a time, in order of their ids."""
        after_id = 0
        while True:
            with self.door.reading(one_moment=True) as connection:
                some = self._moves(connection, plan, ids, after_id)
            if not some:
                return
            yield from some.items()
            after_id = max(some)

    def _moves(
        self, connection: Connection, plan: Plan, ids: Sequence[int] | None, after_id: int = 0
    ) -> dict[int, Move]:
        now_us = self._door.now_us()
        return diff_runs.moves_of_open(
            connection, self._door.tables, plan, ids=ids, after_id=after_id, limit=AT_ONCE, now_us=now_us
        )

    def _plan(
        self,
        connection: Connection,
        name: str,
        wanted: str | Definition | None,
        step_map: Mapping[str, str] | None,
    ) -> Plan:
        """Where runs of this workflow are to be moved. Raises `NotFoundError` and `DefinitionError`."""
        versions = diff_versions.versions_of(connection, self._door.tables, name)
        target = diff.target_of(wanted, versions, name)
        return diff_runs.plan_of(name, versions, target, diff_versions.checked_map(step_map, versions, target))

    def _name_of(self, connection: Connection, workflow_id: int) -> str:
        """The name of the workflow of which that is a run. Raises `NotFoundError`."""
        known = known_id(workflow_id, "workflow_id")
        rows = [] if known is None else changing.runs(connection, self._door.tables, [known])
        if not rows:
            raise NotFoundError(f"no workflow has the id {workflow_id}")
        name = changing.name_of(connection, self._door.tables, rows[0]["definition_hash"])
        if name is None:
            raise NotFoundError(f"the definition of workflow {workflow_id} is not in the database; it cannot be moved")
        return name

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

    def _move(self, workflow_id: int, plan: Plan, by: By) -> int:
        """Moves the run; gives back the operation under which its history has it."""
        made: list[int] = []

        def event(operation: int) -> Commanded:
            made.append(operation)
            return Commanded(Migrate(plan.target.read(), plan.step_map), operation, by.actor, by.reason)

        tell(self.door, self.definitions, workflow_id, event)
        self._ring()
        return made[-1]


def _move_told(control: str | None) -> Move:
    """What a migration has meant, as its row tells."""
    told = (decode(control) if control else {}).get("_migrated", {})
    return Move(MoveVerdict.SAFE, told.get("why", ""), told.get("to_step"), bool(told.get("keeps_visit")))
