"""Models whose graph depends on their data, and calls of them in the order in which they are made.

`parts` is how many compiled parts and bodies the calls may need in all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Feeds = dict[str, Array]

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

node = helper.make_node


@dataclass(frozen=True)
class Case:
    """A model, calls of it, and how many artifacts all of them need at most."""

    name: str
    model: Callable[[], onnx.ModelProto]
    calls: Callable[[], Sequence[Feeds]]
    parts: int

    def __str__(self) -> str:
        return self.name


CASES: dict[str, Case] = {}


def case(parts: int, *calls: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function that returns a model and what makes feeds of a row of `calls`."""

    def add(make: Callable[[], Any]) -> Callable[[], Any]:
        def feeds() -> list[Feeds]:
            return [make()[1](*row) for row in calls]

        name = make.__name__
        CASES[name] = Case(name, lambda: make()[0], feeds, parts)
        return make

    return add


def info(name: str, shape: Sequence[int | str] | None = None, code: int = F32) -> Any:
    return helper.make_tensor_value_info(name, code, shape)


def sequence(name: str) -> onnx.ValueInfoProto:
    tensor = helper.make_tensor_type_proto(F32, None)
    return helper.make_value_info(name, helper.make_sequence_type_proto(tensor))


def graph(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any] = (), outputs: Sequence[Any] = ()
) -> onnx.GraphProto:
    """Return a branch or a body; outputs that are names have an unknown shape."""
    made = [info(o) if isinstance(o, str) else o for o in outputs]
    return helper.make_graph(nodes, "inner", inputs, made)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    made = [info(o) if isinstance(o, str) else o for o in outputs]
    whole = helper.make_graph(nodes, "staged", inputs, made, tensors)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def count(n: int) -> Array:
    return np.array(n, np.int64)


ITERATION = (info("i", (), I64), info("go", (), BOOL))
GOES_ON = node("Identity", ["go"], ["goes"])
GOES = info("goes", (), BOOL)

# ── If ──


@case(3, (1, 3), (-1, 3), (1, 8), (-1, 8), (-1, 2), (1, 2))
def branches() -> Any:
    """The condition is computed; branches capture the operand."""
    positive = graph([node("Mul", ["x", "two"], ["doubled"])], (), ["doubled"])
    negative = graph(
        [node("Neg", ["x"], ["n"]), node("Concat", ["n", "x"], ["joined"], axis=0)], (), ["joined"]
    )
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=positive, else_branch=negative),
        node("Add", ["y", "two"], ["z"]),
    ]
    made = model(nodes, [info("x", ["N"])], ["z"], {"two": np.float32(2), "zero": np.float32(0)})
    return made, lambda sign, n: {"x": np.full(n, sign, np.float32)}


@case(5, (1, True), (1, False), (-1, True), (-1, False), (1, True))
def nested_branches() -> Any:
    """An If in a branch, whose branches capture from both graphs around them."""
    inner_then = graph([node("Mul", ["x", "k"], ["a"])], (), ["a"])
    inner_else = graph(
        [node("Sub", ["x", "k"], ["d"]), node("Concat", ["d", "x"], ["a"], axis=0)], (), ["a"]
    )
    then = graph(
        [
            node("Constant", [], ["k"], value_float=10.0),
            node("If", ["c"], ["b"], then_branch=inner_then, else_branch=inner_else),
        ],
        (), ["b"],
    )  # fmt: skip
    other = graph([node("Neg", ["x"], ["b"])], (), ["b"])
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "zero"], ["positive"]),
        node("If", ["positive"], ["y"], then_branch=then, else_branch=other),
    ]
    made = model(nodes, [info("x", ["N"]), info("c", (), BOOL)], ["y"], {"zero": np.float32(0)})
    return made, lambda sign, c: {"x": np.full(4, sign, np.float32), "c": np.array(c)}


# ── Loop ──


@case(2, (3, 2), (5, 2), (100, 3), (4, 7), (1, 1), (2, 9))
def loop() -> Any:
    """Carried, captured and collected values; the body may end it."""
    body = graph(
        [
            node("Add", ["acc", "x"], ["acc2"]),
            node("ReduceSum", ["acc2"], ["sum"], keepdims=0),
            node("Less", ["sum", "limit"], ["goes"]),
            node("Mul", ["acc2", "acc2"], ["squares"]),
        ],
        [*ITERATION, info("acc")],
        [GOES, "acc2", "squares"],
    )
    nodes = [node("Loop", ["n", "c", "x"], ["y", "ys"], body=body)]
    inputs = [info("n", (), I64), info("c", (), BOOL), info("x", ["K"])]
    made = model(nodes, inputs, ["y", "ys"], {"limit": np.float32(30)})
    return made, lambda n, k: {
        "n": count(n), "c": np.array(True), "x": np.ones(k, np.float32)}  # fmt: skip


