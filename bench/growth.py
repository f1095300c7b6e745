"""How compiling grows: with the nodes of a net, with how often it is done, and with its weights.

    python bench/growth.py chains [--nodes 1000,10000,100000] [--rounds 3]
    python bench/growth.py again [--times 500] [--model FILE]
    python bench/growth.py weight [--gib 2.0] [--beside PYTHON]

`chains` compiles a chain of Add, and MatMul-Add-Relu-Add blocks, on one thread without the cache,
each in a process of its own.  It prints the seconds of every step that takes long, in the round in
which it was fastest, and by how much it grew from one size to the next.  Steps are timed without
Python's collector of cycles, which goes through all there is whenever there is a quarter more, in
whatever step that is; the last line is the time of all with it.  `again` compiles one net over and
over and prints what memory stays taken: a small convolution, pool and product, unless a model is
named.  `weight` compiles and runs a product by a matrix of so many GiB in a new process, and prints
the seconds and the most memory it took; so does an onnxruntime that another interpreter has, if one
is named.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.ir.types import Array

LONG = 0.5
"""Seconds from which on the steps of the largest net are printed."""

WIDTH = 16
"""Elements of a row in the nets that grow."""


def model(nodes: list[Any], extents: list[int], stored: Mapping[str, Array]) -> onnx.ModelProto:
    """Return a model from `x` of such extents to what the last node makes."""
    y = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes, "grown",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, name) for name, a in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def additions(count: int) -> onnx.ModelProto:
    """Return a chain of `count` Add of rows of their own."""
    rng = np.random.default_rng(0)
    stored: dict[str, Array] = {}
    nodes = []
    x = "x"
    for i in range(count):
        stored[f"w{i}"] = rng.standard_normal(WIDTH).astype(np.float32)
        nodes.append(helper.make_node("Add", [x, f"w{i}"], [f"y{i}"]))
        x = f"y{i}"
    return model(nodes, [1, WIDTH], stored)


def blocks(count: int) -> onnx.ModelProto:
    """Return `count` nodes of blocks MatMul, Add, Relu, and Add of what the block read."""
    rng = np.random.default_rng(0)
    stored: dict[str, Array] = {}
    nodes = []
    x = "x"
    for i in range(count // 4):
        stored[f"w{i}"] = (rng.standard_normal((WIDTH, WIDTH)) / 4).astype(np.float32)
        stored[f"b{i}"] = rng.standard_normal(WIDTH).astype(np.float32)
        nodes += [
            helper.make_node("MatMul", [x, f"w{i}"], [f"m{i}"]),
            helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"]),
            helper.make_node("Relu", [f"a{i}"], [f"r{i}"]),
            helper.make_node("Add", [f"r{i}", x], [f"y{i}"]),
        ]
        x = f"y{i}"
    return model(nodes, [1, WIDTH], stored)


def picture() -> onnx.ModelProto:
    """Return a convolution, a pool and a product, small enough to compile hundreds of times."""
    rng = np.random.default_rng(0)
    return model(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("GlobalAveragePool", ["c"], ["d"]),
            helper.make_node("Flatten", ["d"], ["e"]),
            helper.make_node("Gemm", ["e", "g"], ["y"]),
        ],
        [1, 3, 32, 32],
        {
            "w": rng.standard_normal((16, 3, 3, 3)).astype(np.float32),
            "g": rng.standard_normal((16, 10)).astype(np.float32),
        },
    )


def resident() -> float:
    """Return the memory that this process has now, in MB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


CHAINS = {"add": additions, "block": blocks}


def steps(name: str, count: int, collects: bool) -> dict[str, float]:
    """Compile a net and return the seconds of each step: import, each pass, the rest, all."""
    proto = CHAINS[name](count)
    ag.compile(CHAINS[name](8), threads=1)  # what is imported late, and made once
    gc.collect()
    if not collects:
        gc.disable()
    found: dict[str, float] = {}
    begin = last = time.monotonic()

    def took(step: str) -> None:
        nonlocal last
        now = time.monotonic()
        found[step] = found.get(step, 0.0) + now - last
        last = now

    g = ag.load(proto)
    took("import")
    ag.compile(g, threads=1, options=ag.Options(after=lambda one, _: took(one.name)))
    took("code")
    found["all"] = time.monotonic() - begin
    return found


def fastest(name: str, count: int, collects: bool, rounds: int) -> dict[str, float]:
    """Return the seconds of each step in the round in which it was fastest."""
    found = [alone(steps, name, count, collects) for _ in range(rounds)]
    return {step: min(one[step] for one in found) for step in found[0]}


