"""Steps that call handlers, pauses, and ways back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self, Unpack

from queuety.define.building.draft import Draft
from queuety.define.checks import check_target
from queuety.define.marks import HandlerLike
from queuety.define.options import HandlerOptions, merged, options_from
from queuety.errors import DefinitionError
from queuety.model import Branch, ForEachMode, Options, Use


class Steps(Draft):
    """What a run does by itself."""

    def then(self, handler: HandlerLike, name: str | None = None, **options: Unpack[HandlerOptions]) -> Self:
        """Adds a step: a marked function, a class derived from `Step`, a `bind(…)` of one, or a registered alias.

        The options are those of `@step`, for this step only. `name` is what `_next_step` calls it; its index otherwise.
        """
        where = self._where(name)
        own = options_from(options, where=where)
        ref, theirs = self._ref(handler, where)
        return self._add("single", name, self._index(), handler=ref, options=merged(own, theirs))

    def parallel(self, handlers: Iterable[HandlerLike], step_name: str | None = None) -> Self:
        """Adds a step that runs several handlers side by side and is done when all of them are.

        What each returns is merged as soon as it is there; of equal keys the last one wins. The same handler may stand
        in the list several times.
        """
        where = self._where(step_name)
        if isinstance(handlers, str | Mapping) or not isinstance(handlers, Iterable):
            raise DefinitionError(f"{where}: parallel takes a list of handlers, not {handlers!r}")
        branches = tuple(
            Branch(*self._ref(handler, f"{where}: branch {number}")) for number, handler in enumerate(handlers)
        )
        if not branches:
            raise DefinitionError(f"{where}: parallel needs at least one handler")
        return self._add("parallel", step_name, self._index(), branches=branches)

    def for_each(
        self,
        items_key: str,
        handler: HandlerLike,
        result_key: str | None = None,
        mode: ForEachMode | str = ForEachMode.ALL,
        quorum: int | None = None,
        reducer: HandlerLike | None = None,
        name: str | None = None,
    ) -> Self:
        """Adds a step that calls a handler with (state, item, index) for each item of the list under `items_key`.

        A handler that takes the state alone will do. Under `result_key`, `<name of the step>_results` if none is
        given, the run then finds how it went: `mode`, `quorum`, `total`, `succeeded`, `failed`, `settled`, `winner`,
        `results` and `failures`. `ALL` wants every item to succeed, `FIRST_SUCCESS` one, `QUORUM` as many as `quorum`
        says. The reducer is called with (state, that aggregate); what it returns is merged over it.
        """
        where = self._where(name)
        settings = self._settings(
            "for_each", name, self._index(), items_key=items_key, result_key=result_key, mode=mode, quorum=quorum
        )
        ref, options = self._ref(handler, where, Use.ITEM)
        reduce = None if reducer is None else self._ref(reducer, f"{where}: reducer", Use.REDUCER)[0]
        return self._add("for_each", name, self._index(), settings, handler=ref, options=options, reducer=reduce)

    def delay(
        self,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        step_name: str | None = None,
    ) -> Self:
        """Adds a durable pause of the sum, which holds no worker; 0 is allowed."""
        default = f"delay_{sum(spec.kind == 'delay' for spec in self._steps)}"
        settings = self._settings("delay", step_name, default, seconds=seconds, minutes=minutes, hours=hours, days=days)
        return self._add("delay", step_name, default, settings)

    def repeat_until(
        self,
        target_step: str,
        state_key: str | None = None,
        expected: Any = True,
        name: str | None = None,
        condition: HandlerLike | None = None,
        max_iterations: int | None = None,
    ) -> Self:
        """Goes back to an earlier step, by its name, until the state matches; then on to what follows.

        It matches if `state_key` holds `expected` (JSON; a missing key counts as None), or, with `condition`, if that
        handler, called with the state, returns something true. One of the two is given. Having gone back
        `max_iterations` times, the run fails with `ConstraintViolation` instead of going back once more.
        """
        return self._repeat(True, target_step, state_key, expected, name, condition, max_iterations)

    def repeat_while(
        self,
        target_step: str,
        state_key: str | None = None,
        expected: Any = True,
        name: str | None = None,
        condition: HandlerLike | None = None,
        max_iterations: int | None = None,
    ) -> Self:
        """Goes back to an earlier step as long as the state matches; all else is as in `repeat_until`."""
        return self._repeat(False, target_step, state_key, expected, name, condition, max_iterations)

    def _repeat(
        self,
        until: bool,
        target: str,
        state_key: str | None,
        expected: Any,
        name: str | None,
        condition: HandlerLike | None,
        max_iterations: int | None,
    ) -> Self:
        where = self._where(name)
        default = f"repeat_{'until' if until else 'while'}_{len(self._steps)}"
        settings = self._settings(
            "repeat",
            name,
            default,
            until=until,
            target=target,
            state_key=state_key,
            expected=expected,
            condition=condition,
            max_iterations=max_iterations,
        )
        check_target(settings["target"], len(self._steps), self._index_of, where)
        ref, options = (None, Options()) if condition is None else self._ref(condition, where, Use.CONDITION)
        return self._add("repeat", name, default, settings, handler=ref, options=options)
