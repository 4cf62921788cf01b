"""How the steps of each kind are written down: their settings are read here, for the builder and for JSON alike.

A new kind is a file here, a line in `FORMS`, and a method of the builder in `define/building`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from queuety.define.forms import children, delay, for_each, repeat, signals, workflows
from queuety.define.forms.form import Form

FORMS: Final[Mapping[str, Form]] = {
    "single": Form(handler="handler"),
    "delay": delay.FORM,
    "parallel": Form(has_branches=True),
    "for_each": for_each.FORM,
    "repeat": repeat.FORM,
    "wait_for_signal": signals.FORM,
    "wait_for_workflows": workflows.FORM,
    "start_workflows": children.START_FORM,
    "run_workflow": children.RUN_FORM,
}
"""By what `StepSpec.kind` and a JSON entry's `type` hold."""
