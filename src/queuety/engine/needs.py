"""What kinds of steps may have to know; it stands in `queuety.model.needs`, where the store can read it too."""

from __future__ import annotations

from queuety.model.needs import (
    Lacking,
    Need,
    NeedGroup,
    NeedIds,
    NeedParts,
    NeedSignals,
    NeedStanding,
    NeedStates,
    PartRow,
    Signal,
    Standing,
)

__all__ = [
    "Lacking",
    "Need",
    "NeedGroup",
    "NeedIds",
    "NeedParts",
    "NeedSignals",
    "NeedStanding",
    "NeedStates",
    "PartRow",
    "Signal",
    "Standing",
]
