"""`alpenglow bench`: how long a model takes, and how that compares with what the machine can do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import click

from alpenglow.cli.feeds import feeds
from alpenglow.cli.options import Request, input_option, model_options
from alpenglow.cli.output import examples, show
from alpenglow.cli.source import executable, read
from alpenglow.report import peer
from alpenglow.report.flops import flops
from alpenglow.report.peak import peak
from alpenglow.runtime.team import default_threads

ROUNDS = 5
"""Two runtimes take turns so many times, so that neither alone meets a slow spell."""


@click.command(
    "bench",
    epilog=examples("""
alpenglow bench model.onnx
alpenglow bench model.onnx --threads 1 --calls 200
alpenglow bench model.onnx --shapes image=1x3x224x224 --against onnxruntime
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
    "--against", type=click.Choice(["onnxruntime"]), help="Measure another runtime too, in turn."
)
def command(request: Request, calls: int, against: str | None) -> None:  # fmt: skip
    """Measure runs of MODEL: median and best time, and share of the machine's measured peak.

    Operations are two for each multiply-add of convolutions, matrix products and recurrent cells.
    They are counted in the model; Winograd convolutions do with fewer, so a share can pass 100 %.
    Where the graph depends on the data, nothing is counted.
    """
    source = read(request)
    begin = time.perf_counter()
    exe = executable(request, source)
    compile_seconds = time.perf_counter() - begin
    arrays = feeds(exe.inputs, request.inputs)
    if source.staged:
        compile_seconds += _seconds(lambda: exe.run(arrays))  # the first call compiles
    threads = exe.threads or default_threads()
    runs: dict[str, Callable[[], Any]] = {"alpenglow": lambda: exe.run(arrays)}
    if against is not None:
        other = peer.session(request.model, threads)
        runs[against] = lambda: other.run(arrays)
    measured = {name: summary(seconds) for name, seconds in times(runs, calls).items()}
    result: dict[str, Any] = {
        "seconds": measured, "calls": calls, "threads": threads,
        "compile_seconds": compile_seconds,
    }  # fmt: skip
    if not source.staged:
        work = flops(source.ir)
        most = peak(threads)
        rate = work / measured["alpenglow"]["median"]
        result |= {"flop": work, "flop_per_second": rate, "peak_flop_per_second": most,
                   "share_of_peak": rate / most}  # fmt: skip
    if against is not None:
        result["speedup"] = measured[against]["median"] / measured["alpenglow"]["median"]
    show(result, _lines(result), request.json)


def times(runs: Mapping[str, Callable[[], Any]], calls: int) -> dict[str, list[float]]:
    """Return the seconds of `calls` calls of each, in turn; each turn is warmed up first."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    shares = [len(range(i, calls, ROUNDS)) for i in range(ROUNDS)]
    for share in filter(None, shares):
        for name, run in runs.items():
            run()
            found[name] += [_seconds(run) for _ in range(share)]
    return found


def summary(seconds: list[float]) -> dict[str, float]:
    """Return the median and the best of some times."""
    return {"median": median(seconds), "best": min(seconds)}


def _seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _lines(result: Mapping[str, Any]) -> list[str]:
    lines = [f"compiled in {result['compile_seconds']:.2f} s"]
    for name, s in result["seconds"].items():
        lines.append(
            f"{name}: median {s['median'] * 1e3:.3f} ms, best {s['best'] * 1e3:.3f} ms "
            f"({result['calls']} calls, {result['threads']} threads)"
        )
    if "speedup" in result:
        lines.append(f"alpenglow is {result['speedup']:.2f} times as fast")
    if "flop" in result:
        lines.append(_rate(result))
    return lines


def _rate(result: Mapping[str, Any]) -> str:
    return (
        f"{result['flop'] / 1e9:.3f} GFLOP a call, {result['flop_per_second'] / 1e9:.1f} GFLOP/s, "
        f"{result['share_of_peak']:.0%} of the peak of {result['peak_flop_per_second'] / 1e9:.0f}"
    )
