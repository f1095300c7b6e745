"""`alpenglow compile`: from a model to an archive that runs without compiling."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

import alpenglow as ag
from alpenglow.base import deadline
from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import counted
from alpenglow.cli import files
from alpenglow.cli.feeds import feeds
from alpenglow.cli.help import Command
from alpenglow.cli.options import (
    Request,
    input_option,
    memory_option,
    model_options,
    timeout_option,
)
from alpenglow.cli.output import examples, show
from alpenglow.cli.source import (
    IMPORT,
    ModelSource,
    check_inputs,
    compiled,
    executable,
    kind_of,
    read,
    shapes_given,
)
from alpenglow.ir.graph import Graph
from alpenglow.runtime.archive import archive


@click.command(
    "compile",
    cls=Command,
    epilog=examples("""
alpenglow compile model.onnx -o model.ago
alpenglow compile model.onnx -o model.ago --dim batch=1 --target x86-64-v3
alpenglow compile model.onnx -o model.ago --input image=photo.npy
alpenglow compile decoder.onnx -o decoder.ago --state --last-row logits
alpenglow run model.ago
"""),
)
@model_options
@input_option
@click.option("-o", "output", type=files.Written(), required=True,
              metavar="FILE", help="The archive to write, usually FILE.ago.")  # fmt: skip
@click.option(
    "--state",
    is_flag=True,
    help="Keep state in sessions: an input such as past_key_values.0.key is fed by the output "
    "present.0.key of the call before (KV cache).",
)
@click.option(
    "--last-row",
    "last",
    multiple=True,
    metavar="OUTPUT",
    help="With --state: return only the last row of this output, such as logits.",
)
@memory_option
@timeout_option
def command(
    request: Request, output: Path, state: bool, last: tuple[str, ...], memory: str | None,
    timeout: float | None,
) -> None:  # fmt: skip
    """Compile MODEL for a target and write an archive.

    Dynamic dimensions stay dynamic: the archive holds code for the shapes of the arrays of --input,
    and compiles code for other shapes when it runs.  If the graph of MODEL depends on its data,
    MODEL runs once on these arrays, and the archive serves only data that take the same path.

    An archive needs neither the model nor the compiler to run.  It holds machine code: run only
    archives from a source that you trust.
    """
    begin = time.perf_counter()
    request = replace(request, memory=memory, timeout=timeout)
    with deadline.limited(timeout):
        archived = (
            remembering_model(request, state, last) if state or last else archived_model(request)
        )
    archive.write(archived, output)
    artifacts = archive.artifacts_of(archived)
    instructions = sum(len(a.table) for a in artifacts)
    kernels = sum(len(a.objects) for a in artifacts)
    seconds = time.perf_counter() - begin
    nbytes = output.stat().st_size
    result = {
        "file": str(output),
        "target": str(archived.target),
        "nbytes": nbytes,
        "programs": len(artifacts),
        "kernels": kernels,
        "instructions": instructions,
        "seconds": seconds,
    }
    text = (
        f"{output}: {nbytes / 1e6:.2f} MB for {archived.target}, "
        f"{counted(instructions, 'instruction')}, {counted(kernels, 'kernel')}, {seconds:.2f} s"
    )
    lines = [text] if artifacts else [text, "code is made where it is run, for the shapes of calls"]
    show(result, lines, request.json)


def remembering_model(request: Request, state: bool, last: Sequence[str]) -> archive.Archived:
    """Return what the archive of a model holds whose caches are state; nothing is compiled yet."""
    if request.inputs or kind_of(request) == "archive":
        raise UnsupportedError(
            "--state is for a model of which no array is given", hint="leave --input out"
        )
    source = read(request)
    if not isinstance(source.ir, Graph) or source.after != IMPORT:
        raise UnsupportedError(
            "--state is for a model that is one graph",
            hint="leave it out; or, where an input decides, tell it: --constants NAME=VALUE",
        )
    exe = ag.compile(
        source.ir, request.target, request.threads, options=request.options(),
        state=state, last=last,
    )  # fmt: skip
    return exe.archived()


def archived_model(request: Request) -> archive.Archived:
    """Return what the archive of MODEL holds."""
    if kind_of(request) == "archive":
        return compiled(request, read(request))
    # Shapes of arrays do not bind extents here: what is left open serves others, too.
    source = read(replace(request, inputs={}))
    if source.staged:
        return _met(request, source)
    check_inputs(request.inputs, source.types())
    if not isinstance(source.ir, Graph) or source.after != IMPORT or not _is_open(source):
        # Not through an Executable: the code may be for another machine.
        return compiled(request, source)
    exe = ag.compile(source.ir, request.target, request.threads, options=request.options())
    if request.inputs:
        exe.warm(shapes_given(request))
    return exe.archived()


def _met(request: Request, source: ModelSource) -> archive.Archived:
    """Return what a run leads to of a model whose graph depends on its data."""
    exe = executable(request, source)
    if exe.inputs and not request.inputs:
        raise UnsupportedError(
            "the graph of this model depends on its data, so its archive holds what a run leads to",
            file=str(request.model),
            hint="--input NAME=FILE.npy, with data like those to come",
        )
    exe.run(feeds(exe.inputs, request.inputs))
    return exe.archived()


def _is_open(source: ModelSource) -> bool:
    return any(t.symbols() for t in source.types().values())
