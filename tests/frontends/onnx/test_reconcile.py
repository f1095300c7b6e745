"""Models whose open extents fit each other for some sizes only, or are not what their names say."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.base.errors import FeedError, ModelError
from alpenglow.ir.types import Array
from alpenglow.runtime.executables.open_extents import OpenExecutable

pytestmark = pytest.mark.usefixtures("own_cache")

Shape = tuple[int, ...]
Declared = Sequence[int | str]
rng = np.random.default_rng(13)


def random(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A model, the shapes of calls that it takes, and of calls that it does not."""

    nodes: Sequence[Any]
    inputs: Mapping[str, Declared]
    good: Sequence[Sequence[Shape]]
    bad: Sequence[Sequence[Shape]] = ()
    weights: Mapping[str, Array] = field(default_factory=dict)
    anew: bool = False
    """Whether calls are served by an import of their own."""

    def model(self, outputs: Mapping[str, Declared | None] | None = None) -> onnx.ModelProto:
        made = outputs or {name: None for name in self.nodes[-1].output if name}
        graph = helper.make_graph(
            list(self.nodes), "g",
            [helper.make_tensor_value_info(n, 1, list(s)) for n, s in self.inputs.items()],
            [helper.make_tensor_value_info(n, 1, s) for n, s in made.items()],
            [numpy_helper.from_array(a, n) for n, a in self.weights.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


node = helper.make_node
HALF = node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2])
DOUBLE = node("Resize", ["p", "", "twice"], ["u"], mode="nearest")
TWICE = {"twice": np.array([1, 1, 2, 2], np.float32)}
IMAGES: Declared = ("N", 3, "H", "W")
EVEN = [[(1, 3, 8, 8)], [(2, 3, 16, 32)], [(1, 3, 6, 2)]]
ODD = [[(1, 3, 9, 8)]]
LSTM = node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["y", "yh", "yc"], hidden_size=4)
GATES = {"w": random(1, 16, 3), "r": random(1, 16, 4)}
STATE = {"h": random(1, 1, 4), "c": random(1, 1, 4)}