@case(2, (3, 2, 2), (20, 1, 3), (8, 4, 1), (8, 0, 2), (2, 9, 9))
def growing_loop() -> Any:
    """A carried value that gets longer."""
    body = graph(
        [node("Concat", ["acc", "x"], ["acc2"], axis=0), GOES_ON],
        [*ITERATION, info("acc", ["G"])],
        [GOES, info("acc2", ["H"])],
    )
    nodes = [node("Loop", ["n", "", "a"], ["y"], body=body)]
    made = model(nodes, [info("n", (), I64), info("a", ["K"]), info("x", ["J"])], ["y"])
    return made, lambda n, k, j: {"n": count(n), "a": numbers(k), "x": numbers(j, seed=1)}


@case(3, (2, 3, 4), (4, 1, 2), (3, 0, 2), (1, 6, 9))
def nested_loops() -> Any:
    """The inner body captures from the outer one and from the model."""
    inner = graph(
        [
            node("Mul", ["v", "w"], ["v2"]), node("Add", ["v2", "step"], ["v3"]),
            node("Identity", ["g"], ["goes2"]),
        ],
        [info("j", (), I64), info("g", (), BOOL), info("v")],
        [info("goes2", (), BOOL), "v3"],
    )  # fmt: skip
    outer = graph(
        [
            node("Cast", ["i"], ["step"], to=F32),
            node("Loop", ["m", "", "u"], ["u2"], body=inner),
            GOES_ON,
            node("Identity", ["u2"], ["kept"]),
        ],
        [*ITERATION, info("u")],
        [GOES, "u2", "kept"],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y", "ys"], body=outer)]
    inputs = [info("n", (), I64), info("m", (), I64), info("x", ["N"]), info("w", ["N"])]
    made = model(nodes, inputs, ["y", "ys"])
    return made, lambda n, m, k: {"n": count(n), "m": count(m), "x": numbers(k), "w": numbers(k)}


@case(3, (6, 4), (3, 2), (1, 7), (6, 5))
def branch_in_a_loop() -> Any:
    """Every other time another branch is taken."""
    then = graph([node("Mul", ["acc", "two"], ["r"])], (), ["r"])
    other = graph([node("Sub", ["acc", "x"], ["r"])], (), ["r"])
    body = graph(
        [
            node("Mod", ["i", "even"], ["odd"]), node("Cast", ["odd"], ["c"], to=BOOL),
            node("If", ["c"], ["acc2"], then_branch=then, else_branch=other), GOES_ON,
        ],
        [*ITERATION, info("acc")],
        [GOES, "acc2"],
    )  # fmt: skip
    nodes = [node("Loop", ["n", "", "x"], ["y"], body=body)]
    made = model(
        nodes, [info("n", (), I64), info("x", ["N"])], ["y"], {"two": np.float32(2), "even": 2}
    )
    return made, lambda n, k: {"n": count(n), "x": numbers(k)}


@case(5, (3, 2), (5, 2), (2, 7), (1, 1), (9, 3))
def sequences() -> Any:
    """Slices go into a sequence, through a loop and into another."""
    body = graph(
        [
            node("SequenceAt", ["xs", "i"], ["e"]), node("Mul", ["e", "two"], ["e2"]),
            node("SequenceInsert", ["acc", "e2"], ["acc2"]), GOES_ON,
        ],
        [*ITERATION, sequence("acc")],
        [GOES, sequence("acc2")],
    )  # fmt: skip
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("SplitToSequence", ["a"], ["xs"], axis=0, keepdims=1),
        node("SequenceLength", ["xs"], ["n"]),
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["n", "", "none"], ["ys"], body=body),
        node("ConcatFromSequence", ["ys"], ["joined"], axis=0),
        node("Neg", ["joined"], ["y"]),
    ]
    made = model(nodes, [info("x", ["N", "M"])], ["y"], {"two": np.float32(2)})
    return made, lambda n, m: {"x": numbers(n, m)}


# ── Scan ──


@case(2, (2, 3), (2, 7), (5, 4), (1, 1), (3, 2))
def scan() -> Any:
    """Along axis 1, backwards in and out, with a captured factor."""
    body = graph(
        [node("Add", ["s", "e"], ["s2"]), node("Mul", ["s2", "scale"], ["o"])],
        [info("s"), info("e")],
        ["s2", "o"],
    )
    nodes = [
        node(
            "Scan", ["s0", "x"], ["last", "ys"], body=body, num_scan_inputs=1, scan_input_axes=[1],
            scan_output_axes=[1], scan_input_directions=[1], scan_output_directions=[1],
        )
    ]  # fmt: skip
    made = model(nodes, [info("s0", ["K"]), info("x", ["K", "L"]), info("scale", ["K"])],
                 ["last", "ys"])  # fmt: skip
    return made, lambda k, n: {"s0": numbers(k), "x": numbers(k, n), "scale": numbers(k, seed=1)}