def chains(sizes: list[int], rounds: int) -> Iterator[str]:
    """Yield a table of steps, a column a size, and the worst growth from one size to the next."""
    for name in CHAINS:
        columns = [fastest(name, n, False, rounds) for n in sizes]
        whole = [fastest(name, n, True, rounds)["all"] for n in sizes]
        yield f"{name:<14}" + "".join(f"{n:>10}" for n in sizes) + f"{'growth':>10}"
        for step, seconds in columns[-1].items():
            if seconds >= LONG:
                yield line(step, [c.get(step, 0.0) for c in columns])
        yield line("and collected", whole)


def line(step: str, row: list[float]) -> str:
    """Return a row of the table: seconds, and the worst growth to what takes long."""
    worst = max((b / max(a, 1e-3) for a, b in pairwise(row) if b >= LONG), default=1.0)
    return f"{step:<14}" + "".join(f"{s:>10.2f}" for s in row) + f"{worst:>10.1f}"


def alone(run: Callable[..., Any], *given: Any) -> Any:
    """Return what a function returns in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(run, *given).result()


def again(times: int, path: str | None) -> Iterator[str]:
    """Yield how much memory stays after some of the compilations, in MB."""
    proto = path if path is not None else picture()
    compiled = ag.compile(proto, threads=1)
    feeds = {
        k: np.ones([d if isinstance(d, int) else 1 for d in t.shape], t.numpy)
        for k, t in compiled.inputs.items()
    }
    marks = {10, *(round(times * part / 5) for part in range(1, 6))}
    for i in range(1, times + 1):
        ag.compile(proto, threads=1).run(feeds)
        if i in marks:
            yield f"after {i:>5} compilations: {resident():.1f} MB"


OURS = """
import sys, time, resource, numpy as np
begin = time.monotonic()
import alpenglow as ag
y = ag.compile(sys.argv[1], threads=1)(np.ones((1, int(sys.argv[2])), np.float32))
took = time.monotonic() - begin
print("alpenglow", took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""

THEIRS = """
import sys, time, resource, numpy as np
begin = time.monotonic()
import onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, {"x": np.ones((1, int(sys.argv[2])), np.float32)})
took = time.monotonic() - begin
print("onnxruntime", took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def weight(gib: float, beside: str | None) -> Iterator[str]:
    """Yield the seconds and the peak of memory of a product by one large matrix, run once."""
    rows = 16384
    columns = int(gib * 2**30) // 4 // rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.onnx"
        proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [1, rows], {})
        stored = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows, columns],
                             data_location=TensorProto.EXTERNAL)  # fmt: skip
        stored.external_data.add(key="location", value="w.bin")
        proto.graph.initializer.append(stored)
        onnx.save(proto, path)
        with (Path(folder) / "w.bin").open("wb") as file:
            for _ in range(rows):
                file.write(np.full(columns, 2.0**-10, np.float32).tobytes())
        programs = [(sys.executable, OURS)] + ([(beside, THEIRS)] if beside else [])
        environment = {**os.environ, "ALPENGLOW_CACHE": str(Path(folder) / "cache")}
        for python, program in programs:
            said = subprocess.run([python, "-c", program, str(path), str(rows)], check=True,
                                  env=environment, capture_output=True, text=True)  # fmt: skip
            who, seconds, peak = said.stdout.split()
            size = rows * columns * 4
            yield (f"{who:<12}{float(seconds):>8.1f} s   peak {float(peak) / 1e6:,.0f} MB: "
                   f"{float(peak) / size:.2f} × the file of {size / 1e6:,.0f} MB")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("chains", "again", "weight"))
    parser.add_argument("--nodes", default="1000,10000,100000", help="of chains, ascending")
    parser.add_argument("--rounds", type=int, default=3, help="how often each chain is compiled")
    parser.add_argument("--times", type=int, default=500, help="how often `again` compiles")
    parser.add_argument("--model", help="what `again` compiles")
    parser.add_argument("--gib", type=float, default=2.0, help="the matrix of `weight`")
    parser.add_argument("--beside", help="an interpreter that has onnxruntime")
    chosen = parser.parse_args()
    if chosen.what == "weight":
        lines = weight(chosen.gib, chosen.beside)
    else:
        os.environ["ALPENGLOW_CACHE"] = "off"
        lines = (
            chains([int(n) for n in chosen.nodes.split(",")], chosen.rounds)
            if chosen.what == "chains"
            else again(chosen.times, chosen.model)
        )
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
