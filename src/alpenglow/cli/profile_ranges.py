"""`alpenglow profile-ranges`: what the values of a model are like, for quantization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import counted
from alpenglow.calibration.ranges import profile_ranges
from alpenglow.calibration.samples import Dataset
from alpenglow.cli import files
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, model_options
from alpenglow.cli.output import examples, show
from alpenglow.cli.progress import progress
from alpenglow.cli.source import read
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import refuse_staged
from alpenglow.quant.observe import BINS

data_option = click.option(
    "--data", type=click.Path(path_type=Path), required=True, metavar="DIR|NPZ",
    help="The samples.  A folder of .npy and .npz files, one sample each; a .npz file of arrays "
    "whose first axis is the sample (with labels as the array `labels`); or a folder of pictures, "
    "in one subfolder for each label.  Pixels are scaled to 0 … 1, for u8 inputs to 0 … 255.",
)  # fmt: skip


@click.command(
    "profile-ranges",
    cls=Command,
    epilog=examples("""
alpenglow profile-ranges model.onnx --data samples.npz -o ranges.yaml
alpenglow profile-ranges model.onnx --dim batch=1 --data folder -o ranges.yaml --bins 4096
alpenglow quantize model.onnx --ranges ranges.yaml --data samples.npz -o small.onnx
"""),
)
@model_options
@data_option
@click.option("-o", "output", type=files.Written(), required=True,
              metavar="FILE", help="The YAML file to write.")  # fmt: skip
@click.option("--bins", type=click.IntRange(min=16), default=BINS, show_default=True,
              help="Number of bins in each histogram.")  # fmt: skip
def command(request: Request, data: Path, output: Path, bins: int) -> None:
    """Run MODEL on samples and write the range and a histogram of each of its values.

    The file names the graph that it belongs to; `quantize` raises an error for another graph.
    """
    g = whole_graph(request)
    with progress() as report:
        profile = profile_ranges(
            g, samples(g, data), bins=bins, threads=request.threads, progress=report
        )
    text = profile.text().encode()
    files.write(output, lambda file: _write(file, text))
    result = {"file": str(output), "samples": profile.samples, "values": len(profile.ranges)}
    line = f"{output}: ranges of {counted(len(profile.ranges), 'value')} "
    line += f"on {counted(profile.samples, 'sample')}"
    show(result, [line], request.json)


def whole_graph(request: Request) -> Graph:
    """Return the graph of MODEL as imported."""
    source = read(request)
    if not isinstance(source.ir, Graph) or source.resume:
        raise UnsupportedError(
            "this is past the import already: its values are no longer those of the model",
            file=str(request.model),
            hint="give the model itself",
        )
    if source.staged:
        refuse_staged("quantized, nor its ranges be profiled", str(request.model))
    return source.ir


def samples(g: Graph, data: Path) -> Dataset:
    """Return the samples at `data` for the inputs of a graph."""
    types = {n: v.type for n, v in g.callers_inputs().items()}
    return Dataset.read(data, types)


def _write(file: Any, text: bytes) -> None:
    file.write(text)
