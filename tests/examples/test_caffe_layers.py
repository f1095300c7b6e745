"""Each layer of the example computes what Caffe does, whatever its parameters are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from alpenglow.base.errors import AlpenglowError
from alpenglow.ir.types import Array
from caffe_files import input_of, layer, load, run

RNG = np.random.default_rng(0)
POOLS = [
    (kernel, stride, pad, mode)
    for kernel, stride, mode in product(((1, 1), (2, 3), (3, 2)), (1, 2, 3, 4), ("CEIL", "FLOOR"))
    for pad in product(range(kernel[0]), range(kernel[1]))
]
Pair = tuple[int, int]


def draw(*shape: int) -> Array:
    """Return random numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def pooled(
    x: Array, method: str, kernel: Pair, stride: int, pad: Pair, mode: str
) -> Array | None:
    """Return what Caffe pools, window by window; None if a window has no element of x."""
    axes = list(zip(x.shape, kernel, pad, strict=True))
    rounded = math.ceil if mode == "CEIL" else math.floor
    sizes = [rounded((extent + 2 * p - k) / stride) + 1 for extent, k, p in axes]
    if any(pad):
        ends = [extent + p for extent, _, p in axes]
        sizes = [n - ((n - 1) * stride >= end) for n, end in zip(sizes, ends, strict=True)]
    y = np.zeros([max(n, 0) for n in sizes], np.float32)
    for at in np.ndindex(y.shape):
        starts = [i * stride - p for i, p in zip(at, pad, strict=True)]
        ends = [min(s + k, e + p) for s, (e, k, p) in zip(starts, axes, strict=True)]
        count = math.prod(end - start for start, end in zip(starts, ends, strict=True))
        window = x[tuple(slice(max(s, 0), e) for s, e in zip(starts, ends, strict=True))]
        if window.size == 0:
            return None
        y[at] = window.max() if method == "MAX" else window.sum() / count
    return y if y.size else None


@pytest.mark.parametrize("shape", [(1, 2), (3, 3), (4, 7)])
def test_pools_have_the_windows_of_caffe(tmp_path: Path, shape: Pair) -> None:
    x = RNG.permutation(math.prod(shape)).reshape(shape).astype(np.float32)
    text, expected, refused = input_of(1, 1, *shape), {}, []
    for i, ((kernel, stride, pad, mode), method) in enumerate(product(POOLS, ("MAX", "AVE"))):
        y = pooled(x, method, kernel, stride, pad, mode)
        line = layer(f"{method}{i}", "Pooling", "data", (
            f"pooling_param {{ pool: {method} kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride: "
            f"{stride} pad_h: {pad[0]} pad_w: {pad[1]} round_mode: {mode} }}"
        ))  # fmt: skip
        if y is None:
            refused.append(line)
        else:
            text, expected[f"{method}{i}"] = text + line, y
    actual = run(tmp_path, text, data=x[None, None])
    for name, y in expected.items():
        np.testing.assert_allclose(actual[name][0, 0], y, rtol=1e-6, err_msg=name)
    for line in refused:
        with pytest.raises(AlpenglowError, match=r"line 2, layer '\w+' \(Pooling\): "):
            load(tmp_path, input_of(1, 1, *shape) + line)

    assert len(expected) > len(POOLS)


def at_taps(sizes: Sequence[int], w: Array, stride: Sequence[int], dilation: Sequence[int]
            ) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:  # fmt: skip
    """Yield each tap of a window, and where it lies for all windows."""
    for tap in np.ndindex(w.shape[2:]):
        begins = [t * d for t, d in zip(tap, dilation, strict=True)]
        axes = zip(begins, sizes, stride, strict=True)
        yield tap, tuple(slice(b, b + (n - 1) * s + 1, s) for b, n, s in axes)


