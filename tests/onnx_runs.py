"""Running models of ONNX that were exported: in ONNX Runtime, or imported again where it cannot."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.exporters.onnx.elements import CODES
from alpenglow.exporters.onnx.pairs import pair
from alpenglow.ir.graph import Graph
from alpenglow.ir.solve import bind_shapes
from alpenglow.ir.types import DTYPES, NAMES, TensorType, width

Array = NDArray[Any]
Runtime = onnxruntime.InferenceSession

CANNOT = (
    "NOT_IMPLEMENTED",
    "is not currently registered",
    "Creation of OrtValues is currently only supported",
    "does not support double yet",
)
"""What ONNX Runtime says where it has no kernel, or no such type."""


def as_exported(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays as an exported model takes and makes them: complex ones as pairs of reals."""
    parts = {np.dtype(np.complex64): np.float32, np.dtype(np.complex128): np.float64}
    return {
        n: np.stack([a.real, a.imag], axis=-1).astype(parts[a.dtype]) if a.dtype in parts else a
        for n, a in arrays.items()
    }


def session(model: onnx.ModelProto) -> Runtime:
    """Return a checked model in ONNX Runtime."""
    onnx.checker.check_model(model, full_check=True)
    return Runtime(model.SerializeToString(), options(), providers=["CPUExecutionProvider"])


def options() -> onnxruntime.SessionOptions:
    """Return how ONNX Runtime is to run a model: as it stands, with one thread.

    Rewriting a model takes longer than running a small one.
    """
    chosen = onnxruntime.SessionOptions()
    chosen.log_severity_level = 4
    chosen.intra_op_num_threads = 1
    chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return chosen


def in_runtime(
    model: onnx.ModelProto, feeds: Mapping[str, Array], types: Mapping[str, TensorType]
) -> dict[str, Array] | None:
    """Return the outputs in ONNX Runtime, or None where it has no kernel for something.

    `types` are those of the outputs of the graph.
    Its Python interface takes no elements of less than a byte.
    """
    if any(width(NAMES[x.dtype]) < 8 for x in feeds.values()):
        return None
    try:
        run = session(model)
        values = {name: _given(x) for name, x in feeds.items()}
        names = [o.name for o in run.get_outputs()]
        results = run.run_with_ort_values(names, values)
    except Exception as error:  # its exceptions have no root of their own
        if any(what in str(error) for what in CANNOT):
            return None
        raise
    return {n: _got(v, pair(types[n])) for n, v in zip(names, results, strict=True)}


def imported(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a model as the interpreter has them once it is imported again."""
    g = ag.load(model)
    if isinstance(g, Graph):
        return evaluate(bind_shapes(g, {n: a.shape for n, a in feeds.items()}), feeds)
    return ag.compile(g, target="interpreter").run(feeds)


def _given(x: Array) -> Any:
    dtype = NAMES[x.dtype]
    dense = np.ascontiguousarray(x).reshape(x.shape)
    if DTYPES[dtype].kind in "biufc" and dtype != "bf16":
        return onnxruntime.OrtValue.ortvalue_from_numpy(dense)
    bits = np.dtype(f"u{x.itemsize}")
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(dense.view(bits), CODES[dtype])


def _got(value: Any, t: TensorType) -> Array:
    """Read a result from memory: NumPy does not know all types, and small ones are packed."""
    shape, bits = value.shape(), width(t.dtype)
    count = int(np.prod(shape, dtype=np.int64))
    nbytes = count * t.numpy.itemsize if bits >= 8 else -(-count * bits // 8)
    memory = np.frombuffer(ctypes.string_at(value.data_ptr(), nbytes) if nbytes else b"", np.uint8)
    if bits >= 8:
        return memory.view(t.numpy).reshape(shape)
    places = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    codes = (memory[:, None] >> places & ((1 << bits) - 1)).reshape(-1)[:count].astype(np.int64)
    signed = codes - (codes >> (bits - 1) << bits) if t.dtype[0] == "i" else codes
    return signed.astype(np.int8).astype(t.numpy).reshape(shape)
