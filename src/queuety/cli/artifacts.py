"""Commands about what runs have put aside: `queuety workflow artifacts`, `artifact`, `put-artifact`, and so on."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuety import codec
from queuety.cli import inputs
from queuety.cli.exits import Code, Refusal
from queuety.cli.options import LARGEST_COUNT, FormatOption, IdArgument, command, whole
from queuety.cli.output import Column, Format, readable, say, short, show_facts, show_json, show_table
from queuety.cli.target import Place, now_of
from queuety.cli.times import ago, both, exact
from queuety.cli.workflows import found_run

if TYPE_CHECKING:
    from datetime import datetime

    from queuety.inspect.artifacts import Artifact

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Its name in the run.", show_default=False)]


def add_to(group: typer.Typer) -> None:
    """Adds the commands of this file."""
    for name, function in (
        ("artifacts", artifacts),
        ("artifact", artifact),
        ("put-artifact", put_artifact),
        ("delete-artifact", delete_artifact),
    ):
        command(group, name)(function)


def artifacts(
    place: Place,
    workflow_id: IdArgument,
    with_content: Annotated[bool, typer.Option("--with-content", help="Show what each holds, too.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """List what a run has put aside: its artifacts."""
    with place.opened() as app:
        found_run(app, workflow_id)
        found = app.workflow_artifacts(workflow_id, include_content=with_content)
        now = now_of(app)
    if form is Format.JSON:
        show_json([_plain(one, with_content=with_content) for one in found])
        return
    columns = [
        Column("key"),
        Column("kind"),
        Column("step", right=True, whole=True),
        Column("updated (UTC)", whole=True),
        Column("", whole=True),
    ]
    if with_content:
        columns.append(Column("content"))
    show_table(columns, [_row(one, now, with_content=with_content) for one in found], empty="no artifacts")


def artifact(
    place: Place,
    workflow_id: IdArgument,
    key: KeyArgument,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the content to this new file as it is; - for stdout."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --output: replace a file that is there.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show one artifact, or write its content to a file."""
    if force and output in (None, "-"):
        raise Refusal("--force goes with --output FILE")
    with place.opened() as app:
        found_run(app, workflow_id)
        found = app.workflow_artifact(workflow_id, key)
        now = now_of(app)
    if found is None:
        raise Refusal(f"workflow {workflow_id} has no artifact {key!r}", Code.NO)
    if output is not None:
        _write(found, output, replaces=force)
    elif form is Format.JSON:
        show_json(_plain(found, with_content=True))
    else:
        step = "" if found.step_index is None else str(found.step_index)
        show_facts(
            f"artifact {found.key} of workflow {workflow_id}",
            [
                ("kind", found.kind),
                ("step", step),
                ("created", both(found.created_at, now)),
                ("updated", both(found.updated_at, now)),
                ("metadata", readable(found.metadata) if found.metadata else ""),
                ("content", _shown(found)),
            ],
        )


def put_artifact(
    place: Place,
    workflow_id: IdArgument,
    key: KeyArgument,
    content: Annotated[
        str, typer.Argument(metavar="CONTENT", help="@FILE reads it from a file, - from stdin.", show_default=False)
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--kind", metavar="KIND", help="json is for a JSON value, binary for bytes, any other for text, or bytes."
        ),
    ] = "json",
    step: Annotated[
        int | None,
        typer.Option("--step", parser=whole(0, LARGEST_COUNT), metavar="INDEX", help="The step that it is of."),
    ] = None,
    metadata: Annotated[str | None, typer.Option("--metadata", metavar="JSON", help=inputs.PAYLOAD_HELP)] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Put something aside for a run, under a key.

    What it had under that key is replaced.
    """
    if content == "-" and metadata == "-":
        raise Refusal("CONTENT and --metadata cannot both be read from stdin")
    about = inputs.payload(metadata, what="--metadata")
    given = _read(content, kind)
    with place.opened() as app:
        found_run(app, workflow_id)
        app.put_artifact(workflow_id, key, given, kind=kind, step_index=step, metadata=about)
    if form is Format.JSON:
        show_json({"id": workflow_id, "key": key})
    else:
        say(f"workflow {workflow_id} has the artifact {key}")


def delete_artifact(place: Place, workflow_id: IdArgument, key: KeyArgument, form: FormatOption = Format.TABLE) -> None:
    """Forget something that a run has put aside.

    Nothing happens if there is nothing.
    """
    with place.opened() as app:
        found_run(app, workflow_id)
        app.delete_workflow_artifact(workflow_id, key)
    if form is Format.JSON:
        show_json({"id": workflow_id, "key": key})
    else:
        say(f"workflow {workflow_id} has no artifact {key}")


def _read(content: str, kind: str) -> Any:
    """The content that is given, as its kind wants it."""
    if content != "-" and not content.startswith("@"):
        raw = content.encode(errors="surrogateescape")
        what = "CONTENT"
    else:
        name = content.removeprefix("@")
        what = f"CONTENT from {'stdin' if name == '-' else name}"
        try:
            raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        except OSError as error:
            raise Refusal(f"{what} cannot be read: {error.strerror or error}") from error
    if kind == "binary":
        return raw
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        if kind in ("json", "text"):
            raise Refusal(f"{what} is no text in UTF-8: {error}") from error
        return raw
    if kind == "json":
        return codec.parsed(text, what=what)
    return raw if "\x00" in text and kind != "text" else text


def _write(found: Artifact, output: str, *, replaces: bool) -> None:
    content = found.content
    if not isinstance(content, bytes):
        text = content if found.kind != "json" else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        content = text.encode()
    if output == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        with Path(output).open("wb" if replaces else "xb") as file:
            file.write(content)
    except FileExistsError:
        raise Refusal(f"{output} is there already; name another file, or say --force") from None
    except OSError as error:
        raise Refusal(f"{output} cannot be written: {error.strerror or error}") from error
    say(f"{len(content):,} bytes were written to {output}")


def _plain(found: Artifact, *, with_content: bool) -> dict[str, Any]:
    """Its fields, with an `encoding` that says how the content is told: `json`, `text` or `base64`."""
    told = {field.name: getattr(found, field.name) for field in fields(found) if field.name != "content"}
    if not with_content:
        return told
    if isinstance(found.content, bytes):
        return {**told, "encoding": "base64", "content": b64encode(found.content).decode()}
    return {**told, "encoding": "json" if found.kind == "json" else "text", "content": found.content}


def _shown(found: Artifact) -> str:
    if isinstance(found.content, bytes):
        return f"{len(found.content):,} bytes; --output FILE writes them to a file"
    return readable(found.content) if found.kind == "json" else str(found.content)


def _row(found: Artifact, now: datetime, *, with_content: bool) -> Sequence[str]:
    step = "" if found.step_index is None else str(found.step_index)
    row = (found.key, found.kind, step, exact(found.updated_at), ago(found.updated_at, now))
    if not with_content:
        return row
    if isinstance(found.content, bytes):
        return (*row, f"{len(found.content):,} bytes")
    text = json.dumps(found.content, ensure_ascii=False) if found.kind == "json" else str(found.content)
    return (*row, short(text, 60))
