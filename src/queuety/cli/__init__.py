"""The command line: typer and rich, one file per noun; no SQL and no rules."""


def main() -> None:
    """Runs the command that the arguments of this process name, and ends the process with its exit code."""
    from queuety.cli.root import run

    run()
