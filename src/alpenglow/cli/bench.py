"""`alpenglow bench`: how long a model takes, and how that compares with what the machine can do."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import counted
from alpenglow.cli.feeds import feeds
from alpenglow.cli.options import Request, input_option, model_options
from alpenglow.cli.output import examples, show
from alpenglow.cli.source import executable, read
from alpenglow.report import peer
from alpenglow.report.contest import (
    Contestant,
    Here,
    Length,
    Process,
    Ratio,
    compete,
    middles,
    parse_rivals,
)
from alpenglow.report.flops import flops
from alpenglow.report.peak import peak
from alpenglow.report.runtimes import RUNTIMES
from alpenglow.runtime.cpus import default_threads

ROUNDS = 5
"""Runtimes take turns so many times, so that none alone meets a slow spell."""

Bursts = dict[str, list[list[float]]]


@click.command(
    "bench",
    epilog=examples("""
alpenglow bench model.onnx
alpenglow bench model.onnx --threads 1 --calls 200
alpenglow bench model.onnx --shapes image=1x3x224x224 --vs onnxruntime,openvino
"""),
)
@model_options
@input_option
@click.option(
    "--calls",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many runs to measure.",
)
@click.option(
    "--vs",
    default="",
    metavar="NAME[,…]",
    help="Measure other runtimes in turn: onnxruntime, openvino, ncnn, mnn, torch.",
)
def command(request: Request, calls: int, vs: str) -> None:
    """Measure runs of MODEL: median and best time, and share of the measured peak.

    The peak is what this machine reaches with the instructions of the target.  Operations are two
    for each multiply-add of convolutions, matrix products and recurrent cells.  They are counted in
    the model; Winograd convolutions do with fewer, so a share can pass 100 %.  Where the graph
    depends on the data, nothing is counted.

    A runtime that is named must be installed beside Alpenglow.  It runs in a process of its own,
    stopped while another runs; a ratio is the median over rounds of its time by Alpenglow's.
    """
    rivals = parse_rivals(vs)
    source = read(request)
    begin = time.perf_counter()
    exe = executable(request, source)
    compile_seconds = time.perf_counter() - begin
    arrays = feeds(exe.inputs, request.inputs)
    if source.staged:
        compile_seconds += _seconds(lambda: exe.run(arrays))  # the first call compiles
    threads = exe.threads or default_threads()
    rounds = min(ROUNDS, calls)
    length = Length(rounds, math.ceil(calls / rounds), seconds=0.0)
    bursts = contest(request.model, lambda: exe.run(arrays), arrays, rivals, threads, length)
    measured = {name: summary(found) for name, found in bursts.items()}
    result: dict[str, Any] = {
        "seconds": measured, "calls": rounds * length.calls, "threads": threads,
        "compile_seconds": compile_seconds,
    }  # fmt: skip
    if not source.staged:
        work = flops(source.ir)
        most = peak(threads, exe.target)
        rate = work / measured["alpenglow"]["median"]
        result |= {"flop": work, "flop_per_second": rate, "peak_flop_per_second": most,
                   "share_of_peak": rate / most}  # fmt: skip
    if rivals:
        result["ratios"] = {name: ratio(bursts, name) for name in rivals}
    show(result, _lines(result), request.json)


def contest(
    model: Path,
    run: Callable[[], Any],
    arrays: Mapping[str, Any],
    rivals: Sequence[str],
    threads: int,
    length: Length,
) -> Bursts:
    """Return the seconds of each call of `run` and of other runtimes on the same arrays, by round.

    Raises UnsupportedError if one of them cannot run the model.
    """
    contestants: dict[str, Contestant] = {"alpenglow": Here(run)}
    if rivals and not peer.reads(model):
        raise UnsupportedError("other runtimes read ONNX files only", file=str(model))
    with ExitStack() as stack:
        if rivals:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            np.savez(scratch / "feeds.npz", **arrays)
        for name in rivals:
            if find_spec(RUNTIMES[name].module) is None:
                package = RUNTIMES[name].package
                raise UnsupportedError(f"{name} is not installed", hint=f"pip install {package}")
            one = stack.enter_context(Process(name, threads, os.sched_getaffinity(0)))
            one.load(model.absolute(), scratch / "feeds.npz", scratch / name)
            contestants[name] = one
        return compete(contestants, length)


def summary(bursts: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the median and the best of some times."""
    seconds = [s for burst in bursts for s in burst]
    return {"median": median(seconds), "best": min(seconds)}


def ratio(bursts: Bursts, name: str) -> dict[str, float]:
    """Return how many times as long another runtime takes."""
    found = Ratio.of(middles(bursts[name]), middles(bursts["alpenglow"]))
    return {"median": found.median, "low": found.low, "high": found.high}


def _seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _lines(result: Mapping[str, Any]) -> list[str]:
    lines = [f"compiled in {result['compile_seconds']:.2f} s"]
    for name, s in result["seconds"].items():
        lines.append(
            f"{name}: median {s['median'] * 1e3:.3f} ms, best {s['best'] * 1e3:.3f} ms "
            f"({counted(result['calls'], 'call')}, {counted(result['threads'], 'thread')})"
        )
    for name, r in result.get("ratios", {}).items():
        lines.append(
            f"{name} takes {r['median']:.2f} times as long ({r['low']:.2f} to {r['high']:.2f})"
        )
    if "flop" in result:
        lines.append(_rate(result))
    return lines


def _rate(result: Mapping[str, Any]) -> str:
    return (
        f"{result['flop'] / 1e9:.3f} GFLOP a call, {result['flop_per_second'] / 1e9:.1f} GFLOP/s, "
        f"{result['share_of_peak']:.0%} of the peak of {result['peak_flop_per_second'] / 1e9:.0f}"
    )
