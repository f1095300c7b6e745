"""`alpenglow compile`: from a model to an archive that runs without compiling."""

from __future__ import annotations

import time
from pathlib import Path

import click

from alpenglow.base.words import counted
from alpenglow.cli.options import Request, model_options
from alpenglow.cli.output import examples, show
from alpenglow.cli.source import compiled, read
from alpenglow.runtime import archive


@click.command(
    "compile",
    epilog=examples("""
alpenglow compile model.onnx -o model.ago
alpenglow compile model.onnx -o model.ago --dim batch=1 --target x86-64-v3
alpenglow run model.ago
"""),
)
@model_options
@click.option("-o", "output", type=click.Path(path_type=Path, dir_okay=False), required=True,
              metavar="FILE", help="The archive to write, by custom FILE.ago.")  # fmt: skip
def command(request: Request, output: Path) -> None:
    """Compile MODEL for a target and write an archive.

    The archive needs no model and no compiler to run; it holds machine code, so run only archives
    that you trust.
    """
    begin = time.perf_counter()
    artifact = compiled(request, read(request))
    # Not through an Executable: the code may be for another machine.
    archive.write(artifact, output)
    seconds = time.perf_counter() - begin
    nbytes = output.stat().st_size
    result = {
        "file": str(output),
        "target": str(artifact.target),
        "nbytes": nbytes,
        "kernels": len(artifact.objects),
        "instructions": len(artifact.table),
        "seconds": seconds,
    }
    text = (
        f"{output}: {nbytes / 1e6:.2f} MB for {artifact.target}, "
        f"{counted(len(artifact.table), 'instruction')}, "
        f"{counted(len(artifact.objects), 'kernel')}, {seconds:.2f} s"
    )
    show(result, [text], request.json)
