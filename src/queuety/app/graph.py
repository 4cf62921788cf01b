"""The verb that draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from queuety.app.core import Core, known_id
from queuety.define.builder import WorkflowBuilder
from queuety.define.templates import WorkflowTemplate
from queuety.define.wire import definition_from_json
from queuety.errors import DefinitionError, NotFoundError
from queuety.inspect.diff_versions import versions_of
from queuety.model import Definition

if TYPE_CHECKING:
    from queuety.inspect.graph.run import RunFacts


class GraphVerbs(Core):
    """What draws pictures."""

    def workflow_graph(
        self, target: int | str | WorkflowBuilder | WorkflowTemplate | Mapping[str, Any], format: str = "mermaid"
    ) -> str:
        """The picture of a workflow, from data alone: `format` is `"mermaid"`, `"svg"` or `"text"`.

        `target` is the id of a run, drawn with how each of its steps stands; the name of a template that is registered
        here, or else of a workflow of which runs were started (its definition that was stored last); a builder; or a
        definition as JSON. Of a workflow of more than 200 steps some are left out, and the picture says how many; an
        outline in text has 2,000. Raises `DefinitionError` for another format, `NotFoundError` if there is no such run
        or workflow.
        """
        from queuety.inspect.graph import drawn, renderer

        renderer(format)
        if isinstance(target, int) and not isinstance(target, bool):
            run = self._run(target)
            return drawn(run.definition, run, format=format)
        return drawn(self._described(target), format=format)

    def _run(self, workflow_id: int) -> RunFacts:
        from queuety.inspect.graph.facts import run_facts

        found = None
        if known_id(workflow_id, "workflow_id") is not None:
            with self.door.reading(one_moment=True) as connection:
                found = run_facts(connection, self._door.tables, workflow_id)
        if found is None:
            raise NotFoundError(f"no workflow has the id {workflow_id}")
        return found

    def _described(self, target: Any) -> Definition:
        """The definition of what is no run. Nothing is imported or looked up for it."""
        if isinstance(target, WorkflowBuilder):
            return target.build(self.registry)
        if isinstance(target, WorkflowTemplate):
            return definition_from_json(target.definition, None)
        if isinstance(target, Mapping):
            return definition_from_json(target, None)
        if not isinstance(target, str):
            raise DefinitionError(
                f"workflow_graph({target!r}): the id of a run, the name of a workflow, a builder or a definition is "
                "needed"
            )
        if target in self.templates:
            return self.templates.definition(target)
        with self.door.reading() as connection:
            try:
                return versions_of(connection, self._door.tables, target)[0].read()
            except NotFoundError:
                raise NotFoundError(
                    f"no workflow {target!r} can be drawn: none of this name was started, and no template has it; "
                    f"there are {', '.join(map(repr, self.templates.all())) or 'none'} registered here"
                ) from None
