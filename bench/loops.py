"""What a turn of a loop costs, beside ONNX Runtime: the bodies are small, so that turns are all.

    taskset -c 0 python bench/loops.py [NAME ...]

A run of a whole loop is timed on Alpenglow, then on ONNX Runtime, in turn; figures are medians,
divided by the number of turns.  All run in this thread, and it is the time of this thread that is
taken, so that others do not disturb it.
Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from dynamic import Array, growing, relative_error, runtime

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, info = helper.make_node, helper.make_tensor_value_info
ITERATION = (info("i", I64, []), info("go", BOOL, []))
ON = info("on", BOOL, [])
GOES_ON = node("Identity", ["go"], ["on"])
STEP = (node("MatMul", ["x", "w"], ["p"]), node("Tanh", ["p"], ["x2"]))
STATE, NEXT = info("x", F32, [1, 32]), info("x2", F32, [1, 32])


@dataclass(frozen=True)
class Case:
    """A model, what is fed to it, and how many turns that makes."""

    model: Callable[[], onnx.ModelProto]
    feeds: Mapping[str, Array]
    turns: int


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--runs", type=int, default=30)
    given = parser.parse_args()
    print("| loop | turns | Alpenglow µs | ONNX Runtime µs | ratio | compilations | error |")
    print("|---|---|---|---|---|---|---|")
    for name in given.names or CASES:
        print(measured(name, CASES[name], given.runs), flush=True)


def measured(name: str, case: Case, runs: int) -> str:
    """Return a row of the table."""
    model = case.model()
    exe, session = ag.compile(model, threads=1), runtime(model)
    ours, theirs = partial(exe.run, case.feeds), partial(session.run, None, case.feeds)
    fast, peer = median([ours, theirs], runs)
    made = ours()
    names = [output.name for output in session.get_outputs()]
    error = max(relative_error(made[n], w) for n, w in zip(names, theirs(), strict=True))
    each = [seconds / case.turns * 1e6 for seconds in (fast, peer)]
    return (
        f"| {name} | {case.turns} | {each[0]:.2f} | {each[1]:.2f} "
        f"| {peer / fast:.1f} | {len(getattr(exe, 'artifacts', ()))} | {error:.0e} |"
    )


def median(calls: Sequence[Callable[[], Any]], runs: int) -> list[float]:
    """Return the median seconds of each call; they are run in turn, once before it counts."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(runs + 1):
        for call, found in zip(calls, times, strict=True):
            start = time.thread_time()
            call()
            found.append(time.thread_time() - start)
    return [float(np.median(found[1:])) for found in times]


# ── the models ──


def made(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], outputs: Sequence[Any]
) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = 0.1 * random.standard_normal((32, 32))
    constants = {"w": weights.astype(np.float32), "one": np.float32(1), "zero": np.float32(0)}
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "loops", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def fixed() -> onnx.ModelProto:
    """A state of one shape."""
    body = helper.make_graph([*STEP, GOES_ON], "body", [*ITERATION, STATE], [ON, NEXT])
    inputs = [info("n", I64, []), info("x0", F32, [1, 32])]
    return made([node("Loop", ["n", "", "x0"], ["y"], body=body)], inputs,
                [info("y", F32, [1, 32])])  # fmt: skip


def scan() -> onnx.ModelProto:
    """A slice goes into the state of each turn, and one comes out of it."""
    body = helper.make_graph(
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "e"], ["q"]),
         node("Tanh", ["q"], ["x2"]), node("Identity", ["x2"], ["o"])],
        "body",
        [STATE, info("e", F32, [1, 32])],
        [NEXT, info("o", F32, [1, 32])],
    )  # fmt: skip
    nodes = [node("Scan", ["x0", "xs"], ["y", "ys"], body=body, num_scan_inputs=1)]
    inputs = [info("x0", F32, [1, 32]), info("xs", F32, ["steps", 1, 32])]
    return made(nodes, inputs, [info("y", F32, [1, 32]), info("ys", F32, ["steps", 1, 32])])


