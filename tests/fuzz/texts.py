"""Texts of stages with one number edited: each is refused, or computes what the interpreter says.

    python -m tests.fuzz.texts --count 20000 --first 0 --jobs 16 --log texts.jsonl

A text comes from a small network or a random model, after a stage from `schedule` to `plan`, or
after one that makes graphs.  What is accepted is interpreted and compiled, and both must agree.
Anything else is a finding: another exception, a signal, a hang, or another number.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError
from alpenglow.base.store import Store
from alpenglow.compiler import compile_graph, properties_after
from alpenglow.compiler.pipeline import run_stages
from alpenglow.compiler.validate import difference, generate
from alpenglow.debug.failure import place
from alpenglow.debug.probe import Lost, Probe
from alpenglow.evaluate import evaluate
from alpenglow.ir import text as graph_text
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import TensorType
from alpenglow.program import Program
from alpenglow.program import text as program_text
from alpenglow.program.interpret import interpret
from alpenglow.runtime.executables.installed import install

from .corpus import branches, floats, info, ints, made, network, shapes
from .models import draft
from .record import Outcome, Record, try_all

SECONDS = 30.0
NBYTES = 4 << 30
LARGE = 1 << 20
"""What has a tensor of more elements than this is compiled, but not run."""

EDITS = 20
"""So many seeds in a row edit texts of one network."""

PROMISES = ("fits=True", "bands=", " = find(")
"""What holds only of the numbers before the edit: bounds that a pass concluded, weights that are
zero outside of bands, and keys in order.  Else other numbers are computed, no more."""

ROUNDING = 1e-2
"""What sums in another order may differ by, of the largest element: numbers are not meant to
cancel here, but edits may make them."""

SMALL = 1e-3
"""What is smaller than this is what is left where numbers about 1 cancel."""

PROGRAMS = ("schedule", "views", "share", "pitch", "lifetimes", "plan")
GRAPHS = ("lower", "merge", "fuse")

Array = NDArray[Any]
Random = np.random.Generator


class Text(NamedTuple):
    """What `show -o` writes: the text of a stage and the constants beside it."""

    body: str
    weights: dict[str, Array]


# ── networks ──


def views() -> onnx.ModelProto:
    node = onnx.helper.make_node
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("Slice", ["t", "from", "until", "axes", "steps"], ["s"]),
        node("Concat", ["s", "t", "s"], ["c"], axis=1),
        node("Pad", ["c", "pads"], ["p"]),
        node("Relu", ["p"], ["r"]),
        node("ReduceSum", ["r", "axes"], ["y"], keepdims=0),
        node("Softmax", ["r"], ["z"], axis=1),
        node("Expand", ["x", "wide"], ["e"]),
        node("Add", ["e", "x"], ["w"]),
    ]  # fmt: skip
    weights = [
        ints("from", 9), ints("until", -20), ints("axes", 1), ints("steps", -2),
        ints("pads", 0, 1, 2, 0, 0, 3), ints("wide", 2, 17, 9),
    ]  # fmt: skip
    outputs = [onnx.helper.make_empty_tensor_value_info(o) for o in "yzw"]
    return made(nodes, [info("x", (2, 17, 9))], outputs, weights)


def integers() -> onnx.ModelProto:
    node = onnx.helper.make_node
    code = onnx.numpy_helper.from_array
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("QLinearConv", ["q", "s", "z", "w", "sw", "zw", "s2", "z"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[3, 3], strides=[2, 2]),
        node("DequantizeLinear", ["p", "s2", "z"], ["y"]),
    ]
    weights = [
        code(np.float32(0.05), "s"), code(np.float32(0.1), "sw"), code(np.float32(0.4), "s2"),
        code(np.uint8(7), "z"), code(np.int8(0), "zw"),
        code((np.arange(360) % 7 - 3).astype(np.int8).reshape(20, 2, 3, 3), "w"),
    ]  # fmt: skip
    return made(nodes, [info("x", (1, 2, 9, 11))], [info("y", (1, 20, 4, 5))], weights)


def products() -> onnx.ModelProto:
    """A matrix whose rows are far apart, a recurrence, and a product for which rows move."""
    node = onnx.helper.make_node
    nodes = [
        node("MatMul", ["x", "a"], ["m"]),
        node("Relu", ["m"], ["h"]),
        node("MatMul", ["h", "b"], ["n"]),
        node("Reshape", ["n", "to"], ["r"]),
        node("LSTM", ["r", "wx", "wh"], ["", "last", "state"], hidden_size=4),
        node("LayerNormalization", ["n", "gain"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
        for n, s in (("a", (12, 1024)), ("b", (1024, 6)), ("wx", (1, 16, 6)), ("wh", (1, 16, 4)))
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(o) for o in ("last", "state", "y")]
    more = [ints("to", 5, 1, 6), floats("gain", 6)]
    return made(nodes, [info("x", (5, 12))], outputs, [*weights, *more])


NETS = (network, shapes, branches, views, integers, products)


@lru_cache(maxsize=2)
def texts(number: int) -> Mapping[str, Text]:
    """Return the texts of a network after each stage; none where it cannot be imported as one."""
    model = NETS[number // 2 % len(NETS)]() if number % 2 == 0 else draft(number).model()
    numerics = "strict" if number % 5 == 0 else "fast"
    try:
        loaded = ag.load(model)
        g = loaded if isinstance(loaded, ag.Graph) else loaded.graph
        g = g.bind({s: 3 for v in g.inputs.values() for s in v.type.symbols()})
        stages = run_stages(
            g.copy(), ag.Target.parse("cpu"), ag.Options(numerics=numerics, check=False)
        )
        found = {p.name: written(ir) for p, ir in stages if p.name in (*PROGRAMS, *GRAPHS)}
    except AlpenglowError:
        return {}
    return found


def written(ir: Graph | Program) -> Text:
    if isinstance(ir, Program):
        return Text(program_text.print_program(ir), program_text.side_weights(ir))
    return Text(graph_text.print_graph(ir), graph_text.side_weights(ir))


# ── edits ──


def edited(rng: Random, body: str) -> tuple[str, str]:
    """Return a text with one number edited, and what was done."""
    found = list(re.finditer(r"(?<![\w.%@])-?\d+", body))
    numbers = [m for m in found if not re.match(r".{0,4}sha256", body[m.start() : m.end() + 8])]
    if not numbers:
        return body, "nothing"
    m = numbers[int(rng.integers(len(numbers)))]
    n = int(m[0])
    other = int(numbers[int(rng.integers(len(numbers)))][0])
    choices = (
        0, 1, -1, n + 1, n - 1, n + 16, n - 16, 2 * n, n // 2, -n, 3 * n + 1, n + 64, n * 1000,
        other, other, 2**31, 2**40, 2**62, -(2**40), 10**30,
    )  # fmt: skip
    new = n
    while new == n:
        new = choices[int(rng.integers(len(choices)))]
    line = body[body.rfind("\n", 0, m.start()) + 1 :].partition("\n")[0].strip()
    return body[: m.start()] + str(new) + body[m.end() :], f"{n} → {new} in {line[:160]}"


# ── in the process that may crash ──


def attempt(seed: int, folder: str) -> Outcome:
    """Edit a number in a text, read it and compare what it computes, compiled and interpreted."""
    rng = np.random.default_rng(seed)
    net = texts(seed // EDITS)
    if not net:
        return Outcome("no text")
    kinds = PROGRAMS if rng.random() < 0.85 else GRAPHS
    stage = kinds[int(rng.integers(len(kinds)))]
    body, edit = edited(rng, net[stage].body)
    what = f"after {stage}: {edit}"
    how = "parse"
    try:
        ir = parsed(body, net[stage].weights, stage)
        how = "compile"
        store = Store(Path(folder))
        exe = install(compile_graph(ir, TARGET, OPTIONS, store, stage), 1)
        if large(ir):
            return Outcome("large", what)
        how = "run"
        feeds = {name: generate(t, rng) for name, t in exe.inputs.items() if t is not None}
        with np.errstate(all="ignore"):
            expected = interpret(ir, feeds) if isinstance(ir, Program) else evaluate(ir, feeds)
            made = exe.run(feeds)
    except AlpenglowError as error:
        return Outcome(f"{type(error).__name__} at {how}", what)
    except MemoryError as error:
        return Outcome("MemoryError", what, "" if "Unable to alloc" in str(error) else place(error))
    except Exception as error:
        return Outcome(type(error).__name__, what, f"{how}: {place(error)}: {str(error)[:200]}")
    for name, array in expected.items():
        problem = "" if close(array, made[name]) else difference(array, made[name])
        if problem and any(promise in body for promise in PROMISES):
            return Outcome("breaks a promise", what)
        if problem:
            return Outcome("differs", what, f"output {name}: {problem}")
    return Outcome("ran", what)


def close(want: Array, got: Array) -> bool:
    """Whether rounding may explain how floats differ."""
    if want.dtype.kind != "f" or want.shape != got.shape:
        return False
    finite = np.isfinite(want)
    scale = float(np.max(np.abs(want[finite]), initial=SMALL))
    if not np.array_equal(want[~finite], got[~finite], equal_nan=True):
        return False
    return bool(np.allclose(want[finite], got[finite], rtol=0, atol=ROUNDING * scale))


TARGET = ag.Target.parse("cpu")
OPTIONS = ag.Options(numerics="strict", check=False)


def parsed(body: str, weights: Mapping[str, Array], stage: str) -> Graph | Program:
    """Read the text of a stage as the command line does."""
    properties = properties_after(stage)
    if "program" in properties:
        return program_text.parse_program(body, weights, properties)
    return graph_text.parse_graph(body, weights)


def large(ir: Graph | Program) -> bool:
    """Whether running takes long, or much memory, rightly."""
    if isinstance(ir, Graph):
        types = [v.type for n in ir.nodes for v in n.results] + [v.type for v in ir.inputs.values()]
    else:
        regions = [r for i in ir.instrs() for r in (*i.outs, *i.reads())]
        bodies = [i.body for i in ir.instrs() if i.body is not None]
        types = [r.type for r in regions]
        types += [v.type for b in bodies for n in b.nodes for v in n.results]
        if any(b.nbytes > 4 * LARGE for b in ir.buffers.values()):
            return True
    return any(not t.static or size(t) > LARGE for t in types)


def size(t: TensorType) -> int:
    return int(np.prod([float(d) for d in t.extents]))


# ── on this side ──


@contextmanager
def trier() -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder, Probe(SECONDS, NBYTES) as probe:

        def attempted(seed: int) -> Outcome:
            found = probe(attempt, seed, folder)
            if isinstance(found, Lost) and found.kind == "hang":
                # A machine with much else to do may be slow; a second time it is the text.
                found = probe(attempt, seed, folder)
            if isinstance(found, Lost):
                return Outcome(found.kind, f"text {seed}", f"{found.kind}, {found.how}")
            assert isinstance(found, Outcome)
            return found

        yield attempted


def hunt(first: int, count: int, jobs: int = 1, log: Path | None = None) -> Record:
    """Try seeds on processes of their own; return what became of all in the log."""
    record = Record(log)
    try_all(range(first, first + count), trier, jobs, record, EDITS)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=1000, help="how many texts")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--log", type=Path, help="a file of what became of each; goes on there")
    parser.add_argument("--seed", type=int, help="try one seed in this process, and say how")
    asked = parser.parse_args()
    os.environ["ALPENGLOW_CHECK"] = "0"
    if asked.seed is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(attempt(asked.seed, folder))
        return
    record = hunt(asked.first, asked.count, asked.jobs, asked.log)
    print(record.summary())
    sys.exit(1 if record.problems() else 0)


if __name__ == "__main__":
    main()
