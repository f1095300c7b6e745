"""Fetched convolution nets on pictures of other sizes: their shapes are written down for one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Shape = tuple[int, ...]


def resize(model: onnx.ModelProto, name: str, shape: Shape) -> onnx.ModelProto:
    """Return the model for an input `name` of another shape; only its pictures may have one.

    A mean over all of the last map is told to be that, and a pool whose padding rounds its sides up
    does so for all sides.  What is reshaped keeps its channels; its batch and sides are those that
    come in.  Raises ValueError where the shapes do not fit.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    before = _shapes(made)
    for node in made.graph.node:
        if node.op_type == "AveragePool" and before[node.output[0]][2:] == (1, 1):
            node.op_type = "GlobalAveragePool"
            del node.attribute[:]
        if node.op_type == "MaxPool" and _rounds_up(node, before):
            rest = [a for a in node.attribute if a.name not in ("pads", "auto_pad")]
            del node.attribute[:]
            node.attribute.extend([*rest, helper.make_attribute("auto_pad", "SAME_UPPER")])
    (given,) = (i for i in made.graph.input if i.name == name)
    kind = given.type.tensor_type.elem_type
    given.CopyFrom(helper.make_tensor_value_info(name, kind, shape))
    for output in made.graph.output:
        output.type.tensor_type.ClearField("shape")
    weights = {w.name: w for w in made.graph.initializer}
    for number, node in enumerate(made.graph.node):
        if node.op_type == "Reshape" and node.input[0] not in weights:
            old = numpy_helper.to_array(weights[node.input[1]])
            now = _shapes(made).get(node.input[0])
            if now is None:
                raise ValueError(f"{node.input[0]} has no shape then")
            wanted = _reshaped(old, before[node.input[0]], now)
            target = numpy_helper.from_array(wanted, f"resized_{number}")
            made.graph.initializer.append(target)
            node.input[1] = target.name
    return made


def _rounds_up(node: onnx.NodeProto, before: Mapping[str, Shape]) -> bool:
    """Whether a pool pads ends only, so that its result has as many elements as strides begin."""
    told = {a.name: tuple(a.ints) for a in node.attribute}
    sides, results = before[node.input[0]][2:], before[node.output[0]][2:]
    pads, strides = told.get("pads", ()), told.get("strides", (1,) * len(sides))
    ends = any(pads) and not any(pads[: len(sides)])
    return ends and all(r == -(-x // s) for x, r, s in zip(sides, results, strides, strict=True))


def _reshaped(target: NDArray[np.int64], before: Shape, now: Shape) -> NDArray[np.int64]:
    """Return where a reshape leads to now: batch and sides in it are those of its operand."""
    made = target.copy()
    if made[0] == before[0]:
        made[0] = now[0]
    if len(before) >= 4 and tuple(made[-2:]) == before[-2:]:
        made[-2:] = now[-2:]
    return made


def _shapes(model: onnx.ModelProto) -> Mapping[str, Shape]:
    """Return the shapes of values, as far as they are known."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    graph = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
    values = [*graph.input, *graph.value_info, *graph.output]
    found = {v.name: v.type.tensor_type.shape.dim for v in values}
    return {name: tuple(d.dim_value for d in dims) for name, dims in found.items()}
