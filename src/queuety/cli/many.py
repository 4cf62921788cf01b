"""One run by its id, or every run that meets a filter: what the commands have in common that may be done to many."""

from __future__ import annotations

import functools
import getpass
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from queuety.cli.exits import Code, Refusal
from queuety.cli.options import a_count, an_id, listed
from queuety.cli.output import Column, Format, say, show_json, show_table
from queuety.cli.spans import seconds_of
from queuety.cli.target import Place
from queuety.cli.workflows import stands
from queuety.model import ErrorKind, WorkflowStatus

if TYPE_CHECKING:
    from queuety import Queuety
    from queuety.app.results import BulkResult
    from queuety.inspect.filters import WorkflowFilter

PANEL: Final = "Many at once, instead of ID"

MaybeId = Annotated[int | None, typer.Argument(parser=an_id, metavar="ID", help="The run.", show_default=False)]
By = Mapping[str, Any]
"""Who asks and why, as the keywords of a verb."""

_BY: Final = {
    "actor": Annotated[
        str | None,
        typer.Option(
            "--actor", metavar="NAME", help="Who asks, for the history. Else QUEUETY_ACTOR, else the name of the login."
        ),
    ],
    "reason": Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the history.")],
}
_MANY: Final = {
    "status": Annotated[
        list[WorkflowStatus] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            case_sensitive=False,
            help=f"Runs that stand so: {listed(WorkflowStatus)}; may be given again, for either.",
            rich_help_panel=PANEL,
        ),
    ],
    "name": Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Runs of this name.", rich_help_panel=PANEL)
    ],
    "tag": Annotated[
        str | None, typer.Option("--tag", metavar="TAG", help="Runs with this tag.", rich_help_panel=PANEL)
    ],
    "error_kind": Annotated[
        ErrorKind | None,
        typer.Option(
            "--error-kind",
            metavar="KIND",
            help=f"Runs that failed so: {listed(ErrorKind)}.",
            rich_help_panel=PANEL,
        ),
    ],
    "older_than": Annotated[
        str | None,
        typer.Option("--older-than", metavar="SPAN", help="Created longer ago: 90s, 2h, 1d.", rich_help_panel=PANEL),
    ],
    "newer_than": Annotated[
        str | None,
        typer.Option("--newer-than", metavar="SPAN", help="Created not so long ago.", rich_help_panel=PANEL),
    ],
    "limit": Annotated[
        int | None,
        typer.Option(
            "--limit", parser=a_count, metavar="N", help="At most so many, the newest.", rich_help_panel=PANEL
        ),
    ],
    "dry_run": Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and refused; do nothing.", rich_help_panel=PANEL)
    ],
}
"""The options of a command that may be done to many; the keys are the fields of `Many`."""


@dataclass(frozen=True, slots=True)
class Many:
    """The conditions that were given, and how many at most; `where` is None if there is none."""

    status: list[WorkflowStatus] | None = None
    name: str | None = None
    tag: str | None = None
    error_kind: ErrorKind | None = None
    older_than: str | None = None
    newer_than: str | None = None
    limit: int | None = None
    dry_run: bool = False

    @property
    def bounds(self) -> dict[str, Any]:
        """How many at most and whether really, as the keywords of a verb."""
        return {"limit": self.limit, "dry_run": self.dry_run}

    @property
    def where(self) -> WorkflowFilter | None:
        """The filter. Raises `Refusal` for a span that cannot be read."""
        from queuety.inspect.filters import WorkflowFilter

        found = WorkflowFilter(
            status=self.status or None,
            name=self.name,
            tag=self.tag,
            error_kind=self.error_kind,
            older_than=seconds_of(self.older_than, "--older-than"),
            newer_than=seconds_of(self.newer_than, "--newer-than"),
        )
        return None if found.is_empty else found


def asked(function: Callable[..., None]) -> Callable[..., None]:
    """The function as a command whose options stand for its parameters `many` and `by`, as far as it has them."""
    own = inspect.signature(function, eval_str=True).parameters
    added: dict[str, Any] = {**(_MANY if "many" in own else {}), **_BY}
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "dry_run" else None, annotation=annotation
        )
        for name, annotation in added.items()
    ]
    kept = [parameter for parameter in own.values() if parameter.name not in ("many", "by")]
    before = [parameter for parameter in kept if parameter.name != "form"]
    after = [parameter for parameter in kept if parameter.name == "form"]

    @functools.wraps(function)
    def run(place: Place, **given: Any) -> None:
        if "many" in own:
            given["many"] = Many(**{name: given.pop(name) for name in _MANY})
        given["by"] = {"actor": who(given.pop("actor")), "reason": given.pop("reason")}
        function(place, **given)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*before, *(option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in (*options, *after))]
    )
    return run


def is_id(text: str) -> bool:
    """True for what stands where an id may stand and can be nothing else.

    >>> is_id("41"), is_id("pay")
    (True, False)
    """
    return text.isascii() and text.isdigit()


def who(actor: str | None) -> str | None:
    """Who asks: as given, as the environment says, or the name of the login; None if none of them can be told."""
    if actor is not None:
        return actor
    if named := os.environ.get("QUEUETY_ACTOR", "").strip():
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a passwd entry
        return None


def one_or_many(
    place: Place,
    workflow_id: int | None,
    many: Many,
    form: Format,
    one: Callable[[Queuety, int], object],
    each: Callable[[Queuety, WorkflowFilter], BulkResult],
) -> None:
    """Does it to the run, or to all that meet the filter, and says what came of it.

    The exit code is 1 if any was refused.
    """
    where = many.where
    if (workflow_id is None) == (where is None):
        ending = "" if where is None else ", not both"
        raise Refusal(f"say either the ID of a run or which runs are meant (--status, --name, --tag, …){ending}")
    if workflow_id is not None:
        if many.dry_run or many.limit is not None:
            raise Refusal("--dry-run and --limit are for many runs at once, not for one by its ID")
        with place.opened() as app:
            run = stands(app, workflow_id, one)
        if form is Format.JSON:
            show_json({"id": run.id, "status": run.status})
        else:
            say(f"workflow {run.id} is {run.status}")
        return
    if where is None:
        raise Refusal("no condition was given")
    with place.opened() as app:
        result = each(app, where)
    tell(result, form)


def tell(result: BulkResult, form: Format) -> None:
    """Says what was done to how many and why not to the others."""
    if form is Format.JSON:
        refused = {str(workflow_id): why for workflow_id, why in result.refused.items()}
        show_json({"dry_run": result.dry_run, "matched": result.matched, "done": result.done, "refused": refused})
    else:
        would = "would be done to" if result.dry_run else "was done to"
        say(f"{result.matched} matched; it {would} {len(result.done)}")
        if result.refused:
            columns = (Column("id", right=True, whole=True), Column("refused"))
            show_table(columns, [(str(workflow_id), why) for workflow_id, why in result.refused.items()], empty="")
    if result.refused:
        raise typer.Exit(Code.NO)
