"""Verbs of artifacts: what is kept beside the state of a run, under a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuety.app.core import Core, known_id, read_count
from queuety.define.checks import MAX_STEPS
from queuety.define.names import check_name
from queuety.errors import NotFoundError
from queuety.inspect.artifacts import Artifact, artifact, artifacts_of
from queuety.store import artifacts, load
from queuety.worker.artifacts import parcel, put


class ArtifactVerbs(Core):
    """What can be put aside for runs."""

    def put_artifact(
        self,
        workflow_id: int,
        key: str,
        content: Any,
        kind: str = "json",
        step_index: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Keeps something beside the state of a run, whatever its status; what it had under that key is replaced.

        Of the kind `json` the content is any JSON value, of any other kind text or bytes, of `binary` bytes. A handler
        does the same with `current().put_artifact(…)`. Raises `DefinitionError` for a blank key or kind, `PayloadError`
        for content that does not fit the kind or is larger than `Settings.max_value_bytes`, `NotFoundError` for an
        unknown id; nothing is kept then.
        """
        made = parcel(key, content, kind, metadata, max_bytes=self.settings.max_value_bytes)
        if step_index is not None:
            read_count(step_index, "step_index", least=0, most=MAX_STEPS - 1)
        if known_id(workflow_id, "workflow_id") is None or not self.door.write(
            lambda tx: put(tx, workflow_id, made, step_index=step_index)
        ):
            raise NotFoundError(f"no workflow has the id {workflow_id}; artifact {key!r} was not kept")

    def workflow_artifact(self, workflow_id: int, key: str) -> Artifact | None:
        """What the run has put aside under this key, with its content; None if it has nothing there or is unknown."""
        name = check_name(key, what="key")
        if known_id(workflow_id, "workflow_id") is None:
            return None
        return self.door.read(lambda tx: artifact(tx, workflow_id, name))

    def workflow_artifacts(self, workflow_id: int, include_content: bool = False) -> Sequence[Artifact]:
        """All that the run has put aside, by key, without the content unless asked for.

        Raises `NotFoundError` for an unknown id.
        """
        found: Sequence[Artifact] = ()
        is_there = known_id(workflow_id, "workflow_id") is not None
        if is_there:
            found = self.door.read(lambda tx: artifacts_of(tx, workflow_id, include_content=include_content))
        if not found and not (is_there and self.door.read(lambda tx: load.existing(tx, [workflow_id]))):
            raise NotFoundError(f"no workflow has the id {workflow_id}")
        return found

    def delete_workflow_artifact(self, workflow_id: int, key: str) -> None:
        """Forgets what the run has put aside under this key; nothing happens if there is nothing.

        Raises `NotFoundError` for an unknown id.
        """
        name = check_name(key, what="key")
        is_there = known_id(workflow_id, "workflow_id") is not None
        if is_there and self.door.write(lambda tx: artifacts.delete(tx, workflow_id, name)):
            return
        if not (is_there and self.door.read(lambda tx: load.existing(tx, [workflow_id]))):
            raise NotFoundError(f"no workflow has the id {workflow_id}")
