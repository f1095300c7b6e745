"""Whoever else can say what a model computes: ONNX Runtime, and the reference of ONNX itself.

ONNX Runtime runs the graph as it is written: none of its optimisations may hide a mistake of ours
behind one of its own.  The reference evaluator of onnx is asked where ONNX Runtime declines, and
where it disagrees.  `widened` writes a model in f64, which tells who of two is nearer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from . import nodewise
from .draft import every
from .reference import flat

Array = NDArray[Any]
Feeds = Mapping[str, Array]
Run = Callable[[Feeds], list[Any] | None]
"""Returns outputs in order, None if it declines."""

WIDE = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
"""What becomes double in a widened model."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """Somebody who runs the model."""

    name: str
    run: Callable[[Feeds], dict[str, Array] | None]


ORACLES = ("onnxruntime", "nodewise", "reference", "coarse")
"""In the order in which they are asked, until one confirms: ONNX Runtime makes fewest mistakes.

The last computes in f32 what nobody has in f64; it may confirm a result, but contradicts none.
"""


def oracle(name: str, model: bytes) -> Oracle | None:
    """Return an oracle for a model, None if it does not take it."""
    if name in ("nodewise", "coarse"):
        proto = onnx.load_model_from_string(model)
        return Oracle(name, partial(_by_nodes, proto, name == "coarse"))
    run = (runtime if name == "onnxruntime" else reference)(model)
    return None if run is None else Oracle(name, partial(_named, run, _outputs(model)))


def runtime(model: bytes) -> Run | None:
    """Return ONNX Runtime's way to run a model, None if it does not take it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    onnxruntime.set_default_logger_severity(4)
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # Its exceptions have no common root, and it declines in many ways.
    try:
        typed = shape_inference.infer_shapes(lowered(onnx.load_model_from_string(model)))
        _count_as_it_does(typed)
        _sort_trees(typed)
        session = onnxruntime.InferenceSession(
            typed.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:
        return None

    # It gives float8 as the bytes that they are.
    bytewise = [BYTEWISE.get(o.type) for o in session.get_outputs()]

    def run(feeds: Feeds) -> list[Any] | None:
        try:
            results = session.run(None, dict(feeds))
        except Exception:
            return None
        given = zip(results, bytewise, strict=True)
        return [y if kind is None else y.view(kind) for y, kind in given]

    return run


BYTEWISE = {
    f"tensor({name.lower()})": helper.tensor_dtype_to_np_dtype(code)
    for name, code in TensorProto.DataType.items()
    if name.startswith("FLOAT8E") and name != "FLOAT8E8M0"
}
"""Types that ONNX Runtime gives as bytes, by its names for them."""

KNOWN = 22
"""An opset that ONNX Runtime knows for sure: it declines models of the latest."""


def _count_as_it_does(model: onnx.ModelProto) -> None:
    """Exchange LOGISTIC and SOFTMAX after trees, which ONNX Runtime counts in another order."""
    for n in every(model.graph.node):
        for a in n.attribute if n.op_type == "TreeEnsemble" else ():
            if a.name == "post_transform" and a.i in (1, 2):
                a.i = 3 - a.i


def _sort_trees(model: onnx.ModelProto) -> None:
    """Write the nodes of trees in order: ONNX Runtime confuses leaves of trees that are mixed."""
    for n in every(model.graph.node):
        if n.op_type not in ("TreeEnsembleClassifier", "TreeEnsembleRegressor"):
            continue
        lists = {a.name: a for a in n.attribute if a.name.startswith("nodes_")}
        trees, ids = (lists[name].ints for name in ("nodes_treeids", "nodes_nodeids"))
        order = sorted(range(len(ids)), key=lambda i, t=trees, k=ids: (t[i], k[i]))
        for a in lists.values():
            values = helper.get_attribute_value(a)
            if len(values) == len(order):
                a.CopyFrom(
                    helper.make_attribute(a.name, [values[i] for i in order], attr_type=a.type)
                )


def lowered(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model under an opset that means the same of all its nodes, and is not the latest.

    That is the last in which one of them changed, but KNOWN at least.
    """
    own = next((o for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    if own is None or own.version <= KNOWN:
        return model
    nodes = [n for n in every(model.graph.node) if n.domain in ("", "ai.onnx")]
    since = [onnx.defs.get_schema(n.op_type, own.version).since_version for n in nodes]
    own.version = max([KNOWN, *since])
    return model


def reference(model: bytes) -> Run | None:
    """Return the way of onnx's reference evaluator, None if it does not take the model.

    It is not asked of what it has not right (`unfit`).
    """
    proto = onnx.load_model_from_string(model)
    if unfit(proto):
        return None
    try:
        evaluator: Any = ReferenceEvaluator(proto)
    except Exception:
        return None

    def run(feeds: Feeds) -> list[Any] | None:
        try:
            with np.errstate(all="ignore"):
                results = evaluator.run(None, dict(feeds))
        except Exception:  # it is Python, and raises what Python raises
            return None
        # Scalars come as such.
        return [np.asarray(r) if isinstance(r, np.generic) else r for r in results]

    return run


UNFIT = {
    "Adam": "gives the second tensor in the type of the rate",
    "GRU": "knows no lengths, activations or clipping",
    "LSTM": "knows no lengths, activations, clipping or coupled gates",
    "RNN": "knows no lengths, activations or clipping",
    "LRN": "normalises as many channels as there are samples",
    "GlobalMaxPool": "takes the axes after the second for those of a picture: of a line, others",
    "LpNormalization": "adds up numbers, not their sizes, where p is 1",
    "MatMulInteger": "stretches the zero points of rows along columns",
    "TfIdfVectorizer": "weighs by where a count is stored, not by the n-gram's place in the pool",
    "Unique": "sorts, if nobody asks for where elements are",
    "SequenceInsert": "inserts at the front what belongs to the end",
    "OptionalHasElement": "finds an element in every optional",
    "Erf": "rounds to f32 before it cuts off, where integers are wanted: erf(5) is 1",
}
"""Operators that the reference evaluator of onnx has not right, and why."""

OF_OLD = ("Softmax", "LogSoftmax", "Hardmax")
"""Operators that it knows as they are from opset 13 on: before, an axis flattens."""


def unfit(model: onnx.ModelProto) -> str:
    """Return why the reference evaluator of onnx has a model not right, "" if it may have.

    `tests/fuzz/test_fuzz_aside.py` shows each reason.
    """
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    return next(filter(None, (_unfit(n, opset) for n in every(model.graph.node))), "")


def _unfit(n: onnx.NodeProto, opset: int) -> str:
    if n.domain == "ai.onnx.ml":
        return "computes in the type of its operand, and counts votes otherwise"
    if n.op_type == "Loop" and not n.input[1]:
        return "never turns a Loop whose condition is left out"
    if n.op_type == "Loop" and len(n.output) > len(n.input) - 2:
        return "joins what turns of a Loop give along its first axis, not along a new one"
    if any(a.name == "broadcast" for a in n.attribute):
        return "knows no broadcasting as it was up to opset 6"
    if n.op_type in OF_OLD and opset < 13:
        return "knows only the form in which an axis does not flatten"
    if n.op_type == "ConvTranspose" and any(a.name == "group" and a.i > 1 for a in n.attribute):
        return "adds the bias of the first group's channels to all"
    if n.op_type in ("AveragePool", "LpPool") and any(
        a.name == "ceil_mode" and a.i for a in n.attribute
    ):
        return "reads other elements where a window hangs over the end"
    if n.op_type == "AveragePool" and opset < 7:
        return "counts padding, which it may only from opset 7 on"
    if n.op_type == "BatchNormalization" and opset < 14:
        return "normalises by the batch, as in training, where there is a momentum"
    if n.op_type == "Resize" and any(
        a.name == "nearest_mode" and a.s in (b"ceil", b"floor") for a in n.attribute
    ):
        return "misses by rounding a pixel that a coordinate lies on"
    if n.op_type == "Resize" and any(a.s == b"pytorch_half_pixel" for a in n.attribute):
        return "takes -0.5 for the place of a single element, which is 0"
    if n.op_type == "StringNormalizer":
        given = {a.name: a for a in n.attribute}
        cased = "is_case_sensitive" in given and given["is_case_sensitive"].i
        changed = "case_change_action" in given and given["case_change_action"].s != b"NONE"
        if "stopwords" in given and not cased and not changed:
            return "keeps stop words that are written otherwise, where case does not matter"
    causal = any(a.name == "is_causal" and a.i for a in n.attribute)
    if n.op_type == "Attention" and causal and len(n.input) > 3 and n.input[3]:
        return "lays the triangle over a mask before it is stretched"
    return UNFIT.get(n.op_type, "")


def _outputs(model: bytes) -> list[str]:
    return [o.name for o in onnx.load_model_from_string(model).graph.output]


def _named(run: Run, names: Sequence[str], feeds: Feeds) -> dict[str, Array] | None:
    results = run(feeds)
    return None if results is None else flat(dict(zip(names, results, strict=True)))


def _by_nodes(model: onnx.ModelProto, coarse: bool, feeds: Feeds) -> dict[str, Array] | None:
    found = nodewise.run(model, feeds, (runtime, reference), coarse)
    return None if found is None else flat(found)


# ── in f64 ──


def widened(model: bytes) -> bytes | None:
    """Return the model with all floats in f64; None where ONNX has it in no f64."""
    wide = onnx.load_model_from_string(model)
    _widen(wide.graph)
    del wide.graph.value_info[:]
    try:
        shape_inference.infer_shapes(wide, check_type=True, strict_mode=True)
    except Exception:
        return None
    return bytes(wide.SerializeToString())


def in_f64(model: bytes, feeds: Feeds) -> dict[str, Array] | None:
    """Return what a model computes in f64, as onnx's reference or ONNX Runtime says of the whole,
    or of its nodes one by one, as far as they take them."""
    wide = widened(model)
    if wide is None:
        return None
    kept = _kept(onnx.load_model_from_string(wide).graph)
    given = {
        k: a.astype(np.float64) if _is_float(a) and k not in kept else a for k, a in feeds.items()
    }
    for make in (reference, runtime):
        run = make(wide)
        results = None if run is None else _named(run, _outputs(wide), given)
        if results is not None:
            return results
    found = nodewise.run(onnx.load_model_from_string(wide), given, (reference, runtime), some=True)
    return flat(found) if found else None


def _is_float(a: Array) -> bool:
    return a.dtype.kind == "f" or a.dtype.name == "bfloat16"


def _kept(graph: onnx.GraphProto) -> set[str]:
    """Return the names of what has to be f32: scales by which images are resized."""
    return {
        name for n in graph.node if n.op_type in ("Resize", "Upsample") for name in n.input[-3:]
        if name and name != n.input[0]
    }  # fmt: skip


def _widen(graph: onnx.GraphProto) -> None:
    kept = _kept(graph)
    for v in (*graph.input, *graph.output):
        if v.name in kept:
            continue
        if v.type.HasField("tensor_type") and v.type.tensor_type.elem_type in WIDE:
            v.type.tensor_type.elem_type = TensorProto.DOUBLE
    for t in graph.initializer:
        if t.name not in kept:
            t.CopyFrom(_wide(t))
    for node in graph.node:
        for a in node.attribute:
            if a.HasField("g"):
                _widen(a.g)
            elif a.HasField("t"):
                a.t.CopyFrom(_wide(a.t))
            elif a.name in ("to", "dtype", "output_dtype", "output_datatype") and a.i in WIDE:
                a.i = TensorProto.DOUBLE
        if node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(helper.make_attribute("value", _zero()))


def _zero() -> onnx.TensorProto:
    return numpy_helper.from_array(np.zeros(1))


def _wide(t: onnx.TensorProto) -> onnx.TensorProto:
    if t.data_type not in WIDE:
        return t
    kept = copy.deepcopy(t)
    return numpy_helper.from_array(numpy_helper.to_array(kept).astype(np.float64), t.name)
