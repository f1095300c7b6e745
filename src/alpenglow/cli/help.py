"""Help of commands: the options of a command come first, those that commands share in sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

Options = Sequence[Callable[[Callable[..., Any]], Callable[..., Any]]]


def names_of(options: Options) -> frozenset[str]:
    """Return the names of the parameters that decorators of click make."""

    def bare() -> None:
        """Take the options."""

    for option in options:
        option(bare)
    parameters: list[click.Parameter] = bare.__click_params__  # type: ignore[attr-defined]
    return frozenset(p.name or "" for p in parameters)


class Command(click.Command):
    """A command whose help lists its own options before those that commands share."""

    shared: Mapping[str, frozenset[str]] = {}
    """The names of shared options by the titles of their sections."""

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