CASES = {
    "a neck that concatenates": Case(
        [HALF, DOUBLE, node("Concat", ["x", "u"], ["y"], axis=1)], {"x": IMAGES}, EVEN, ODD, TWICE
    ),
    "a neck that adds": Case(
        [HALF, DOUBLE, node("Add", ["x", "u"], ["y"])], {"x": IMAGES}, EVEN, ODD, TWICE
    ),
    "a U-Net": Case(
        [HALF, node("ConvTranspose", ["p", "w"], ["u"], strides=[2, 2]),
         node("Concat", ["u", "x"], ["y"], axis=1)],
        {"x": IMAGES}, EVEN, ODD, {"w": random(3, 4, 2, 2)},
    ),
    "two scales of a detector": Case(
        [HALF,
         node("MaxPool", ["p"], ["q"], kernel_shape=[2, 2], strides=[2, 2]),
         node("Resize", ["q", "", "twice"], ["v"], mode="nearest"),
         node("Add", ["p", "v"], ["s"]),
         node("Resize", ["s", "", "twice"], ["u"], mode="nearest"),
         node("Concat", ["x", "u"], ["y"], axis=1)],
        {"x": IMAGES}, [[(1, 3, 8, 8)], [(2, 3, 16, 32)], [(1, 3, 4, 12)]],
        [[(1, 3, 9, 8)], [(1, 3, 10, 8)]], TWICE,
    ),
    "a state of one sample": Case(
        [LSTM], {"x": ("T", "N", 3), "h": (1, 1, 4), "c": (1, 1, 4)},
        [[(5, 1, 3), (1, 1, 4), (1, 1, 4)], [(9, 1, 3), (1, 1, 4), (1, 1, 4)]],
        [[(5, 2, 3), (1, 1, 4), (1, 1, 4)]], GATES,
    ),
    "a constant state": Case(
        [LSTM], {"x": ("T", "N", 3)}, [[(5, 1, 3)], [(8, 1, 3)]], [[(5, 2, 3)]], GATES | STATE
    ),
    "what is appended to one row": Case(
        [node("Concat", ["x", "s"], ["y"], axis=1)], {"x": ("N", "T"), "s": (1, 4)},
        [[(1, 5), (1, 4)], [(1, 6), (1, 4)]], [[(2, 5), (1, 4)]],
    ),
    "rows of a weight": Case(
        [node("MatMul", ["x", "w"], ["y"])], {"x": ("N", "k")}, [[(4, 13)], [(7, 13)]],
        [[(4, 12)]], {"w": random(13, 3)},
    ),
    "a bias that may be stretched": Case(
        [node("Add", ["x", "w"], ["y"])], {"x": (1, "m")}, [[(1, 13)], [(1, 1)]], [[(1, 12)]],
        {"w": random(1, 13)}, anew=True,
    ),
    "two that may be stretched": Case(
        [node("Add", ["x", "z"], ["y"])], {"x": ("n", 3), "z": ("m", 3)},
        [[(4, 3), (4, 3)], [(5, 3), (5, 3)], [(1, 3), (4, 3)], [(4, 3), (1, 3)]],
        [[(4, 3), (5, 3)]], anew=True,
    ),
    "one name for both sides": Case(
        [node("Relu", ["x"], ["y"])], {"x": ("height", "height")}, [[(3, 3)], [(3, 4)]], anew=True
    ),
    "one name for everything": Case(
        [node("Concat", ["x", "z"], ["y"], axis=1)], {"x": ("?", "?"), "z": ("?", "?")},
        [[(3, 4), (3, 5)], [(3, 3), (3, 3)], [(2, 4), (2, 1)]], [[(3, 4), (4, 4)]], anew=True,
    ),
    "to the end": Case(
        [node("Slice", ["x", "from", "to"], ["y"])], {"x": ("N", "T")}, [[(3, 4)], [(1, 9)]],
        weights={"from": np.array([0, 1]), "to": np.array([10**9, 10**9])},
    ),
    "from before the beginning": Case(
        [node("Slice", ["x", "from", "to"], ["y"])], {"x": ("N", "T")}, [[(3, 4)], [(2, 9)]],
        weights={"from": np.array([-(10**9), -(10**9)]), "to": np.array([10**9, -1])},
    ),
    "extents of -1": Case(
        [node("Relu", ["x"], ["y"])], {"x": (-1, 3)}, [[(3, 3)], [(5, 3)]], [[(3, 4)]]
    ),
    "a quotient of sums": Case(
        [node("Unsqueeze", ["x", "one"], ["x1"]),
         node("Concat", ["x1", "z"], ["all"], axis=1),
         node("Shape", ["all"], ["shape"], end=2),
         node("ReduceProd", ["shape"], ["rows"], keepdims=1),
         node("Concat", ["rows", "rest"], ["matrix"], axis=0),
         node("Reshape", ["all", "rest"], ["flat"]),
         node("Reshape", ["flat", "matrix"], ["m"]),
         node("MatMul", ["m", "w"], ["y"])],
        {"x": ("b", 96), "z": ("b", "k", 96)},
        [[(2, 96), (2, 3, 96)], [(3, 96), (3, 7, 96)]],
        weights={"one": np.array([1]), "rest": np.array([-1]), "w": random(96, 5)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.sampled(4)
def test_open_extents_are_reconciled(case: Case) -> None:
    model = case.model()
    exe = ag.compile(model)
    assert isinstance(exe, OpenExecutable), "the model was cut"
    options = ort.SessionOptions()
    options.log_severity_level = 4
    judge = ort.InferenceSession(model.SerializeToString(), options)
    for shapes in case.good:
        feeds = {n: random(*s) for n, s in zip(case.inputs, shapes, strict=True)}
        for made, expected in zip(exe.run(feeds).values(), judge.run(None, feeds), strict=True):
            np.testing.assert_allclose(made, expected, atol=1e-5)
    otherwise = exe.otherwise
    assert case.anew == (otherwise is not None and bool(otherwise.artifacts))
    for shapes in case.bad:
        feeds = {n: random(*s) for n, s in zip(case.inputs, shapes, strict=True)}
        with pytest.raises(FeedError):
            exe.run(feeds)


def test_what_fits_no_extents_is_refused_at_once() -> None:
    case = Case(
        [node("Add", ["x", "w"], ["y"])], {"x": ("N", 12)}, [], weights={"w": random(1, 13)}
    )
    with pytest.raises(ModelError, match=r"shapes \(N, 12\) and \(1, 13\) do not broadcast"):
        ag.compile(case.model())


def test_what_depends_on_the_numbers_waits_for_them() -> None:
    case = Case(
        [node("Shape", ["x"], ["s"], end=1), node("Range", ["zero", "n", "one"], ["r"])],
        {"x": ("N", 3)}, [],
    )  # fmt: skip
    scalar = {"zero": np.array(0), "one": np.array(1), "axis": np.array([0])}
    nodes = [case.nodes[0], node("Squeeze", ["s", "axis"], ["n"]), case.nodes[1],
             node("Cast", ["r"], ["y"], to=TensorProto.FLOAT)]  # fmt: skip
    exe = ag.compile(Case(nodes, case.inputs, [], weights=scalar).model())
    for rows in (3, 5, 64, 128):
        np.testing.assert_array_equal(exe(random(rows, 3)), np.arange(rows))


def test_numbers_for_one_name_hold_for_all_that_have_it() -> None:
    case = Case([node("Add", ["x", "z"], ["y"])], {"x": ("N", 3), "z": ("N", 3)}, [])
    exe = ag.compile(case.model(), shapes={"x": (4, 3)})
    assert exe.inputs["z"].extents == (4, 3)

    apart = Case(
        [node("Concat", ["x", "z"], ["y"], axis=0)], {"x": ("?", "?"), "z": ("?", "?")}, []
    )
    exe = ag.compile(apart.model(), shapes={"x": (4, 3), "z": (2, 3)})
    assert exe.outputs["y"].extents == (6, 3)


@pytest.mark.parametrize("declared", [("N", 4), (3,), ("N", 3, 1)])
def test_outputs_that_are_not_as_declared_are_told(
    declared: Declared, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case([node("Relu", ["x"], ["y"])], {"x": ("N", 3)}, [])
    with caplog.at_level(logging.WARNING, "alpenglow"):
        exe = ag.compile(case.model({"y": declared}))
    assert "output 'y' is declared" in caplog.text
    np.testing.assert_array_equal(exe(np.ones((2, 3), np.float32)), np.ones((2, 3)))
