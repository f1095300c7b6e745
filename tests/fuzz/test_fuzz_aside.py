"""What fuzzing sets aside: of each kind a model, what it is in f64, and who comes near to that."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx.parser
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from alpenglow.machines import proof
from alpenglow.machines.proof import proved
from fuzz import draws
from fuzz.aside import explained, weighed
from fuzz.judge import judge
from fuzz.oracles import ORACLES, oracle
from fuzz.reference import Reference, loaded
from fuzz.settings import Setting
from onnx_node import single

Array = NDArray[Any]


@dataclass(frozen=True)
class Example:
    """A model, who runs it differently, and what it is in f64: None if ONNX leaves that open.

    What C leaves to the machine (the integer that an infinity or a NaN becomes) differs not
    everywhere: the machine decides then whether the oracle has it right.
    """

    text: str
    feeds: dict[str, Array]
    truth: Array | None
    oracle: str = "onnxruntime"
    opset: int = 21
    everywhere: bool = True


def floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def lrn(x: Array) -> Array:
    wide = x.astype(np.float64)
    padded = np.pad(wide**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    sums = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    return np.asarray(wide / (1 + 0.5 / 3 * sums) ** 0.75)


def softmax(x: Array) -> Array:
    wide = np.exp(x.astype(np.float64).reshape(x.shape[0], -1))
    return np.asarray(wide / wide.sum(1, keepdims=True)).reshape(x.shape)


def last_row_alone(q: Array, k: Array, v: Array) -> Array:
    """Return causal attention of one head: query i meets keys 0 to i, of which there are more."""
    rows = []
    for i in range(q.shape[1]):
        weights = np.exp(k[0, : i + 1].astype(np.float64) @ q[0, i] / math.sqrt(q.shape[2]))
        rows.append(weights @ v[0, : i + 1] / weights.sum())
    return np.array([rows])


def cached(past: Array, key: Array, at: int) -> Array:
    """Return a cache of one head with a key written to it."""
    now = past.copy()
    now[:, :, at : at + 1] = key[:, None]
    return now


EXAMPLES = {
    "tails of a fused sigmoid": Example(
        """g (float[1,1,1,1] x) => (float[1,1,1,1] y) <float[1,1,1,1] w = {30}> {
            s = com.microsoft.FusedConv <activation = "Sigmoid"> (x, w)
            y = Log (s) }""",
        {"x": np.full((1, 1, 1, 1), -1, np.float32)}, np.full((1, 1, 1, 1), -30.0),
    ),
    "infinity is quantized": Example(
        "g (float16[2] x, float16 s, int8 z) => (int8[2] y) { y = QuantizeLinear (x, s, z) }",
        {"x": np.array([1, np.inf], np.float16), "s": np.array(1, np.float16),
         "z": np.array(3, np.int8)}, np.array([4.0, 127.0]), everywhere=False,
    ),
    "the fifth result of BatchNormalization": Example(
        """g (float[2,1,2] x) => (float[1] v)
            <float[1] s = {1}, float[1] b = {0}, float[1] m = {0}, float[1] w = {4}> {
            y, a, c, d, v = BatchNormalization <epsilon = 0.0> (x, s, b, m, w) }""",
        {"x": np.array([[[1, 2]], [[3, 6]]], np.float32)}, np.array([3.5]), opset=9,
    ),
    "NaN is quantized": Example(
        "g (float[2] x) => (uint8[2] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear (x) }",
        {"x": np.array([1, np.nan], np.float32)}, None, everywhere=False,
    ),
    "sums that overflow": Example(
        """g (int64[1] x) => (int64[1] y) <int64 n = {1}> {
            y = Loop <body = turn (int64 i, bool go, int64[1] a) => (bool on, int64[1] b) {
                on = Identity (go) b = ReduceSumSquare (a) }> (n, , x) }""",
        {"x": ints(5**16)}, np.array(5**32 % 2**64), everywhere=False,
    ),
    "squares of huge numbers": Example(
        """g (float[1,2,1,1] x) => (float[1,2,1,1] y) <float[2] s = {1, 1}, float[2] b = {0, 0}> {
            y = com.microsoft.GroupNorm <groups = 1, activation = 0, channels_last = 0> (x, s, b) }
        """,
        {"x": np.array([1e20, -1e20], np.float32).reshape(1, 2, 1, 1)}, None, "nodewise",
    ),
    "exponentials below normal numbers": Example(
        "g (float[2] x) => (bool[2] y) { s = com.microsoft.QuickGelu <alpha = 1.0> (x) "
        "y = Cast <to = 9> (s) }",
        {"x": np.array([1, -90], np.float32)}, None, everywhere=False,
    ),
    "corners of fractional lengths": Example(
        """g (float[9] x) => (float[13] y) <float[1] s = {1.5}> {
            y = Resize <coordinate_transformation_mode = "align_corners", axes = [-1]> (x, , s)
        }""",
        {"x": np.arange(9, dtype=np.float32)},
        np.array([0, 1, 1, 2, 3, 3, 4, 4, 5, 6, 6, 7, 8]),
    ),
    "softplus in a layer": Example(
        """g (float[1,1,1] x) => (float[1,1,1,1] y) <float[1,1,1] w = {1}, float[1,1,1] r = {0}> {
            y = RNN <hidden_size = 1, activations = ["Softplus"]> (x, w, r) }""",
        {"x": np.full((1, 1, 1), 100, np.float32)}, np.full((1, 1, 1, 1), 100),
    ),
    "negative powers of two": Example(
        "g (float16[2] x) => (float8e8m0[2] y) { y = Cast <to = 24, saturate = 0> (x) }",
        {"x": np.array([2, -2], np.float16)}, None, "nodewise", opset=25,
    ),
    "NaN in a maximum": Example(
        'g (float[1,2] x) => (float[1,2] y) { y = ai.onnx.ml.Normalizer <norm = "MAX"> (x) }',
        {"x": np.array([[np.nan, -1]], np.float32)}, np.array([[np.nan, np.nan]]),
    ),
    "the last row of causal attention": Example(
        """g (float[1,2,2] q, float[1,3,2] k, float[1,3,2] v) => (float[1,2,2] y) {
            y = com.microsoft.MultiHeadAttention <num_heads = 1, unidirectional = 1> (q, k, v) }""",
        {"q": floats(1, 2, 2), "k": floats(1, 3, 2), "v": 2 * floats(1, 3, 2)},
        last_row_alone(floats(1, 2, 2), floats(1, 3, 2), 2 * floats(1, 3, 2)),
    ),
    "NaN beside an image": Example(
        """g (float[1,1,2,2] x, float[1,4] r, int64[1] b) => (float[1,1,1,1] y) {
            y = RoiAlign (x, r, b) }""",
        {"x": np.array([[[[np.nan, 1], [2, 3]]]], np.float32),
         "r": np.array([[9, 9, 11, 11]], np.float32), "b": ints(0)}, np.zeros((1, 1, 1, 1)),
    ),
    "labels of two classes": Example(
        """g (float[2,1] x) => (int64[2] y, float[2,2] s) {
            y, s = ai.onnx.ml.TreeEnsembleClassifier <classlabels_int64s = [7, 4],
                nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0],
                nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values = [0.0, 0.0, 0.0],
                nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0],
                class_treeids = [0, 0, 0, 0], class_nodeids = [1, 1, 2, 2],
                class_ids = [0, 1, 0, 1], class_weights = [2.0, 1.0, -2.0, -1.0]> (x) }""",
        {"x": np.array([[-1], [1]], np.float32)}, np.array([7.0, 4.0]),
    ),
    "small logistics": Example(
        """g (float[1,1] x) => (float[1,1] y) {
            p = ai.onnx.ml.LinearRegressor <coefficients = [1.0], post_transform = "LOGISTIC"> (x)
            y = Reciprocal (p) }""",
        {"x": np.array([[-16.2]], np.float32)}, np.array([[1 + np.exp(16.2)]]),
    ),
    "classes without a score": Example(
        """g (float[2,1] x) => (int64[2] y) {
            y, s = ai.onnx.ml.TreeEnsembleClassifier <classlabels_int64s = [7, 4, 5],
                nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0],
                nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values = [0.0, 0.0, 0.0],
                nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0],
                class_treeids = [0, 0, 0], class_nodeids = [1, 2, 2],
                class_ids = [0, 1, 2], class_weights = [-2.0, -1.0, -3.0]> (x) }""",
        {"x": np.array([[-1], [1]], np.float32)}, np.array([4.0, 7.0]),
    ),
    "squares of integers": Example(
        'g (int32[1,3] x) => (float[1,3] y) { y = ai.onnx.ml.Normalizer <norm = "L2"> (x) }',
        {"x": np.array([[2, 0, -(2**31)]], np.int32)}, np.array([[2.0**-30, 0, -1]]),
    ),
    "base values of two classes": Example(
        """g (float[2,1] x) => (float[2,2] s) {
            y, s = ai.onnx.ml.TreeEnsembleClassifier <classlabels_int64s = [0, 1],
                base_values = [0.5, 8.0],
                nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0],
                nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values = [0.0, 0.0, 0.0],
                nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0],
                class_treeids = [0, 0, 0, 0], class_nodeids = [1, 1, 2, 2],
                class_ids = [0, 1, 0, 1], class_weights = [2.0, 1.0, 3.0, 4.0]> (x) }""",
        {"x": np.array([[-1], [1]], np.float32)}, np.array([[2.5, 9.0], [3.5, 12.0]]),
    ),
    "NaN in a GRU": Example(
        """g (float[1,1,1] x) => (float[1,1,1,1] y)
            <float[1,3,1] w = {1, 1, 1}, float[1,3,1] r = {1, 1, 1},
             float[1,6] b = {1, 1, 1, 1, 1, 1}> { y = GRU <hidden_size = 1> (x, w, r, b) }""",
        {"x": np.full((1, 1, 1), np.nan, np.float32)}, np.full((1, 1, 1, 1), np.nan),
    ),
    "NaN that votes": Example(
        """g (float[1,1] x) => (float[1,2] y) {
            c, y = ai.onnx.ml.SVMClassifier <classlabels_ints = [0, 1], kernel_type = "LINEAR",
                kernel_params = [1.0, 0.0, 0.0], vectors_per_class = [1, 1],
                support_vectors = [1.0, 2.0], coefficients = [1.0, -1.0], rho = [0.5],
                prob_a = [1.0], prob_b = [0.0]> (x) }""",
        {"x": np.array([[np.nan]], np.float32)}, np.full((1, 2), np.nan),
    ),
    "NaN among elements that differ": Example(
        "g (double[2] x) => (double[n] y) { y = Unique (x) }",
        {"x": np.array([25.5, np.nan])}, np.array([25.5, np.nan]),
    ),
    "large integers in floats": Example(
        """g (uint64[2] x) => (uint64[2] y) <float[1] s = {1}> { y = Resize (x, , s) }""",
        {"x": np.array([1, 2**64 - 1], np.uint64)}, np.array([1, 2.0**64]), oracle="reference",
    ),
    "crops by scales": Example(
        """g (float[4,4] x, float[4] r, float[2] s) => (float[?,?] y) {
            y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">
                (x, r, s) }""",
        {"x": np.arange(16, dtype=np.float32).reshape(4, 4), "s": np.ones(2, np.float32),
         "r": np.array([0, 0, 0.5, 0.5], np.float32)}, np.array([[0, 1.5], [6, 7.5]]),
    ),
    "rows of no turns": Example(
        """g (int64 n, bool c, float[2] x) => (float[?,?] r) {
            y, r = Loop (n, c, x) <body = b (int64 i, bool go, float[?] h)
                => (bool on, float[?] k, float[?] s) {
                on = Identity (go)
                k = Concat <axis = 0> (h, h)
                s = Identity (k) }> }""",
        {"n": np.array(0), "c": np.array(True), "x": floats(2)}, np.zeros((0, 4)),
    ),
    "caches behind their sequences": Example(
        """g (float[1,1,8] q, float[1,1,3,8] p, int32[1] n, int32 t) => (float[1,1,3,8] k) {
            y, k, v = com.microsoft.GroupQueryAttention <num_heads = 1, kv_num_heads = 1>
                (q, q, q, p, p, n, t) }""",
        {"q": floats(1, 1, 8), "p": floats(1, 1, 3, 8), "n": np.array([1], np.int32),
         "t": np.array(2, np.int32)}, cached(floats(1, 1, 3, 8), floats(1, 1, 8), 1),
    ),
    "zeros of windows": Example(
        """g () => (float[5] y) <int64 n = {5}> {
            w = BlackmanWindow (n)
            y = Log (w) }""",
        {}, None,
    ),
}  # fmt: skip

UNFIT = {
    "erf of integers": Example(
        "g (int8[1] x) => (int8[1] y) { y = Erf (x) }",
        {"x": np.array([5], np.int8)}, np.trunc([math.erf(5.0)]), opset=9,
    ),
    "a place of one element": Example(
        """g (float[4] x) => (float[1] y) <int64[1] n = {1}> {
            y = Resize <mode = "cubic", coordinate_transformation_mode = "pytorch_half_pixel">
                (x, , , n) }""",
        {"x": np.array([1, 2, 4, 8], np.float32)}, np.array([1.0]),
    ),
    "weights of n-grams": Example(
        """g (int64[2] x) => (float[2] y) {
            y = TfIdfVectorizer <mode = "TFIDF", min_gram_length = 1, max_gram_length = 1,
                max_skip_count = 0, ngram_counts = [0], ngram_indexes = [1, 0],
                pool_int64s = [5, 6], weights = [2.0, 3.0]> (x) }""",
        {"x": ints(5, 5)}, np.array([0, 4]), opset=16,
    ),
    "the largest of a line": Example(
        "g (float[1,2,2] x) => (float[1,2,1] y) { y = GlobalMaxPool (x) }",
        {"x": np.array([[[1, 2], [4, 3]]], np.float32)}, np.array([[[2], [4]]]),
    ),
    "a pixel that a coordinate lies on": Example(
        """g (float[33] x) => (float[9] y) <int64[1] n = {9}> {
            y = Resize <nearest_mode = "ceil", coordinate_transformation_mode = "half_pixel">
                (x, , , n) }""",
        {"x": np.arange(33, dtype=np.float32)}, np.array([2, 5, 9, 13, 16, 20, 24, 27, 31]),
    ),
    "a batch with a momentum": Example(
        """g (float[2,1] x) => (float[2,1] y)
            <float[1] s = {1}, float[1] b = {0}, float[1] m = {1}, float[1] w = {1}> {
            y = BatchNormalization <epsilon = 0.0, momentum = 0.5> (x, s, b, m, w) }""",
        {"x": np.array([[1], [3]], np.float32)}, np.array([[0], [2]]), opset=9,
    ),
    "averages of old": Example(
        """g (float[1,1,2] x) => (float[1,1,1] y) {
            y = AveragePool <kernel_shape = [3], strides = [3], pads = [1, 0]> (x) }""",
        {"x": np.array([[[1, 2]]], np.float32)}, np.array([[[1.5]]]), opset=3,
    ),
    "stop words": Example(
        """g (string[3] x) => (int64 y) {
            t = StringNormalizer <stopwords = ["abc"]> (x)
            y = Size (t) }""",
        {"x": np.array(["ABC", "a", "abc"], object)}, np.array(1.0),
    ),
    "windows over the end": Example(
        """g (float[1,1,4] x) => (float[1,1,2] y) {
            y = AveragePool <kernel_shape = [3], strides = [3], ceil_mode = 1> (x) }""",
        {"x": np.array([[[1, 2, 3, 4]]], np.float32)}, np.array([[[2, 4]]]),
    ),
    "loops without a condition": Example(
        """g (int64 n, float x) => (float y) {
            y = Loop (n, , x) <body = b (int64 i, bool go, float h) => (bool on, float k) {
                on = Identity (go)
                k = Add (h, h) }> }""",
        {"n": np.array(3), "x": np.array(1, np.float32)}, np.array(8.0),
    ),
    "loops that give rows": Example(
        """g (int64 n, bool c, float[1,2] x) => (float[?,1,2] r) {
            y, r = Loop (n, c, x) <body = b (int64 i, bool go, float[1,2] h)
                => (bool on, float[1,2] k, float[1,2] s) {
                on = Identity (go)
                k = Add (h, h)
                s = Identity (h) }> }""",
        {"n": np.array(2), "c": np.array(True), "x": np.ones((1, 2), np.float32)},
        np.array([[[1.0, 1.0]], [[2.0, 2.0]]]),
    ),
    "LRN": Example(
        "g (float[1,4,2,1] x) => (float[1,4,2,1] y) { y = LRN <size = 3, alpha = 0.5> (x) }",
        {"x": floats(1, 4, 2, 1)}, lrn(floats(1, 4, 2, 1)),
    ),
    "Softmax of old": Example(
        "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax <axis = 1> (x) }",
        {"x": floats(2, 3, 4)}, softmax(floats(2, 3, 4)), opset=11,
    ),
}  # fmt: skip
"""What the reference evaluator of onnx has not right."""


WRITTEN = {
    "zero points of groups": Example(
        """g (float[1,2] x) => (float[1,1] y)
            <uint8[1,1,8] w = {83, 0, 0, 0, 0, 0, 0, 0}, float[1] s = {0.5}, uint8[1,1] z = {1},
             int32[2] i = {0, 0}> {
            y = com.microsoft.MatMulNBits <K = 2, N = 1, block_size = 16> (x, w, s, z, i) }""",
        {"x": np.array([[1, 2]], np.float32)}, np.array([[(3 - 1) * 0.5 + 2 * (5 - 1) * 0.5]]),
    ),
    "means of integers that overflow": Example(
        "g (uint32[3] x) => (uint32[1] y) { y = ReduceMean (x) }",
        {"x": np.array([2**32 - 1, 2**32 - 1, 3], np.uint32)}, np.array([2863311531]),
        oracle="reference",
    ),
    "sums that overflow": Example(
        "g (int32[2] x) => (int32 y) { y = ReduceSumSquare <keepdims = 0> (x) }",
        {"x": np.array([1 << 16, 3], np.int32)}, np.array(9.0),
    ),
    "halves without a deviation": Example(
        "g (float16[1,4] x) => (float16[1,4] y) { y = MeanVarianceNormalization <axes = [0]> (x) }",
        {"x": np.array([[1, 2, 0, -2]], np.float16)}, np.zeros((1, 4)),
    ),
    "a group of alike numbers": Example(
        """g (float[1,1,7] x, float[1] s, float[1] b) => (float[1,1,7] y) {
            y = GroupNormalization <num_groups = 1, epsilon = 0.00001> (x, s, b) }""",
        {"x": np.full((1, 1, 7), 33.3, np.float32), "s": np.array([1e-3], np.float32),
         "b": np.array([0.5], np.float32)}, np.full((1, 1, 7), 0.5),
    ),
    "an instance of one element": Example(
        """g (float[1,1,1] x, float[1] s, float[1] b) => (float[1,1,1] y) {
            y = InstanceNormalization (x, s, b) }""",
        {"x": np.full((1, 1, 1), 316.0, np.float32), "s": np.array([0.64], np.float32),
         "b": np.array([0.1049], np.float32)}, np.full((1, 1, 1), 0.1049),
    ),
}  # fmt: skip
"""What ONNX Runtime has not right, or the reference evaluator, and `written` has."""


def parsed(example: Example) -> bytes:
    domains = f'"" : {example.opset}, "com.microsoft" : 1, "ai.onnx.ml" : 3'
    header = f"<ir_version: 8, opset_import: [{domains}]>\n"
    return bytes(onnx.parser.parse_model(header + example.text).SerializeToString())


def told(example: Example) -> tuple[Reference, str, str]:
    """Return the reference, and how the oracle's results compare with it."""
    model = parsed(example)
    reference = Reference(loaded(model, example.feeds), example.feeds)
    who = oracle(example.oracle, model)
    results = None if who is None else who.run(example.feeds)
    assert results is not None, f"{example.oracle} declines"
    return reference, *weighed(model, reference, results, example.oracle)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_set_aside_is_right_in_f64(name: str) -> None:
    example = EXAMPLES[name]
    with np.errstate(all="ignore"):
        reference, how, problem = told(example)
    y = next(iter(reference.expected.values()))

    assert problem == ""
    assert how == name or (how == "same" and not example.everywhere)
    if example.truth is not None:
        np.testing.assert_allclose(y.astype(np.float64), example.truth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", UNFIT)
def test_nobody_is_asked_what_he_has_not_right(name: str) -> None:
    example = UNFIT[name]
    model = parsed(example)
    (y,) = Reference(loaded(model, example.feeds), example.feeds).expected.values()
    (theirs,) = ReferenceEvaluator(onnx.load_model_from_string(model)).run(None, example.feeds)
    assert example.truth is not None

    assert oracle("reference", model) is None
    np.testing.assert_allclose(y.astype(np.float64), example.truth, rtol=1e-5, atol=1e-6)
    other = np.asarray(theirs, np.float64)
    alike = (np.asarray(theirs).dtype, other.shape) == (y.dtype, example.truth.shape)
    assert not (alike and np.allclose(other, example.truth, rtol=1e-5, atol=1e-6))


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_down_outvotes_others(name: str) -> None:
    example = WRITTEN[name]
    _, how, _ = told(example)
    reference, word, problem = told(replace(example, oracle="nodewise"))
    (y,) = reference.expected.values()
    assert example.truth is not None

    assert how != "same" and (word, problem) == ("same", "")
    np.testing.assert_allclose(y.astype(np.float64), example.truth, rtol=1e-5, atol=1e-6)


def test_labels_of_two_classes_are_those_of_the_larger_scores() -> None:
    example = EXAMPLES["labels of two classes"]
    assert told(replace(example, oracle="nodewise"))[1:] == ("same", "")


def test_what_is_less_than_normal_may_be_lost_between_transforms() -> None:
    x = (1e-42 * floats(1, 48, 14, 14)).astype(np.float32)
    w = np.round(floats(48, 48, 3, 3))
    model = single("Conv", [x, w], 17, constants=[1], pads=[1] * 4)
    fast, strict = Setting.parse("cpu fast"), Setting.parse("cpu strict")
    verdict = judge(
        model.SerializeToString(), [{"x0": x.astype(np.float32)}], [fast, strict], ("onnxruntime",)
    )

    assert not verdict.problems
    assert verdict.ran == {str(fast): "subnormal", str(strict): "same"}


def test_noise_leaves_whole_exponents_alone() -> None:
    model = parsed(Example("""g (float[3] x) => (float[3] y) <float three = {3}> {
        y = Pow (x, three) }""", {}, None))  # fmt: skip
    feeds = {"x": np.array([-2, -1, 3], np.float32)}
    slack = Reference(loaded(model, feeds), feeds).slack(6)["y"]

    assert (slack > 0).all() and (slack < 1e-4).all()


def test_halves_are_rounded_before_they_are_moved() -> None:
    model = parsed(Example("g (float[2,3] x) => (float[3,2] y) { y = Transpose (x) }", {}, None))
    feeds = {"x": floats(2, 3)}
    reference = Reference(loaded(model, feeds), feeds)

    assert not reference.slack(6)["y"].any()
    assert (reference.slack(6, "f16")["y"] > 0).all()


HALVES = """g (float16[1,4] x) => (float16[1,4] y) <float16 e = {11878}, float16 two = {16384}> {
    m = ReduceMean <axes = [1]> (x)
    c = Sub (x, m)
    s = Pow (c, two)
    v = ReduceMean <axes = [1]> (s)
    w = Add (v, e)
    d = Sqrt (w)
    y = Div (c, d) }"""


def test_squares_of_halves_overflow_as_written_but_under_fast() -> None:
    feeds = {"x": np.array([[500, -500, 100, -100]], np.float16)}
    model = parsed(Example(HALVES, feeds, None, opset=17))
    reference = Reference(loaded(model, feeds), feeds)
    fast, strict = Setting.parse("cpu fast"), Setting.parse("cpu strict")
    verdict = judge(model, [feeds], [fast, strict], ("nodewise",))

    assert not reference.expected["y"].any()
    np.testing.assert_allclose(reference.widely()["y"][0, 0], 500 / math.sqrt(130000), rtol=1e-2)
    assert not verdict.problems
    assert verdict.ran == {str(fast): "overflow of halves", str(strict): "same"}


@np.errstate(all="ignore")
def test_the_order_of_sums_decides_which_overflow() -> None:
    """One of the orders gives infinity, which the noise of the reference does not show."""
    x = np.array([[3e38, -3e38, 3e38, -3e38] * 8], np.float32)
    w = np.full((32, 1), 1, np.float32)
    model = single("MatMul", [x, w], 13, constants=[1])
    reference = Reference(loaded(model.SerializeToString(), {"x0": x}), {"x0": x})
    (name,) = reference.expected
    nothing = np.zeros((1, 1))

    assert "huge" in reference.traits()
    kind = explained(reference, name, np.full((1, 1), np.inf), nothing, Setting.parse("cpu strict"))
    assert kind == "overflow of sums"


def test_zeros_beside_groups_may_meet_what_is_no_number() -> None:
    feeds = {"x": np.array([np.nan, 1, 2, 3], np.float32).reshape(1, 4, 1, 1)}
    text = """g (float[1,4,1,1] x) => (float[1,4,1,1] y) <float[4,1,1,1] w = {1, 2, 3, 4}> {
        y = Conv <group = 4> (x, w) }"""
    model = parsed(Example(text, {}, None))
    reference, nothing = Reference(loaded(model, feeds), feeds), np.zeros((1, 4, 1, 1))
    all_nan, wrong = np.full((2, 1, 4, 1, 1), np.nan, np.float32)
    wrong[0, 1] = 7
    fast, strict = Setting.parse("cpu fast"), Setting.parse("cpu strict")
    found = [explained(reference, "y", y, nothing, how)
             for y, how in ((all_nan, fast), (all_nan, strict), (wrong, fast))]  # fmt: skip

    assert found == ["0 times NaN", "", ""]


@np.errstate(all="ignore")
def test_a_product_that_underflows_keeps_its_sign_under_fast() -> None:
    """As a fused multiply-add, it is added to 0 before it becomes 0."""
    feeds = {"x": np.array([[1e-30]], np.float32), "z": np.zeros((1, 1), np.float32)}
    model = parsed(Example("""g (float[1,1] x, float[1,1] z) => (float[1,1] y) {
        n = Neg (x) p = Mul (n, x) s = Add (p, z) y = Reciprocal (s) }""", {}, None))  # fmt: skip
    reference, nothing = Reference(loaded(model, feeds), feeds), np.zeros((1, 1))
    infinity = np.full((1, 1), -np.inf, np.float32)
    found = [explained(reference, "y", infinity, nothing, Setting.parse(f"cpu {numerics}"))
             for numerics in ("fast", "strict")]  # fmt: skip

    assert reference.expected["y"] == np.inf
    assert found == ["sign of zero", ""]


def test_a_contradiction_of_no_kind_is_a_finding() -> None:
    """The reference is that of another model: of one with the opposite result."""
    feeds = {"x": floats(3)}
    model, other = (
        parsed(Example(f"g (float[3] x) => (float[3] y) {{ {text} }}", feeds, None))
        for text in ("y = Abs (x)", "z = Abs (x) y = Neg (z)")
    )
    who = oracle("onnxruntime", model)
    results = None if who is None else who.run(feeds)
    assert results is not None
    how, problem = weighed(model, Reference(loaded(other, feeds), feeds), results, "onnxruntime")

    assert how == "contradicted" and problem.startswith("output 'y': 3 of 3 elements")
    assert judge(model, [feeds], [], ("onnxruntime",)).confirmed


def test_what_would_not_run_for_want_of_a_proof_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proof, "proved", lambda kernel, instr: [
        replace(a, proved=False) for a in proved(kernel, instr)])  # fmt: skip
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")
    feeds = {"x": floats(3)}
    model = parsed(Example("g (float[3] x) => (float[3] y) { y = Abs (x) }", feeds, None))
    setting = Setting.parse("x86-64-v3 strict")
    (problem,) = judge(model, [feeds], [setting], ()).problems

    assert problem.what.startswith("ProofWarning") and "abs on f32[3]" in problem.message