def stopped() -> onnx.ModelProto:
    """The body computes when to stop."""
    body = helper.make_graph(
        [*STEP, node("Add", ["c", "one"], ["c2"]), node("Less", ["c2", "limit"], ["on"])],
        "body",
        [*ITERATION, STATE, info("c", F32, [])],
        [ON, NEXT, info("c2", F32, [])],
    )
    nodes = [node("Loop", ["", "", "x0", "zero"], ["y", "count"], body=body)]
    inputs = [info("x0", F32, [1, 32]), info("limit", F32, [])]
    return made(nodes, inputs, [info("y", F32, [1, 32]), info("count", F32, [])])


def lists() -> onnx.ModelProto:
    """What scripts make of a recurrent step over a list, whose results are appended to another."""
    tensor = helper.make_tensor_type_proto(F32, None)
    given, after = (
        helper.make_value_info(n, helper.make_sequence_type_proto(tensor)) for n in ("ys", "ys2")
    )
    body = helper.make_graph(
        [node("SequenceAt", ["list", "i"], ["e"]), node("MatMul", ["x", "w"], ["p"]),
         node("Add", ["p", "e"], ["q"]), node("Tanh", ["q"], ["x2"]),
         node("SequenceInsert", ["ys", "x2"], ["ys2"]), GOES_ON],
        "body",
        [*ITERATION, STATE, given],
        [ON, NEXT, after],
    )  # fmt: skip
    nodes = [
        node("SplitToSequence", ["xs"], ["list"], axis=0, keepdims=0),
        node("SequenceLength", ["list"], ["n"]),
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["n", "", "x0", "none"], ["y", "all"], body=body),
        node("ConcatFromSequence", ["all"], ["joined"], axis=0, new_axis=1),
    ]
    inputs = [info("x0", F32, [1, 32]), info("xs", F32, ["steps", 1, 32])]
    outputs = [info("y", F32, [1, 32]), info("joined", F32, ["steps", 1, 32])]
    return made(nodes, inputs, outputs)


def nested() -> onnx.ModelProto:
    """A loop in a loop: the outer one's turns are the host's."""
    inner = helper.make_graph([*STEP, GOES_ON], "inner", [*ITERATION, STATE], [ON, NEXT])
    outer = helper.make_graph(
        [node("Add", ["u", "one"], ["v"]), node("Loop", ["m", "", "v"], ["u2"], body=inner),
         node("Identity", ["goes"], ["goes2"])],
        "outer",
        [info("k", I64, []), info("goes", BOOL, []), info("u", F32, [1, 32])],
        [info("goes2", BOOL, []), info("u2", F32, [1, 32])],
    )  # fmt: skip
    inputs = [info("n", I64, []), info("m", I64, []), info("x0", F32, [1, 32])]
    return made([node("Loop", ["n", "", "x0"], ["y"], body=outer)], inputs,
                [info("y", F32, [1, 32])])  # fmt: skip


def few() -> onnx.ModelProto:
    """Sixteen turns, which the model says: they are unrolled."""
    model = fixed()
    del model.graph.input[0]
    model.graph.initializer.append(numpy_helper.from_array(np.array(16), "n"))
    return model


RANDOM = np.random.default_rng(1)
X0 = RANDOM.standard_normal((1, 32)).astype(np.float32)

CASES = {
    "growing": Case(
        partial(growing, Path()),
        {"trips": np.array(500), "start": RANDOM.standard_normal((20, 32)).astype(np.float32)},
        500,
    ),
    "fixed": Case(fixed, {"n": np.array(500), "x0": X0}, 500),
    "scan": Case(
        scan, {"x0": X0, "xs": RANDOM.standard_normal((200, 1, 32)).astype(np.float32)}, 200
    ),
    "stopped": Case(stopped, {"x0": X0, "limit": np.array(300, np.float32)}, 300),
    "lists": Case(
        lists, {"x0": X0, "xs": RANDOM.standard_normal((200, 1, 32)).astype(np.float32)}, 200
    ),
    "nested": Case(nested, {"n": np.array(20), "m": np.array(25), "x0": X0}, 500),
    "few": Case(few, {"x0": X0}, 16),
}


if __name__ == "__main__":
    main()
