"""`alpenglow place`: cut a model over workers."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import click

from alpenglow.base.errors import ModelError, OptionError, ParseError
from alpenglow.base.sizes import parse_nbytes
from alpenglow.cli import files
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, model_options, parse_seconds
from alpenglow.cli.output import durations, examples, show, table
from alpenglow.cli.source import read, refuse_staged
from alpenglow.host.worker import Link, Worker
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.placement.compiled import PlacedModel, placed
from alpenglow.placement.placing import place
from alpenglow.placement.search import Goal
from alpenglow.placement.text import Placement


@click.command(
    "place",
    cls=Command,
    epilog=examples("""
alpenglow place model.onnx --worker left=cpu --worker right=cpu --goal throughput
alpenglow place model.onnx --worker big=cpu,threads=2 --worker gpu=opencl:0,memory=2GB,delay=1ms
alpenglow place model.onnx --worker a=cpu --worker b=cpu --pin conv_17=b -o placement.txt
"""),
)
@model_options
@click.option("--worker", "workers", multiple=True, required=True,
              metavar="NAME=TARGET[,threads=N][,memory=SIZE][,delay=1ms][,bandwidth=1GB]",
              help="A worker that can run a part of the model: its target, threads, memory, and "
              "the delay and bandwidth of its link.")  # fmt: skip
@click.option("--goal", type=click.Choice(["latency", "throughput"]), default="latency",
              show_default=True,
              help="What to minimize: the time of one request (latency), or the time between "
              "results of queued requests (throughput).")
@click.option("--pin", "pins", multiple=True, metavar="RESULT=WORKER",
              help="Run the node that computes a value on this worker.")  # fmt: skip
@click.option("--replicate", is_flag=True,
              help="Give workers without a part a copy of the slowest part.")
@click.option("--tables-first", is_flag=True,
              help="Place embedding tables first, largest first.",
)  # fmt: skip
@click.option("--estimate", is_flag=True,
              help="Estimate the time of each node instead of measuring it.")  # fmt: skip
@click.option("-o", "output", type=files.Written(), metavar="FILE",
              help="Also write the placement to a file.")  # fmt: skip
def command(
    request: Request, workers: tuple[str, ...], goal: Goal, pins: tuple[str, ...],
    replicate: bool, tables_first: bool, estimate: bool, output: Path | None,
) -> None:  # fmt: skip
    """Partition MODEL over workers for the lowest latency or the highest throughput.

    The result is the best way to cut the schedule of MODEL into intervals, with the cost of
    transfers over the workers' links, within the memory of each worker.  Prints the part of each
    worker, the reason of each cut, and its cost.
    """
    placement = place(
        _graph(request), [parse_worker(w) for w in workers], goal, pins=dict(map(_pin, pins)),
        replicate=replicate, tables_first=tables_first, measure=not estimate,
        options=request.options(),
    )  # fmt: skip
    if output is not None:
        files.write(output, lambda file: _write(file, placement))
    result = {
        "goal": goal, "latency": placement.latency, "interval": placement.interval,
        "within": placement.within, "text": str(placement),
        "stages": [
            {"worker": s.worker, "replicas": list(s.replicas), "begin": s.begin, "end": s.end,
             "first": s.first, "seconds": s.seconds, "copying": s.copying, "bytes": s.nbytes,
             "crossing": s.crossing, "why": s.why}
            for s in placement.stages
        ],
    }  # fmt: skip
    show(result, _lines(placement), request.json)


def placed_model(request: Request, file: Path) -> PlacedModel:
    """Return a model in the parts that a file says."""
    graph = _graph(request)
    try:
        placement = Placement.parse(file.read_text())
        return placed(graph, placement, options=request.options())
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{file}: expected a placement as text: {error}") from None
    except (ParseError, ModelError) as error:
        raise error.located(file=str(file)) from None


def _graph(request: Request) -> Graph:
    """Return the graph of a model that may be placed."""
    source = read(request)
    refuse_staged(request, source, "placed")
    if not isinstance(source.ir, Graph):
        raise OptionError("placing a program is not supported; supported: a model")
    return source.ir


def parse_worker(text: str) -> Worker:
    """Return the worker that a text like ``gpu=opencl:0,memory=2GB,delay=1ms`` describes."""
    name, equals, rest = text.partition("=")
    target, *settings = rest.split(",")
    known: dict[str, str] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in ("threads", "memory", "delay", "bandwidth") or not value or key in known:
            raise OptionError(
                f"--worker '{text}': '{setting}' is given, expected threads=N, memory=SIZE, "
                "delay=TIME or bandwidth=SIZE, each at most once"
            )
        known[key] = value
    if not equals or not target:
        raise OptionError(f"--worker is '{text}', expected NAME=TARGET", hint="left=cpu,threads=1")
    threads = known.get("threads", "1")
    if not threads.isascii() or not threads.isdecimal():
        raise OptionError(f"--worker '{text}': threads is '{threads}', expected a number")
    memory = parse_nbytes(known["memory"], "memory") if "memory" in known else None
    link = Link(
        parse_seconds(known["delay"], "delay") if "delay" in known else 0.0,
        parse_nbytes(known["bandwidth"], "bandwidth") if "bandwidth" in known else float("inf"),
    )
    return Worker(name, Target.parse(target), int(threads), memory, link)


def _pin(text: str) -> tuple[str, str]:
    name, equals, worker = text.rpartition("=")
    if not equals:
        raise OptionError(f"--pin is '{text}', expected RESULT=WORKER")
    return name, worker


def _write(file: BinaryIO, placement: Placement) -> None:
    file.write(str(placement).encode())


def _lines(p: Placement) -> list[str]:
    """Return a table of stages, the reasons of cuts, and what the whole takes."""
    times = durations([x for s in p.stages for x in (s.seconds, s.copying)])
    rows = [("worker", "nodes", "from", "time", "copies", "memory")]
    for k, s in enumerate(p.stages):
        where = " + ".join((s.worker, *s.replicas))
        rows.append((where, str(s.end - s.begin), s.first, times[2 * k], times[2 * k + 1],
                     f"{s.nbytes:,}"))  # fmt: skip
    lines = table(rows, frozenset((1, 3, 4, 5)))
    lines += [f"cut before {s.first}: {s.crossing:,} bytes; {s.why}" for s in p.stages if s.why]
    latency, interval = durations([p.latency, p.interval])
    lines.append(f"a request takes {latency}; in line, there is a result every {interval}")
    if p.within:
        lines.append(f"the best placement may take up to {p.within:.1%} less")
    return lines