# ── what is drawn ──


def drawn(text: str, feeds: dict[str, Array]) -> tuple[bytes, Reference]:
    model = parsed(Example(text, feeds, None))
    return model, Reference(loaded(model, feeds), feeds)


def test_what_is_made_of_draws_is_compared() -> None:
    text = """g (float[5] x) => (float[5] y) {
        r = RandomUniform <shape = [5], seed = 1.0> ()
        y = Add (r, x) }"""
    model, reference = drawn(text, {"x": floats(5)})
    parted = draws.parted(onnx.load_model_from_string(model), reference)
    assert parted is not None and parted.rest is not None

    assert [n.op_type for n in parted.rest.nodes] == ["Add"]
    assert judge(model, [{"x": floats(5)}], [], ORACLES).oracles == {"onnxruntime": "same"}


@pytest.mark.parametrize(
    ("drawn_as", "name"),
    [
        ("RandomUniform <shape = [99], low = -1.0, seed = 1.0> ()", "low"),
        ("RandomNormal <shape = [99], mean = 2.0, seed = 1.0> ()", "mean"),
        ("RandomNormal <shape = [99], scale = 9.0, seed = 1.0> ()", "scale"),
    ],
)
def test_a_wrong_distribution_is_noticed(drawn_as: str, name: str) -> None:
    """What is drawn with an attribute is not what there would be without it."""
    model, reference = drawn(f"g () => (float[99] y) {{ y = {drawn_as} }}", {})
    plain = onnx.load_model_from_string(model)
    kept = [a for a in plain.graph.node[0].attribute if a.name != name]
    values = reference.expected
    draws.CHECKS[plain.graph.node[0].op_type](plain.graph.node[0], values)
    del plain.graph.node[0].attribute[:]
    plain.graph.node[0].attribute.extend(kept)

    with pytest.raises(draws.Odd):
        draws.CHECKS[plain.graph.node[0].op_type](plain.graph.node[0], values)
