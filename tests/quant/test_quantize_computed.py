"""`quantize` beyond weights: products of two computed operands, and transposed convolutions."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx.export import export
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.integer import ConvInteger, MatMulInteger
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow.passes.lower import lower
from alpenglow.passes.quantized import integers
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.plan import Plan, plan
from peer_bytes import saturates

ATTENTION = """
<ir_version: 8, opset_import: ["" : 17]>
attention (float[1,12,16] x) => (float[1,12,16] y) {
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    v = MatMul (x, wv)
    turned = Transpose <perm = [0, 2, 1]> (k)
    scores = MatMul (q, turned)
    scaled = Mul (scores, quarter)
    shares = Softmax <axis = -1> (scaled)
    y = MatMul (shares, v)
}
"""

UPSAMPLING = """
<ir_version: 8, opset_import: ["" : 17]>
upsampling (float[1,6,5,7] x) => (float[1,4,10,14] y) {
    a = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [0, 1]> (x, wa, ba)
    r = Relu (a)
    y = Conv <pads = [1, 1, 0, 0]> (r, wb)
}
"""

SHAPES = {
    "wq": (16, 16), "wk": (16, 16), "wv": (16, 16), "quarter": (), "wa": (6, 8, 4, 3), "ba": (8,),
    "wb": (4, 8, 2, 2),
}  # fmt: skip


def model(text: str) -> onnx.ModelProto:
    """Return a model with random weights."""
    made = onnx.parser.parse_model(text)
    rng = np.random.default_rng(3)
    for name, shape in SHAPES.items():
        if any(name in n.input for n in made.graph.node):
            array = np.float32(0.25) * rng.standard_normal(shape).astype(np.float32)
            tensor = np.asarray(0.25, np.float32) if name == "quarter" else array
            made.graph.initializer.append(numpy_helper.from_array(tensor, name))
    return made


def samples(g: Graph, count: int = 6) -> list[Array]:
    rng = np.random.default_rng(4)
    shape = g.inputs["x"].type.extents
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(count)]


def planned(g: Graph, **options: Any) -> Plan:
    return plan(g, ag.profile_ranges(g, samples(g)), QuantOptions(**options))


@pytest.mark.parametrize("schema", ["asymmetric", "symmetric", "symmetric_uint8"])
@pytest.mark.parametrize("text", [ATTENTION, UPSAMPLING], ids=["attention", "upsampling"])
@pytest.mark.sampled(3)
def test_onnx_runtime_answers_like_us(text: str, schema: str) -> None:
    g = ag.load(model(text))
    made = planned(g, schema=schema)
    exported = export(model(text), made)
    onnx.checker.check_model(exported.model, full_check=True)
    session = onnxruntime.InferenceSession(exported.model.SerializeToString())
    exe = ag.compile(exported.model)

    assert exported.notes == ()
    for x in samples(g):
        (expected,) = session.run(None, {"x": x})
        (original,) = evaluate(g, {"x": x}).values()
        actual = exe(x)
        assert ((actual - original) ** 2).sum() < 0.01 * (original**2).sum()
        # A step of what the last layer reads may fall the other way.
        if not saturates():
            np.testing.assert_allclose(actual, expected, atol=0.03 * np.abs(expected).max())


@pytest.mark.parametrize("text", [ATTENTION, UPSAMPLING], ids=["attention", "upsampling"])
def test_all_products_are_of_integers(text: str) -> None:
    g = ag.load(model(text))
    made = planned(g)
    small = integers(ag.quantize(g, ag.profile_ranges(g, samples(g))))
    kinds = {type(n.op) for n in small.nodes}

    assert [d.why for d in made.decisions] == [""] * len(made.decisions)
    assert kinds & {ConvInteger, MatMulInteger} and not kinds & {Conv, ConvTranspose, MatMul}


@pytest.mark.parametrize("text", [ATTENTION, UPSAMPLING], ids=["attention", "upsampling"])
def test_compiled_they_answer_like_the_interpreter(text: str) -> None:
    g = ag.load(model(text))
    small = ag.quantize(g, ag.profile_ranges(g, samples(g)))
    for x in samples(g, 2):
        expected = ag.compile(small, "interpreter")(x)
        actual = ag.compile(small)(x)

        # What is added up in floats comes from the same integers.
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_a_product_of_computed_operands_is_kept_by_its_name() -> None:
    made = planned(ag.load(model(ATTENTION)), keep=frozenset({"scores"}))

    assert {d.name: bool(d.why) for d in made.decisions} == {
        "q": False, "k": False, "v": False, "scores": True, "y": False}  # fmt: skip


def test_a_product_without_a_weight_has_nothing_to_store_if_only_weights_are() -> None:
    g = ag.load(model(ATTENTION))
    made = plan(g, None, QuantOptions(weights_only="int8"))
    (why,) = {d.why for d in made.decisions if d.name in ("scores", "y")}

    assert why == "both of its operands are computed: it has no weight"


def test_a_dilated_transposed_convolution_stays() -> None:
    g = Graph("dilated")
    w = g.constant(np.ones((2, 3, 3), np.float32))
    op = ConvTranspose((1,), (0, 0), (2,), (0,))
    g.output("y", g(op, g.input("x", "f32[1,2,9]"), w, name="y"))
    (decision,) = planned(g).decisions

    assert "dilated" in decision.why


def scattered(op: ConvTranspose, x: Array, w: Array) -> Array:
    """Return a transposed convolution as it is defined, before anything is cut off."""
    spatial, outputs = x.ndim - 2, w.shape[1] * op.group
    reach = [(d - 1) * s for d, s in zip(x.shape[2:], op.strides, strict=True)]
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], op.dilations, strict=True)]
    extents = [sum(parts) for parts in zip(reach, spans, op.output_padding, strict=True)]
    y = np.zeros((len(x), outputs, *extents))
    into, out = x.shape[1] // op.group, w.shape[1]
    whole: Any = slice(None)
    for at in product(*map(range, x.shape[2:])):
        for tap in product(*map(range, w.shape[2:])):
            place = [p * s + t * d for p, s, t, d in
                     zip(at, op.strides, tap, op.dilations, strict=True)]  # fmt: skip
            for i in range(op.group):
                ins: Any = slice(i * into, (i + 1) * into)
                outs: Any = slice(i * out, (i + 1) * out)
                y[(whole, outs, *place)] += x[(whole, ins, *at)] @ w[(ins, whole, *tap)]
    cut = [slice(op.pads[i], y.shape[2 + i] - op.pads[spatial + i]) for i in range(spatial)]
    return y[(whole, whole, *cut)]


@pytest.mark.parametrize(
    ("op", "x", "w"),
    [
        (ConvTranspose((2,), (1, 0), (1,), (1,)), (1, 2, 5), (2, 3, 4)),
        (ConvTranspose((3,), (4, 3), (1,), (0,)), (2, 2, 4), (2, 3, 5)),
        (ConvTranspose((3,), (0, 0), (1,), (2,)), (1, 2, 4), (2, 3, 2)),
        (ConvTranspose((2, 1), (1, 0, 0, 2), (1, 1), (0, 0), 2), (1, 4, 3, 5), (4, 3, 3, 4)),
        (ConvTranspose((2, 2), (1,) * 4, (1, 1), (1, 1)), (1, 2, 3, 4), (2, 3, 3, 3)),
        (ConvTranspose((2, 3), (1, 2, 0, 1), (2, 1), (0, 1)), (1, 2, 3, 4), (2, 3, 2, 3)),
        (ConvTranspose((2, 1, 3), (0,) * 6, (1,) * 3, (0,) * 3), (1, 2, 2, 3, 2), (2, 2, 3, 1, 4)),
    ],
    ids=str,
)
def test_phases_make_what_each_element_adds(op: Any, x: Any, w: Any) -> None:
    rng = np.random.default_rng(5)
    array, weight = rng.standard_normal(x), rng.standard_normal(w)
    g = Graph("transposed")
    v = g.input("x", f"f64[{','.join(map(str, x))}]")
    g.output("y", g(op, v, g.constant(weight)))
    expected = scattered(op, array, weight)
    actual = evaluate(lower(g), {"x": array})["y"]

    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)
