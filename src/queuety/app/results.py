"""What verbs give back that is neither an id nor how something stands."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What became of the runs that met a filter, newest first.

    `done` are the ids that it was done to, or with `dry_run` would be; `refused` says by id why it was not.
    """

    done: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    dry_run: bool = False

    @property
    def matched(self) -> int:
        """How many runs met the filter."""
        return len(self.done) + len(self.refused)
