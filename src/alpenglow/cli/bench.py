"""`alpenglow bench`: how long a model takes, and how that compares with what the machine can do."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from alpenglow.base.cpus import default_threads
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.words import counted
from alpenglow.cli.feeds import feeds
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, input_option, model_options
from alpenglow.cli.output import csv_lines, durations, examples, show, table
from alpenglow.cli.source import executable, read, refuse_constants
from alpenglow.debug import peer
from alpenglow.machines.registry import device_for
from alpenglow.measure.contest import WARM, Here, Length, Process, TimeRatio, compete, middles
from alpenglow.measure.flops import flops
from alpenglow.measure.others import Others, warning
from alpenglow.measure.reach import peak_of
from alpenglow.measure.streams import PERCENTS, Streams, Times, measure

CALLS = 50
"""How many runs are measured unless it is said how many or how long."""

MOST_STREAMS = 1024
"""How many streams there may be: each is a thread."""

ROUNDS = 5
"""Runtimes take turns so many times, so that none alone meets a slow spell."""

OWN, RIVAL = "alpenglow", "onnxruntime"

Bursts = dict[str, list[list[float]]]


@click.command(
    "bench",
    cls=Command,
    epilog=examples("""
alpenglow bench model.onnx
alpenglow bench model.onnx --threads 1 --calls 200
alpenglow bench model.onnx --seconds 10 --csv
alpenglow bench model.onnx --seconds 10 --streams 4 --threads 1
alpenglow bench model.onnx --shapes image=1x3x224x224 --vs onnxruntime
"""),
)
@model_options
@input_option
@click.option("--calls", type=click.IntRange(min=1),
              help="Minimum number of timed runs.  [default: 50, or as many as --seconds takes]",
)  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="Minimum duration of the measurement, in seconds.")  # fmt: skip
@click.option("--warmup", type=click.IntRange(min=0), default=WARM, show_default=True,
              help="Number of untimed runs before the measurement.")  # fmt: skip
@click.option("--streams", type=click.IntRange(1, MOST_STREAMS), default=1, show_default=True,
              help="Number of threads that each call the model, one call after the other.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line for each runtime.")
@click.option("--vs", metavar=RIVAL, help="Also measure ONNX Runtime, alternating with Alpenglow.")
def command(request: Request, calls: int | None, seconds: float | None, warmup: int, streams: int,
            as_csv: bool, vs: str | None) -> None:  # fmt: skip
    """Measure MODEL: latency percentiles, throughput, and the share of the machine's peak.

    p90 is the latency that 90 % of the runs do not exceed.  Each of several --streams is a thread
    that calls the model again and again; throughput counts the calls of all streams, and each call
    uses --threads threads.

    The peak is measured with the instructions of the target.  A multiply-add of a convolution, a
    matmul or a recurrent cell is two operations of the model; Winograd convolutions need fewer, so
    a share can exceed 100 %.  If the graph depends on its data, operations are not counted.

    --vs needs ONNX Runtime in the same environment.  It runs in a process of its own, which is
    stopped while Alpenglow runs.  The ratio is the median over rounds of ONNX Runtime's time
    divided by Alpenglow's.
    """
    if vs not in (None, RIVAL):
        hint = "bench/compare.py in a checkout of Alpenglow measures other runtimes"
        raise OptionError(f"--vs measures {RIVAL}, not '{vs}'", hint=hint)
    if vs:
        refuse_constants(request, "--vs runs the file, which has these inputs")
    if vs and streams > 1:
        raise OptionError(f"--vs with {streams} streams is not supported; supported: 1")
    if as_csv and request.json:
        raise OptionError("--csv is given with --json, expected one of them")
    source = read(request)
    begin = time.perf_counter()
    exe = executable(request, source)
    compile_seconds = time.perf_counter() - begin
    arrays = feeds(exe.inputs, request.inputs)
    if source.staged:
        compile_seconds += _seconds(lambda: exe.run(arrays))  # the first call compiles
    threads = exe.threads or default_threads()
    least = calls or (1 if seconds else CALLS)
    measured: dict[str, Times]
    ratios: dict[str, dict[str, float]] = {}
    others = Others()
    if vs:
        rounds = min(ROUNDS, least) if seconds is None else ROUNDS
        length = Length(rounds, math.ceil(least / rounds), (seconds or 0.0) / rounds, warmup)
        bursts = contest(request.model, lambda: exe.run(arrays), arrays, threads, length)
        measured = {name: _together(turns) for name, turns in bursts.items()}
        ratios = {RIVAL: ratio(bursts)}
    else:
        wanted = Streams(streams, warmup, least, seconds or 0.0)
        measured = {OWN: measure(lambda: exe.run(arrays), wanted, exe.cancel)}
    busy = others.cpus()
    result: dict[str, Any] = {
        "seconds": {name: times.percentiles() for name, times in measured.items()},
        "calls": {name: len(times.calls) for name, times in measured.items()},
        "calls_per_second": {name: times.rate for name, times in measured.items()},
        "streams": streams, "threads": None if device_for(exe.target) else threads,
        "target": str(exe.target), "compile_seconds": compile_seconds,
        "cpus_of_others": busy,
    }  # fmt: skip
    if not source.staged:
        work = flops(source.ir)
        most = peak_of(exe.target, min(streams * threads, max(threads, default_threads())))
        one = result["seconds"][OWN]["p50"]
        rate = work / one if streams == 1 else work * measured[OWN].rate
        result |= {"flop": work, "flop_per_second": rate}
        if math.isfinite(most):
            result |= {"peak_flop_per_second": most, "share_of_peak": rate / most}
    if ratios:
        result["ratios"] = ratios
    if text := warning(busy):
        click.echo(f"warning: {text}", err=True)
    show(result, csv_lines(_rows(result)) if as_csv else _lines(result), request.json)


def contest(
    model: Path,
    run: Callable[[], Any],
    arrays: Mapping[str, Any],
    threads: int,
    length: Length,
) -> Bursts:
    """Return the seconds of each call of `run` and of ONNX Runtime on the same arrays, by round.

    Raises UnsupportedError if ONNX Runtime is not installed or cannot run the model.
    """
    if not peer.reads(model):
        raise UnsupportedError("ONNX Runtime: expected an ONNX file", file=str(model))
    peer.require()
    with (
        tempfile.TemporaryDirectory() as folder,
        Process(RIVAL, threads, os.sched_getaffinity(0)) as rival,
    ):
        scratch = Path(folder)
        np.savez(scratch / "feeds.npz", **arrays)
        rival.load(model.absolute(), scratch / "feeds.npz", scratch)
        return compete({OWN: Here(run), RIVAL: rival}, length)


def ratio(bursts: Bursts) -> dict[str, float]:
    """Return how many times as long ONNX Runtime takes."""
    return asdict(TimeRatio.of(middles(bursts[RIVAL]), middles(bursts[OWN])))


def _seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _together(bursts: Sequence[Sequence[float]]) -> Times:
    calls = [seconds for burst in bursts for seconds in burst]
    return Times(calls, sum(calls))


def _rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each runtime; times are in seconds."""
    own = ("flop", "flop_per_second", "share_of_peak")
    return [
        {"runtime": name, "streams": result["streams"], "threads": result["threads"]}
        | {key: result[key][name] for key in ("calls", "calls_per_second")}
        | {f"{key}_seconds": value for key, value in times.items()}
        | {key: result.get(key, "") if name == OWN else "" for key in own}
        for name, times in result["seconds"].items()
    ]


