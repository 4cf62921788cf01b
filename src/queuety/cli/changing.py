"""Commands for a workflow that has changed while runs of it are under way: `queuety workflow diff`, `migrate`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from queuety.app.results import BulkResult
from queuety.cli import starts
from queuety.cli.exits import Refusal
from queuety.cli.many import By, asked, tell
from queuety.cli.options import FormatOption, LimitOption, a_count, an_id, command
from queuety.cli.output import Column, Format, readable, say, short, show_json, show_table
from queuety.cli.target import Place
from queuety.cli.times import exact
from queuety.errors import InvalidStateError, NotFoundError

if TYPE_CHECKING:
    from queuety import Queuety
    from queuety.define.builder import WorkflowBuilder
    from queuety.inspect.diff import WorkflowDiff
    from queuety.inspect.diff_steps import DefinitionChange, Difference, StepChange

TARGET_HELP: Final = "Its label, the first digits of its hash (8 or more), or module:attribute of a builder."
_BUILDER: Final = re.compile(r"[\w.]+:[A-Za-z_][\w.]*")

MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--step-map",
        metavar="OLD=NEW",
        help="A step that is called otherwise in the new version; may be given again.",
        show_default=False,
    ),
]


def add_to(group: typer.Typer) -> None:
    """Adds the commands of this file."""
    command(group, "diff")(diff)
    command(group, "migrate")(asked(migrate))


def diff(
    place: Place,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The workflow's name.", show_default=False)],
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="VERSION", help="Only this version; else all that have open runs."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="VERSION", help=f"The version to move to; else the one stored last. {TARGET_HELP}"
        ),
    ] = None,
    step_map: MapOption = None,
    limit: LimitOption = 100,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show versions, changes, and which open runs could move."""
    with place.opened() as app:
        found = app.workflow_diff(name, _meant(to, app, place), from_, step_map=_map(step_map), limit=limit)
    if form is Format.JSON:
        show_json(found)
    else:
        _show(found)


def migrate(
    place: Place,
    ids: Annotated[
        list[int] | None,
        typer.Argument(parser=an_id, metavar="ID", help="The runs.", show_default=False),
    ] = None,
    to: Annotated[
        str, typer.Option("--to", metavar="VERSION", help=f"The version to move to. {TARGET_HELP}", show_default=False)
    ] = "",
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Instead of ids: all open runs of this workflow.", show_default=False
        ),
    ] = None,
    step_map: MapOption = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", parser=a_count, metavar="N", help="With --name: move at most so many, the oldest."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and refused; do nothing.")] = False,
    *,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Move runs to another version of their workflow.

    Each goes on from where it stands.
    """
    if not to.strip():
        raise Refusal(
            "say --to: the version to move to, as `queuety workflow diff NAME` lists them, or module:attribute"
        )
    if bool(ids) == (name is not None):
        raise Refusal("say either the ID of each run, or --name for all open runs of a workflow")
    if limit is not None and name is None:
        raise Refusal("--limit goes with --name")
    given = _map(step_map)
    with place.opened() as app:
        target = _meant(to.strip(), app, place) or ""
        if name is not None:
            tell(app.migrate_workflows(name, target, given, dry_run=dry_run, limit=limit, **by), form)
            return
        result = BulkResult(dry_run=dry_run)
        reasons: list[str] = []
        for workflow_id in dict.fromkeys(ids or ()):
            try:
                move = app.migrate_workflow(workflow_id, target, given, dry_run=dry_run, **by)
            except (InvalidStateError, NotFoundError) as error:
                if len(ids or ()) == 1:
                    raise
                result.refused[workflow_id] = str(error)
                continue
            if move.verdict == "safe":
                result.done.append(workflow_id)
                reasons.append(move.reason)
            else:
                result.refused[workflow_id] = f"{move.verdict}: {move.reason}"
    if form is Format.JSON or len(ids or ()) > 1 or result.refused:
        tell(result, form)
    else:
        say(f"workflow {result.done[0]} {'could be moved' if dry_run else 'was moved'}: {reasons[0]}")


def _meant(to: str | None, app: Queuety, place: Place) -> str | WorkflowBuilder | None:
    """The version that is meant: a builder of the code's, if it is named so. Raises `Refusal` for one that is none."""
    if to is None or not _BUILDER.fullmatch(to):
        return to
    return starts.builder_of(to, app, place.target())


def _map(given: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given or ():
        old, equals, new = one.partition("=")
        if not (equals and old.strip() and new.strip()):
            raise Refusal(f"--step-map {one!r}: OLD=NEW is needed, the name of a step here and there")
        if found.setdefault(old.strip(), new.strip()) != new.strip():
            raise Refusal(f"--step-map: step {old.strip()!r} is given twice")
    return found


def _show(found: WorkflowDiff) -> None:
    labels = {version.hash: version.version for version in found.versions}

    def called(definition_hash: str) -> str:
        label = labels.get(definition_hash)
        return definition_hash[:12] + (f" ({label})" if label else "")

    columns = (
        Column("version"),
        Column("hash", whole=True),
        Column("stored (UTC)", whole=True),
        Column("open runs", right=True, whole=True),
        Column("", whole=True),
    )
    rows = [
        (
            version.version or "",
            version.hash[:12],
            exact(version.stored_at) if version.stored_at else "not stored",
            str(version.open_runs),
            "to this one" if version.hash == found.target else "",
        )
        for version in found.versions
    ]
    show_table(columns, rows, empty="no versions")
    for change in found.changes:
        say("")
        say(f"from {called(change.from_hash)} to {called(change.to_hash)}:")
        show_table(
            (Column("what", whole=True), Column("step"), Column("change")), _changes(change), empty="  no change"
        )
        if change.step_map:
            said = " ".join(f"--step-map {old}={new}" for old, new in change.step_map.items())
            say(f"if these were renamed, say {said}")
    say("")
    runs = [
        (
            str(run.workflow_id),
            run.status,
            run.definition_hash[:12],
            run.current_step_name or str(run.current_step),
            run.verdict,
            run.reason,
        )
        for run in found.runs
    ]
    standing = (
        Column("id", right=True, whole=True),
        Column("status", whole=True),
        Column("hash", whole=True),
        Column("step"),
        Column("verdict", whole=True),
        Column("why"),
    )
    show_table(standing, runs, empty="no open runs under another version")
    if found.has_more_runs:
        say(f"and more: these are the {len(found.runs)} oldest (--limit)")


def _changes(change: DefinitionChange) -> list[tuple[str, str, str]]:
    rows = [("options", "", _difference(one)) for one in change.options]
    for step in change.steps:
        told = [_difference(one) for one in step.differences] or [""]
        rows.append((step.fate.replace("_", " "), _step(step), told[0]))
        rows += [("", "", one) for one in told[1:]]
    return rows


def _step(step: StepChange) -> str:
    if step.name is None or step.to_name is None:
        return f"{step.name or step.to_name} ({step.index if step.to_index is None else step.to_index})"
    name = step.name if step.name == step.to_name else f"{step.name} → {step.to_name}"
    place = f"{step.index}" if step.index == step.to_index else f"{step.index} → {step.to_index}"
    return f"{name} ({place})"


def _difference(one: Difference) -> str:
    return f"{one.key}: {_value(one.before)} → {_value(one.after)}"


def _value(value: object) -> str:
    return "-" if value is None else short(" ".join(readable(value).split()), 60)
