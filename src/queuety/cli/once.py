"""Commands and groups that refuse an option which is given again and takes one value: the first would be lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption


class Command(TyperCommand):
    """A command that does so."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As in typer."""
        refuse_twice(self, ctx, args)
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group that does so, with the options that stand before the command's name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As in typer."""
        refuse_twice(self, ctx, args)
        return super().parse_args(ctx, args)


def refuse_twice(command: TyperCommand | TyperGroup, ctx: Any, args: list[str]) -> None:
    """Ends with a usage error if an option that takes one value was given more than once."""
    if ctx.resilient_parsing:
        return
    _, _, order = command.make_parser(ctx).parse_args(args=list(args))
    given = Counter(order)
    for param in order:
        is_single = isinstance(param, TyperOption) and not (param.multiple or param.is_flag or param.count)
        if is_single and given[param] > 1:
            ctx.fail(f"{param.opts[0]} was given {given[param]} times; it takes one value")
