"""`alpenglow profile`: where the time of a run goes, kernel by kernel."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import click

from alpenglow.base.cpus import default_threads
from alpenglow.base.words import counted
from alpenglow.cli import files
from alpenglow.cli.feeds import feeds
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, input_option, model_options
from alpenglow.cli.output import columns, durations, examples, show, table
from alpenglow.cli.source import executable, read, refuse_staged
from alpenglow.ir.graph import Graph
from alpenglow.measure.profile import ROUNDS, InstrTime, RunProfile, profile, trace
from alpenglow.measure.reach import bandwidth_of, peak_of
from alpenglow.runtime.executables.timing import CopyTiming

WIDTH, NARROWEST, NUMBERS = 60, 24, 64
"""Characters of node names in a row: at most, on a narrow terminal, and of the columns before."""

SMALL = 0.02
"""Kernels of a kind that multiply nothing, and take less of the time each, share a line."""

HEAD = ("%", "limit", "GFLOP/s", "peak", "MB", "memory", "kernel", "computes")


@click.command(
    "profile",
    cls=Command,
    epilog=examples("""
alpenglow profile model.onnx
alpenglow profile model.onnx --shapes image=1x3x224x224 --threads 1 --top 10
alpenglow profile model.onnx --shapes image=1x3x224x224 --trace trace.json
"""),
)
@model_options
@input_option
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True,
              help="Number of kernels to print, slowest first.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=ROUNDS, show_default=True,
              help="Number of runs; printed times are their medians.")  # fmt: skip
@click.option("--trace", "trace_file", type=files.Written(),
              metavar="FILE", help="Write a trace for Perfetto or chrome://tracing.")  # fmt: skip
def command(request: Request, top: int, rounds: int, trace_file: Path | None) -> None:
    """Print the time of each kernel of MODEL, and the nodes that it computes.

    Each kernel is timed alone, in the order of a run.  The table has its operations as a share of
    the measured peak, and its bytes as a share of the memory bandwidth; shares above 100 % are
    reads from caches.  The column `limit` is the shortest possible time, in ms: its operations
    at peak, or the reading of its weights from memory.  On an OpenCL device, the device's
    peak and bandwidth count, and copies to it and back are printed last.
    """
    source = read(request)
    refuse_staged(request, source, "profiled")
    exe = executable(request, source)
    arrays = feeds(exe.inputs, request.inputs)
    graph = source.ir if isinstance(source.ir, Graph) else None
    times = profile(exe, arrays, graph, rounds)
    threads = exe.threads or default_threads()
    most, delivered = peak_of(exe.target, threads), bandwidth_of(exe.target, threads)
    result: dict[str, Any] = {
        "run_seconds": times.run, "seconds": times.seconds, "limit_seconds": times.limit,
        "threads": threads, "copies": [_copied(c) for c in times.copies],
        "peak_flop_per_second": _known(most), "bytes_per_second": _known(delivered),
        "kernels": [row(p, most, delivered) for p in times.parts],
    }  # fmt: skip
    if trace_file is not None:
        files.write(trace_file, lambda file: _write_trace(file, times))
        result["trace"] = str(trace_file)
    show(result, lines(times, top, most, delivered), request.json)


def _write_trace(file: BinaryIO, times: RunProfile) -> None:
    file.write(json.dumps(trace(times)).encode())


def row(p: InstrTime, most: float, delivered: float) -> dict[str, Any]:
    """Return what is known of a kernel, fit for JSON."""
    return {
        "number": p.number, "kernel": p.kind, "sources": list(p.sources), "compiled": p.compiled,
        "seconds": p.seconds, "limit_seconds": p.limit, "flop": p.flop,
        "share_of_peak": _known(most) and p.rate / most, "bytes": p.nbytes,
        "share_of_bandwidth": _known(delivered) and p.traffic / delivered,
    }  # fmt: skip


def _known(reached: float) -> float | None:
    """Return what a machine reaches; None where nobody has measured it."""
    return None if math.isinf(reached) else reached


def _copied(c: CopyTiming) -> dict[str, Any]:
    return {"to": c.to, "count": c.count, "bytes": c.nbytes, "seconds": c.seconds}


def lines(times: RunProfile, top: int, most: float, delivered: float) -> list[str]:
    """Return the table of the slowest kernels, and what all take together.

    What is not known of a machine, as it is infinite, has no shares.
    """
    slowest = sorted(together(times.parts, times.seconds), key=lambda parts: -_seconds(parts))
    longest = max(map(_seconds, slowest), default=0.0)
    unit, scale = ("µs", 1e6) if longest < 1e-4 else ("ms", 1e3)
    shown = [
        _cells(_joined(parts), times.seconds, scale, most, delivered) for parts in slowest[:top]
    ]
    text = table([(unit, *HEAD), *shown], right=frozenset(range(7)))
    total, run, limit = durations([times.seconds, times.run, times.limit])
    if rest := [part for parts in slowest[top:] for part in parts]:
        (seconds,) = durations([_seconds(rest)])
        text.append(f"{counted(len(rest), 'more kernel')} {_take(rest)} {seconds}")
    reached = f"the peak is {most / 1e9:.0f} GFLOP/s, memory delivers {delivered / 1e9:.0f} GB/s"
    text.append(
        f"{counted(len(times.parts), 'kernel')} {_take(times.parts)} {total}, a run {run}"
        + (f"; {reached}" if _known(most) and _known(delivered) else "")
    )
    text += _beside(times)
    if not _known(most):
        return text
    text.append(
        f"these kernels cannot take less than {limit} on this machine: "
        f"{times.limit / times.run:.0%} of a run"
    )
    return text


def _beside(times: RunProfile) -> list[str]:
    """Return what there is beside the kernels of a device."""
    if not times.copies:
        return []
    took = durations([c.seconds for c in times.copies])
    lines = [f"{c}: {seconds}" for c, seconds in zip(times.copies, took, strict=True)]
    if here := [p for p in times.parts if not p.compiled]:
        (seconds,) = durations([_seconds(here)])
        lines.append(f"{len(here)} of the kernels are interpreted on the host: {seconds}")
    return lines


def together(parts: Sequence[InstrTime], total: float) -> list[list[InstrTime]]:
    """Return the kernels line by line: alone, or with others of their kind that are small."""
    groups: dict[tuple[str, bool] | int, list[InstrTime]] = {}
    for p in parts:
        small = not p.flop and p.seconds < SMALL * total
        groups.setdefault((p.kind, p.compiled) if small else p.number, []).append(p)
    return list(groups.values())


def _seconds(parts: Sequence[InstrTime]) -> float:
    return sum(p.seconds for p in parts)


def _take(parts: Sequence[InstrTime]) -> str:
    return "takes" if len(parts) == 1 else "take"


def _joined(parts: Sequence[InstrTime]) -> InstrTime:
    first = parts[0]
    if len(parts) == 1:
        return first
    return replace(
        first, kind=f"{len(parts)} {first.kind}", seconds=_seconds(parts),
        nbytes=sum(p.nbytes for p in parts), limit=sum(p.limit for p in parts),
        sources=tuple(dict.fromkeys(name for p in parts for name in p.sources)),
    )  # fmt: skip


def _cells(
    p: InstrTime, total: float, scale: float, most: float, delivered: float
) -> Sequence[str]:
    work = (f"{p.rate / 1e9:.1f}", _share(p.rate, most)) if p.flop else ("", "")
    computes, width = ", ".join(p.sources), WIDTH
    if (terminal := columns()) is not None:
        width = min(WIDTH, max(NARROWEST, terminal - NUMBERS))
    if len(computes) > width:
        computes = computes[: width - 1] + "…"
    return (
        f"{p.seconds * scale:.3f}", f"{p.seconds / total:.1%}" if total else "",
        f"{p.limit * scale:.3f}" if p.limit else "", *work,
        f"{p.nbytes / 1e6:.2f}", _share(p.traffic, delivered),
        p.kind if p.compiled else f"{p.kind} (interpreted)", computes,
    )  # fmt: skip


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if _known(whole) else ""
