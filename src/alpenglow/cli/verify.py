"""`alpenglow verify`: compare what compiled code computes with what it should."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from alpenglow.base.errors import UnsupportedError
from alpenglow.cli.as_onnx import is_onnx, onnx_of
from alpenglow.cli.feeds import feeds, number
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, input_option, model_options
from alpenglow.cli.output import examples, show, table
from alpenglow.cli.source import (
    ModelSource,
    executable,
    kind_of,
    read,
    refuse_staged,
)
from alpenglow.compiler import require_closed
from alpenglow.debug import peer
from alpenglow.debug.bisect import bisect
from alpenglow.debug.compare import error
from alpenglow.driver.compile import compile
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.program.interpret import interpret

PEER = "ONNX Runtime"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The largest error of an output against one reference, relative to its largest element."""

    output: str
    against: str
    error: float


@click.command(
    "verify",
    cls=Command,
    epilog=examples("""
alpenglow verify model.onnx
alpenglow verify model.onnx --shapes image=1x3x64x64 --tolerance 1e-5
alpenglow verify model.onnx --input image=photo.npy --numerics strict
alpenglow verify model.onnx --bisect
"""),
)
@model_options
@input_option
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=1e-4,
    show_default=True,
    help="The largest allowed error, relative to the largest element of an output.",
)
@click.option(
    "--against",
    type=click.Choice(["onnxruntime"]),
    help="Raise an error if ONNX Runtime is not installed, instead of leaving it out.",
)
@click.option("--bisect", "bisecting", is_flag=True,
              help="Print the first compiler pass after which the outputs differ.")  # fmt: skip
@click.pass_context
def command(
    ctx: click.Context, request: Request, tolerance: float, against: str | None, bisecting: bool
) -> None:
    """Run MODEL compiled, in the interpreter and in ONNX Runtime (if installed), and compare.

    ONNX Runtime runs MODEL itself if MODEL is an ONNX file.  With --against, it runs models of
    other formats as `convert` writes them.

    The exit code is 1 if an output differs by more than the tolerance.
    """
    source = read(request)
    if bisecting:
        ctx.exit(0 if _bisected(request, source, tolerance) else 1)
    exe = executable(request, source)
    arrays = feeds(exe.inputs, request.inputs)
    actual = exe.run(arrays)
    checks = compared("interpreter", _interpreted(source, arrays), actual)
    why_not = _why_not(request, against is not None)
    if why_not is None:
        model = request.model if is_onnx(request) else onnx_of(request).SerializeToString()
        checks += compared(PEER, peer.session(model, None).run(arrays), actual)
    elif against is not None:
        raise UnsupportedError(f"comparing with {PEER} is not supported: {why_not}")
    ok = all(c.error <= tolerance for c in checks)
    rows = [(c.output, c.against, f"{c.error:.1e}", "ok" if c.error <= tolerance else "differs")
            for c in checks]  # fmt: skip
    listed = [{"output": c.output, "against": c.against, "error": number(c.error)} for c in checks]
    left = {} if why_not is None else {PEER: why_not}
    lines = [*table(rows), f"tolerance {tolerance:g} of the largest element",
             *(f"not compared with {name}: {why}" for name, why in left.items())]  # fmt: skip
    result = {"ok": ok, "tolerance": tolerance, "outputs": listed, "not_compared": left}
    show(result, lines, request.json)
    ctx.exit(0 if ok else 1)


def _why_not(request: Request, demanded: bool) -> str | None:
    """Return why ONNX Runtime is not asked; None if it is, of another format only on demand."""
    if not is_onnx(request):
        if kind_of(request) == "archive":
            return "MODEL holds machine code, and no graph"
        if not demanded:
            return "MODEL is no ONNX file; --against onnxruntime converts it"
    elif request.constants:
        return "the file has other inputs than what --constants makes of it"
    return None if peer.installed() else "it is not installed (pip install onnxruntime)"


def _bisected(request: Request, source: ModelSource, tolerance: float) -> bool:
    """Print the pass after which outputs differ; return whether there is none."""
    refuse_staged(request, source, "bisected")
    if isinstance(source.ir, Graph):
        require_closed(source.ir)
    arrays = feeds(source.types(), request.inputs)
    options = request.options(check=False)
    target = source.target_of(request)
    step = bisect(source.ir, target, options, arrays, tolerance, source.resume)
    if step is None:
        show({"ok": True, "after": None}, ["no pass changes an output"], request.json)
        return True
    line = (
        f"{step.after}: output '{step.output}' differs by {step.error:.1e}, "
        f"{step.before:.1e} before"
    )
    facts = {"ok": False, "after": step.after, "output": step.output,
             "error": number(step.error), "before": number(step.before)}  # fmt: skip
    show(facts, [line], request.json)
    return False


def compared(
    against: str, expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> list[Comparison]:
    """Compare every output."""
    return [Comparison(name, against, error(expected[name], y)) for name, y in actual.items()]


def _interpreted(source: ModelSource, arrays: dict[str, Any]) -> dict[str, Any]:
    if source.model is not None:
        return compile(source.model, "interpreter").run(arrays)
    if isinstance(source.ir, Graph):
        return evaluate(source.ir, arrays)
    return interpret(source.ir, arrays)
