"""ONNX's Gradient: derivatives of a part of the model that the node is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.onnx import load
from alpenglow.ops.reduction.scan import CumProd

Array = NDArray[Any]
PREVIEW = "ai.onnx.preview.training"


def gradient(
    inputs: Sequence[str], outputs: Sequence[str], y: str, xs: Sequence[str],
    zs: Sequence[str] = (),
) -> onnx.NodeProto:  # fmt: skip
    named = {"zs": list(zs)} if zs else {}
    return helper.make_node("Gradient", inputs, outputs, domain=PREVIEW, y=y, xs=list(xs), **named)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "derived",
        [helper.make_tensor_value_info(k, dtype, d) for k, d in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(a, k) for k, a in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(PREVIEW, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run(m: onnx.ModelProto, **feeds: Any) -> list[Array]:
    """Return the outputs of a model, all of it compiled."""
    exe = ag.compile(m, threads=1)
    assert all(entry.kernel for entry in exe.artifact.table)
    made = exe(*(np.asarray(feeds[name], np.float32) for name in exe.inputs))
    return list(made) if isinstance(made, tuple | list) else [made]


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


@pytest.mark.parametrize("name", ["test_gradient_of_add", "test_gradient_of_add_and_mul"])
def test_tests_of_onnx_agree(name: str) -> None:
    folder = Path(onnx.backend.test.__file__).parent / "data" / "simple" / name
    exe = ag.compile(folder / "model.onnx", threads=1)
    inputs, expected = (
        [onnx.load_tensor(f) for f in sorted(folder.glob(f"test_data_set_0/{kind}_*.pb"))]
        for kind in ("input", "output")
    )
    made = exe(*map(numpy_helper.to_array, inputs))

    assert all(entry.kernel for entry in exe.artifact.table)
    for a, b in zip(made, expected, strict=True):
        np.testing.assert_array_equal(a, numpy_helper.to_array(b))


def test_a_layer_is_differentiated_by_weights_among_the_constants() -> None:
    w = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
    nodes = [
        node("MatMul", "x w", "h"),
        node("Tanh", "h", "t"),
        node("ReduceSum", "t", "y", keepdims=0),
        gradient(["w", "x"], ["dw"], "y", ["w"], ["x"]),
    ]
    x = np.array([[1, 2, 3], [0, -1, 0.5]], np.float32)
    (dw,) = run(model(nodes, {"x": (2, 3)}, ["dw"], {"w": w}), x=x)

    np.testing.assert_allclose(dw, x.T @ (1 - np.tanh(x @ w) ** 2), 1e-4, 1e-6)


def test_constants_alone_are_differentiated() -> None:
    w = np.array([1, 2, 3], np.float32)
    nodes = [node("Mul", "w w", "y"), gradient(["w"], ["dw"], "y", ["w"])]

    assert run(model(nodes, {}, ["dw"], {"w": w}))[0].tolist() == [2, 4, 6]


def test_a_value_on_the_way_is_a_variable() -> None:
    nodes = [
        node("Mul", "x x", "h"),
        node("Mul", "h z", "y"),
        gradient(["h", "z"], ["dh", "dz"], "y", ["h", "z"]),
    ]
    dh, dz = run(model(nodes, {"x": (2,), "z": (2,)}, ["dh", "dz"]), x=[2, 3], z=[5, 7])

    assert dh.tolist() == [5, 7]
    assert dz.tolist() == [4, 9]


def test_other_values_than_the_named_ones_are_put_in_their_place() -> None:
    nodes = [
        node("Mul", "x x", "h"),
        node("Mul", "h z", "k"),
        node("Mul", "k h", "y"),  # h² z
        gradient(["h1", "z1"], ["dh", "dz"], "y", ["h", "z"]),
    ]
    shapes = dict.fromkeys(("x", "z", "h1", "z1"), (2,))
    found = run(model(nodes, shapes, ["dh", "dz"]), x=[1, 1], z=[1, 1], h1=[2, 3], z1=[5, 7])

    assert [v.tolist() for v in found] == [[20, 42], [4, 9]]


def test_one_value_may_stand_for_several() -> None:
    nodes = [node("Mul", "a b", "y"), gradient(["v", "v"], ["da", ""], "y", ["a", "b"])]
    shapes = dict.fromkeys("abv", (2,))

    assert run(model(nodes, shapes, ["da"]), a=[1, 1], b=[1, 1], v=[2, 3])[0].tolist() == [2, 3]


def test_gradients_are_differentiated_again() -> None:
    nodes = [
        node("Mul", "x x", "s"),
        node("Mul", "s w", "y"),
        gradient(["x", "w"], ["dx"], "y", ["x"], ["w"]),
        gradient(["x", "w"], ["dxx", "dxw"], "dx", ["x", "w"]),
    ]
    found = run(model(nodes, {"x": (2,), "w": (2,)}, ["dxx", "dxw"]), x=[2, 3], w=[5, 7])

    assert [v.tolist() for v in found] == [[10, 14], [4, 6]]


def test_the_node_may_stand_before_what_it_differentiates() -> None:
    nodes = [gradient(["x"], ["dx"], "y", ["x"]), node("Exp", "x", "y")]

    np.testing.assert_allclose(run(model(nodes, {"x": (1,)}, ["dx"]), x=[1])[0], np.e, 1e-6)


def test_names_within_a_branch_are_found() -> None:
    inner = helper.make_graph(
        [node("Mul", "x x", "y"), gradient(["x"], ["d"], "y", ["x"])],
        "square", [], [helper.make_empty_tensor_value_info("d")],
    )  # fmt: skip
    other = helper.make_graph(
        [node("Identity", "x", "d")], "other", [], [helper.make_empty_tensor_value_info("d")]
    )
    chosen = helper.make_node("If", ["c"], ["dx"], then_branch=inner, else_branch=other)
    m = model([chosen], {"x": (2,)}, ["dx"], {"c": np.array(True)})

    assert run(m, x=[2, 3])[0].tolist() == [4, 6]


def test_open_extents_stay_open() -> None:
    nodes = [node("Mul", "x x", "y"), gradient(["x"], ["dx"], "y", ["x"])]
    exe = ag.compile(model(nodes, {"x": ("N", 2)}, ["dx"]), threads=1)  # type: ignore[dict-item]
    for n in (1, 5):
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)

        assert exe(x).tolist() == (2 * x).tolist()


SQUARE = node("Mul", "x x", "y")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([SQUARE, gradient(["x", "x"], ["d"], "y", ["x"])], "2 inputs, expected one"),
        ([SQUARE, gradient(["x"], ["d"], "q", ["x"])], "'q' is unknown, expected a graph input"),
        ([SQUARE, gradient(["z"], ["d"], "y", ["x"])], "input for 'x' is f32\\[3\\], expected f32"),
        ([SQUARE, gradient(["x", "x"], ["d"], "y", ["x"], ["x"])], "expected different values"),
        (
            [node("Shape", "x", "y"), gradient(["x"], ["d"], "y", ["x"])],
            "'y' is i64\\[1\\], expected floats",
        ),
    ],
)
def test_mistakes_are_named(nodes: list[onnx.NodeProto], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(model(nodes, {"x": (2,), "z": (3,)}, ["d"]))


def test_what_determines_y_must_be_named() -> None:
    nodes = [node("Mul", "x z", "y"), gradient(["x"], ["d"], "y", ["x"])]
    with pytest.raises(UnsupportedError, match="also computed from 'z', expected in xs or zs"):
        load(model(nodes, {"x": (2,), "z": (2,)}, ["d"]))


def test_an_operator_without_gradient_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CumProd, "gradient", None)
    axis = {"axis": np.array(0)}
    nodes = [helper.make_node("CumProd", ["x", "axis"], ["y"]), gradient(["x"], ["d"], "y", ["x"])]
    m = model(nodes, {"x": (2,)}, ["d"], axis)
    m.opset_import[0].version = 26
    with pytest.raises(UnsupportedError, match="operator cum_prod is not supported"):
        load(m)
