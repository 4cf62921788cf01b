"""Pictures of workflows, drawn from data alone: `sketch` makes nodes and ways, a file for each format draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from queuety.errors import DefinitionError
from queuety.inspect.graph.mermaid import mermaid
from queuety.inspect.graph.model import Graph
from queuety.inspect.graph.run import RunFacts
from queuety.inspect.graph.sketch import DRAWN, graph_of
from queuety.inspect.graph.svg import svg
from queuety.inspect.graph.text import text
from queuety.model import Definition

FORMATS: Final[Mapping[str, Callable[[Graph], str]]] = {"mermaid": mermaid, "svg": svg, "text": text}
_MOST: Final = {"text": 2_000}


def drawn(definition: Definition, run: RunFacts | None = None, *, format: str = "mermaid") -> str:
    """The picture of the definition, or of a run of it, in one of `FORMATS`. Raises `DefinitionError` for another."""
    return renderer(format)(graph_of(definition, run, most=_MOST.get(format, DRAWN)))


def renderer(format: object) -> Callable[[Graph], str]:
    """What draws a graph in this format. Raises `DefinitionError` that names those that there are."""
    found = FORMATS.get(format) if isinstance(format, str) else None
    if found is None:
        raise DefinitionError(f"there is no format {format!r}; there are {', '.join(FORMATS)}")
    return found
