"""What fuzzing has found, cut down: each model gives the same in every engine, at all its feeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx.parser
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx.numpy_helper import from_array

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, FeedError, ModelError, UnsupportedError
from fuzz.corpus import branches, info, made
from fuzz.judge import judge
from fuzz.oracles import ORACLES
from fuzz.settings import PLAIN, Setting, here
from onnx_node import single

Array = NDArray[Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Found:
    """A model as ONNX writes it, and feeds for the calls of one executable."""

    text: str
    feedings: tuple[Feeds, ...]
    opset: int = 21


def floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def x(*shapes: tuple[int, ...]) -> tuple[Feeds, ...]:
    return tuple({"x": floats(*shape)} for shape in shapes)


FOUND = {
    "an average of nothing, along an open extent": Found(
        """g (float[n,16,n] x) => (float[n,16,?] y) {
            y = AveragePool <kernel_shape = [3], strides = [3], pads = [0, 2], ceil_mode = 1> (x) }
        """,
        (*x((11, 16, 11)), *x((0, 16, 0))),
    ),
    "halves of which the last is alone": Found(
        """g (float[1,2,2,17] q, float[1,2,3,17] k) => (bfloat16[1,2,2,17] y) {
            h = Cast <to = 16> (q)
            c = Cast <to = 16> (k)
            y = Attention (h, c, c) }""",
        ({"q": floats(1, 2, 2, 17), "k": floats(1, 2, 3, 17)},),
        24,
    ),
    "a scale of 0 and a step that is left out, as ONNX Runtime has them": Found(
        """g (float[1,3,4] q, float[1,3,4] k) => (float[1,3,4] y, float[3] z)
            <float first = {1.5}, float last = {4.0}> {
            y = com.microsoft.MultiHeadAttention <num_heads=2, scale=0.0> (q, k, k)
            z = com.microsoft.Range (first, last) }""",
        ({"q": floats(1, 3, 4), "k": floats(1, 3, 4)},),
    ),
    "a crop of an open image is resized": Found(
        """g (int8[n,n] x, float[n,2] y) => (int8[?,?] z, float[?,?] r)
            <float[4] roi = {0.1, 0.0, 1.3, 0.75}, float[2] scales = {2.5, 1.5},
             int64[2] sizes = {9, 4}> {
            z = Resize <mode="nearest", coordinate_transformation_mode="tf_crop_and_resize"> (
                x, roi, scales)
            r = Resize <keep_aspect_ratio_policy="not_larger"> (y, , , sizes) }""",
        tuple(
            {"x": np.arange(n * n, dtype=np.int8).reshape(n, n), "y": floats(n, 2)} for n in (5, 7)
        ),
    ),
    "a scale of 0 is the default, also where it is written": Found(
        """g (float[1,2,4] q, float[1,2,4] k, float[1,2,6] v)
            => (float[1,2,6] y, float[1,2,2,3] s) {
            y, s = LinearAttention <q_num_heads=2, kv_num_heads=2, scale=0.0,
                                    update_rule="linear"> (q, k, v) }""",
        ({"q": floats(1, 2, 4), "k": floats(1, 2, 4), "v": floats(1, 2, 6)},),
        27,
    ),
    "a mapped body keeps the opset of its model": Found(
        """g (float[2,3] x) => (float[?,?] y) <int64[1] one = {1}, int64 at = {0}> {
            s = SequenceConstruct (x, x)
            t = SequenceMap (s) <body = b (float[2,3] e) => (float[2,1] r) {
                r = ReduceMax (e, one) }>
            y = SequenceAt (t, at) }""",
        x((2, 3)),
    ),
    "no channels are normalised": Found(
        """g (float[2,c,4] x, float[c] k) => (float[?,?,?] y) {
            y = InstanceNormalization (x, k, k) }""",
        ({"x": floats(2, 3, 4), "k": floats(3)}, {"x": floats(2, 0, 4), "k": floats(0)}),
    ),
    "a layer whose state has computed extents": Found(
        """g (float[3,2,3] x, float[1,12,3] w, float[1,12,n] r, int64 count) => (float[?,?,?] y) {
            z, y = Loop (count, , x) <body = b (int64 i, bool go, float[3,2,3] h)
                => (bool on, float[3,2,3] k, float[1,2,4] s) {
                on = Identity (go)
                k = Identity (h)
                a, s = GRU <hidden_size = 4> (h, w, r) }> }""",
        (
            {
                "x": floats(3, 2, 3),
                "w": floats(1, 12, 3),
                "r": floats(1, 12, 4),
                "count": np.int64(2),
            },
        ),
    ),
    "an index from data may be very large": Found(
        """g (float[n,3] x, int64[1] a, int64[1] b) => (float[?,?] y) {
            y = Slice (x, a, b) }""",
        tuple(
            {"x": floats(5, 3), "a": ints(a), "b": ints(b)}
            for a, b in ((1, 4), (0, 2**63 - 1), (-(2**63) + 1, 2**62), (2**61 - 1, 2**62))
        ),
    ),
    "products along one byte": Found(
        """g (uint8[9,1] x) => (int32[9,3] y)
            <uint8[1,3] w = {1, 200, 255}, uint8[3] z = {3, 2, 1}> {
            y = MatMulInteger (x, w, , z) }""",
        ({"x": np.arange(247, 256, dtype=np.uint8)[:, None]},),
    ),
    "the error function of integers": Found(
        "g (int8[5] x) => (int8[5] y) { y = Erf (x) }",
        ({"x": np.array([-128, -1, 0, 5, 6], np.int8)},),
        9,
    ),
    "neighbours beyond all channels do not take time": Found(
        "g (float[1,c,2] x) => (float[?,?,?] y) { y = LRN <size = 2147483647, alpha = 1e9> (x) }",
        x((1, 5, 2), (1, 1, 2), (1, 9, 2)),
    ),
    "the softmax of what is stretched along its rows": Found(
        """g (float[3,1] x, float[n,m] z) => (float[3,16] y, float[3,33] w, float[?,?] v)
            <int64[2] some = {3, 16}, int64[2] more = {3, 33}> {
            a = Expand (x, some)
            y = Softmax (a)
            b = Expand (x, more)
            w = Softmax (b)
            s = Shape (z)
            c = ConstantOfShape (s)
            v = Softmax (c) }""",
        ({"x": floats(3, 1), "z": floats(3, 17)}, {"x": floats(3, 1), "z": floats(2, 32)}),
    ),
    "a bias in floats beside products of bytes, not quantized after": Found(
        """g (uint8[1,1,1] x) => (float[?,?,?] y) <int8[1,6] w = {-74, 90, 102, -71, 109, 105},
            float[6] b = {2.18, 1.33, 1.25, 0.62, -0.614, -0.04898}, float[1] s = {0.0625},
            float[6] t = {0.015625, 0.0625, 0.0625, 0.03125, 0.03125, 0.03125}> {
            y = com.microsoft.QAttention <num_heads = 2> (x, w, b, s, t) }""",
        ({"x": np.array([[[3]]], np.uint8)},),
    ),
    "an open extent of one is squeezed": Found(
        "g (float[1,n,2] x) => (float y) { y = Squeeze (x) }",
        x((1, 3, 2), (1, 1, 2), (1, 0, 2)),
    ),
    "parts that do not make up an open extent are refused": Found(
        """g (float[n,2] x) => (float[?,?] y, float[?,?] z) <int64[2] sizes = {2, 3}> {
            y, z = Split <axis = 0> (x, sizes) }""",
        x((5, 2), (7, 2), (3, 2)),
    ),
    "a product with rows that are stretched to a matrix": Found(
        """g (float[1,3] x) => (float[1,3] y, float[1,3] z)
            <float[3] w = {1, 2, 4}, float[1,3] v = {1, 2, 4}, int64[2] to = {3, 3}> {
            a = Expand (w, to)
            y = MatMul (x, a)
            b = Expand (v, to)
            z = MatMul (x, b) }""",
        x((1, 3)),
    ),
    "pooling of an axis without elements, beside one that is smaller than its window": Found(
        """g (float[2,3,1,n] x) => (float[2,3,?,?] y) {
            y = MaxPool <kernel_shape = [3, 1], strides = [3, 3], ceil_mode = 1> (x) }""",
        x((2, 3, 1, 4), (2, 3, 1, 0)),
    ),
    "a diagonal of two labels": Found(
        """g (float[2,3,2,3] x) => (float[2,3] y) { y = Einsum <equation = "abab->ab"> (x) }""",
        x((2, 3, 2, 3)),
    ),
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.sampled(5)
def test_a_found_model_is_the_same_everywhere(name: str) -> None:
    found = FOUND[name]
    domains = f'"" : {found.opset}, "com.microsoft" : 1'
    header = f"<ir_version: 8, opset_import: [{domains}]>\n"
    model = onnx.parser.parse_model(header + found.text)
    settings = here([replace(s, extents="open") for s in (Setting("interpreter"), *PLAIN)])
    settings += here([Setting("x86-64-v4", "strict", level=0)])
    verdict = judge(model.SerializeToString(), found.feedings, settings, ORACLES)

    assert not verdict.problems, "\n".join(map(str, verdict.problems))
    assert set(map(str, settings)) == set(verdict.ran)


def scan_alone() -> onnx.ModelProto:
    model = branches()
    for node in list(model.graph.node)[:-1]:
        model.graph.node.remove(node)
    del model.graph.input[:]
    model.graph.input.append(info("last", ("rows", 3)))
    del model.graph.output[0]
    return model


@pytest.mark.parametrize("which", ["input", "output"])
def test_a_scan_along_an_axis_that_is_not_there_is_refused(which: str) -> None:
    model = scan_alone()
    model.graph.node[0].attribute.append(helper.make_attribute(f"scan_{which}_axes", [3]))
    exe = ag.compile(model)

    with pytest.raises(ModelError, match="the axis of a scan is 3, expected -2 to 1"):
        exe.run({"last": floats(2, 3)})


def test_a_scan_that_counts_by_a_graph_is_refused() -> None:
    model = scan_alone()
    (scan,) = model.graph.node
    (body,) = (a for a in scan.attribute if a.name == "body")
    (count,) = (a for a in scan.attribute if a.name == "num_scan_inputs")
    count.type = onnx.AttributeProto.GRAPH
    count.g.CopyFrom(body.g)

    with pytest.raises(ModelError, match="'num_scan_inputs' is of type GRAPH, expected INT"):
        ag.load(model)


def test_a_split_into_more_parts_than_it_has_outputs_is_refused() -> None:
    node = helper.make_node("Split", ["x"], ["y", "z"], num_outputs=2**62)
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]

    with pytest.raises(ModelError, match="num_outputs is 4611686018427387904, expected 2"):
        ag.load(made([node], [info("x", (4, 3))], outputs))


def test_blocks_of_an_open_extent_are_as_many_as_there_are_scales() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n,2] x, float[1,2] s) => (int8[n,2] y) {
            y = QuantizeLinear <axis = 0, block_size = 4, output_dtype = 3> (x, s) }""")
    exe = ag.compile(model)
    x, scale = floats(3, 2), np.ones((1, 2), np.float32)

    np.testing.assert_array_equal(exe(x, scale), np.round(x).astype(np.int8))
    with pytest.raises(FeedError, match=r"scale or zero point is f32\[1,2\], expected shape"):
        exe(floats(5, 2), scale)


