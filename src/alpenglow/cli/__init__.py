"""The command line: `alpenglow COMMAND MODEL …`.

Flags have the names that the API gives the same things.  Exit codes: 0 all is well; 1 the answer
is no (`verify` disagrees, `check` misses something); 2 the user's mistake, one `error:` on stderr;
3 our own mistake, with its traceback; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any, TextIO

import click

from alpenglow.base.errors import AlpenglowError
from alpenglow.base.words import counted, escaped, meant, told

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Compile and run": {
        "run": "Run a model once and print its outputs.",
        "compile": "Compile a model ahead of time into an archive (.ago).",
        "bundle": "Write a model as object files, C, a wheel or WebAssembly.",
        "convert": "Write a model or a graph as an ONNX file.",
        "sign": "Sign an archive with a private key.",
    },
    "Inspect": {
        "show": "Print a model as text after any pass of the compiler.",
        "check": "Print which operators are compiled, interpreted or missing.",
        "profile": "Print the time of each kernel, and its nodes in the model.",
        "bench": "Measure latency, throughput and the share of the machine's peak.",
        "devices": "List the OpenCL devices of this machine with their speed.",
    },
    "Quantize and train": {
        "quantize": "Quantize a model within a limit of accuracy loss.",
        "profile-ranges": "Calibrate: write the ranges of all values on samples.",
        "train": "Train a model on labelled samples, and write it.",
    },
    "Deploy": {
        "tune": "Autotuning: measure implementations and record the fastest.",
        "place": "Partition a model over devices and groups of cores.",
    },
    "Debug": {
        "verify": "Compare compiled results with the interpreter and ONNX Runtime.",
        "reduce": "Shrink a model that fails to a small one that still fails.",
        "test-machine": "Run all operator examples and ONNX node tests on a target.",
    },
}
"""The commands by the sections of the help, with what each does."""

COMMANDS = {name: text for section in SECTIONS.values() for name, text in section.items()}
"""Each command is `command` in a module of its own, imported when it is asked for."""

TRACEBACK = "alpenglow.traceback"
"""Where --traceback is noted in the context of a call."""


class Commands(click.Group):
    """The commands of the table, and what their errors mean to the shell."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = import_module(f"alpenglow.cli.{name.replace('-', '_')}").command
        assert isinstance(command, click.Command), name
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what stands before the command; say where an option goes that does not."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            option = told(error.option_name)
            command = next((word for word in words if word in COMMANDS), "COMMAND")
            if not (known := meant(option, ["--version", "--help"], alike=0.8)):
                known = f"; options of a command follow it: alpenglow {command} MODEL {option}"
            text = f"'{option}' is not supported before the command{known}"
            _tell(click.UsageError(text, ctx))
            ctx.exit(2)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; say which one may be meant where there is none."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(
                f"command is '{told(args[0])}', expected one that alpenglow --help lists"
                f"{meant(args[0], COMMANDS)}",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn errors into messages and exit codes."""
        try:
            with told_warnings():
                return super().invoke(ctx)
        except (click.exceptions.NoArgsIsHelpError, click.exceptions.Exit):
            raise
        except click.ClickException as error:
            _tell(error)
            ctx.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            ctx.exit(130)
        except (AlpenglowError, OSError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of our output has left; click knows what to do
            if ctx.meta.get(TRACEBACK):
                traceback.print_exc()
            text = escaped(str(error)) if isinstance(error, OSError) else error.for_command_line()
            click.echo(f"error: {text}", err=True)
            ctx.exit(2)
        except MemoryError as error:
            # NumPy says how much it was asked for.
            click.echo(f"error: there is not enough memory: {told(str(error))}", err=True)
            ctx.exit(2)
        except Exception:
            traceback.print_exc()
            click.echo("This is a mistake in Alpenglow, not yours: please report it.", err=True)
            ctx.exit(3)


def _tell(error: click.ClickException) -> None:
    """Print what click refuses as other errors are printed, with the usage of the command."""
    click.echo(f"error: {told(error.format_message())}", err=True)
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is not None:
        click.echo(f"  try: {ctx.command_path} --help\n{ctx.get_usage()}", err=True)


@contextlib.contextmanager
def told_warnings() -> Iterator[None]:
    """Print each warning as one line, without our source; those that differ in a name are counted.

    Ten thousand damaged entries of a cache are one line, and how many more there were.
    """
    seen: Counter[str] = Counter()

    def tell(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = told(str(message))
        kind = re.sub("'[^']*'", "''", text)
        seen[kind] += 1
        if seen[kind] == 1:
            click.echo(f"warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = tell
        try:
            yield
        finally:
            for kind, count in seen.items():
                if count > 1:
                    more = counted(count - 1, "more warning")
                    click.echo(f"warning: {more} like this: {kind}", err=True)


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="MODEL is a file of ONNX, TFLite, StableHLO or PyTorch (.pt2), a text from `show -o`, "
    "or an archive from `compile`.",
)
@click.version_option(version("alpenglow"), prog_name="alpenglow")
def cli() -> None:
    """Alpenglow compiles trained neural networks to machine code.

    \b
    alpenglow run model.onnx
    alpenglow bench model.onnx --threads 1
    alpenglow COMMAND --help
    """


def main() -> None:
    """Run the command line on this process's arguments."""
    sys.exit(cli())
