"""Verbs that carry a run elsewhere: export as JSON, replay from it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from queuety import codec
from queuety.app.core import Core, known_id
from queuety.app.steering import checked_by
from queuety.commands.replay import replay
from queuety.errors import NotFoundError
from queuety.inspect import export
from queuety.model import Json


class PortableVerbs(Core):
    """What can be done with runs as documents."""

    def export_workflow(self, workflow_id: int) -> dict[str, Json]:
        """All that is kept of the run as plain JSON, read in one moment, for `replay_workflow` and for people.

        Its keys are described in `docs/export.md`. Raises `NotFoundError` for an unknown id.
        """
        from queuety import __version__

        found: dict[str, Json] | None = None
        if known_id(workflow_id, "workflow_id") is not None:
            with self.door.reading(one_moment=True) as connection:
                found = export.export_workflow(
                    connection,
                    self._door.tables,
                    workflow_id,
                    now_us=self._door.now_us(),
                    package_version=__version__,
                )
        if found is None:
            raise NotFoundError(f"no workflow has the id {workflow_id}")
        return found

    def export_workflow_to_file(self, workflow_id: int, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Writes `export_workflow` to a file of UTF-8, which appears whole or not at all.

        Only its owner may read it. A file that is there already is left as it is and `FileExistsError` raised, unless
        `replace`. Raises as `export_workflow`, and `OSError` if the file cannot be written.
        """
        place = Path(path)
        if not replace and place.exists():
            raise _taken(place)
        _write_whole(place, json.dumps(self.export_workflow(workflow_id), ensure_ascii=False), replace=replace)

    def replay_workflow(self, data: Mapping[str, Any], *, actor: str | None = None, reason: str | None = None) -> int:
        """Makes the exported run again, in this database and under a new id, which it gives back.

        It has the same status, state and history. A run that had not ended enters its current step anew, and goes on;
        one that had ended stays as it was. `actor` and `reason` go into the history. Raises `PayloadError` or
        `DefinitionError` for data that is no export or does not hang together; nothing is written then.
        """
        found = replay(
            self.door,
            self.definitions,
            data,
            max_bytes=self.settings.max_value_bytes,
            by=checked_by(actor, reason),
        )
        self._ring()
        return found

    def replay_workflow_from_file(
        self, path: str | os.PathLike[str], *, actor: str | None = None, reason: str | None = None
    ) -> int:
        """The same with a file that `export_workflow_to_file` has written. Raises `OSError` if it cannot be read."""
        data = codec.unchecked(Path(path).read_bytes(), what=f"Invalid export data: {path}")
        return self.replay_workflow(data, actor=actor, reason=reason)


def _write_whole(path: Path, text: str, *, replace: bool) -> None:
    """Writes the file beside its place and then gives it its name, which is one step for everybody who looks."""
    descriptor, made = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(made, path)
            return
        try:
            _link(made, path)
        except FileExistsError:
            raise _taken(path) from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(made)


def _link(made: str, path: Path) -> None:
    """Gives the file its name unless there is one by now. Raises `FileExistsError`."""
    try:
        os.link(made, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: the name is taken first, by an empty file
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        os.replace(made, path)


def _taken(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} is there already and was left as it is; name another file, or say replace=True")
