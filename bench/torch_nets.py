"""Alpenglow beside Inductor and eager, in PyTorch: three ways into it, five networks.

    PYTHONPATH=. .venv/torch/bin/python bench/torch_nets.py [--nets A,B] [--threads 1,2]
        [--rounds N] [--ways W,…] [--json FILE]

The ways, in turns in one process and pinned to as many CPUs as threads: `eager`; `inductor`
(torch.compile with freezing, warm); `compile` (torch.compile with our backend); `export` (an
ExportedProgram, compiled) and `onnx` (the same program, written as ONNX and read again).
Weights are random: speed does not ask.  Figures are medians of rounds in milliseconds, ratios are
how many times as fast `compile` is as the better of the other two.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from tests.pytorch.torch_zoo import import_torchvision
from tools.image_decoders import UNet
from torch import nn

import alpenglow as ag

Call = Callable[[], Any]
WAYS = ("eager", "inductor", "compile", "export")


def network(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a network and what it is called with."""
    image = torch.randn(1, 3, 224, 224)
    models = import_torchvision().models
    match name:
        case "resnet50":
            return models.resnet50(weights=None), (image,)
        case "mobilenetv3":
            return models.mobilenet_v3_large(weights=None), (image,)
        case "unet":
            return UNet(), (torch.randn(1, 3, 128, 128),)
    transformers = import_module("transformers")
    tokens = torch.randint(0, 1000, (1, 128))
    match name:
        case "bert_base":
            config = transformers.BertConfig(return_dict=False)
            return transformers.BertModel(config), (tokens,)
        case "gpt2":
            config = transformers.GPT2Config(return_dict=False, use_cache=False)
            return transformers.GPT2Model(config), (tokens,)
    raise SystemExit(f"no network is called {name}")


NETS = ("resnet50", "mobilenetv3", "bert_base", "gpt2", "unet")


def ways(net: nn.Module, args: tuple[Any, ...], wanted: list[str], threads: int) -> dict[str, Call]:
    """Return a call for each way, compiled."""
    calls: dict[str, Call] = {}
    for way in wanted:
        torch._dynamo.reset()
        calls[way] = _way(way, net, args, threads)
        began = time.perf_counter()
        for _ in range(3):
            calls[way]()
        print(f"  {way}: first calls {time.perf_counter() - began:.1f} s", file=sys.stderr)
    return calls


def _way(way: str, net: nn.Module, args: tuple[Any, ...], threads: int) -> Call:
    match way:
        case "eager":
            return lambda: net(*args)
        case "inductor":
            import_module("torch._inductor.config").freezing = True
            inductor = torch.compile(net)
            return lambda: inductor(*args)
        case "compile":
            ours = torch.compile(net, backend="alpenglow", options={"strict": True})
            return lambda: ours(*args)
        case "export":
            exe = ag.compile(net, args=args, threads=threads)
            arrays = [x.numpy() for x in args]
            return lambda: exe(*arrays)
        case "onnx":
            model = ag.export_onnx(ag.load(net, args=args))
            exe = ag.compile(model, threads=threads)
            arrays = [x.numpy() for x in args]
            return lambda: exe(*arrays)
    raise SystemExit(f"no way is called {way}")


def measure(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Return the median of rounds for each call, in ms; a round is each in turn, warmed once."""
    times: dict[str, list[float]] = {way: [] for way in calls}
    for _ in range(rounds):
        for way, call in calls.items():
            call()
            burst = []
            began = time.perf_counter()
            while len(burst) < 3 or time.perf_counter() - began < 0.1:
                start = time.perf_counter()
                call()
                burst.append(time.perf_counter() - start)
            times[way].append(statistics.median(burst) * 1e3)
    return {way: statistics.median(values) for way, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    available = sorted(os.sched_getaffinity(0))
    for threads in map(int, options.threads.split(",")):
        os.sched_setaffinity(0, available[-threads:])
        torch.set_num_threads(threads)
        for name in options.nets.split(","):
            torch.manual_seed(0)
            net, args = network(name)
            with torch.no_grad():
                times = measure(ways(net.eval(), args, options.ways.split(","), threads),
                                options.rounds)  # fmt: skip
            rows.append({"net": name, "threads": threads, **times})
            print(_row(rows[-1]), flush=True)
    ratios = [r for row in rows if (r := _ratio(row)) is not None]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean {mean:.2f}, least {min(ratios):.2f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def _ratio(row: dict[str, Any]) -> float | None:
    """Return how many times as fast `compile` is as the better of the others."""
    others = [row[way] for way in ("eager", "inductor") if way in row]
    return min(others) / row["compile"] if others and "compile" in row else None


def _row(row: dict[str, Any]) -> str:
    times = "  ".join(f"{way} {row[way]:8.2f}" for way in ("eager", "inductor", "compile", "export",
                                                           "onnx") if way in row)  # fmt: skip
    ratio = _ratio(row)
    return f"{row['net']:12} {row['threads']} thread(s)  {times}" + (
        "" if ratio is None else f"  ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    main()
