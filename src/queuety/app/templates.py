"""Verbs of templates: workflows that are registered by name, by hand or from files, and started by it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from queuety.app.workflows import WorkflowVerbs
from queuety.define import files
from queuety.define.builder import WorkflowBuilder
from queuety.define.names import check_tags
from queuety.define.templates import WorkflowTemplate, builder_given, builder_in, built
from queuety.define.wire import read_label

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session, scoped_session


class TemplateVerbs(WorkflowVerbs):
    """What can be done with templates."""

    def register_workflow_template(self, builder: WorkflowBuilder) -> WorkflowTemplate:
        """Registers what the builder describes now under its name, in place of a template of the same name.

        Nothing is written: each process registers its own. Raises `DefinitionError` for a workflow without steps.
        """
        return self.templates.add(builder_given(builder).build(self.registry))

    def run_workflow(
        self,
        name: str,
        payload: Any = None,
        *,
        idempotency_key: str | None = None,
        tags: Iterable[str] = (),
        connection: Connection | Session | scoped_session[Session] | None = None,
    ) -> int:
        """Starts a run of the template of this name and gives back its id.

        Of several with one `idempotency_key` the first wins; a key that was set on the builder means nothing here.
        `tags` as in `dispatch_definition`, `connection` as in `dispatch_workflow`. Raises `NotFoundError` if no such
        template is registered here, `PayloadError` for a payload that is not a mapping of JSON or holds a key that
        starts with `_`.
        """
        definition = self.templates.definition(name)
        if idempotency_key is not None:
            idempotency_key = read_label(idempotency_key, f"run_workflow({name!r}): idempotency_key")
        return self._start(definition, payload, idempotency_key, connection, check_tags(tags, what="tags"))

    def workflow_templates(self) -> dict[str, WorkflowTemplate]:
        """The templates that are registered here, by name; a fresh mapping, sorted by name."""
        return self.templates.all()

    def load_workflow_file(self, path: str | os.PathLike[str]) -> WorkflowTemplate | None:
        """Imports a workflow file, registers its template and gives it back; None if it has none.

        A workflow file is a Python module with a builder as `workflow`, or a function `define(app)` that returns one.
        Its module is `queuety_files.<name of the file>`, or what it is called as a file of a folder that is loaded. A
        file that was imported before is not imported again. Raises `NotFoundError` if there is no such file,
        `DefinitionError` that names it if it cannot be loaded; then nothing is left of it.
        """
        file = files.file_at(path)
        with files.loading(self.registry, [file]), self.templates.all_or_none():
            builder = builder_in(files.imported(file), self, file.path)
            return None if builder is None else self.templates.add(built(builder, self.registry, file.path), file.path)

    def load_workflows(self, directory: str | os.PathLike[str], recursive: bool = False) -> int:
        """Loads the workflow files of a folder in the order of their paths; says how many templates were registered.

        Files whose names start with `_`, and those without a builder, are passed over; with `recursive` the folders in
        it are looked through too. A file's module is called after its path in the folder (`reports/daily.py` is
        `queuety_files.reports.daily`), so that workers find its handlers once they have loaded the same folder. Raises
        `NotFoundError` if there is no such folder, `DefinitionError` if a file cannot be loaded, or two files have a
        template of one name; then nothing of this load is left.
        """
        root, found = files.files_in(directory, recursive=recursive)
        with files.loading(self.registry, found, root), self.templates.all_or_none():
            builders = [(builder_in(files.imported(file), self, file.path), file.path) for file in found]
            made = [(built(builder, self.registry, path), path) for builder, path in builders if builder is not None]
            self.templates.add_all(made)
        return len(made)
