"""`alpenglow convert`: a model, or the graph after a stage, as a model of ONNX."""

from __future__ import annotations

from pathlib import Path

import click

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.words import counted
from alpenglow.cli import files
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, model_options
from alpenglow.cli.output import examples, show
from alpenglow.cli.source import read, refuse_staged
from alpenglow.exporters.onnx import export_onnx
from alpenglow.exporters.onnx.files import beside
from alpenglow.ir.graph import Graph


@click.command(
    "convert",
    cls=Command,
    epilog=examples("""
alpenglow convert model.onnx -o fixed.onnx --dim batch=1
alpenglow show model.onnx --after recover -o recovered.txt
alpenglow convert recovered.txt -o recovered.onnx
"""),
)
@model_options
@click.option("-o", "output", type=files.Written(".data"), required=True,
              metavar="FILE.onnx", help="The ONNX model to write.")  # fmt: skip
@click.option("--opset", type=int, metavar="N",
              help="The opset version to write.  [default: the first from 21 on that has all "
              "operators and types]")  # fmt: skip
def command(request: Request, output: Path, opset: int | None) -> None:
    """Write MODEL as an ONNX model of standard operators.

    MODEL is a model file or the text of a graph, so a graph that passes have changed runs in other
    runtimes, too.  If the constants take more than 2 GiB, they are written to FILE.onnx.data.
    """
    if output.suffix != ".onnx":
        raise OptionError(f"-o {output}: expected a name that ends in .onnx")
    source = read(request)
    refuse_staged(request, source, "written as ONNX")
    if not isinstance(source.ir, Graph):
        raise UnsupportedError(
            f"this is a program, after pass {source.after}, expected a graph",
            file=str(request.model),
            hint="the model itself, or a text from show --after fuse -o FILE.txt",
        )
    model = export_onnx(source.ir, output, opset=opset)
    (written,) = (o.version for o in model.opset_import if not o.domain)
    files = [output, *([beside(output)] if beside(output).is_file() else [])]
    nbytes = sum(f.stat().st_size for f in files)
    result = {
        "file": str(output), "opset": written, "nodes": len(model.graph.node),
        "initializers": len(model.graph.initializer), "nbytes": nbytes,
    }  # fmt: skip
    text = f"{output}: opset {written}, {counted(len(model.graph.node), 'node')}, "
    text += f"{counted(len(model.graph.initializer), 'constant')}, {nbytes / 1e6:.2f} MB"
    show(result, [text], request.json)