# ── what shapes and counts depend on ──


@case(6, (2, 6, 3, 4, 0), (2, 6, 4, 3, 0), (2, 6, 6, 2, 1), (5, 7, 7, 5, 0), (5, 7, 35, 1, 1),
      (3, 4, -1, 2, 0))  # fmt: skip
def reshape() -> Any:
    """Shape and axis are operands."""
    nodes = [node("Reshape", ["x", "s"], ["r"]), node("ReduceSum", ["r", "a"], ["y"], keepdims=0)]
    inputs = [info("x", ["N", "M"]), info("s", [2], I64), info("a", [1], I64)]
    made = model(nodes, inputs, ["y"])
    return made, lambda n, m, a, b, axis: {
        "x": numbers(n, m), "s": np.array([a, b]), "a": np.array([axis])}  # fmt: skip


@case(3, (4, 5, 0.0, 3), (4, 5, 0.5, 3), (7, 3, 0.0, 2), (7, 3, 0.1, 5), (4, 5, -9.0, 20))
def nonzero() -> Any:
    """How many elements are left decides over all that follows; k is an operand, too."""
    nodes = [
        node("NonZero", ["x"], ["at"]), node("Transpose", ["at"], ["rows"]),
        node("GatherND", ["x", "rows"], ["v"]), node("Shape", ["v"], ["s"]),
        node("Squeeze", ["s"], ["n"]), node("Range", ["zero", "n", "one"], ["counted"]),
        node("TopK", ["v", "k"], ["best", "where"]),
    ]  # fmt: skip
    outputs = ["v", info("counted", None, I64), "best", info("where", None, I64)]
    inputs = [info("x", ["N", "M"]), info("k", [1], I64)]
    made = model(nodes, inputs, outputs, {"zero": 0, "one": 1})

    def feeds(n: int, m: int, least: float, k: int) -> Feeds:
        x = numbers(n, m)
        return {"x": np.where(x < least, np.float32(0), x), "k": np.array([k])}

    return made, feeds


@case(7, (6, 1, 0), (6, 1, 1), (20, 2, 2), (20, 2, 3), (1, 1, 4), (33, 3, 5))
def suppression() -> Any:
    """The boxes that are left are gathered."""
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["kept"]),
        node("Gather", ["kept", "two"], ["column"], axis=1),
        node("Squeeze", ["column", "one"], ["rows"]), node("Squeeze", ["boxes", "zero"], ["all"]),
        node("Gather", ["all", "rows"], ["y"], axis=0),
    ]  # fmt: skip
    constants = {
        "most": np.array([10]), "iou": np.array([0.5], np.float32), "two": np.array([2]),
        "least": np.array([0.1], np.float32), "one": np.array([1]), "zero": np.array([0]),
    }  # fmt: skip
    made = model(nodes, [info("boxes", [1, "N", 4]), info("scores", [1, "C", "N"])], ["y"],
                 constants)  # fmt: skip

    def feeds(n: int, c: int, seed: int) -> Feeds:
        random = np.random.default_rng(seed)
        corners = random.random((1, n, 4)).astype(np.float32)
        corners[..., 2:] += corners[..., :2]
        return {"boxes": corners, "scores": random.random((1, c, n)).astype(np.float32)}

    return made, feeds


@case(2, (0.0, 5.0, 1.0), (0.0, 5.0, 2.0), (1.5, 3.0, 0.25), (0.0, 7.0, 1.0), (0.0, 5.0, 1.0))
def fractions() -> Any:
    """A Range of fractions: how long it is follows from numbers that are no extents."""
    nodes = [node("Range", ["a", "b", "c"], ["r"]), node("Mul", ["r", "r"], ["y"])]
    made = model(nodes, [info(n, ()) for n in "abc"], ["y"])
    return made, lambda *abc: {n: np.array(v, np.float32) for n, v in zip("abc", abc, strict=True)}


@case(2, (3, 2), (4, 2), (3, 5), (9, 9), (2, 2))
def text_between() -> Any:
    """Strings on the way from one graph to the next."""
    nodes = [
        node("Add", ["x", "one"], ["a"]), node("Cast", ["a"], ["s"], to=TensorProto.STRING),
        node("Cast", ["s"], ["b"], to=F32), node("Mul", ["b", "a"], ["y"]),
    ]  # fmt: skip
    made = model(nodes, [info("x", ["N", "M"])], ["y"], {"one": np.float32(1)})
    return made, lambda n, m: {"x": np.arange(n * m, dtype=np.float32).reshape(n, m)}
