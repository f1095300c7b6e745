"""`alpenglow check`: what of a model is compiled, interpreted or missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import click

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import counted
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, model_options
from alpenglow.cli.output import examples, show, table
from alpenglow.cli.source import read
from alpenglow.compiler import require_closed
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.report.check import OperatorCount, copied, planned, rows
from alpenglow.runtime.device.itinerary import Copies


@click.command(
    "check",
    cls=Command,
    epilog=examples("""
alpenglow check model.onnx
alpenglow check model.onnx --dim batch=1 --target x86-64-v3
alpenglow check model.onnx --json
"""),
)
@model_options
@click.pass_context
def command(ctx: click.Context, request: Request) -> None:
    """Tell how each operator of MODEL runs on a target.

    Operators are counted after lowering and fusion: what was folded, or became addressing, does
    not run.  On a device with memory of its own the last line tells what a call copies there and
    back.  The exit code is 1 if anything is missing.
    """
    try:
        source = read(request)
    except UnsupportedError as error:
        lines = f"missing: {error}".splitlines()
        nothing = {"ok": False, "missing": str(error), "operators": [], "copies": []}
        show(nothing, lines, request.json)
        ctx.exit(1)
    if isinstance(source.ir, Graph):
        require_closed(source.ir)
    target = source.target_of(request)
    program = planned(source.ir, target, source.resume)
    operators, moved = rows(program, target), copied(program, target)
    lines = [*_lines(operators, target), *_copies(moved)]
    if source.staged:
        lines.append("of the first part; the rest is imported when its data are known")
    result = {
        "ok": True, "missing": "", "operators": [asdict(r) for r in operators],
        "copies": [{"to": c.to, "count": c.count, "bytes": c.nbytes} for c in moved],
        "first_part_only": source.staged,
    }  # fmt: skip
    show(result, lines, request.json)


def _lines(rows: tuple[OperatorCount, ...], target: Target) -> list[str]:
    lines = table([(r.operator, str(r.count), r.how, r.reason) for r in rows], frozenset({1}))
    total: Counter[str] = Counter()
    for r in rows:
        total[r.how] += r.count
    counts = ", ".join(f"{total[how]} {how}" for how in ("compiled", "interpreted"))
    return [*lines, f"{target}: {counts}, 0 missing"]


def _copies(moved: tuple[Copies, ...]) -> list[str]:
    if not moved:
        return []
    ways = (f"{counted(c.count, 'buffer')} to the {c.to} ({c.nbytes:,} bytes)" for c in moved)
    return [f"copied in a call: {', '.join(ways)}"]
