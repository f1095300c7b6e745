"""`alpenglow show`: a model as text, as any stage of the compiler left it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from alpenglow.base.errors import OptionError
from alpenglow.base.whole import Fill, takes_what_comes
from alpenglow.base.words import meant
from alpenglow.cli import files
from alpenglow.cli.help import Command
from alpenglow.cli.kernels import KERNEL, all_kernels, one_kernel
from alpenglow.cli.options import Request, model_options
from alpenglow.cli.output import examples, table
from alpenglow.cli.output import show as show_result
from alpenglow.cli.source import IMPORT, MARK, ModelSource, read
from alpenglow.compiler import every_pass, require_closed
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir import text as graph_text
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import NAMES, NARROW, Array
from alpenglow.passes.keep import check_kept
from alpenglow.passes.table import Pass, current_name
from alpenglow.program import text as program_text

EMIT = "emit"
"""The name of the stage behind all passes."""


def described(p: Pass) -> str:
    """Return what a pass does, and for whom, in a line."""
    conditions = [
        *([f"target {' or '.join(p.machines)}"] if p.machines else []),
        *(["fast numerics"] if p.fast else []),
        *([p.only] if p.only else []),
    ]
    return f"{p.doc} (only with {', '.join(conditions)})" if conditions else p.doc


STAGE_DOCS: dict[str, str] = {
    IMPORT: "the model as it was imported",
    **{p.name: described(p) for p in every_pass()},
    EMIT: "code generation: the kernels, and the table of the order in which they run",
}


def _list(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        for row in table(list(STAGE_DOCS.items())):
            click.echo(row)
        ctx.exit()


@click.command(
    "show",
    cls=Command,
    epilog=examples("""
alpenglow show --list
alpenglow show model.onnx
alpenglow show model.onnx --after fuse
alpenglow show model.onnx --after emit
alpenglow show model.onnx --kernel conv_blocked --as assembly
alpenglow show model.onnx --after lower -o lowered.txt
alpenglow show lowered.txt --after plan
alpenglow run lowered.txt
"""),
)
@model_options
@click.option(
    "--after",
    default=None,
    metavar="STAGE",
    help="The pass to stop after; --list prints the names.  [default: import]",
)
@click.option(
    "-o",
    "output",
    type=files.Written(".npz"),
    metavar="FILE",
    help="Write the text to FILE, and large constants to FILE.npz.",
)
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list,
              help="Print the passes in their order.")  # fmt: skip
@click.option(
    "--kernel",
    metavar="NAME",
    help="Print only the code of this kernel; --after emit prints the names.",
)
@click.option("--as", "language", metavar="LANGUAGE",
              help="With --kernel: kernel (the default), llvm, llvm-optimized, assembly or c; for "
              "OpenCL targets opencl.")  # fmt: skip
def command(
    request: Request, after: str | None, output: Path | None, kernel: str | None,
    language: str | None,
) -> None:  # fmt: skip
    """Print MODEL as text after a pass of the compiler.

    The text that -o writes is a MODEL for every command: compilation continues after that pass.
    If the graph of MODEL depends on its data, the text holds the first part of the graph and how
    the run continues.
    """
    source = read(request)
    if source.staged:
        click.echo("this is the first part; the rest is imported when its data are known", err=True)
    if kernel is not None:
        after = after or EMIT
    if (kernel is None and language) or (kernel is not None and after != EMIT):
        found = f"--after {after}" if kernel is not None else "--as without --kernel"
        raise OptionError(
            f"{found} has no code, expected --kernel NAME --as LANGUAGE after {EMIT}",
            hint=f"--after {EMIT} prints the names of the kernels",
        )
    stage = source.after if after is None else current_name(after, list(STAGE_DOCS))
    if stage not in STAGE_DOCS:
        close = meant(stage, STAGE_DOCS)
        hint = "" if close else ", ".join(STAGE_DOCS)
        raise OptionError(f"no stage is called '{stage}'{close}", hint=hint)
    order = list(STAGE_DOCS)
    if order.index(stage) < order.index(source.after):
        raise OptionError(f"{request.model} is past '{stage}' already: it is after {source.after}")
    body, weights = advanced(source, stage, request, kernel, language or KERNEL)
    text = f"{body}\n" if kernel is not None else f"{MARK}{stage}\n{body}\n"
    if source.then is not None and stage != EMIT:
        text += f"{source.then}\n"
    if output is not None:
        write(output, text, weights)
        lines = [
            f"{output}: after {stage}, {len(text.splitlines())} lines, {len(weights)} constants"
        ]
        show_result({"file": str(output), "after": stage}, lines, request.json)
        return
    result = {"after": stage, "text": text}
    show_result(result, text.rstrip("\n").split("\n"), request.json, wrap=False)


def advanced(
    source: ModelSource, stage: str, request: Request, kernel: str | None, language: str
) -> tuple[str, dict[str, Array]]:
    """Return the text of a model after `stage`, and the constants that it names by hash.

    After code generation, that is the code of one `kernel` in a `language`, if it is named.
    """
    target = source.target_of(request)
    model: Any = source.ir
    if stage != source.after:
        if isinstance(model, Graph):
            require_closed(model)
            if source.after == IMPORT:
                check_kept(model, request.keep)
            model = model.copy()
        for p, ir in run_stages(model, target, request.options(), source.resume):
            model = ir
            if p.name == stage:
                break
        else:
            if stage != EMIT:
                raise OptionError(
                    f"stage '{stage}' is left out for target {target} with these options",
                    hint=STAGE_DOCS[stage],
                )
    if stage == EMIT and kernel is not None:
        strict = request.numerics == "strict"
        return one_kernel(model, target, kernel, language, strict), {}
    if stage == EMIT:
        return "\n".join(all_kernels(model, target)), {}
    if isinstance(model, Graph):
        return graph_text.print_graph(model), graph_text.side_weights(model)
    return program_text.print_program(model), program_text.side_weights(model)


def write(path: Path, text: str, weights: dict[str, Array]) -> None:
    """Write a text and its constants, both or neither.

    Beside a device or a pipe there is no place for constants.
    """
    fills: dict[Path, Fill] = {}
    if weights and not takes_what_comes(path):
        # NumPy's files know the types of a byte or less by their codes only.
        arrays: dict[str, Any] = {k: a.view(np.uint8) if NAMES[a.dtype] in NARROW else a
                                  for k, a in weights.items()}  # fmt: skip
        fills[files.weights_path(path)] = lambda file: np.savez(file, **arrays)
    files.write_all({**fills, path: lambda file: _write_text(file, text)})


def _write_text(file: Any, text: str) -> None:
    file.write(text.encode())
    file.flush()
