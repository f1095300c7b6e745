"""`alpenglow run`: run a model once and print what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import click
import numpy as np

from alpenglow.base.errors import OptionError
from alpenglow.cli import files
from alpenglow.cli.feeds import described, feeds, line
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, input_option, model_options
from alpenglow.cli.output import examples, show
from alpenglow.cli.source import executable, kind_of
from alpenglow.ir.types import Array


@click.command(
    "run",
    cls=Command,
    epilog=examples("""
alpenglow run model.onnx
alpenglow run model.onnx --input image=photo.npy --output results
alpenglow run model.onnx --shapes image=1x3x224x224
alpenglow run model.ago --threads 1 --timeout 10
alpenglow run large.ago --weights 800MB
alpenglow run model.onnx --placement placement.txt
"""),
)
@model_options
@input_option
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write each output that is an array to DIR/NAME.npy.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="Raise an error if the run takes longer than this number of seconds.")
@click.option("--weights", metavar="BYTES|800MB",
              help="For an archive: read weights during the run and keep at most this much of "
              "them in memory.",
)  # fmt: skip
@click.option("--placement", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Run the model in the parts of a placement that `alpenglow place -o` wrote.",
)  # fmt: skip
def command(
    request: Request, output: Path | None, timeout: float | None, weights: str | None,
    placement: Path | None,
) -> None:  # fmt: skip
    """Run MODEL once and print each output: name, type, minimum, mean and maximum."""
    if weights is not None and kind_of(request) != "archive":
        raise OptionError(
            f"--weights is for an archive, which {request.model} is not",
            flags="alpenglow compile MODEL -o model.ago",
        )
    request = replace(request, weights=weights)
    if placement is not None:
        if timeout is not None:
            raise OptionError("--timeout with --placement is not supported")
        # What places is imported for this alone: an archive is run without it.
        parts = import_module("alpenglow.cli.place").placed_model(request, placement)
        arrays = parts.run(feeds(parts.inputs, request.inputs))
    else:
        exe = executable(request)
        arrays = exe.run(feeds(exe.inputs, request.inputs), timeout=timeout)
    rows = [described(name, value) for name, value in arrays.items()]
    if output is not None:
        files_of = save({n: a for n, a in arrays.items() if isinstance(a, np.ndarray)}, output)
        for row in rows:
            if row["name"] in files_of:
                row["file"] = str(files_of[row["name"]])
    show({"outputs": rows}, map(line, rows), request.json)


def save(arrays: Mapping[str, Array], folder: Path) -> dict[str, Path]:
    """Write each array to a .npy file in `folder`; return the files by name."""
    there = folder.exists()
    paths = {name: folder / f"{stem}.npy" for name, stem in files.stems(arrays).items()}
    written = [("--output", path) for path in paths.values()]
    files.refuse_overwriting(click.get_current_context(), written)
    folder.mkdir(parents=True, exist_ok=True)
    plain = {n: a.astype(str) if a.dtype == object else a for n, a in arrays.items()}
    try:
        files.write_all({paths[n]: partial(_write, array=a) for n, a in plain.items()})
    except OSError:
        if not there:
            folder.rmdir()
        raise
    return paths


def _write(file: BinaryIO, array: Array) -> None:
    np.save(file, array)