def convolved(
    x: Array, w: Array, group: int, stride: Sequence[int], pad: Sequence[int],
    dilation: Sequence[int],
) -> Array:  # fmt: skip
    """Return a convolution, tap by tap."""
    wide = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pad)])
    axes = zip(wide.shape[2:], w.shape[2:], stride, dilation, strict=True)
    sizes = [(e - (k - 1) * d - 1) // s + 1 for e, k, s, d in axes]
    ys = []
    for xs, ws in zip(np.split(wide, group, 1), np.split(w, group, 0), strict=True):
        taps = at_taps(sizes, w, stride, dilation)
        ys.append(sum(np.einsum("oc,nc...->no...", ws[:, :, *t], xs[:, :, *at]) for t, at in taps))
    return np.concatenate(ys, 1)


def deconvolved(
    x: Array, w: Array, group: int, stride: Sequence[int], pad: Sequence[int],
    dilation: Sequence[int],
) -> Array:  # fmt: skip
    """Return a deconvolution: each element of x adds a multiple of a window."""
    axes = list(zip(x.shape[2:], w.shape[2:], stride, dilation, strict=True))
    sizes = [s * (e - 1) + (k - 1) * d + 1 for e, k, s, d in axes]
    ys = []
    for xs, ws in zip(np.split(x, group, 1), np.split(w, group, 0), strict=True):
        y = np.zeros((len(x), w.shape[1], *sizes), np.float32)
        for tap, at in at_taps(x.shape[2:], w, stride, dilation):
            y[:, :, *at] += np.einsum("co,nc...->no...", ws[:, :, *tap], xs)
        ys.append(y)
    cut = [slice(p, e - p) for p, e in zip(pad, sizes, strict=True)]
    return np.concatenate(ys, 1)[:, :, *cut]


CONVOLUTIONS = [
    ("num_output: 4 kernel_size: 3", 1, (3, 3), (1, 1), (0, 0), (1, 1), True),
    ("num_output: 4 kernel_size: 2 kernel_size: 3 stride: 2 stride: 1 pad: 1 pad: 2",
     1, (2, 3), (2, 1), (1, 2), (1, 1), True),
    ("num_output: 6 kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 2 pad_w: 1 group: 3 "
     "bias_term: false engine: CUDNN weight_filler { type: 'xavier' }",
     3, (1, 3), (1, 2), (0, 1), (1, 1), False),
    ("num_output: 6 kernel_size: 2 dilation: 2 dilation: 1 group: 6 pad: 1 axis: 1",
     6, (2, 2), (1, 1), (1, 1), (2, 1), True),
]  # fmt: skip


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=range(len(CONVOLUTIONS)))
@pytest.mark.parametrize(
    ("kind", "meaning"), [("Convolution", convolved), ("Deconvolution", deconvolved)]
)
def test_convolutions(
    tmp_path: Path, kind: str, meaning: Callable[..., Array],
    case: tuple[str, int, Pair, Pair, Pair, Pair, bool],
) -> None:  # fmt: skip
    parameters, group, kernel, stride, pad, dilation, has_bias = case
    outputs = int(parameters.split()[1])
    x, b = draw(2, 6, 5, 7), draw(outputs)
    shape = (6, outputs // group) if kind == "Deconvolution" else (outputs, 6 // group)
    w = draw(*shape, *kernel)
    text = input_of(*x.shape) + layer("y", kind, "data", f"convolution_param {{ {parameters} }}")
    actual = run(tmp_path, text, {"y": [w, b] if has_bias else [w]}, data=x)["y"]

    expected = meaning(x, w, group, stride, pad, dilation)
    expected = expected + b[:, None, None] if has_bias else expected
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def normalised(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    """Return x divided by the squares of neighbouring channels."""
    reach = size // 2
    squares = np.pad(x * x, [(0, 0), (reach, reach), (0, 0), (0, 0)])
    total = sum(squares[:, i : i + x.shape[1]] for i in range(size))
    return x * (k + alpha / size * total) ** -beta


def normalised_within(x: Array, size: int, alpha: float, beta: float) -> Array:
    """Return x divided by the squares of its neighbours in an image."""
    reach, (height, width) = size // 2, x.shape[2:]
    squares = np.pad(x * x, [(0, 0), (0, 0), (reach, reach), (reach, reach)])
    places = product(range(size), range(size))
    total = sum(squares[:, :, i : i + height, j : j + width] for i, j in places)
    return x * (1 + alpha / size**2 * total) ** -beta


X, A, C, CH, HW = draw(2, 6, 4, 5), draw(2, 6, 4, 5), draw(6), draw(6, 4), draw(4, 5)
M, B = draw(3, 120), draw(3)
ONE, HALF = np.float32([1]), np.float32([2])


def soft(x: Array, axis: int) -> Array:
    """Return softmax along an axis."""
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def across(v: Array, axis: int = 1) -> Array:
    """Return v so that it broadcasts to X from an axis on."""
    return v.reshape(*v.shape, *[1] * (4 - axis - v.ndim))


# A layer of X, and of A where it has two bottoms: type, parameters, weights, expected result.
CASES: list[tuple[str, str, Sequence[Array], Array]] = [
    ("AbsVal", "", [], abs(X)),
    ("BNLL", "", [], np.log1p(np.exp(X))),
    ("Dropout", "dropout_param { dropout_ratio: .9 }", [], X),
    ("Sigmoid", "sigmoid_param { engine: CAFFE }", [], 1 / (1 + np.exp(-X))),
    ("TanH", "", [], np.tanh(X)),
    ("ReLU", "", [], np.maximum(X, 0)),
    ("ReLU", "relu_param { negative_slope: 0.25 }", [], np.where(X > 0, X, X / 4)),
    ("ELU", "elu_param { alpha: 2 }", [], np.where(X > 0, X, 2 * np.expm1(X))),
    ("PReLU", "", [C], np.where(X > 0, X, X * across(C))),
    ("PReLU", "prelu_param { channel_shared: true }", [np.float32(3)], np.where(X > 0, X, 3 * X)),
    ("Power", "", [], X),
    ("Power", "power_param { power: 2 scale: 3 shift: -1 }", [], (3 * X - 1) ** 2),
    ("Power", "power_param { power: 3 scale: 0 shift: 2 }", [], np.full_like(X, 8)),
    ("Power", "power_param { power: 0 shift: -2 }", [], np.ones_like(X)),
    ("Exp", "", [], np.exp(X)),
    ("Exp", "exp_param { base: 2 scale: .5 shift: 3 }", [], 2 ** (X / 2 + 3)),
    ("Log", "log_param { scale: .1 shift: 4 }", [], np.log(X / 10 + 4)),
    ("Log", "log_param { base: 10 shift: 9 }", [], np.log10(X + 9)),
    ("Softmax", "", [], soft(X, 1)),
    ("Softmax", "softmax_param { axis: -1 }", [], soft(X, 3)),
    ("LRN", "", [], normalised(X, 5, 1, 0.75, 1)),
    ("LRN", "lrn_param { local_size: 3 alpha: .5 beta: 2 k: 3 }", [], normalised(X, 3, 0.5, 2, 3)),
    ("LRN", "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 alpha: 2 k: 7 }", [],
     normalised_within(X, 3, 2, 0.75)),
    ("BatchNorm", "batch_norm_param { use_global_stats: true eps: .1 }", [C, C * C, HALF],
     (X - across(C) / 2) / np.sqrt(across(C * C) / 2 + 0.1)),
    ("BatchNorm", "", [C, C * C, 0 * ONE], X / np.sqrt(np.float32(1e-5))),
    ("Scale", "", [C], X * across(C)),
    ("Scale", "scale_param { num_axes: 2 bias_term: true }", [CH, -CH], (X - 1) * across(CH)),
    ("Scale", "scale_param { axis: -2 num_axes: -1 }", [HW], X * HW),
    ("Scale", "scale_param { num_axes: 0 }", [np.float32(3)], 3 * X),
    ("Bias", "", [C], X + across(C)),
    ("Bias", "bias_param { axis: 0 num_axes: -1 }", [A], X + A),
    ("InnerProduct", "inner_product_param { num_output: 3 }", [M, B], X.reshape(2, -1) @ M.T + B),
    ("InnerProduct", "inner_product_param { num_output: 3 transpose: true bias_term: false }",
     [M.T], X.reshape(2, -1) @ M.T),
    ("InnerProduct", "inner_product_param { num_output: 3 axis: -1 }", [M[:, :5], B],
     X @ M[:, :5].T + B),
    ("Flatten", "", [], X.reshape(2, -1)),
    ("Flatten", "flatten_param { axis: -3 end_axis: 2 }", [], X.reshape(2, 24, 5)),
    ("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 8 } }", [], X.reshape(2, 15, 8)),
    ("Reshape", "reshape_param { shape { dim: 3 dim: 2 } axis: 1 num_axes: 1 }", [],
     X.reshape(2, 3, 2, 4, 5)),
    ("Reshape", "reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }", [], X[..., None]),
    ("Reduction", "", [], X.sum()),
    ("Reduction", "reduction_param { operation: ASUM axis: 1 coeff: 2 }", [],
     2 * abs(X).sum((1, 2, 3))),
    ("Reduction", "reduction_param { operation: SUMSQ axis: -1 }", [], (X * X).sum(3)),
    ("Reduction", "reduction_param { operation: MEAN axis: 2 coeff: -3 }", [], -3 * X.mean((2, 3))),
    ("Pooling", "pooling_param { pool: AVE global_pooling: true }", [],
     X.mean((2, 3), keepdims=True)),
    ("Concat", "", [], np.concatenate([X, A], 1)),
    ("Concat", "concat_param { concat_dim: 0 }", [], np.concatenate([X, A], 0)),
    ("Concat", "concat_param { axis: -1 }", [], np.concatenate([X, A], 3)),
    ("Eltwise", "", [], X + A),
    ("Eltwise", "eltwise_param { coeff: 2 coeff: -1 }", [], 2 * X - A),
    ("Eltwise", "eltwise_param { operation: PROD }", [], X * A),
    ("Eltwise", "eltwise_param { operation: MAX }", [], np.maximum(X, A)),
    ("Scale", "scale_param { axis: 0 }", None, X * A),
    ("Bias", "bias_param { axis: 0 }", None, X + A),
]  # fmt: skip
TWO = {"Concat", "Eltwise"}


def test_layers_without_windows(tmp_path: Path) -> None:
    text, weights = input_of(*X.shape) + input_of(*A.shape, name="other"), {}
    for i, (kind, parameters, arrays, _) in enumerate(CASES):
        bottoms = "data other" if kind in TWO or arrays is None else "data"
        text += layer(f"y{i}", kind, bottoms, parameters)
        weights |= {f"y{i}": arrays} if arrays else {}
    actual = run(tmp_path, text, weights, data=X, other=A)

    for i, (kind, parameters, _, expected) in enumerate(CASES):
        message = f"{kind} {parameters}"
        assert actual[f"y{i}"].shape == np.shape(expected), message
        np.testing.assert_allclose(actual[f"y{i}"], expected, 2e-4, 1e-4, err_msg=message)


def test_layers_with_several_tops(tmp_path: Path) -> None:
    text = input_of(*X.shape) + layer("a", "Slice", "data", tops="a0 a1 a2")
    points = "slice_param { axis: -1 slice_point: 1, slice_point: 3; }"
    text += layer("b", "Slice", "data", points, "b0 b1 b2")
    text += layer("c", "Split", "data", tops="c0 c1")
    text += layer("d", "Slice", "data", "slice_param { slice_dim: 2 }", "d0 d1")
    actual = run(tmp_path, text, data=X)

    expected = {f"a{i}": X[:, 2 * i : 2 * i + 2] for i in range(3)}
    expected |= {"b0": X[..., :1], "b1": X[..., 1:3], "b2": X[..., 3:], "c0": X, "c1": X}
    expected |= {"d0": X[:, :, :2], "d1": X[:, :, 2:]}
    assert expected.keys() == actual.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array)


@pytest.mark.parametrize(
    ("parameters", "part"),
    [
        ("", np.s_[:, :, :2, :3]),
        ("crop_param { offset: 1 }", np.s_[:, :, 1:3, 1:4]),
        ("crop_param { axis: 1 offset: 2 offset: 0 offset: 1 }", np.s_[:, 2:5, :2, 1:4]),
        ("crop_param { axis: -1 offset: 2 }", np.s_[..., 2:5]),
    ],
)
def test_crops(tmp_path: Path, parameters: str, part: tuple[slice, ...]) -> None:
    text = input_of(*X.shape) + input_of(2, 3, 2, 3, name="like")
    text += layer("y", "Crop", "data like", parameters)
    actual = run(tmp_path, text, data=X, like=np.zeros((2, 3, 2, 3), np.float32))["y"]

    np.testing.assert_array_equal(actual, X[part])


def test_a_power_without_its_bottom_is_a_number(tmp_path: Path) -> None:
    text = input_of(2) + layer("y", "Power", "data", "power_param { scale: 0 shift: 3 power: 2 }")
    actual = run(tmp_path, text, data=np.array([np.inf, np.nan], np.float32))["y"]

    np.testing.assert_array_equal(actual, np.array([9, 9], np.float32))
