"""`alpenglow reduce`: make a model that fails as small as the failure allows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.whole import Fill
from alpenglow.base.words import counted, told
from alpenglow.cli import files
from alpenglow.cli.as_onnx import is_onnx, onnx_of
from alpenglow.cli.feeds import feeds
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, input_option, model_options
from alpenglow.cli.output import examples, show
from alpenglow.cli.source import header, refuse_constants
from alpenglow.debug import peer
from alpenglow.debug.failure import CHECKS, Failure, Trial, examined
from alpenglow.debug.probe import Probe
from alpenglow.debug.reduce import is_random, reduced
from alpenglow.frontends.onnx import cut
from alpenglow.frontends.onnx.cut import Case
from alpenglow.ir.types import TensorType


@click.command(
    "reduce",
    cls=Command,
    epilog=examples("""
alpenglow reduce model.onnx -o small.onnx
alpenglow reduce model.onnx -o small.onnx --shapes image=1x3x64x64 --check interpreter
alpenglow reduce model.onnx -o small.onnx --feeds arrays.npz --tolerance 1e-3 --seconds 60
"""),
)
@model_options
@input_option
@click.option("-o", "output", type=files.Written(".npz"), required=True,
              metavar="FILE", help="The ONNX model to write.")  # fmt: skip
@click.option("--check", type=click.Choice(["any", *CHECKS]), default="any", show_default=True,
              help="What counts as a failure: an error, or results that differ from the "
              "interpreter's or ONNX Runtime's.  A crash and a hang always count.")
@click.option("--tolerance", type=click.FloatRange(min=0), default=1e-4, show_default=True,
              help="The largest error, relative to the largest element of an output, that is not "
              "a failure.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0), default=300.0, show_default=True,
              help="How long to search, in seconds.")  # fmt: skip
@click.option("--limit", type=click.FloatRange(min=1), default=60.0, show_default=True,
              help="Number of seconds after which a run counts as a hang.")  # fmt: skip
@click.pass_context
def command(ctx: click.Context, request: Request, output: Path, check: str, tolerance: float,
            seconds: float, limit: float) -> None:  # fmt: skip
    """Shrink MODEL while it fails in the same way, and write it as ONNX.

    A model of another format is first converted to ONNX.  Each candidate is loaded, compiled and
    run in a process of its own.  The exit code is 1 if MODEL does not fail.
    """
    checks = tuple(c for c in CHECKS if check in ("any", c))
    if "onnxruntime" in checks and check != "any" and not peer.installed():
        raise UnsupportedError("ONNX Runtime is not installed", hint="pip install onnxruntime")
    trial = Trial(request.target, request.numerics, tolerance, checks)
    case = read_case(request)
    with Probe(limit) as probe:
        wanted = examined(trial, case.model.SerializeToString(), case.feeds, probe)
        if wanted is None:
            show({"failure": None}, ["the model does not fail"], request.json)
            ctx.exit(1)
        click.echo(told(f"{wanted}; {counted(len(case.nodes), 'node')}"), err=True)
        small = reduced(case, trial, wanted, probe, seconds, _report)
        failure = examined(trial, small.model.SerializeToString(), small.feeds, probe) or wanted
    _show(request, case, small, failure, output, save(small, output))


def read_case(request: Request) -> Case:
    """Return the ONNX model that was asked for, weights and all, and arrays for its inputs."""
    if is_onnx(request):
        refuse_constants(request, "a file is reduced with all its inputs")
        model = cut.whole(request.model)
    else:
        model = onnx_of(request)
        click.echo(f"{request.model} is reduced as the ONNX model that convert writes", err=True)
    return Case(model, feeds(_types(cut.input_types(model), request), request.inputs))


def save(case: Case, path: Path) -> Path | None:
    """Write the model and, unless random ones do, its feeds beside it; return where those are."""
    content = case.model.SerializeToString()
    fills: dict[Path, Fill] = {path: lambda file: _fill(file, content)}
    beside = None
    if not all(is_random(case.feeds, name) for name in case.feeds):
        beside = path.with_name(path.name + ".npz")
        arrays: dict[str, Any] = dict(case.feeds)
        fills[beside] = lambda file: np.savez(file, **arrays)
    files.write_all(fills)
    return beside


def _fill(file: BinaryIO, content: bytes) -> None:
    file.write(content)


def _types(declared: Mapping[str, TensorType], request: Request) -> dict[str, TensorType]:
    """Return the types of the inputs, with extents bound as asked."""
    if unknown := request.shapes.keys() - declared.keys():
        known = ", ".join(declared)
        raise OptionError(f"--shapes names {', '.join(sorted(unknown))}, expected inputs: {known}")
    shapes = {name: header(name, file) for name, file in request.inputs.items() if file != "random"}
    types = {}
    for name, t in declared.items():
        t = t.with_shape((shapes | request.shapes).get(name, t.shape)).bind(request.extents)
        if not t.static:
            hint = "fix its dynamic dimensions with --shapes or --dim"
            raise OptionError(f"input '{name}' is {t}, expected fixed dimensions", hint=hint)
        types[name] = t
    return types


def _report(case: Case) -> None:
    nodes, outputs, elements = case.size()
    sizes = ((nodes, "node"), (outputs, "output"), (elements, "element"))
    click.echo(", ".join(counted(number, thing) for number, thing in sizes), err=True)


def _show(request: Request, case: Case, small: Case, failure: Failure, output: Path,
          beside: Path | None) -> None:  # fmt: skip
    feeding = f" --feeds {beside}" if beside is not None else ""
    operators = [node.op_type for node in small.nodes]
    result = {
        "failure": {"kind": failure.kind, "what": failure.what, "message": failure.message},
        "nodes": {"before": len(case.nodes), "after": len(small.nodes)},
        "operators": operators,
        "file": str(output),
        "feeds": str(beside) if beside is not None else None,
    }
    lines = [
        str(failure),
        f"{output}: {len(small.nodes)} of {len(case.nodes)} nodes: {', '.join(operators)}",
        f"  try: alpenglow verify {output}{feeding} --bisect",
    ]
    show(result, lines, request.json)
