"""How a picture looks: colours for light and for dark, each of at least 4.5 to 1 against what it stands on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LIGHT: Final = {
    "page": "#ffffff",
    "box": "#f6f8fa",
    "line": "#6e7781",
    "title": "#1f2328",
    "detail": "#57606a",
    "untaken": "#afb8c1",
    "taken": "#1a7f37",
    "done": "#1a7f37",
    "running": "#0969da",
    "waiting": "#8a5d00",
    "paused": "#6639ba",
    "failed": "#cf222e",
    "cancelled": "#57606a",
    "skipped": "#6a737d",
    "open": "#6a737d",
}
_DARK: Final = {
    "page": "#0d1117",
    "box": "#161b22",
    "line": "#8b949e",
    "title": "#e6edf3",
    "detail": "#9da7b3",
    "untaken": "#484f58",
    "taken": "#3fb950",
    "done": "#3fb950",
    "running": "#58a6ff",
    "waiting": "#d29922",
    "paused": "#bc8cff",
    "failed": "#ff7b72",
    "cancelled": "#9da7b3",
    "skipped": "#8b949e",
    "open": "#8b949e",
}
_MARKS: Final = ("done", "running", "waiting", "paused", "failed", "cancelled", "skipped", "open")
_HERE: Final = ("running", "waiting", "paused", "failed", "cancelled")
"""Marks of where a run stands: those nodes have a thicker outline."""

_FORM: Final = (
    '.qg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}'
    ".qg-title{font-size:14px;font-weight:600}"
    ".qg-detail,.qg-fact,.qg-label{font-size:12.5px}"
    ".qg-fact{font-weight:600}"
    ".qg-kind{font-size:11px}"
    ".qg-box{stroke-width:1.2}"
    ".qg-bar{fill:none;stroke-width:1.2}"
    ".qg-frame{stroke-width:1.6;fill-opacity:.45}"
    ".qg-dashed,.qg-kind-start_workflows .qg-frame,.qg-skipped .qg-box{stroke-dasharray:5 4}"
    ".qg-icon{fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}"
    ".qg-way path{fill:none;stroke-width:1.5}"
    ".qg-way .qg-head{stroke:none}"
    ".qg-taken path{stroke-width:2.4}"
    ".qg-timeout path:first-child,.qg-side path{stroke-dasharray:5 4}"
    ".qg-jump path:first-child{stroke-dasharray:1 4;stroke-linecap:round}"
    + ",".join(f".qg-{mark}>.qg-box" for mark in _HERE)
    + "{stroke-width:2.2}"
)


def _colours(of: Mapping[str, str]) -> str:
    rules = [
        f".qg-page{{fill:{of['page']}}}",
        f".qg-box{{fill:{of['box']};stroke:{of['line']}}}",
        f".qg-bar{{stroke:{of['line']}}}",
        f".qg-title{{fill:{of['title']}}}",
        f".qg-detail,.qg-kind,.qg-label{{fill:{of['detail']}}}",
        f".qg-way path{{stroke:{of['line']}}}",
        f".qg-way .qg-head{{fill:{of['line']}}}",
        f".qg-untaken path{{stroke:{of['untaken']}}}",
        f".qg-untaken .qg-head{{fill:{of['untaken']}}}",
        f".qg-taken path{{stroke:{of['taken']}}}",
        f".qg-taken .qg-head{{fill:{of['taken']}}}",
    ]
    for mark in _MARKS:
        rules.append(f".qg-{mark}>.qg-fact,.qg-{mark}>.qg-strip{{fill:{of[mark]}}}")
        rules.append(f".qg-{mark}>.qg-icon,.qg-{mark}>.qg-lined{{stroke:{of[mark]}}}")
    rules += [f".qg-{mark}>.qg-box{{stroke:{of[mark]}}}" for mark in _HERE]
    return "".join(rules)


STYLE: Final = f"{_FORM}{_colours(_LIGHT)}@media(prefers-color-scheme:dark){{{_colours(_DARK)}}}"
"""The rules, for light and for dark; every name in them begins with `qg`."""
