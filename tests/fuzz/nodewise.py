"""A model node by node, each by whoever takes it: for what nobody takes as a whole.

ONNX Runtime lacks many operators for one type or another, and the reference evaluator some opsets.
Some operators are written down by ourselves (`written`).  Of a node that all decline in halves, the
results are those in f32, rounded; and of one in f64, if results may be coarse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from alpenglow.frontends.onnx.cut import reads

from . import written

Array = NDArray[Any]
Value = Array | list[Array] | None
Engine = Callable[[bytes], Callable[[Mapping[str, Any]], list[Any] | None] | None]
"""Takes a model, and then feeds; None where it declines either."""

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


class Declines(Exception):
    """There is a node that nobody takes."""


def run(
    model: onnx.ModelProto, feeds: Mapping[str, Array], engines: tuple[Engine, ...],
    coarse: bool = False, some: bool = False,
) -> dict[str, Value] | None:  # fmt: skip
    """Return the outputs of a model, None if there is a node that no engine takes.

    If `some`, return what does not depend on such nodes.
    """
    others = (*HALVES, np.dtype(np.float64)) if coarse else HALVES
    env: dict[str, Value] = dict(feeds)
    env |= {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        try:
            env |= _results(model, node, env, engines, others)
        except Declines:
            if not some:
                return None
    return {o.name: env[o.name] for o in model.graph.output if o.name in env}


def _results(
    model: onnx.ModelProto, node: onnx.NodeProto, env: Mapping[str, Value],
    engines: tuple[Engine, ...], others: tuple[np.dtype[Any], ...],
) -> dict[str, Value]:  # fmt: skip
    wanted = [name for name in dict.fromkeys(reads(node)) if name]
    given = {name: env[name] for name in wanted if name in env}
    if len(given) < len(wanted):
        raise Declines(node.op_type)
    names = [o for o in node.output if o]
    found: list[Any] | None = written.results(node, given)
    if found is not None:
        kept = [k for k, o in enumerate(node.output) if o]
        return {node.output[k]: found[k] for k in kept}
    found = _asked(model, node, given, names, engines)
    if found is None:
        found = _in_f32(model, node, given, names, engines, others)
    if found is None:
        raise Declines(node.op_type)
    return dict(zip(names, found, strict=True))


def _asked(
    model: onnx.ModelProto, node: onnx.NodeProto, given: Mapping[str, Value], names: list[str],
    engines: tuple[Engine, ...],
) -> list[Any] | None:  # fmt: skip
    try:
        inputs = [onnx.ValueInfoProto(name=k, type=_type(v)) for k, v in given.items()]
    except TypeError:
        return None
    outputs = [onnx.ValueInfoProto(name=n) for n in names]
    graph = helper.make_graph([node], "node", inputs, outputs)
    one = helper.make_model(graph, opset_imports=model.opset_import, ir_version=10)
    content = one.SerializeToString()
    for engine in engines[::-1] if any(map(_unsure, given.values())) else engines:
        take = engine(content)
        found = None if take is None else take(given)
        named = None if found is None else _named(node, found)
        if named is not None:
            return named
    return None


def _named(node: onnx.NodeProto, results: list[Any]) -> list[Any] | None:
    """Return results of a node with the labels of two classes that trees score both: that of the
    larger score; None where nobody has asked for the scores.

    ONNX Runtime calls such classes 0 and 1, whatever they are called, and says 1 where the second
    score is positive, however large the first.
    """
    given = {
        a.name: a.ints for a in node.attribute if a.name in ("classlabels_int64s", "class_ids")
    }
    labels = given.get("classlabels_int64s", ())
    if node.op_type != "TreeEnsembleClassifier" or len(labels) != 2 or not node.output[0]:
        return results
    if len(set(given["class_ids"])) < 2:
        return results
    if len(results) < 2:
        return None
    return [np.array(labels, np.int64)[np.argmax(results[1], 1)], results[1]]


def _in_f32(
    model: onnx.ModelProto, node: onnx.NodeProto, given: Mapping[str, Value], names: list[str],
    engines: tuple[Engine, ...], others: tuple[np.dtype[Any], ...],
) -> list[Any] | None:  # fmt: skip
    """Return results of a node on other floats, computed in f32; None if it tells the type."""
    kinds = {v.dtype for v in given.values() if isinstance(v, np.ndarray) and v.dtype in others}
    tells = any(a.name in ("to", "dtype") or a.HasField("g") for a in node.attribute)
    if len(kinds) != 1 or tells:
        return None
    (kind,) = kinds
    f32 = {
        k: v.astype(np.float32) if isinstance(v, np.ndarray) and v.dtype == kind else v
        for k, v in given.items()
    }
    found = _asked(model, node, f32, names, engines)
    if found is None:
        return None
    return [v.astype(kind) if isinstance(v, np.ndarray) and v.dtype == np.float32 else v
            for v in found]  # fmt: skip


def _unsure(v: Value) -> bool:
    """Whether ONNX Runtime is asked last of what is made of a value: of nothing, or of strings.

    Here and there it takes the sum of no products for whatever is in memory; its Gather leaves
    strings out, and its StringSplit finds no parts in an empty one, whatever it is split at.
    """
    return isinstance(v, np.ndarray) and (not v.size or v.dtype.kind in "OSU")


def _type(v: Value) -> onnx.TypeProto:
    """Return the type of a value; raise TypeError if it is neither tensor nor sequence."""
    if isinstance(v, np.ndarray):
        return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
    if isinstance(v, list) and v and isinstance(v[0], np.ndarray):
        code = helper.np_dtype_to_tensor_dtype(v[0].dtype)
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(code, None))
    raise TypeError(f"no type for {v!r}")