def test_a_loss_without_classes_is_refused() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        g (float[n,m] x, int64[n] t) => (float y) { y = NegativeLogLikelihoodLoss (x, t) }""")
    exe = ag.compile(model)

    assert exe(np.ones((2, 3), np.float32), ints(0, 2)) == -1
    with pytest.raises(AlpenglowError, match="expected at least one class"):
        exe(np.ones((2, 0), np.float32), ints(0, 0))


def test_complex_numbers_are_padded_with_zeros_only() -> None:
    x, pads = np.array([1 + 2j], np.complex64), ints(1, 0)
    padded = ag.compile(single("Pad", [x, pads, np.zeros((), np.complex64)], 18, constants=[1, 2]))

    np.testing.assert_array_equal(padded(x), [0, 1 + 2j])
    with pytest.raises(UnsupportedError, match=r"padding with \(1\+0j\) is not supported"):
        ag.load(single("Pad", [x, pads, np.ones((), np.complex64)], 18, constants=[1, 2]))


def test_a_tree_that_asks_for_a_feature_that_is_not_there_is_refused() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 15, "ai.onnx.ml" : 3]>
        g (float[n,m] x) => (float[n,1] y) {
            y = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, nodes_treeids = [0, 0, 0],
                nodes_nodeids = [0, 1, 2], nodes_featureids = [2, 0, 0], nodes_values = [0.5, 0, 0],
                nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0],
                nodes_falsenodeids = [2, 0, 0], target_treeids = [0, 0], target_nodeids = [1, 2],
                target_ids = [0, 0], target_weights = [1.0, 2.0]> (x) }""")
    exe = ag.compile(model)

    np.testing.assert_array_equal(exe(np.eye(4, 3, dtype=np.float32)), [[1], [1], [2], [1]])
    with pytest.raises(FeedError, match="expected at least 0 and less than m"):
        exe(np.eye(4, 2, dtype=np.float32))


