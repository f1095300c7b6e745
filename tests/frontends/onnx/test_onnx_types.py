"""ONNX's element types of a byte or less, and complex ones: stored, moved, cast and quantized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, ModelError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from alpenglow.frontends.onnx.file.attributes import unpacked
from alpenglow.ir.types import COMPLEX, DTYPES, NARROW, TensorType, width
from node_cases import Case, as_array, check_cases, models
from onnx_node import ours, references, single

Array = NDArray[Any]

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
NAMED = (
    "cast_", "castlike_", "bitcast_", "quantizelinear", "dequantizelinear",
    "dynamicquantizelinear", "isnan", "isinf",
)  # fmt: skip

every_new_type = pytest.mark.parametrize("dtype", sorted(NARROW | COMPLEX))


def drawn(dtype: str, *shape: int) -> Array:
    """Return an array that holds many codes of a type, and no NaN."""
    random = np.random.default_rng(len(shape))
    if dtype in COMPLEX:
        parts = random.normal(size=(2, *shape))
        return np.asarray(parts[0] + 1j * parts[1]).astype(DTYPES[dtype])
    codes = random.integers(0, min(1 << width(dtype), 120), shape, dtype=np.uint8)
    return np.asarray(codes).view(DTYPES[dtype])


def compiled(model: onnx.ModelProto, *feeds: Array) -> list[Array]:
    """Return the outputs of a model that is compiled without the interpreter."""
    exe = ag.compile(load(model), target="cpu", threads=1)
    assert all(entry.kernel for entry in exe.artifact.table)
    return list(exe.run(dict(zip(exe.inputs, feeds, strict=True))).values())


def identity_of(tensor: onnx.TensorProto) -> onnx.ModelProto:
    """Return a model that puts out an initializer."""
    node = helper.make_node("Identity", [tensor.name], ["y"])
    results = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([node], "one", [], results, [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)


@pytest.mark.parametrize("start", NAMED)
@pytest.mark.sampled(4)
def test_node_tests_of_onnx_give_what_they_say(start: str) -> None:
    found = []
    for test in models():
        if not test.name.startswith(f"test_{start}") or "STRING" in test.name:
            continue
        for inputs, outputs in test.data_sets:
            g = load(test.model)
            feeds = dict(zip(g.inputs, map(as_array, inputs), strict=True))
            found.append(Case(test.name, g, feeds, [as_array(t) for t in outputs], 1e-6, 0))

    assert found
    check_cases(found)


@every_new_type
def test_tensors_of_every_type_are_read(dtype: str) -> None:
    x = drawn(dtype, 3, 7)
    tensor = numpy_helper.from_array(x, "x")

    (actual,) = evaluate(load(identity_of(tensor)), {}).values()

    assert actual.dtype == x.dtype
    assert actual.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", ["i4", "u2", "f6e2m3", "f8e5m2", "c64"])
def test_tensors_outside_of_the_model_are_read(dtype: str, tmp_path: Path) -> None:
    x = drawn(dtype, 3, 7)
    tensor = numpy_helper.from_array(x, "x")
    (tmp_path / "weights").write_bytes(b"1234" + tensor.raw_data)
    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights"), ("offset", 4), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))
    path = tmp_path / "model.onnx"
    path.write_bytes(identity_of(tensor).SerializeToString())

    (actual,) = evaluate(load(path), {}).values()

    assert size == -(-21 * width(dtype) // 8)
    assert actual.tobytes() == x.tobytes()


def test_packed_elements_begin_with_the_lowest_bits() -> None:
    packed = np.array([0x21, 0xE3], np.uint8)

    four = unpacked(packed, TensorType("i4", (3,)))
    two = unpacked(packed, TensorType("u2", (2, 3)))

    assert four.tolist() == [1, 2, 3]
    assert two.tolist() == [[1, 0, 2], [0, 3, 0]]


@every_new_type
@pytest.mark.sampled(7)
def test_elements_of_every_type_are_moved(dtype: str) -> None:
    x, y = drawn(dtype, 3, 4), drawn(dtype, 2, 4)
    rows = np.array([4, 0, 0], np.int64)
    nodes = [
        helper.make_node("Concat", ["x", "y"], ["a"], axis=0),
        helper.make_node("Gather", ["a", "rows"], ["b"], axis=0),
        helper.make_node("Transpose", ["b"], ["c"], perm=[1, 0]),
        helper.make_node("Reshape", ["c", "shape"], ["d"]),
        helper.make_node("Slice", ["d", "start", "end"], ["e"]),
        helper.make_node("Expand", ["e", "wide"], ["out"]),
    ]
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    infos = [helper.make_tensor_value_info(n, code, a.shape) for n, a in (("x", x), ("y", y))]
    given = {"rows": rows, "shape": [2, 6], "start": [1], "end": [2], "wide": [3, 6]}
    tensors = [numpy_helper.from_array(np.asarray(v, np.int64), k) for k, v in given.items()]
    graph = helper.make_graph(
        nodes, "moves", infos, [helper.make_empty_tensor_value_info("out")], tensors
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    moved = np.concatenate([x, y])[rows].T.reshape(2, 6)[1:2]
    expected = np.ascontiguousarray(np.broadcast_to(moved, (3, 6)))

    (actual,) = compiled(model, x, y)

    assert actual.dtype == expected.dtype
    assert actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize("to", ["f2", "f4", "f8"])
def test_the_precision_of_the_division_is_as_asked(to: str) -> None:
    x = np.random.default_rng(0).normal(0, 30, 999).astype(np.float32)
    scale = np.float32(0.37)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    given: list[Array | None] = [x, np.asarray(scale), np.zeros((), np.int8)]
    model = single("QuantizeLinear", given, 23, precision=code)
    expected = references(model, {f"x{i}": np.asarray(a) for i, a in enumerate(given)})

    actual = compiled(model, *map(np.asarray, given))

    assert np.array_equal(expected[0], actual[0])
    assert np.array_equal(expected[0], ours(model, list(map(np.asarray, given)))[0])


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn"])
def test_blocks_of_few_bits_are_quantised_and_back(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype))
    random = np.random.default_rng(0)
    x = random.normal(0, 3, (5, 10)).astype(np.float32)
    scale = random.uniform(0.2, 2, (5, 3)).astype(np.float32)
    zero = np.ones((5, 3)).astype(kind)
    there = single("QuantizeLinear", [x, scale, zero], 25, axis=1, block_size=4)
    wide, origin = (np.repeat(a.astype(np.float32), 4, 1)[:, :10] for a in (scale, zero))
    exact = np.rint(x / wide) if "int" in dtype else x / wide
    least, most = (-6, 6) if kind == "float4_e2m1fn" else limits(dtype)
    expected = np.clip(exact + origin, least, most).astype(kind)

    (q,) = compiled(there, x, scale, zero)
    back = single("DequantizeLinear", [q, scale, zero], 25, axis=1, block_size=4)
    (y,) = compiled(back, q, scale, zero)

    assert np.array_equal(expected, q)
    assert np.array_equal((expected.astype(np.float32) - origin) * wide, y)


def limits(dtype: str) -> tuple[int, int]:
    bits = int(dtype[-1])
    return (0, (1 << bits) - 1) if dtype[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("kind", [E4M3, E5M2])
def test_quantised_floats_saturate_if_asked_to(kind: type, saturate: int) -> None:
    x = np.array([1.3, -1e6, 1e6, np.inf, -np.inf, np.nan, 250], np.float32)
    given: list[Array | None] = [x, np.asarray(0.5, np.float32), np.zeros((), kind)]
    model = single("QuantizeLinear", given, 23, saturate=saturate)
    expected = references(model, {f"x{i}": np.asarray(a) for i, a in enumerate(given)})[0]

    (actual,) = compiled(model, *map(np.asarray, given))

    np.testing.assert_array_equal(actual.astype(np.float32), expected.astype(np.float32))


def test_bits_are_cast_among_types_of_one_width_only() -> None:
    x = np.ones((2, 3), ml_dtypes.int4)

    with pytest.raises(AlpenglowError, match="4 bits"):
        load(single("BitCast", [x], 26, to=TensorProto.INT8))


def test_a_rounding_that_does_not_exist_is_refused() -> None:
    x = np.ones(3, np.float32)
    model = single("Cast", [x], 25, to=TensorProto.FLOAT8E8M0, round_mode="sideways")

    with pytest.raises(ModelError, match="sideways"):
        load(model)
