"""The whole command line: its groups, its own options, and how it ends."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from typer.models import CommandInfo, TyperInfo

from queuety.cli import (
    answers,
    artifacts,
    changing,
    graph,
    history,
    jobs,
    operations,
    portable,
    queues,
    repair,
    retention,
    signals,
    templates,
    work,
    workflows,
)
from queuety.cli.exits import MEANINGS, Code, forgive_odd_terminals, say_error
from queuety.cli.once import Group
from queuety.cli.options import AppOption, Common, DatabaseOption, DebugOption, PrefixOption

_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "Workflows": ("workflow", "why", "log"),
    "Running": ("work", "flush", "demo"),
    "Jobs": ("dispatch", "list", "inspect"),
    "Queues": ("status", "pause", "resume"),
    "Chores, which workers do by themselves": ("recover", "check-deadlines", "purge"),
    "Installation": ("migrate", "doctor", "version"),
}
"""The commands of `queuety` by what they are about, as the help and the documentation list them."""

WORKFLOW_COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "Start": ("dispatch", "run", "templates"),
    "Look": ("list", "status", "timeline", "state-at", "trace", "graph", "stream"),
    "Answer": ("signal", "approve", "reject", "input"),
    "Steer": ("pause", "resume", "retry", "cancel"),
    "Repair": ("rewind", "fork", "skip-step", "complete-step", "patch-state", "run-now"),
    "Change": ("diff", "migrate"),
    "Keep": ("artifacts", "artifact", "put-artifact", "delete-artifact", "export", "replay", "purge"),
}
"""The same of `queuety workflow`."""


class OneLine(Group):
    """A group whose usage errors are one line too, and which ends with the exit codes that the help promises."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All of them, groups too, as `COMMANDS` has them."""
        places = _places(COMMANDS)
        return sorted(super().list_commands(ctx), key=lambda name: list(places).index(name))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """As in typer. Ends the process unless `standalone_mode` is off."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        forgive_odd_terminals()
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except _UsageError as error:
            say_error(_said(error))
            sys.exit(Code.USAGE)
        except typer.Abort:
            say_error("aborted")
            sys.exit(Code.NO)
        sys.exit(code if isinstance(code, int) else Code.OK)


def _said(error: Any) -> str:
    path = error.ctx.command_path if error.ctx else "queuety"
    message = error.format_message().replace("Value error, ", "").rstrip(".")
    return f"{message}{_elsewhere(path, message)} (see `{path} --help`)"


def _elsewhere(path: str, message: str) -> str:
    """Where the command is to be found that was looked for in the wrong one of the two groups."""
    asked = re.match(r"No such command '([a-z-]+)'", message)
    other, known = ("queuety", COMMANDS) if path.endswith(" workflow") else ("queuety workflow", WORKFLOW_COMMANDS)
    return f"; there is `{other} {asked[1]}`" if asked and asked[1] in _places(known) else ""


def _print_version(wanted: bool) -> None:
    if wanted:
        from queuety import __version__

        typer.echo(f"queuety {__version__}")
        raise typer.Exit


root = typer.Typer(
    name="queuety",
    cls=OneLine,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=MEANINGS,
)
workflow = typer.Typer(
    cls=Group,
    invoke_without_command=True,
    epilog="`queuety why ID` says why a run is not running, `queuety log` what happened.",
)


@root.callback()
def queuety(
    context: typer.Context,
    app: AppOption = None,
    database: DatabaseOption = None,
    table_prefix: PrefixOption = None,
    debug: DebugOption = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Durable workflows and jobs in the database that you already have."""
    _begin(context, Common(app, database, table_prefix, debug))


@workflow.callback()
def queuety_workflow(
    context: typer.Context,
    app: AppOption = None,
    database: DatabaseOption = None,
    table_prefix: PrefixOption = None,
    debug: DebugOption = False,
) -> None:
    """Start, follow, steer and mend workflows."""
    _begin(context, Common(app, database, table_prefix, debug))


def _begin(context: typer.Context, common: Common) -> None:
    """Keeps the options for the command that follows; if none does, says which there are."""
    context.obj = common.over(context.obj) if isinstance(context.obj, Common) else common
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _places(panels: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The panel of each command, in order."""
    return {name: panel for panel, names in panels.items() for name in names}


def _arrange(commands: Iterable[CommandInfo | TyperInfo], panels: Mapping[str, tuple[str, ...]]) -> None:
    """Puts each command into its panel. Raises `KeyError` for one that has none."""
    places = _places(panels)
    for found in commands:
        found.rich_help_panel = places[str(found.name)]


work.add_to(root)
workflows.add_to(workflow)
repair.add_to(workflow)
changing.add_to(workflow)
templates.add_to(workflow)
signals.add_to(workflow)
graph.add_to(workflow)
artifacts.add_to(workflow)
portable.add_to(workflow)
root.add_typer(workflow, name="workflow")
history.add_to(root, workflow)
answers.add_to(root, workflow)
jobs.add_to(root)
queues.add_to(root)
retention.add_to(root, workflow, history.log)
operations.add_to(root)
_arrange((*root.registered_commands, *root.registered_groups), COMMANDS)
_arrange(workflow.registered_commands, WORKFLOW_COMMANDS)
workflow.registered_commands.sort(key=lambda found: list(_places(WORKFLOW_COMMANDS)).index(str(found.name)))


def run() -> None:
    """Runs the command of this process's arguments, and ends the process."""
    root(prog_name="queuety")