def test_a_cast_to_a_tensor_is_refused() -> None:
    node = helper.make_node("Cast", ["x"], ["y"])
    node.attribute.append(helper.make_attribute("to", from_array(ints(1, 2))))
    model = made([node], [info("x", (2,))], [helper.make_empty_tensor_value_info("y")])

    with pytest.raises(ModelError, match="attribute 'to' is of type TENSOR, expected INT"):
        ag.load(model)


def test_strings_are_not_repeated_more_often_than_can_be_counted() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 13]>
        f (string[1] x, int64[2] shape) => (string[M, N] y) { y = Expand(x, shape) }""")

    with pytest.raises(FeedError, match="the result of broadcast is i32"):
        ag.compile(model)(np.array(["a"], object), ints(2**62, 2**62))


@pytest.mark.parametrize("numerics", ["fast", "strict"])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Clip (d, a)", [1000, 1000, 1000]),
        ("y = Clip (d, , b)", [-1000, -1000, -1000]),
        ("y = Clip (d, b, a)", [-5, -2.5, 122.5]),
        ("y = Pad (d, p, a)", [-5, -2.5, 122.5, 1000]),
        ("y = Pad (d, p, i)", [-5, -2.5, 122.5, -np.inf]),
        ("y = Pad (d, p, s)", [-5, -2.5, 122.5, 0.5]),
        ("e = Pad (d, p, b) q = QuantizeLinear (e, s, z) y = DequantizeLinear (q, s, z)",
         [-5, -2.5, 122.5, -5]),
    ],
)  # fmt: skip
def test_what_no_byte_stands_for_is_no_byte(body: str, expected: Any, numerics: Any) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (uint8[3] x) => (float[n] y) <float s = {{0.5}}, uint8 z = {{10}}, float a = {{1000}},
            float b = {{-1000}}, float i = {{-inf}}, int64[2] p = {{0, 1}}> {{
            d = DequantizeLinear (x, s, z) {body} }}""")
    exe = ag.compile(model, options=ag.Options(numerics=numerics))

    np.testing.assert_array_equal(exe(np.array([0, 5, 255], np.uint8)), expected)


