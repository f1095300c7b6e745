"""The same network in f64: how far what is computed in f32 is from what it stands for.

The numbers of the model stay what they are in f32, and so does what is computed from them alone.
What depends on inputs is computed in f64 by the interpreter, whose rounding is far below that of
f32, and is taken for exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.quantized.quantize import Dequantize
from alpenglow.quant.layers import varying


def exact(g: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of `g` by name, computed in f64 from the same inputs."""
    wide = widened(g)
    types = {name: v.type.numpy for name, v in wide.inputs.items()}
    return evaluate(wide, {name: feeds[name].astype(t) for name, t in types.items()})


def widened(g: Graph) -> Graph:
    """Return `g` with all in f64 that depends on inputs and is f32 in `g`.

    Raises UnsupportedError for variables: what they hold depends on earlier calls.
    """
    if g.initial:
        raise UnsupportedError(f"exact results of graph {g.name} with variables are not supported")
    return _Widener(g, varying(g)).graph()


def distance(outputs: Mapping[str, Any], wanted: Mapping[str, Array]) -> float:
    """Return the largest difference of an element, as a share of the largest of its output.

    Outputs of integers are left out; it is infinite where one has another size or is no number.
    """
    largest = 0.0
    for name, b in wanted.items():
        if b.dtype.kind == "f":
            a = np.asarray(outputs[name], np.float64)
            if a.shape != b.shape:
                return np.inf
            far = float(np.abs(a - b).max(initial=0) / (np.abs(b).max(initial=0) or 1.0))
            largest = max(largest, far if np.isfinite(far) else np.inf)
    return largest


class _Widener:
    """The wide graph while it is written, and what stands in it for each value of the other."""

    def __init__(self, old: Graph, moving: set[Value]) -> None:
        self.old, self.moving = old, moving
        self.g = Graph(old.name)
        self.env: dict[Value, Value] = {}
        self.cast: dict[Value, Value] = {}

    def graph(self) -> Graph:
        for name, v in self.old.inputs.items():
            self.env[v] = self.g.input(name, _wide(v.type), hidden=v.hidden)
        for v in self.old.constants():
            self.env[v] = Value(v.type, v.name, array=v.array)
        for node in self.old.nodes:
            if any(v in self.moving for v in node.results):
                regions = [_Widener(r, set(_values(r))).graph() for r in node.regions]
                operands = [None if v is None else self.operand(v) for v in node.inputs]
                new = self.g.add(_widely(node.op), operands, regions)
            else:
                operands = [None if v is None else self.env[v] for v in node.inputs]
                new = self.g.add(node.op, operands, [r.copy() for r in node.regions])
            self.env.update(zip(node.results, new.results, strict=True))
        for name, v in self.old.outputs.items():
            self.g.output(name, self.operand(v))
        return self.g

    def operand(self, v: Value) -> Value:
        """Return what a wide node reads in place of `v`: a number of the model is cast."""
        if v in self.moving or v.type.dtype != "f32":
            return self.env[v]
        if v not in self.cast:
            self.cast[v] = self.g(Cast("f64"), self.env[v])
        return self.cast[v]


def _values(g: Graph) -> list[Value]:
    """Return the values of a region that are not constants: they may all depend on inputs."""
    return [*g.inputs.values(), *(v for node in g.nodes for v in node.results)]


def _wide(t: TensorType) -> TensorType:
    return t.with_dtype("f64") if t.dtype == "f32" else t


def _widely(op: Op) -> Op:
    """Return an operator that makes f64 where it was told to make f32."""
    match op:
        case Cast(dtype="f32") | Dequantize(dtype="f32"):
            return replace(op, dtype="f64")
    return op
