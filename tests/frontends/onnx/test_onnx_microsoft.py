"""Operators of com.microsoft, beside ONNX Runtime, which defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onnx_domains import assert_close, both, check_open, one_node, runtime
from onnx_domains import check as check_domain
from peer_bytes import spared

Array = NDArray[Any]
MS = "com.microsoft"


def check(op_type: str, *inputs: Array | None, **given: Any) -> list[Array]:
    return check_domain(MS, op_type, *inputs, **given)


def rand(*shape: int, seed: int = 0, dtype: type = np.float32) -> Array:
    return np.random.default_rng([seed, *shape]).normal(0, 1, shape).astype(dtype)


def whole(*shape: int, seed: int = 0, dtype: type = np.uint8) -> Array:
    info = np.iinfo(dtype)
    random = np.random.default_rng([seed, *shape])
    return random.integers(info.min, info.max + 1, shape).astype(dtype)


def scale(value: float) -> Array:
    return np.array(value, np.float32)


def zero(value: int, dtype: type = np.uint8) -> Array:
    return np.array(value, dtype)


# ── products ──


@pytest.mark.parametrize("across", [0, 1])
@pytest.mark.parametrize("turn", [0, 1])
def test_fused_mat_mul(turn: int, across: int) -> None:
    y = rand(2, 3, 7, 5) if not turn else rand(2, 3, 5, 7)
    check("FusedMatMul", rand(2, 3, 4, 7), y, transB=turn, alpha=0.5)
    x = rand(4, 2, 3, 7) if across else rand(2, 3, 4, 7)
    check("FusedMatMul", x, y, transB=turn, transBatchA=across)
    x = rand(7, 2, 3, 4) if across else rand(2, 3, 7, 4)
    check("FusedMatMul", x, y, transA=1, transB=turn, transBatchA=across)


def test_transpose_mat_mul() -> None:
    check("TransposeMatMul", rand(7, 4), rand(7, 5), transA=1, alpha=2.0)


ACTIVATIONS: list[dict[str, Any]] = [
    {"activation": "Relu"},
    {"activation": "Tanh"},
    {"activation": "Sigmoid"},
    {"activation": "LeakyRelu", "activation_alpha": 0.3},
]


@pytest.mark.parametrize("given", ACTIVATIONS, ids=lambda g: g["activation"])
def test_fused_gemm(given: dict[str, Any]) -> None:
    check("FusedGemm", rand(4, 7), rand(5, 7), rand(5), transB=1, alpha=0.5, beta=2.0, **given)


@pytest.mark.parametrize(
    "given",
    [
        {"activation": "Relu"},
        {"activation": "Tanh"},
        {"activation": "LeakyRelu", "activation_params": [0.3]},
        {"activation": "Clip", "activation_params": [-0.5, 0.75]},
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
    ],
    ids=lambda g: g["activation"],
)
@pytest.mark.sampled(3)
def test_fused_conv(given: dict[str, Any]) -> None:
    x, w = rand(1, 4, 6, 7), rand(5, 4, 3, 3) / 4
    check("FusedConv", x, w, rand(5), pads=[1, 1, 1, 1], **given)
    check("FusedConv", x, w, rand(5), rand(1, 5, 6, 7), pads=[1, 1, 1, 1], **given)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_c_dist(metric: str) -> None:
    check("CDist", rand(4, 7), rand(5, 7), metric=metric, rtol=1e-4)


def test_inverse() -> None:
    x = rand(2, 5, 5) + 4 * np.eye(5, dtype=np.float32)
    check("Inverse", x, rtol=1e-4)
    check("Inverse", np.array([[0, 2], [3, 4]], np.float64))


# ── movement ──


def test_movement() -> None:
    x = rand(3, 4)
    check("Trilu", x, np.array(1), constants=[1])
    check("ExpandDims", x, np.array(-1, np.int32), constants=[1])
    check("GatherND", x, np.array([[0, 1], [2, 3]]))
    pads = np.array([1, 0, 0, 2])
    check("Pad", x, pads, np.array([0.5], np.float32), constants=[1, 2])
    check("Pad", x, pads, constants=[1], mode="reflect")


def test_channels_on_the_last_axis() -> None:
    check("NhwcMaxPool", whole(1, 6, 7, 3), kernel_shape=[3, 3], strides=[2, 2],
          pads=[1, 1, 1, 1])  # fmt: skip
    x, w = rand(1, 6, 7, 4), rand(5, 4, 3, 3)
    model = one_node(MS, "NhwcConv", [x, w, rand(5)], 1, pads=[1, 1, 1, 1])
    plain = one_node("", "Conv", [x.transpose(0, 3, 1, 2), w, rand(5)], 1, pads=[1, 1, 1, 1])
    expected = both(plain, {"x0": x.transpose(0, 3, 1, 2), "x1": w, "x2": rand(5)})[0]
    for actual in both(model, {"x0": x, "x1": w, "x2": rand(5)}):
        assert_close([y.transpose(0, 2, 3, 1) for y in expected], actual, 1e-4, 1e-4)


def test_conv_transpose_with_dynamic_pads() -> None:
    check("ConvTransposeWithDynamicPads", rand(1, 4, 6, 5), rand(4, 3, 3, 3),
          np.array([1, 0, 1, 1]), rand(3), constants=[2], strides=[2, 2], atol=1e-4)  # fmt: skip


def test_crop_and_resize() -> None:
    rois = np.array([[0.1, 0.2, 0.8, 0.9], [-0.2, 0, 0.5, 1.3], [0, 0, 1, 1]], np.float32)
    batch, size = np.array([1, 0, 1], np.int32), np.array([4, 3], np.int32)
    check("CropAndResize", rand(2, 3, 6, 7), rois, batch, size, constants=[3], rtol=1e-4,
          atol=1e-4, extrapolation_value=9.0)  # fmt: skip
    check("CropAndResize", rand(2, 3, 6, 7), rois, batch, np.array([1, 2], np.int32),
          constants=[3], rtol=1e-4, atol=1e-4)  # fmt: skip


# ── normalisation ──


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_skip_layer_normalization(dtype: type) -> None:
    x, skip, gamma, beta, bias = (rand(*s, dtype=dtype, seed=i) for i, s in enumerate(
        [(2, 3, 8), (2, 3, 8), (8,), (8,), (8,)]))  # fmt: skip
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype is np.float32 else {"rtol": 1e-2, "atol": 1e-2}
    check("SkipLayerNormalization", x, skip, gamma, beta, bias, **near)
    check("SkipLayerNormalization", x, skip[:1], gamma, outputs=["y", "", "", "sum"], **near)
    check("SkipLayerNormalization", x, skip[0], gamma, beta, epsilon=0.1, **near)
    check("SkipSimplifiedLayerNormalization", x, skip, gamma, outputs=["y", "", "", "sum"], **near)
    check("SkipSimplifiedLayerNormalization", x, skip, gamma, bias, **near)


def test_simplified_layer_normalization() -> None:
    check_domain("", "SimplifiedLayerNormalization", rand(2, 3, 8), rand(8), epsilon=1e-6)
    check_domain("", "SimplifiedLayerNormalization", rand(2, 3, 8), rand(8), outputs=2, axis=2)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("segmented", [False, True])
def test_embed_layer_normalization(segmented: bool, masked: bool) -> None:
    ids = np.array([[1, 4, 2], [0, 5, 5]], np.int32)
    segments = np.array([[0, 0, 1], [1, 0, 1]], np.int32) if segmented else None
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32) if masked else None
    check("EmbedLayerNormalization", ids, segments, rand(6, 8), rand(5, 8),
          rand(2, 8) if segmented else None, rand(8), rand(8, seed=1), mask,
          outputs=["y", "index", "sum"], rtol=1e-4)  # fmt: skip


def test_embed_layer_normalization_with_positions() -> None:
    ids, places = np.array([[1, 4, 2]], np.int32), np.array([[3, 1, 0]], np.int32)
    check("EmbedLayerNormalization", ids, None, rand(6, 8), rand(5, 8), None, rand(8),
          rand(8, seed=1), None, places, outputs=2, rtol=1e-4)  # fmt: skip


def test_group_norm_is_the_one_of_onnx_with_channels_last() -> None:
    x, gamma, beta = rand(2, 5, 6, 8), rand(8), rand(8, seed=1)
    nchw = x.transpose(0, 3, 1, 2)
    feeds = {"x0": x, "x1": gamma, "x2": beta}
    plain = one_node("", "GroupNormalization", [nchw, gamma, beta], 1, num_groups=4)
    (normal,) = both(plain, {**feeds, "x0": nchw})[0]
    normal = normal.transpose(0, 2, 3, 1)
    swish = normal / (1 + np.exp(-normal))
    for activation, wanted in ((0, normal), (1, swish)):
        model = one_node(MS, "GroupNorm", [x, gamma, beta], 1, groups=4, activation=activation)
        for actual in both(model, feeds):
            assert_close([wanted], actual, 1e-4, 1e-4)
    skip, bias = rand(2, 8), rand(8, seed=3)
    total = x + skip[:, None, None] + bias
    model = one_node(MS, "SkipGroupNorm", [total, gamma, beta, 0 * skip], 2, groups=4, activation=0)
    expected = both(model, {"x0": total, "x1": gamma, "x2": beta, "x3": 0 * skip})[0]
    model = one_node(MS, "SkipGroupNorm", [x, gamma, beta, skip, bias], 2, groups=4, activation=0)
    for actual in both(model, {"x0": x, "x1": gamma, "x2": beta, "x3": skip, "x4": bias}):
        assert_close(expected, actual, 1e-4, 1e-4)


def test_biases() -> None:
    x, bias = rand(2, 3, 4, 8), rand(2, 1, 1, 8)
    for axis, rows in ((3, (2, 3, 4, 8)), (2, (2, 3, 32))):
        model = one_node(MS, "BiasSoftmax", [x, bias], 1, axis=axis, is_inner_broadcast=1)
        e = np.exp(x + bias).reshape(rows)
        wanted = (e / e.sum(axis=-1, keepdims=True)).reshape(x.shape)
        for actual in both(model, {"x0": x, "x1": bias}):
            assert_close([wanted], actual, 1e-5, 1e-6)
    check("BiasGelu", rand(2, 8), rand(8))
    given = [rand(2, 8), rand(8), rand(2, 8, seed=1)]
    model = one_node(MS, "BiasDropout", given, 2)
    for actual in both(model, {f"x{i}": x for i, x in enumerate(given)}):
        assert_close([given[0] + given[1] + given[2], np.ones((2, 8), np.bool_)], actual, 0, 0)


# ── attention ──


def close(op_type: str, *inputs: Array | None, **given: Any) -> None:
    check(op_type, *inputs, rtol=1e-4, atol=1e-4, **given)


MASKS: dict[str, Array | None] = {
    "none": None,
    "lengths": np.array([4, 2], np.int32),
    "spans": np.array([4, 3, 0, 1], np.int32),
    "keys": np.array([[1, 1, 1, 0], [0, 1, 1, 1]], np.int32),
    "pairs": np.tril(np.ones((2, 4, 4), np.int32)),
}


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.sampled(5)
def test_attention(mask: str, causal: int) -> None:
    close("Attention", rand(2, 4, 6), rand(6, 24), rand(24), MASKS[mask], num_heads=2,
          unidirectional=causal)  # fmt: skip


def test_attention_with_a_past_and_a_bias() -> None:
    past = rand(2, 2, 2, 3, 4)
    close("Attention", rand(2, 4, 6), rand(6, 24), rand(24), None, past, outputs=2, num_heads=2,
          unidirectional=1)  # fmt: skip
    close("Attention", rand(2, 4, 6), rand(6, 24), rand(24), None, None, rand(2, 2, 4, 4),
          num_heads=2, scale=0.3)  # fmt: skip
    close("Attention", rand(2, 4, 6), rand(6, 22), rand(22), num_heads=2,
          qkv_hidden_sizes=[8, 8, 6])  # fmt: skip
    mask = np.ones((2, 7), np.int32)
    mask[0, :2] = 0
    close("Attention", rand(2, 4, 6), rand(6, 24), rand(24), mask, past, outputs=2, num_heads=2)


def test_q_attention() -> None:
    x, w = whole(2, 4, 6), spared(whole(6, 24, dtype=np.int8))
    check("QAttention", x, w, rand(24), scale(0.01), scale(0.02), None, zero(128), zero(3, np.int8),
          num_heads=2, rtol=1e-3, atol=1e-3)  # fmt: skip


def test_multi_head_attention() -> None:
    q, k, v = rand(2, 4, 8), rand(2, 5, 8, seed=1), rand(2, 5, 6, seed=2)
    close("MultiHeadAttention", q, k, v, num_heads=2)
    close("MultiHeadAttention", q, k, v, rand(22), num_heads=2, scale=0.3)
    close("MultiHeadAttention", q, rand(2, 2, 5, 4), rand(2, 2, 5, 4, seed=1), num_heads=2)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    close("MultiHeadAttention", q, k, v, None, mask, num_heads=2)
    close("MultiHeadAttention", q, k, v, None, None, rand(1, 2, 4, 5), num_heads=2)


def test_multi_head_attention_takes_packed_projections() -> None:
    q, k, v = (rand(2, 4, 8, seed=i) for i in range(3))
    plain = {"x0": q, "x1": k, "x2": v}
    expected = both(one_node(MS, "MultiHeadAttention", [q, k, v], 1, num_heads=2), plain)[0]
    every = np.stack([x.reshape(2, 4, 2, 4) for x in (q, k, v)], axis=3)
    for packed in ([every], [q, every[:, :, :, 1:]]):
        model = one_node(MS, "MultiHeadAttention", packed, 1, num_heads=2)
        for actual in both(model, {f"x{i}": x for i, x in enumerate(packed)}):
            assert_close(expected, actual, 1e-5, 1e-5)


def test_multi_head_attention_with_a_past() -> None:
    q, k, v = (rand(2, 4, 8, seed=i) for i in range(3))
    past = [rand(2, 2, 3, 4, seed=i) for i in range(2)]
    for causal in (0, 1):
        close("MultiHeadAttention", q, k, v, None, None, None, *past, outputs=3, num_heads=2,
              unidirectional=causal)  # fmt: skip


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "scale": {"scale": 0.25},
    "cap": {"softcap": 2.0},
    "window": {"local_window_size": 3},
    "smooth": {"smooth_softmax": 1},
}


def grouped(
    case: str, batch: int, rows: int, before: int, room: int, rotary: bool = False,
    packed: bool = False, ends: list[int] | None = None,
) -> None:  # fmt: skip
    """Compare a step of `rows` queries after `before` keys, in a cache with room for some."""
    heads, groups, size = 4, 2, 16
    q, k, v = (rand(batch, rows, n * size, seed=i) for i, n in enumerate((heads, groups, groups)))
    past = [rand(batch, groups, room, size, seed=i) if room else None for i in range(2)]
    total = rows + before
    lengths = np.array(ends or [total - 1] * batch, np.int32)
    for cache in past:
        for sample, end in enumerate(lengths):
            if cache is not None:  # what stands behind the keys that are there is of no matter
                cache[sample, :, max(end + 1 - rows, 0) :] = 0
    caches = [rand(32, size // 2, seed=i) for i in range(2)] if rotary else [None, None]
    operands = [np.concatenate([q, k, v], axis=2), None, None] if packed else [q, k, v]
    close("GroupQueryAttention", *operands, *past, lengths, np.array(total, np.int32), *caches,
          constants=[6], outputs=3, num_heads=heads, kv_num_heads=groups,
          do_rotary=int(rotary), **CASES[case])  # fmt: skip


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.sampled(2)
def test_group_query_attention(case: str, rotary: bool) -> None:
    grouped(case, 2, 5, 0, 0, rotary)
    grouped(case, 2, 1, 6, 6, rotary)
    grouped(case, 2, 1, 6, 9, rotary)


def test_group_query_attention_in_other_forms() -> None:
    grouped("plain", 2, 5, 0, 0, packed=True)
    grouped("plain", 2, 1, 4, 8, True, True)
    grouped("plain", 2, 1, 6, 9, True, ends=[6, 3])
    grouped("plain", 1, 3, 4, 9, True)
    grouped("plain", 2, 5, 0, 8)


def test_group_query_attention_with_sinks_and_norms() -> None:
    q, k, v = (rand(2, 5, n * 16, seed=i) for i, n in enumerate((4, 2, 2)))
    ends, total = np.array([4, 4], np.int32), np.array(5, np.int32)
    given = [q, k, v, None, None, ends, total, None, None, None]
    close("GroupQueryAttention", *given, None, rand(4), constants=[6], outputs=3, num_heads=4,
          kv_num_heads=2)  # fmt: skip
    close("GroupQueryAttention", *given, rand(2, 1, 5, 5), constants=[6], outputs=3, num_heads=4,
          kv_num_heads=2)  # fmt: skip
    bias = rand(1, 4, 5, 5)
    close("GroupQueryAttention", *given, bias, rand(4), constants=[6], outputs=3, num_heads=4,
          kv_num_heads=2, local_window_size=2)  # fmt: skip


@pytest.mark.parametrize(("rows", "before", "room"), [(1, 6, 6), (1, 6, 9), (5, 0, 9)])
@pytest.mark.sampled(1)
def test_group_query_attention_of_open_extents(rows: int, before: int, room: int) -> None:
    q, k, v = (rand(2, rows, n * 16, seed=i) for i, n in enumerate((4, 2, 2)))
    past = [rand(2, 2, room, 16, seed=i) for i in range(2)]
    for cache in past:
        cache[:, :, before:] = 0
    total = rows + before
    ends = np.full(2, total - 1, np.int32)
    given = [q, k, v, *past, ends, np.array(total, np.int32), rand(32, 8), rand(32, 8, seed=1)]
    fixed = (6, 7, 8)
    model = one_node(MS, "GroupQueryAttention", given, 3, fixed, num_heads=4, kv_num_heads=2,
                     do_rotary=1)  # fmt: skip
    feeds = {f"x{i}": x for i, x in enumerate(given) if i not in fixed}
    step, cached = {0: "B", 1: "S"}, {0: "B", 2: "P"}
    axes = {f"x{i}": step for i in range(3)} | {"x3": cached, "x4": cached, "x5": {0: "B"}}
    check_open(model, feeds, axes)


def test_attention_of_open_extents() -> None:
    past, mask = rand(2, 2, 2, 3, 4), np.ones((2, 7), np.int32)
    mask[0, :2] = 0
    model = one_node(MS, "Attention", [rand(2, 4, 6), rand(6, 24), rand(24), mask, past], 2,
                     (1, 2), num_heads=2, unidirectional=1)  # fmt: skip
    axes = {"x0": {0: "B", 1: "S"}, "x3": {0: "B", 1: "T"}, "x4": {1: "B", 3: "P"}}
    check_open(model, {"x0": rand(2, 4, 6), "x3": mask, "x4": past}, axes)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    caches = [rand(16, 4, seed=i) for i in range(2)]
    for x in (rand(2, 5, 24), rand(2, 3, 5, 8)):
        check("RotaryEmbedding", x, np.array([3]), *caches, interleaved=interleaved)
        places = np.array([[0, 1, 2, 3, 4], [4, 9, 2, 1, 0]])
        check("RotaryEmbedding", x, places, *caches, interleaved=interleaved)
    check("RotaryEmbedding", rand(2, 5, 36), np.array([0]), *caches, num_heads=3,
          rotary_embedding_dim=8, interleaved=interleaved)  # fmt: skip


# ── quantized ──


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_mat_mul_integer_to_float(dtype: type) -> None:
    x, y = whole(2, 4, 7, dtype=dtype), spared(whole(7, 5, dtype=np.int8))
    columns = np.abs(rand(5)) / 50
    check("MatMulIntegerToFloat", x, y, scale(0.02), columns, zero(7, dtype),
          whole(5, dtype=np.int8), rand(5), rtol=1e-4, atol=1e-4)  # fmt: skip
    check("MatMulIntegerToFloat", x, y, scale(0.02), scale(0.01), rtol=1e-4, atol=1e-4)


def test_dynamic_quantize_mat_mul() -> None:
    y, columns = spared(whole(7, 5, dtype=np.int8)), np.abs(rand(5)) / 50
    for weights in ([y, columns, whole(5, dtype=np.int8), rand(5)], [y, scale(0.01)]):
        check("DynamicQuantizeMatMul", rand(2, 4, 7), *weights, rtol=1e-4, atol=1e-4)


def test_q_gemm() -> None:
    x, y, bias = (
        whole(4, 7),
        spared(whole(5, 7, dtype=np.int8)),
        whole(5, dtype=np.int16).astype(np.int32),
    )
    given = [x, scale(0.02), zero(100), y, scale(0.01), zero(3, np.int8), bias]
    check("QGemm", *given, transB=1, alpha=0.5, rtol=1e-4, atol=1e-4)
    check("QGemm", *given, scale(0.2), zero(128), transB=1, steps=1)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("columns", [32, 40])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.sampled(5)
def test_mat_mul_n_bits(bits: int, zeros: str, columns: int, level: int) -> None:
    rows, block = 6, 16
    count = -(-columns // block)
    packed = whole(rows, count, block * bits // 8)
    scales = np.abs(rand(rows * count)) / 8
    shift: Array | None = None
    if zeros == "packed":
        shift = whole(rows * -(-count * bits // 8))
    elif zeros == "floats":
        shift = np.abs(rand(rows * count, seed=1)) * 8
    if zeros == "floats" and bits == 8:
        return
    for constants in ([], [1, 2, 3]):
        check("MatMulNBits", rand(2, 3, columns), packed, scales, shift, constants=constants,
              K=columns, N=rows, bits=bits, block_size=block, accuracy_level=level, rtol=1e-4,
              atol=1e-3)  # fmt: skip


@pytest.mark.parametrize(("level", "rounds"), [(0, False), (3, False), (4, True)])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_is_no_less_exact_than_its_accuracy_level_allows(
    bits: int, level: int, rounds: bool
) -> None:
    inner, columns, block = 300, 40, 32
    rng, count = np.random.default_rng(0), -(-inner // block)
    packed = rng.integers(0, 256, (columns, count, block * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.02, (columns, count)).astype(np.float32)
    x = rng.standard_normal((20, inner)).astype(np.float32)
    model = one_node(MS, "MatMulNBits", [x, packed, scales], 1, constants=[1, 2], K=inner,
                     N=columns, bits=bits, block_size=block, accuracy_level=level)  # fmt: skip
    steps = np.stack([packed & 15, packed >> 4], -1) if bits == 4 else packed
    centred = steps.reshape(columns, count, block).astype(np.float64) - (1 << (bits - 1))
    w = (centred * scales[..., None]).reshape(columns, -1)[:, :inner]
    exact = x.astype(np.float64) @ w.T
    (wanted,) = runtime(model, {"x0": x})
    _, (actual,) = both(model, {"x0": x})
    errors = [float(np.sqrt(((y - exact) ** 2).mean())) for y in (wanted, actual)]

    # In floats sums are taken in another order, which is a few of their last bits.
    assert errors[1] <= (1.01 if rounds else 1.5) * errors[0]
    assert (errors[1] > 1e-4 * np.abs(exact).max()) == rounds


@pytest.mark.parametrize("zeros", [False, True])
def test_gather_block_quantized(zeros: bool) -> None:
    packed, indices = whole(10, 16), np.array([[1, 9], [0, 3]])
    scales = np.abs(rand(10, 2)) / 8
    shift = whole(10, 1) if zeros else None
    check("GatherBlockQuantized", packed, indices, scales, shift, bits=4, block_size=16,
          gather_axis=0, quantize_axis=1)  # fmt: skip


def test_reduce_sum_integer() -> None:
    for dtype in (np.uint8, np.int8):
        model = one_node(MS, "ReduceSumInteger", [whole(3, 40, dtype=dtype)], 1, axes=[1],
                         keepdims=0)  # fmt: skip
        wanted = whole(3, 40, dtype=dtype).sum(axis=1, dtype=np.uint32 if dtype is np.uint8
                                               else np.int32)  # fmt: skip
        for actual in both(model, {"x0": whole(3, 40, dtype=dtype)}):
            assert_close([wanted], actual, 0, 0)


@pytest.mark.parametrize("last", [0, 1])
def test_q_linear_conv(last: int) -> None:
    x = whole(1, 6, 7, 4) if last else whole(1, 4, 6, 7)
    w = spared(whole(5, 4, 3, 3, dtype=np.int8))
    check("QLinearConv", x, scale(0.02), zero(120), w, np.abs(rand(5)) / 50,
          np.zeros(5, np.int8), scale(0.5), zero(100), channels_last=last, pads=[1, 1, 1, 1],
          steps=1)  # fmt: skip


@pytest.mark.parametrize("last", [0, 1])
def test_q_linear_average_pool(last: int) -> None:
    x = whole(1, 6, 7, 3) if last else whole(1, 3, 6, 7)
    check("QLinearAveragePool", x, scale(0.02), zero(120), scale(0.03), zero(100),
          channels_last=last, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
          steps=1)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_q_linear_softmax(dtype: type) -> None:
    for axis, opset in ((-1, 13), (1, 13), (1, 11)):
        check("QLinearSoftmax", whole(2, 3, 8, dtype=dtype), scale(0.02), zero(3, dtype),
              scale(1 / 256), zero(0, dtype), axis=axis, opset=opset, steps=1)  # fmt: skip


def test_q_linear_where() -> None:
    x, y, condition = whole(2, 8), whole(2, 8, seed=1), rand(2, 8) > 0
    check("QLinearWhere", condition, x, scale(0.02), zero(120), y, scale(0.03), zero(90),
          scale(0.025), zero(100), steps=1)  # fmt: skip


def test_q_linear_reduce_mean() -> None:
    given = [whole(2, 3, 8), scale(0.02), zero(120), scale(0.01),
             zero(100)]  # fmt: skip
    mean = (given[0].astype(np.float64) - 120).mean(axis=2, keepdims=True) * 0.02
    wanted = np.clip(np.rint(mean / 0.01) + 100, 0, 255).astype(np.uint8)
    model = one_node(MS, "QLinearReduceMean", given, 1, axes=[2], keepdims=1)
    for actual in both(model, {f"x{i}": x for i, x in enumerate(given)}):
        assert_close([wanted], actual, 0, 0, 1)
