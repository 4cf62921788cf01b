"""How long to wait before something that failed is tried again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pauses:
    """Pauses in seconds that double from `first_s` to `longest_s`, and begin anew after something lived for `steady_s`.

    >>> pauses = Pauses(0.1, 30.0, steady_s=60.0)
    >>> [pauses.after(lived_s) for lived_s in (0.0, 1.0, 2.0, 61.0, 0.0)]
    [0.1, 0.2, 0.4, 0.1, 0.2]
    >>> [pauses.after(0.0) for _ in range(9)][-2:]
    [30.0, 30.0]
    """

    first_s: float
    longest_s: float
    steady_s: float = 0.0
    _count: int = 0

    def after(self, lived_s: float = -1.0) -> float:
        """The next pause, after something that lived for so long."""
        if lived_s >= self.steady_s:
            self._count = 0
        self._count += 1
        return min(self.first_s * 2.0 ** min(self._count - 1, 60), self.longest_s)

    def reset(self) -> None:
        """Begins anew."""
        self._count = 0
