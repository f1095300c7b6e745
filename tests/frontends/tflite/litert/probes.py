"""Probes of one operator each, over the space of their attributes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tests.frontends.tflite.litert.probe import Probe

from alpenglow.ir.types import DTYPES, NAMES, Array

RANDOM = np.random.default_rng(0)


def floats(*shape: int, low: float = -2, high: float = 2) -> Array:
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, low: int = -9, high: int = 9, dtype: str = "i32") -> Array:
    return RANDOM.integers(low, high + 1, shape).astype(DTYPES[dtype])


def bools(*shape: int) -> Array:
    return RANDOM.integers(0, 2, shape).astype(np.bool_)


def i32(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def scalar(number: float, dtype: str = "i32") -> Array:
    return np.array(number, DTYPES[dtype])


BROADCASTS = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((1, 3, 1), (2, 1, 4)), ((), (2, 3)),
              ((2, 1, 3, 4), (3, 1))]  # fmt: skip


def unary() -> Iterator[Probe]:
    wide = np.concatenate([floats(40, low=-9, high=9), np.array(
        [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0, 3, 6], np.float32)])  # fmt: skip
    for kind in ("ABS", "CEIL", "COS", "ELU", "FLOOR", "HARD_SWISH", "LOGISTIC", "NEG", "RELU",
                 "RELU_0_TO_1", "RELU_N1_TO_1", "RELU6", "ROUND", "SIGN", "SIN", "SQUARE",
                 "TANH", "ZEROS_LIKE"):  # fmt: skip
        yield Probe(kind, [wide])
        yield Probe(kind, [floats(2, 3, 1, 2)])
    yield Probe("EXP", [floats(30)])
    for kind in ("LOG", "SQRT", "RSQRT"):
        yield Probe(kind, [floats(30, low=0.01, high=9)])
    for alpha in (0.0, 0.3, 1.5):
        yield Probe("LEAKY_RELU", [wide], {"alpha": alpha})
    for approximate in (False, True):
        yield Probe("GELU", [wide], {"approximate": approximate})
    yield Probe("LOGICAL_NOT", [bools(3, 4)])
    for dtype in ("i32", "i64"):
        yield Probe("ABS", [ints(9, dtype=dtype)]) if dtype == "i32" else Probe(
            "NEG", [ints(9, dtype=dtype)])  # fmt: skip
        yield Probe("NEG", [ints(2, 5, dtype=dtype)])
        yield Probe("ZEROS_LIKE", [ints(2, 5, dtype=dtype)])
    yield Probe("SIGN", [ints(9)])
    for slope in ((4,), (1, 1, 4), (3, 4), (2, 3, 4)):
        yield Probe("PRELU", [floats(5, 2, 3, 4), floats(*slope)], fixed=(1,))
    for bits, (low, high) in itertools.product((8, 4, 16), ((-1, 1.5), (0, 6), (-3, 0))):
        options = {"min": low, "max": high, "num_bits": bits}
        yield Probe("FAKE_QUANT", [wide], options)


def casts() -> Iterator[Probe]:
    values = {"f32": floats(12, low=-50, high=50), "i32": ints(12), "i64": ints(12, dtype="i64"),
              "bool": bools(12), "u8": ints(12, low=0, high=200, dtype="u8"),
              "i8": ints(12, low=-100, high=100, dtype="i8"),
              "i16": ints(12, dtype="i16"), "f64": floats(12).astype(np.float64)}  # fmt: skip
    for a, b in itertools.permutations(values, 2):
        x = values[a]
        if b == "u8":
            x = np.abs(x) if a != "bool" else x
        yield Probe("CAST", [x], results=(b,), layout="CastOptions")
    z = (floats(12, low=1, high=50) + 1j * floats(12)).astype(np.complex64)
    for a, x in values.items():
        yield Probe("CAST", [z], results=(a,), layout="CastOptions")
        yield Probe("CAST", [x], results=("c64",), layout="CastOptions")
    for shape in ((12,), (1,), (3, 1)):
        yield Probe("MUL", [z, (floats(*shape) + 1j * floats(*shape)).astype(np.complex64)])
    yield Probe("DEQUANTIZE", [floats(9).astype(np.float16)], results=("f32",))
    yield Probe("DEQUANTIZE", [floats(9).astype(np.float16)], results=("f32",), fixed=(0,))


def binary() -> Iterator[Probe]:
    for kind, (a, b) in itertools.product(("ADD", "SUB", "MUL", "DIV"), BROADCASTS):
        for activation in (0, 1, 2, 3):
            y = floats(*b, low=0.5) if kind == "DIV" else floats(*b)
            yield Probe(kind, [floats(*a), y], {"fused_activation_function": activation})
        for dtype in ("i32", "i64"):
            y = ints(*b, low=1, dtype=dtype) if kind == "DIV" else ints(*b, dtype=dtype)
            if kind != "DIV" or dtype == "i32":
                yield Probe(kind, [ints(*a, dtype=dtype), y])
    for kind, (a, b) in itertools.product(
        ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_MOD", "FLOOR_DIV"), BROADCASTS
    ):
        positive = kind.startswith("FLOOR")
        y = floats(*b)
        yield Probe(kind, [floats(*a), np.where(np.abs(y) < 0.1, 1, y).astype(np.float32)])
        z = ints(*b)
        yield Probe(kind, [ints(*a), np.where(z == 0, 3, z).astype(np.int32) if positive else z])
        if kind != "SQUARED_DIFFERENCE" and kind != "FLOOR_DIV":
            z = ints(*b, dtype="i64")
            yield Probe(kind, [ints(*a, dtype="i64"), np.where(z == 0, 3, z)])
    for kind, (a, b) in itertools.product(
        ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), BROADCASTS
    ):
        for x, y in ((floats(*a).round(), floats(*b).round()), (ints(*a, high=2), ints(*b, high=2)),
                     (ints(*a, dtype="i64"), ints(*b, dtype="i64"))):  # fmt: skip
            yield Probe(kind, [x, y], results=("bool",))
    for kind in ("EQUAL", "NOT_EQUAL"):
        yield Probe(kind, [bools(3, 4), bools(4)], results=("bool",))
    for kind, (a, b) in itertools.product(("LOGICAL_AND", "LOGICAL_OR"), BROADCASTS):
        yield Probe(kind, [bools(*a), bools(*b)])
    for a, b in BROADCASTS:
        yield Probe("POW", [floats(*a, low=0.1), floats(*b)])
        yield Probe("POW", [ints(*a, low=-3, high=3), ints(*b, low=0, high=4)])
        yield Probe("ATAN2", [floats(*a), floats(*a)])
        yield Probe("BITWISE_XOR", [ints(*a), ints(*b)])
        yield Probe("RIGHT_SHIFT", [ints(*a), ints(*b, low=0, high=8)])
    for count in (1, 2, 4):
        yield Probe("ADD_N", [floats(2, 3) for _ in range(count)])
        yield Probe("ADD_N", [ints(2, 3) for _ in range(count)])
    for x, y in ((floats(2, 3), floats(2, 3)), (ints(2, 3), ints(2, 3))):
        yield Probe("SELECT", [bools(2, 3), x, y], results=(("f32", "i32")[x.dtype == np.int32],))
        yield Probe("SELECT", [bools(2), x, y], results=(("f32", "i32")[x.dtype == np.int32],))
    for c, a, b in (((2, 3), (2, 3), (2, 3)), ((3,), (2, 1), (2, 3)), ((), (2, 3), (1, 3)),
                    ((2, 1, 1), (3, 1), (4,))):  # fmt: skip
        yield Probe("SELECT_V2", [bools(*c), floats(*a), floats(*b)], results=("f32",))
        yield Probe("SELECT_V2", [bools(*c), ints(*a), ints(*b)], results=("i32",))


def convolutions() -> Iterator[Probe]:
    for (h, w), k, strides, dilations, padding in itertools.product(
        ((7, 8), (5, 5)), ((1, 1), (3, 2), (3, 3)), ((1, 1), (2, 2), (3, 1)), ((1, 1), (2, 2)),
        (0, 1),
    ):  # fmt: skip
        if padding and ((k[0] - 1) * dilations[0] >= h or (k[1] - 1) * dilations[1] >= w):
            continue
        options = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1],
                   "dilation_h_factor": dilations[0], "dilation_w_factor": dilations[1],
                   "fused_activation_function": (h + k[0]) % 4}  # fmt: skip
        yield Probe("CONV_2D", [floats(2, h, w, 4), floats(6, *k, 4), floats(6)], options, (1, 2))
        weights = floats(1, *k, 8)
        depthwise = {**options, "depth_multiplier": 2}
        yield Probe(
            "DEPTHWISE_CONV_2D", [floats(2, h, w, 4), weights, floats(8)], depthwise, (1, 2)
        )
    options = {"padding": 0, "stride_h": 1, "stride_w": 1}
    yield Probe("CONV_2D", [floats(1, 5, 5, 4), floats(6, 3, 3, 2), floats(6)], options, (1, 2))
    yield Probe("CONV_2D", [floats(1, 5, 5, 4), floats(6, 3, 3, 4), None], options, (1,))
    yield Probe("CONV_2D", [floats(1, 5, 5, 4), floats(6, 3, 3, 4), floats(6)], options)
    for padding, stride in itertools.product((0, 1), (1, 2)):
        options = {"padding": padding, "stride_d": stride, "stride_h": stride, "stride_w": 1}
        yield Probe("CONV_3D", [floats(1, 4, 5, 6, 3), floats(2, 3, 2, 3, 4), floats(4)], options)


def transposed() -> Iterator[Probe]:
    for (h, w), k, stride, padding in itertools.product(
        ((3, 4), (5, 2)), ((1, 1), (2, 2), (3, 3), (4, 3)), (1, 2, 3), (0, 1)
    ):
        if padding == 0:
            sizes = [((h * stride), (w * stride)), (h * stride - (stride > 1), w * stride)]
        else:
            sizes = [((h - 1) * stride + k[0], (w - 1) * stride + k[1])]
        for size, bias in itertools.product(sizes, (False, True)):
            options = {"padding": padding, "stride_h": stride, "stride_w": stride}
            operands = [i32(2, *size, 5), floats(5, *k, 3), floats(2, h, w, 3)]
            fixed = (0, 1, 3) if bias else (0, 1)
            yield Probe("TRANSPOSE_CONV", [*operands, *([floats(5)] if bias else [])], options,
                        fixed, ("f32",))  # fmt: skip
    for stride, padding in itertools.product((1, 2), (0, 1)):
        size = (3 * stride, 3 * stride, 3 * stride) if not padding else (2 * stride + 2,) * 3
        options = {"padding": padding, "stride_d": stride, "stride_h": stride, "stride_w": stride}
        yield Probe("CONV_3D_TRANSPOSE", [i32(1, *size, 4), floats(2, 2, 2, 4, 3),
                    floats(1, 3, 3, 3, 3)], options, (0, 1), ("f32",))  # fmt: skip


def pools() -> Iterator[Probe]:
    for kind, (h, w), k, stride, padding, activation in itertools.product(
        ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"), ((6, 7), (5, 5)),
        ((1, 1), (2, 2), (3, 4)), (1, 2, 3), (0, 1), (0, 3),
    ):  # fmt: skip
        options = {"padding": padding, "stride_h": stride, "stride_w": stride,
                   "filter_height": k[0], "filter_width": k[1],
                   "fused_activation_function": activation}  # fmt: skip
        yield Probe(kind, [floats(2, h, w, 3)], options)


def products() -> Iterator[Probe]:
    for shape, keep, bias in itertools.product(
        ((3, 8), (2, 3, 8), (4, 2, 4), (8,), (2, 2, 2, 8)), (False, True), (False, True)
    ):
        if keep and shape[-1] != 8:
            continue
        for activation in (0, 1, 3):
            options = {"keep_num_dims": keep, "fused_activation_function": activation}
            operands = [floats(*shape), floats(5, 8), floats(5) if bias else None]
            yield Probe("FULLY_CONNECTED", operands, options, (1, 2))
    yield Probe("FULLY_CONNECTED", [floats(3, 8), floats(5, 8), floats(5)])
    for (a, b), x, y in itertools.product(
        (((2, 3, 4), (2, 4, 5)), ((3, 4), (4, 5)), ((1, 3, 4), (2, 4, 5)),
         ((2, 1, 3, 4), (3, 4, 5)), ((2, 2, 3, 4), (1, 1, 4, 5))),
        (False, True), (False, True),
    ):  # fmt: skip
        left = (*a[:-2], a[-1], a[-2]) if x else a
        right = (*b[:-2], b[-1], b[-2]) if y else b
        yield Probe("BATCH_MATMUL", [floats(*left), floats(*right)], {"adj_x": x, "adj_y": y})


def reductions() -> Iterator[Probe]:
    for kind, axes, keep in itertools.product(
        ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"),
        ((0,), (1, 2), (-1,), (0, 1, 2, 3), (-2, 1), (2, 2)), (False, True),
    ):  # fmt: skip
        options = {"keep_dims": keep}
        yield Probe(kind, [floats(2, 3, 4, 5), i32(*axes)], options, (1,))
        yield Probe(kind, [ints(2, 3, 4, 2, low=-3, high=3), i32(*axes)], options, (1,))
        if kind != "MEAN":
            x = ints(2, 3, 2, 2, low=-3, high=3, dtype="i64")
            yield Probe(kind, [x, i32(*axes)], options, (1,))
    for kind, axes, keep in itertools.product(
        ("REDUCE_ANY", "REDUCE_ALL"), ((0,), (1, -1)), (False, True)
    ):
        yield Probe(kind, [bools(2, 3, 4), i32(*axes)], {"keep_dims": keep}, (1,))
    for kind, axis, dtype in itertools.product(("ARG_MAX", "ARG_MIN"), (0, 1, -1), ("i32", "i64")):
        for x in (floats(3, 4, 5), ints(3, 4, 5, low=0, high=3)):
            layout = "ArgMaxOptions" if kind == "ARG_MAX" else "ArgMinOptions"
            yield Probe(kind, [x, i32(axis)], {"output_type": {"i32": 2, "i64": 4}[dtype]}, (1,),
                        (dtype,), layout)  # fmt: skip
    for axis, exclusive, reverse in itertools.product((0, 1, -1), (False, True), (False, True)):
        options = {"exclusive": exclusive, "reverse": reverse}
        yield Probe("CUMSUM", [floats(3, 4, 5), i32(axis).reshape(())], options, (1,))
        yield Probe("CUMSUM", [ints(3, 4, 5), i32(axis).reshape(())], options, (1,))
    for shape in ((7,), (3, 5), (2, 3, 4), (2, 2, 3, 4)):
        for beta in (1.0, 0.5):
            if len(shape) > 0:
                yield Probe("SOFTMAX", [floats(*shape)], {"beta": beta})
        yield Probe("LOG_SOFTMAX", [floats(*shape)])
        yield Probe("L2_NORMALIZATION", [floats(*shape)])
    for radius, bias in itertools.product((1, 2, 5), (1.0, 9.0)):
        options = {"radius": radius, "bias": bias, "alpha": 4.0, "beta": 0.5}
        yield Probe("LOCAL_RESPONSE_NORMALIZATION", [floats(1, 2, 3, 6)], options)


def windows() -> Iterator[Probe]:
    shape = (4, 5, 7)
    for number, size, strides, spread in itertools.product(
        range(1, 7), ((1, 1, 1), (1, 2, 3), (4, 1, 2), (2, 3, 7)), ((1, 1, 1), (1, 2, 3)),
        ((1, 1, 1), (1, 2, 1)),
    ):  # fmt: skip
        told = [np.array(v, np.int64) for v in (size, strides, spread)]
        options = {"reduce_function": number}
        for x in (bools(*shape),) if number > 4 else (floats(*shape), ints(*shape)):
            first = x.reshape(-1)[3:4]
            yield Probe("REDUCE_WINDOW", [x, first, *told], options, (2, 3, 4))


def movements() -> Iterator[Probe]:
    for shape in ((6, 4), (-1,), (2, -1, 3), (2, 3, 4, 1), (1, -1)):
        yield Probe("RESHAPE", [floats(2, 3, 4), i32(*shape)], fixed=(1,))
        yield Probe("RESHAPE", [ints(2, 3, 4)], {"new_shape": shape})
    yield Probe("RESHAPE", [floats(1, 1), np.zeros(0, np.int32)], fixed=(1,))
    for dims in ((), (0,), (0, 2), (-1,), (-3, 2)):
        x = floats(1, 3, 1, 1) if dims == (-1,) else floats(1, 3, 1)
        yield Probe("SQUEEZE", [x], {"squeeze_dims": dims})
    for axis in (0, 1, 2, -1, -3):
        yield Probe("EXPAND_DIMS", [floats(2, 3), i32(axis)], fixed=(1,))
    for perm in ((0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0)):
        yield Probe("TRANSPOSE", [floats(2, 3, 4), i32(*perm)], fixed=(1,))
        yield Probe("TRANSPOSE", [ints(2, 3, 4, dtype="i64"), i32(*perm)], fixed=(1,))
    for axis in (0, 1, 2, -1, -2):
        shapes = [[2, 3, 4] for _ in range(3)]
        shapes[1][axis] = 5
        yield Probe("CONCATENATION", [floats(*s) for s in shapes], {"axis": axis})
        yield Probe("CONCATENATION", [ints(*s) for s in shapes], {"axis": axis})
        yield Probe("PACK", [floats(2, 3) for _ in range(3)], {"values_count": 3, "axis": axis})
        yield Probe("UNPACK", [floats(3, 3, 3)], {"num": 3, "axis": axis}, results=("",) * 3)
        yield Probe("SPLIT", [i32(axis), floats(6, 6, 6)], {"num_splits": 3}, (0,), ("f32",) * 3)
        for sizes in ((1, 2, 3), (2, -1, 1), (0, 4, 2)):
            yield Probe("SPLIT_V", [floats(6, 6, 6), i32(*sizes), i32(axis)], {"num_splits": 3},
                        (1, 2), ("",) * 3)  # fmt: skip
    for repeats in ((1, 1), (2, 3), (3, 1)):
        yield Probe("TILE", [floats(2, 3), i32(*repeats)], fixed=(1,))
        yield Probe("TILE", [ints(2, 1), i32(*repeats)], fixed=(1,))
    for shape in ((2, 3, 4), (3, 4), (5, 3, 4)):
        yield Probe("BROADCAST_TO", [floats(3, 1), i32(*shape)], fixed=(1,))
    for axes in ((0,), (1,), (-1,), (0, 1), (2, 1)):
        yield Probe("REVERSE_V2", [floats(2, 3, 4), i32(*axes)], fixed=(1,))
    for seq, batch in ((1, 0), (0, 1), (2, 0)):
        x = floats(3, 4, 5)
        lengths = ints(x.shape[batch], low=1, high=x.shape[seq])
        options = {"seq_dim": seq, "batch_dim": batch}
        yield Probe("REVERSE_SEQUENCE", [x, lengths], options, (1,))
        yield Probe("REVERSE_SEQUENCE", [x, lengths], options)
    for size in (1, 2):
        yield Probe("SPACE_TO_DEPTH", [floats(2, 4, 6, 3)], {"block_size": size})
        yield Probe("DEPTH_TO_SPACE", [floats(2, 4, 6, 8)], {"block_size": size})
    yield Probe("BITCAST", [floats(3, 4)], results=("i32",))
    yield Probe("BITCAST", [ints(3, 4)], results=("f32",))


def slices() -> Iterator[Probe]:
    for begin, size in (((0, 0, 0), (2, 3, 4)), ((1, 0, 2), (1, -1, 2)), ((0, 1, 3), (-1, -1, -1))):
        yield Probe("SLICE", [floats(2, 3, 4), i32(*begin), i32(*size)], fixed=(1, 2))
        yield Probe("SLICE", [ints(2, 3, 4), i32(*begin), i32(*size)], fixed=(1, 2))
    x = floats(4, 5, 6)
    entries: list[tuple[Sequence[int], Sequence[int], Sequence[int], dict[str, Any]]] = [
        ((0, 0, 0), (4, 5, 6), (1, 1, 1), {}),
        ((1, -2, 0), (3, 5, -1), (1, 1, 2), {}),
        ((3, 4, 5), (0, -9, 1), (-1, -2, -1), {}),
        ((1, 2, 3), (2, 3, 4), (1, 1, 1), {"shrink_axis_mask": 5}),
        ((-1, 0, 0), (0, 5, 6), (1, 1, 1), {"shrink_axis_mask": 1}),
        ((0, 1, 0), (0, 9, 0), (1, 1, 1), {"begin_mask": 5, "end_mask": 5}),
        ((2, 1, 2), (0, 0, 0), (-1, -1, -1), {"end_mask": 7}),
        ((9, 9, 9), (0, 0, 0), (-1, -1, -1), {"begin_mask": 2}),
        ((1,), (3,), (1,), {}),
        ((0, 1), (0, 3), (1, 1), {"ellipsis_mask": 1}),
        ((1, 0, 1), (3, 0, 3), (1, 1, 1), {"ellipsis_mask": 2}),
        ((0, 1, 0), (0, 3, 4), (1, 1, 1), {"new_axis_mask": 1}),
        ((1, 0, 2), (3, 0, 5), (1, 1, 2), {"new_axis_mask": 2}),
        ((0, 0, 1), (0, 0, 0), (1, 1, 1), {"ellipsis_mask": 1, "new_axis_mask": 2,
                                          "shrink_axis_mask": 4}),
        ((1, 1, 1), (2, 3, 4), (1, 1, 1), {"offset": True}),
        ((100, 1, 1), (200, 3, 4), (1, 1, 1), {}),
        ((-100, 1, 1), (2, 3, 400), (1, 1, 1), {}),
        ((3, 1, 1), (1, 3, 4), (1, 1, 1), {}),
    ]  # fmt: skip
    for begin, end, strides, masks in entries:
        operands = [i32(*begin), i32(*end), i32(*strides)]
        yield Probe("STRIDED_SLICE", [x, *operands], masks, (1, 2, 3))
        yield Probe("STRIDED_SLICE", [ints(4, 5, 6), *operands], masks, (1, 2, 3))
    for before, after in (((0, 0, 0), (0, 0, 0)), ((1, 0, 2), (0, 3, 1)), ((0, 2, 2), (0, 1, 3))):
        pairs = np.array([before, after], np.int32).T.copy()
        yield Probe("PAD", [floats(3, 4, 5), pairs], fixed=(1,))
        yield Probe("PAD", [ints(3, 4, 5), pairs], fixed=(1,))
        yield Probe("PAD", [ints(3, 4, 5, dtype="i64"), pairs.astype(np.int64)], fixed=(1,))
        yield Probe("PADV2", [floats(3, 4, 5), pairs, scalar(1.5, "f32")], fixed=(1, 2))
        yield Probe("PADV2", [ints(3, 4, 5), pairs, scalar(-7)], fixed=(1, 2))
        for mode in (0, 1):
            small = np.minimum(pairs, 2)
            yield Probe("MIRROR_PAD", [floats(3, 4, 5), small], {"mode": mode}, (1,))
            yield Probe("MIRROR_PAD", [ints(3, 4, 5), small], {"mode": mode}, (1,))
    for blocks, pads in (((2, 2), ((0, 0), (0, 0))), ((2, 3), ((1, 1), (0, 0))),
                         ((1, 2), ((0, 1), (2, 2)))):  # fmt: skip
        more = np.array(pads, np.int32)
        h, w = (-p.sum() % b + 4 * b for p, b in zip(more, blocks, strict=True))
        yield Probe("SPACE_TO_BATCH_ND", [floats(2, h, w, 3), i32(*blocks), more], fixed=(1, 2))
        n = int(np.prod(blocks))
        yield Probe("BATCH_TO_SPACE_ND", [floats(2 * n, 3, 4, 3), i32(*blocks), more],
                    fixed=(1, 2))  # fmt: skip
    yield Probe("SPACE_TO_BATCH_ND", [floats(2, 5, 3), i32(2), np.array([[1, 0]], np.int32)],
                fixed=(1, 2))  # fmt: skip
    yield Probe("BATCH_TO_SPACE_ND", [floats(4, 5, 3), i32(2), np.array([[1, 0]], np.int32)],
                fixed=(1, 2))  # fmt: skip
    for steps in ((1, 1), (2, 3), (1, 2)):
        yield Probe("DILATE", [floats(3, 4), i32(*steps), scalar(0, "f32")], fixed=(1, 2))
    for start in ((0, 0), (1, 2), (5, -3)):
        yield Probe("DYNAMIC_UPDATE_SLICE", [floats(4, 5), floats(2, 3), i32(*start)])
        yield Probe("DYNAMIC_UPDATE_SLICE", [floats(4, 5), floats(4, 3), i32(*start)], fixed=(2,))


def gathers() -> Iterator[Probe]:
    for axis in (0, 1, 2, -1, -2):
        for shape in ((), (2,), (2, 3)):
            yield Probe("GATHER", [floats(3, 4, 5), ints(*shape, low=0, high=2)], {"axis": axis})
            x = ints(3, 4, 5)
            yield Probe("GATHER", [x, ints(*shape, low=0, high=2, dtype="i64")], {"axis": axis})
    for axis, batch, shape in ((1, 1, (3, 2)), (2, 1, (3, 2)), (2, 2, (3, 4, 2)), (2, 1, (3, 2, 2)),
                               (1, 1, (3,)), (2, -1, (3, 2))):  # fmt: skip
        options = {"axis": axis, "batch_dims": batch}
        yield Probe("GATHER", [floats(3, 4, 5), ints(*shape, low=0, high=3)], options)
    for depth, outer in itertools.product((1, 2, 3), ((), (4,), (2, 3))):
        if outer:
            yield Probe("GATHER_ND", [floats(3, 4, 5), ints(*outer, depth, low=0, high=2)])
    for depth in (1, 2):
        rows = ints(4, depth, low=0, high=2)
        updates = floats(4, *(3, 4, 5)[depth:])
        yield Probe("SCATTER_ND", [rows, updates, i32(3, 4, 5)], fixed=(2,), results=("f32",))
        updates = ints(4, *(3, 4, 5)[depth:])
        yield Probe("SCATTER_ND", [rows, updates, i32(3, 4, 5)], fixed=(2,), results=("i32",))
    yield Probe("EMBEDDING_LOOKUP", [ints(4, low=0, high=4), floats(5, 3)], results=("f32",))
    yield Probe("EMBEDDING_LOOKUP", [ints(4, low=0, high=4), floats(5, 2, 3)], results=("f32",))
    for combiner, inner in itertools.product(range(3), ((), (2,), (2, 3))):
        where, shape = np.array([[0, 0], [0, 2], [2, 0], [2, 1], [2, 3]], np.int32), i32(4, 5)
        rows = [ints(5, low=0, high=5), where, shape, floats(5, low=0.5), floats(6, *inner)]
        if inner:
            yield Probe("EMBEDDING_LOOKUP_SPARSE", rows, {"combiner": combiner}, (2,), ("f32",))
    for inner in ((), (3,), (2, 3)):
        for rows in (floats(5, *inner), ints(5, *inner)):
            operands = [ints(7, low=0, high=9), i32(0, 2, 3, 5, 8), rows]
            results = (NAMES[rows.dtype], "u8")
            yield Probe("HASHTABLE_LOOKUP", operands, {}, (1,), results)
    for axis, shape in itertools.product((-1, 0, 1), ((3,), (2, 3))):
        operands = [ints(*shape, low=-1, high=5), scalar(4), scalar(2.5, "f32"), scalar(-1, "f32")]
        yield Probe("ONE_HOT", operands, {"axis": axis}, (1, 2, 3), ("f32",))
        operands = [ints(*shape, low=-1, high=5), scalar(4), scalar(2), scalar(-1)]
        yield Probe("ONE_HOT", operands, {"axis": axis}, (1, 2, 3), ("i32",))
    for k in (1, 3, 5):
        yield Probe("TOPK_V2", [floats(3, 5), scalar(k)], fixed=(1,), results=("", "i32"))
        yield Probe("TOPK_V2", [ints(2, 3, 5, high=-5), scalar(k)], fixed=(1,), results=("", "i32"))
    yield Probe("SEGMENT_SUM", [floats(5, 3), i32(0, 0, 1, 3, 3)], fixed=(1,))
    yield Probe("SEGMENT_SUM", [ints(5, 3), i32(0, 0, 1, 3, 3)], fixed=(1,))
    for kind in ("SUM", "PROD", "MAX", "MIN"):
        operands = [floats(5, 3), i32(2, 0, 0, 3, 2), scalar(5)]
        yield Probe(f"UNSORTED_SEGMENT_{kind}", operands, fixed=(2,))
        operands = [ints(5, 3), i32(2, 0, 0, 3, 2), scalar(5)]
        yield Probe(f"UNSORTED_SEGMENT_{kind}", operands, fixed=(2,))
    x = np.array([[-3, 0, 1], [1.5, 2, 9]], np.float32)
    yield Probe("BUCKETIZE", [x], {"boundaries": (0.0, 1.0, 2.0)}, results=("i32",))
    pairs = np.array([[0, 1], [2, 0]], np.int32)
    for indices, values in ((i32(1, 3), floats(2)), (pairs, floats(2)), (pairs, floats())):
        shape = (5,) if indices.ndim == 1 else (3, 2)
        operands = [indices, i32(*shape), values, scalar(-1, "f32")]
        yield Probe("SPARSE_TO_DENSE", operands, fixed=(1,), results=("f32",))


def generators() -> Iterator[Probe]:
    for shape in ((), (3,), (2, 0, 4)):
        if 0 not in shape:
            options = {"out_type": 2}
            yield Probe("SHAPE", [floats(*shape)], options, results=("i32",), layout="ShapeOptions")
            options = {"out_type": 4}
            yield Probe("SHAPE", [floats(*shape)], options, results=("i64",), layout="ShapeOptions")
            yield Probe("RANK", [floats(*shape)], results=("i32",))
    for value in (scalar(1.5, "f32"), scalar(3), scalar(True, "bool")):
        yield Probe("FILL", [i32(2, 3), value], fixed=(0,), results=(
            {"f": "f32", "i": "i32", "b": "bool"}[value.dtype.kind],))  # fmt: skip
    for start, limit, delta in ((0, 5, 1), (1, 9, 3), (9, 1, -2), (3, 3, 1)):
        operands = [scalar(v) for v in (start, limit, delta)]
        yield Probe("RANGE", operands, fixed=(0, 1, 2))
        operands = [scalar(v * 0.3, "f32") for v in (start, limit, delta)]
        yield Probe("RANGE", operands, fixed=(0, 1, 2))
    yield Probe("BROADCAST_ARGS", [i32(3, 1), i32(2, 1, 4)], fixed=(0, 1))
    for shape in ((3,), (2, 3), (2, 1, 4)):
        yield Probe("MATRIX_DIAG", [floats(*shape)])
        yield Probe("MATRIX_DIAG", [ints(*shape)])
    for shape in ((3, 3), (2, 3, 4), (2, 4, 3)):
        diagonal = (*shape[:-2], min(shape[-2:]))
        yield Probe("MATRIX_SET_DIAG", [floats(*shape), floats(*diagonal)])
        yield Probe("MATRIX_SET_DIAG", [ints(*shape), ints(*diagonal)])


def resizes() -> Iterator[Probe]:
    for kind, (h, w), size, (aligned, centred) in itertools.product(
        ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), ((3, 4), (7, 5)),
        ((6, 8), (2, 3), (1, 1), (3, 4), (10, 7), (13, 9)),
        ((False, False), (True, False), (False, True)),
    ):  # fmt: skip
        options = {"align_corners": aligned, "half_pixel_centers": centred}
        yield Probe(kind, [floats(2, h, w, 3), i32(*size)], options, (1,))


def counted() -> Iterator[Probe]:
    for shape in ((6,), (3, 4), (2, 3, 2)):
        yield Probe("WHERE", [bools(*shape)], results=("i64",))
    yield Probe("WHERE", [ints(3, 3, low=-1, high=1)], results=("i64",))
    for dtype in ("i32", "i64"):
        options = {"idx_out_type": {"i32": 2, "i64": 4}[dtype]}
        x = ints(9, low=0, high=4)
        yield Probe("UNIQUE", [x], options, results=("", dtype), layout="UniqueOptions")
        x = ints(9, low=0, high=4).astype(np.float32)
        yield Probe("UNIQUE", [x], options, results=("", dtype), layout="UniqueOptions")
    corner = RANDOM.uniform(0, 4, (12, 2))
    boxes = np.concatenate([corner, corner + RANDOM.uniform(1, 3, (12, 2))], 1).astype(np.float32)
    scores = RANDOM.uniform(0, 1, 12).astype(np.float32)
    for most, share, least in itertools.product((0, 3, 12, 15), (0.2, 0.5), (0.0, 0.4)):
        operands = [boxes, scores, scalar(most), scalar(share, "f32"), scalar(least, "f32")]
        yield Probe("NON_MAX_SUPPRESSION_V4", operands, fixed=(2, 3, 4), results=("i32", "i32"))
        operands = [*operands, scalar(0, "f32")]
        yield Probe("NON_MAX_SUPPRESSION_V5", operands, fixed=(2, 3, 4, 5),
                    results=("i32", "f32", "i32"))  # fmt: skip


def signals() -> Iterator[Probe]:
    for shape, lengths in (
        ((4, 8), (4, 8)),
        ((3, 4, 8), (4, 8)),
        ((4, 8), (2, 4)),
        ((3, 5), (4, 8)),
    ):
        yield Probe("RFFT2D", [floats(*shape), i32(*lengths)], fixed=(1,), results=("c64",))
    z = (floats(3, 4) + 1j * floats(3, 4)).astype(np.complex64)
    for kind in ("REAL", "IMAG", "COMPLEX_ABS"):
        yield Probe(kind, [z], results=("f32",))


def weights(gates: Sequence[bool], *shape: int) -> list[Array | None]:
    """Return weights of gates, of which some are absent."""
    return [floats(*shape, low=-1, high=1) if there else None for there in gates]


def recurrent() -> Iterator[Probe]:
    """Layers with a state, which steps of a call go on from."""
    batch, steps, inputs, units = 2, 3, 4, 5
    state = np.zeros((batch, units), np.float32)
    for activation in (0, 1, 4):
        options = {"fused_activation_function": activation}
        operands = [floats(units, inputs), floats(units, units), floats(units), state]
        yield Probe("RNN", [floats(batch, inputs), *operands], options, (1, 2, 3), kept=(4,))
        for major in (False, True):
            shape = (steps, batch, inputs) if major else (batch, steps, inputs)
            options = {"fused_activation_function": activation, "time_major": major}
            yield Probe("UNIDIRECTIONAL_SEQUENCE_RNN", [floats(*shape), *operands], options,
                        (1, 2, 3), kept=(4,))  # fmt: skip
            for merge in (False, True):
                yield Probe("BIDIRECTIONAL_SEQUENCE_RNN",
                            [floats(*shape), *operands, *operands, None, None, None],
                            {**options, "merge_outputs": merge},
                            (1, 2, 3, 5, 6, 7), ("",) * (2 - merge), kept=(4, 8))  # fmt: skip
    for rank, activation in itertools.product((1, 2), (0, 1)):
        filters, memory = 4 * rank, 6
        operands = [floats(batch, inputs), floats(filters, inputs), floats(filters, memory),
                    floats(4), np.zeros((batch, memory * filters), np.float32)]  # fmt: skip
        options = {"rank": rank, "fused_activation_function": activation}
        yield Probe("SVDF", operands, options, (1, 2, 3), kept=(4,))


def lstms() -> Iterator[Probe]:
    """LSTM with each of its extras."""
    batch, steps, inputs, units, outputs = 2, 3, 4, 5, 3
    four = (True,) * 4
    for coupled, peeping, projected, normed, clip, major in itertools.product(
        (False, True), (False, True), (False, True), (False, True), (0.0, 0.4), (False, True)
    ):
        gates = (not coupled, True, True, True)
        size = outputs if projected else units
        peepholes = weights((not coupled and peeping, peeping, peeping), units)
        projection = [floats(outputs, units), floats(outputs)] if projected else [None, None]
        norms = weights(gates if normed else (False,) * 4, units)
        state = [np.zeros((batch, n), np.float32) for n in (size, units)]
        layer = [*weights(gates, units, inputs), *weights(gates, units, size), *peepholes,
                 *weights(gates, units), *projection, *state, *norms]  # fmt: skip
        options = {"fused_activation_function": 4, "cell_clip": clip, "proj_clip": clip}
        fixed = [i for i in range(1, 24) if i not in (18, 19)]
        if not major:
            yield Probe("LSTM", [floats(batch, inputs), *layer], options, fixed, kept=(18, 19))
        shape = (steps, batch, inputs) if major else (batch, steps, inputs)
        yield Probe("UNIDIRECTIONAL_SEQUENCE_LSTM", [floats(*shape), *layer],
                    {**options, "time_major": major}, fixed, kept=(18, 19))  # fmt: skip
    for projected, merge, major in itertools.product((False, True), (False, True), (False, True)):
        if merge and not major:  # LiteRT reads memory that it did not write
            continue
        size = outputs if projected else units
        one = [*weights(four, units, inputs), *weights(four, units, size), None, None, None,
               *weights(four, units),
               *([floats(outputs, units), None] if projected else [None, None])]  # fmt: skip
        state = [np.zeros((batch, n), np.float32) for n in (size, units, size, units)]
        shape = (steps, batch, inputs) if major else (batch, steps, inputs)
        options = {"fused_activation_function": 4, "time_major": major, "merge_outputs": merge}
        yield Probe("BIDIRECTIONAL_SEQUENCE_LSTM",
                    [floats(*shape), *one, *one, *state, *[None] * 9], options, range(1, 35),
                    ("",) * (2 - merge), kept=range(35, 39))  # fmt: skip
    operands = [floats(batch, inputs), floats(batch, units), floats(4 * units, inputs + units),
                floats(4 * units), floats(batch, units)]  # fmt: skip
    options = {"fused_activation_function": 4, "kernel_type": 1}
    yield Probe("LSTM", operands, options, (2, 3), ("",) * 4)


STATEFUL = (recurrent, lstms)
FAMILIES = (unary, casts, binary, convolutions, transposed, pools, products, reductions, movements,
            slices, gathers, generators, resizes, counted, signals, windows)  # fmt: skip
