"""`alpenglow tune`: measure ways to compute a model's contractions, and remember the fastest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from alpenglow.base import knobs
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.cli import files
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, model_options, parse_seconds
from alpenglow.cli.output import examples, show, table
from alpenglow.cli.progress import progress
from alpenglow.cli.source import read, refuse_staged
from alpenglow.compiler.pipeline import require_closed
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.measure.tune import Tuned, tune
from alpenglow.passes.choices import Record, Ways


@click.command(
    "tune",
    cls=Command,
    epilog=examples("""
alpenglow tune model.onnx
alpenglow tune model.onnx --shapes image=1x3x224x224 --threads 1 --budget 2min
alpenglow tune model.onnx -o tuning.txt && ALPENGLOW_TUNING=tuning.txt python serve.py
"""),
)
@model_options
@click.option("--budget", default="30s", show_default=True, metavar="TIME",
              help="About how long to measure: seconds, or a number with s, min or h.")  # fmt: skip
@click.option("-o", "output", type=files.Written(), metavar="FILE",
              help="The record to add to.  [default: the record that the compiler reads]")
def command(request: Request, budget: str, output: Path | None) -> None:
    """Autotuning: measure the implementations of each convolution and matmul of MODEL.

    An implementation that is clearly faster than the default is written to the tuning record, a
    text file that every later compilation reads.  Results do not change, except by the rounding of
    Winograd convolutions.
    """
    path = output or knobs.tuning_file()
    if path is None:
        raise OptionError("the file for the record is missing", hint="name one with -o")
    seconds = parse_seconds(budget, "--budget")
    source = read(request)
    refuse_staged(request, source, "tuned")
    if not isinstance(source.ir, Graph):
        raise UnsupportedError(
            "tuning a program is not supported; supported: a model", file=str(request.model)
        )
    require_closed(source.ir)
    before = Record.read(path) if path.exists() else Record()
    path.parent.mkdir(parents=True, exist_ok=True)  # what fails should fail before measuring
    with progress() as report:
        tuning = tune(source.ir, Target.parse(request.target), request.threads, seconds, report,
                      request.options())  # fmt: skip
    record = before.merged(tuning.record)
    if tuning.record.problems:
        files.write(path, lambda file: _write(file, record))
    rule, best = (sum(t.rule_seconds for t in tuning.found),
                  sum(min(t.best_seconds, t.rule_seconds) for t in tuning.found))  # fmt: skip
    result: dict[str, Any] = {
        "record": str(path), "target": request.target,
        "problems": tuning.problems, "measured": len(tuning.found),
        "rule_seconds": rule, "best_seconds": best,
        "found": [
            {"problem": t.problem, "rule": dict(t.rule), "rule_seconds": t.rule_seconds,
             "best": dict(t.best), "best_seconds": t.best_seconds, "kept": t.better}
            for t in tuning.found
        ],
    }  # fmt: skip
    show(result, lines(tuning.found, result), request.json)


def _write(file: Any, record: Record) -> None:
    file.write(str(record).encode())


def lines(tuned: tuple[Tuned, ...], result: dict[str, Any]) -> Iterator[str]:
    """Yield a table of what was faster, and a summary."""
    if not result["problems"]:
        yield (
            f"nothing to tune: for target {result['target']} there is one way only to compute each "
            "convolution and matrix product of this model, if it has any"
        )
        return
    better = [t for t in tuned if t.better]
    if better:
        rows = [["rule ms", "best ms", "best", "problem"]]
        rows += [[f"{t.rule_seconds * 1e3:.3f}", f"{t.best_seconds * 1e3:.3f}", spelled(t.best),
                  t.problem.partition(" on ")[0]] for t in better]  # fmt: skip
        yield from table(rows, frozenset((0, 1)))
    rule, best = result["rule_seconds"] * 1e3, result["best_seconds"] * 1e3
    yield f"{result['measured']} of {result['problems']} problems measured, each alone"
    yield f"together they take {rule:.2f} ms by rule, {best:.2f} ms tuned"
    if better:
        yield f"{len(better)} are faster than by rule; written to {result['record']}"
    else:
        yield "none is clearly faster than by rule; nothing was written"


def spelled(ways: Ways) -> str:
    """Return choices as the record has them."""
    return " ".join(f"{k}={v}" for k, v in sorted(ways.items()))
