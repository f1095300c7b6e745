"""Help of commands: the options of a command come first, those that commands share in sections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import click

RENAMED = {
    "--held": "--validation",
    "--last": "--last-row",
    "--length": "--max-length",
    "--of": "--loss-of",
    "--rate": "--learning-rate",
}
"""Names of options until version 0.1, and the present ones.  The old names work for one release."""

Options = Sequence[Callable[[Callable[..., Any]], Callable[..., Any]]]


def names_of(options: Options) -> frozenset[str]:
    """Return the names of the parameters that decorators of click make."""

    def bare() -> None:
        """Take the options."""

    for option in options:
        option(bare)
    parameters: list[click.Parameter] = bare.__click_params__  # type: ignore[attr-defined]
    return frozenset(p.name or "" for p in parameters)


def _present(argument: str, known: Collection[str]) -> str:
    """Return an argument with the present name of its option, and warn if the name is old."""
    flag, equals, value = argument.partition("=")
    name = RENAMED.get(flag, "")
    if name not in known:
        return argument
    click.echo(f"warning: {flag} is deprecated; try: {name}", err=True)
    return name + equals + value


class Command(click.Command):
    """A command whose help lists its own options before those that commands share."""

    shared: Mapping[str, frozenset[str]] = {}
    """The names of shared options by the titles of their sections."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; an option may have its old name."""
        known = {name for p in self.get_params(ctx) for name in p.opts}
        return super().parse_args(ctx, [_present(arg, known) for arg in args])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections: own options first, then shared ones."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        sections |= {title: [] for title in self.shared}
        for p in self.get_params(ctx):
            row = p.get_help_record(ctx)
            if isinstance(p, click.Argument) or row is None:
                continue
            titles = (title for title, names in self.shared.items() if p.name in names)
            sections[next(titles, "Options")].append(row)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