def _lines(result: Mapping[str, Any]) -> list[str]:
    streams, threads = counted(result["streams"], "stream"), result["threads"]
    where = f"on {result['target']}" if threads is None else f"{counted(threads, 'thread')} a call"
    lines = [f"compiled in {result['compile_seconds']:.2f} s; {streams}, {where}"]
    rows: list[list[str]] = [["runtime", "calls", *PERCENTS, "calls/s"]]
    for name, times in result["seconds"].items():
        calls, rate = result["calls"][name], result["calls_per_second"][name]
        per_second = f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"
        rows.append([name, f"{calls:,}", *durations(list(times.values())), per_second])
    lines += table(rows, right=frozenset(range(1, len(rows[0]))))
    for name, r in result.get("ratios", {}).items():
        lines.append(
            f"{name} takes {r['median']:.2f} times as long ({r['low']:.2f} to {r['high']:.2f})"
        )
    if "flop" in result:
        lines.append(_rate(result))
    return lines


def _rate(result: Mapping[str, Any]) -> str:
    text = f"{result['flop'] / 1e9:.3g} GFLOP a call, {result['flop_per_second'] / 1e9:.1f} GFLOP/s"
    if "share_of_peak" not in result:
        return text
    share, most = result["share_of_peak"], result["peak_flop_per_second"]
    return f"{text}, {share:.0%} of the peak of {most / 1e9:.0f}"