def test_windows_that_do_not_fit_are_refused_though_nobody_computes_them() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 22]>
        g (float[1,1,m] x) => (float[a,b,c] y) {
            p = LpPool <kernel_shape = [5]> (x) y = RandomUniformLike <dtype = 1> (p) }""")
    exe = ag.compile(model)

    assert exe(np.ones((1, 1, 7), np.float32)).shape == (1, 1, 3)
    for m in (0, 1, 4):
        with pytest.raises(AlpenglowError, match="window is 5 wide, expected at most"):
            exe(np.ones((1, 1, m), np.float32))


@pytest.mark.parametrize("mode", ["edge", "reflect", "constant"])
def test_padding_by_what_is_fed_serves_all_amounts(mode: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[1,3,m] x, int64[6] p) => (float[a,b,c] y) {{
            y = Pad <mode = "{mode}"> (x, p) }}""")
    exe = ag.compile(model)
    for m, ends in ((4, (1, 2)), (7, (2, 1)), (7, (0, 0)), (5, (-1, 3))):
        x = np.arange(3 * m, dtype=np.float32).reshape(1, 3, m)
        y = exe(x, np.array([0, 1, ends[0], 0, 0, ends[1]]))
        cut = x[:, :, max(-ends[0], 0) :]
        amounts = [(0, 0), (1, 0), tuple(max(n, 0) for n in ends)]
        np.testing.assert_array_equal(y, np.pad(cut, amounts, mode=mode))  # type: ignore[call-overload]


@pytest.mark.rest
def test_bytes_of_an_open_number_of_channels_are_convolved() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (uint8[2,m,7,1] x, int8[1,m,5,3] w) => (float[a,b,c,d] y)
            <float s = {0.5}, uint8 z = {3}, int8 n = {0}> {
            p = DequantizeLinear (x, s, z) q = DequantizeLinear (w, s, n)
            y = Conv <strides = [4, 2], pads = [4, 2, 4, 2]> (p, q) }""")
    rng = np.random.default_rng(0)
    for target in ("x86-64", "cpu"):
        exe = ag.compile(model, target=target)
        for m in (13, 8, 16, 3):
            x = rng.integers(0, 255, (2, m, 7, 1), np.uint8)
            w = rng.integers(-128, 127, (1, m, 5, 3), np.int8)
            feeds = {"x": x, "w": w}
            expected = ag.compile(model, target="interpreter").run(feeds)["y"]
            np.testing.assert_allclose(exe.run(feeds)["y"], expected, 0, 0.5)


def test_what_is_left_of_two_axes_is_proved_for_all_that_is_cut_off() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[3,3] x, int64[2] first) => (int64[n] i)
            <int64[2] end = {3, 3}, int64[1] all = {-1}> {
            s = Slice (x, first, end) r = Reshape (s, all) u, i = Unique (r) }""")
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    for a, b in ((1, 1), (0, 1), (1, 0)):
        found = ag.compile(model)(x, np.array([a, b]))
        np.testing.assert_array_equal(found, np.arange((3 - a) * (3 - b)))
