"""What ONNX says of a node: the types of its results, and which element types it may have."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper, numpy_helper
from onnx.shape_inference import InferenceError, infer_node_outputs

from .elements import DTYPES, Array, Shape, code


class Declined(Exception):
    """A recipe finds no way to go on from here."""


def inferred(
    schema: onnx.defs.OpSchema, node: onnx.NodeProto, given: Mapping[str, tuple[str, Shape]],
    known: Mapping[str, Array], opset: int,
) -> list[tuple[str, Shape]]:  # fmt: skip
    """Return the types of a node's results; decline where ONNX cannot tell, or does not like it."""
    types = {k: helper.make_tensor_type_proto(code(t), shape) for k, (t, shape) in given.items()}
    data = {k: numpy_helper.from_array(array, k) for k, array in known.items()}
    imports = [helper.make_opsetid("", opset)]
    try:
        made = infer_node_outputs(schema, node, types, data, opset_imports=imports)
    except (InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        raise Declined from error
    found = []
    for name in node.output:
        t = made[name].tensor_type if name in made else onnx.TypeProto.Tensor()
        kind = onnx.TensorProto.DataType.Name(t.elem_type).lower()
        if not t.HasField("shape") or kind not in DTYPES:
            raise Declined
        if not all(d.HasField("dim_value") and d.dim_value >= 0 for d in t.shape.dim):
            raise Declined
        shape = tuple(d.dim_value for d in t.shape.dim)
        if 0 in shape and any(a.name == "kernel_shape" for a in node.attribute):
            raise Declined  # the window is larger than what it stands on
        found.append((kind, shape))
    return found


def allowed(op: str, opset: int, position: int = 0, domain: str = "") -> list[str]:
    """Return the element types that ONNX allows for an operand and that we know."""
    if not onnx.defs.has(op, opset, domain):
        raise Declined
    schema = onnx.defs.get_schema(op, opset, domain)
    types = schema.inputs[min(position, len(schema.inputs) - 1)].types
    return sorted(t[7:-1] for t in types if t.startswith("tensor(") and t[7:-1] in DTYPES)
