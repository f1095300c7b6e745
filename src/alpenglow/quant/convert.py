"""Writing a quantized graph: tensors are stored by Quantize and read back by Dequantize.

These pairs say what is stored where; the compiler makes integer operators of them.  Results of the
graph are those before storing, so that the last layer answers in full precision.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from alpenglow.ir.dims import ceil_div
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.types import DTYPES, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.quantized.quantize import Dequantize, Quantize
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Slice, append_axes, stretch
from alpenglow.quant.activations import Activation
from alpenglow.quant.constants import Stored
from alpenglow.quant.layers import Place
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.plan import Plan, plan
from alpenglow.quant.profile import Profile
from alpenglow.quant.schema import Parameters


def quantize(
    g: Graph, profile: Profile | None = None, options: QuantOptions | None = None
) -> Graph:
    """Return a quantized copy of a graph.

    Args:
        g: the graph.
        profile: the ranges that `profile_ranges` measured on this graph; None is allowed with
            `weights_only`.
        options: the element types and scales; None: `QuantOptions()`.

    Returns:
        The quantized graph; `g` is unchanged.

    Raises:
        ModelError: if the profile belongs to another graph.

    Example:
        >>> graph = ag.load("model.onnx", {"x": (1, 8)})
        >>> x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
        >>> profile = ag.profile_ranges(graph, [x])
        >>> int8 = ag.compile(ag.quantize(graph, profile))
        >>> bool(np.abs(int8(x) - ag.compile(graph)(x)).max() < 0.2)
        True
    """
    return convert(plan(g, profile, options or QuantOptions()))


def convert(planned: Plan, *, floats: bool = False) -> Graph:
    """Return the graph of a plan.

    With `floats` placeholders that are converted are rounded as they are when stored, but given and
    returned in f32: so the graph takes the samples of the original and answers like it.
    """
    return written(planned, floats=floats)[0]


def written(planned: Plan, *, floats: bool = False) -> tuple[Graph, dict[Value, Value]]:
    """Return the graph of a plan, and what stands in it for each value of the old one."""
    writer = Writer(planned, floats)
    g = writer.graph()
    g.prune()
    return g, writer.env


class Writer:
    """The graph while it is written, and what stands for each value of the old one."""

    def __init__(self, planned: Plan, floats: bool) -> None:
        self.plan, self.floats = planned, floats
        self.g = Graph(planned.graph.name)
        self.g.metadata, self.g.guards = planned.graph.metadata, planned.graph.guards
        self.env: dict[Value, Value] = {}
        self.read_back: dict[Activation, Value] = {}
        self.activation = {p: a for a in planned.activations for p in a.readers}
        self.constant: dict[Place, Stored] = {s.source.place: s for s in planned.constants}
        narrow = planned.options.compute == "bf16"
        self.narrow = {s.source.place[0] for s in planned.constants} if narrow else set()

    def graph(self) -> Graph:
        old, placeholders = self.plan.graph, self.plan.options.convert_placeholders
        inputs = {a.value: a for a in self.plan.activations if a.value.producer is None}
        for name, v in old.inputs.items():
            a = inputs.get(v) if placeholders and not self.floats else None
            if name in old.initial:
                self.env[v] = self.variable(name)
            elif a is None:
                self.env[v] = self.g.input(name, v.type, hidden=v.hidden)
            else:
                x = self.g.input(name, v.type.with_dtype(a.parameters.dtype))
                self.env[v] = self.read_back[a] = _dequantized(self.g, x, a.parameters, name)
        for v in old.constants():
            self.env[v] = Value(v.type, v.name, array=self.content(v))
        for node in old.nodes:
            if node.results[0] not in self.env:
                self.write(node)
        wanted = {a.value: a for a in self.plan.activations} if placeholders else {}
        for name, v in old.outputs.items():
            y = self.env[v]
            if name in old.initial:
                self.g.assign(name, y)
                continue
            if v in wanted:
                p = wanted[v].parameters
                y = _quantized(self.g, y, p, name)
                if self.floats:
                    y = _dequantized(self.g, y, p, name)
            self.g.output(name, y)
        return self.g

    def variable(self, name: str) -> Value:
        """Return a variable of the old graph in the new one; it holds floats in both."""
        old = self.plan.graph
        initial = old.initial[name]
        if name in old.growing:
            return self.g.growing_variable(name, initial.type, old.growing[name])
        return self.g.variable(name, initial.array, initial.type, copy=False)

    def content(self, constant: Value) -> Array:
        """Return what a constant holds that stays one."""
        assert constant.array is not None
        return constant.array

    def write(self, node: Node) -> None:
        operands = [None if v is None else self.operand(node, i, v)
                    for i, v in enumerate(node.inputs)]  # fmt: skip
        name = node.results[0].name
        if node in self.narrow:
            self.env[node.output] = self.narrowed(node, operands, name)
            return
        plans = self.plan.regions.get(node)
        regions = [r.copy() for r in node.regions] if plans is None else [
            written(p, floats=self.floats)[0] for p in plans]  # fmt: skip
        new = self.g.add(node.op, operands, regions, name)
        for a, b in zip(node.results, new.results, strict=True):
            b.name = a.name
            self.env[a] = b

    def operand(self, node: Node, index: int, v: Value) -> Value:
        """Return what a node reads in place of `v`."""
        stored = self.constant.get((node, index))
        if stored is not None:
            y = self.rounded_constant(stored)
            for op in stored.source.path:
                y = self.g(op, y)
            return y
        a = self.activation.get((node, index))
        if a is None:
            return self.env[v]
        if a not in self.read_back:
            self.read_back[a] = self.rounded(self.env[v], a)
        return self.read_back[a]

    def rounded(self, x: Value, a: Activation) -> Value:
        """Return x as it is read back."""
        return _dequantized(
            self.g, _quantized(self.g, x, a.parameters, a.name), a.parameters, a.name
        )

    def rounded_constant(self, stored: Stored) -> Value:
        """Return a constant as it is read back."""
        t = TensorType(stored.dtype, stored.data.shape)
        data = self.g.constant(stored.data, f"{stored.name}_quantized", t, copy=False)
        scales = np.ascontiguousarray(stored.scales, np.float32)
        scale = stretched(self.g, self.g.constant(scales, f"{stored.name}_scale"), t, stored)
        back = Dequantize(self.plan.options.compute)
        name = f"{stored.name}_dequantized"
        return self.g(back, data, scale, nowhere(self.g, t), name=name)

    def narrowed(self, node: Node, operands: Iterable[Value | None], name: str) -> Value:
        """Apply a layer in bf16, whose weights are bf16 already; a bias is added in f32."""
        x, w, *rest = operands
        assert x is not None and w is not None, "a layer has two operands"
        y = self.g(Cast("f32"), self.g(node.op, self.g(Cast("bf16"), x), w), name=name)
        bias = rest[0] if rest else None
        if bias is None:
            return y
        assert isinstance(node.op, Conv), "only convolutions have a third operand"
        column = append_axes(self.g, bias, y.type.rank - 2)
        y.name = ""
        return self.g(Add(), y, self.g(Broadcast(y.type.shape), column), name=name)


def nowhere(g: Graph, t: TensorType) -> Value:
    """Return zero points of symmetric storage."""
    return g(Broadcast(t.shape), g.constant(np.zeros((), DTYPES[t.dtype])))


def stretched(g: Graph, scale: Value, t: TensorType, stored: Stored) -> Value:
    """Return scales stretched to the type of what they belong to."""
    if stored.block:
        axis = stored.source.inner
        before, after = t.extents[:axis], t.extents[axis + 1 :]
        count = ceil_div(t.extents[axis], stored.block)
        apart = g(Reshape((*before, count, 1, *after)), scale)
        repeated = g(Broadcast((*before, count, stored.block, *after)), apart)
        scale = g(Reshape((*before, count * stored.block, *after)), repeated)
        if scale.type.shape != t.shape:
            scale = g(Slice((0,) * t.rank, t.shape, (1,) * t.rank), scale)
    elif scale.type.size == 1:
        scale = g(Reshape(()), scale) if scale.type.rank else scale
    return stretch(g, scale, t.shape)


def _quantized(g: Graph, x: Value, p: Parameters, name: str) -> Value:
    return g(Quantize(p.dtype), x, *spread(g, p, x.type), name=f"{name}_quantized")


def _dequantized(g: Graph, x: Value, p: Parameters, name: str) -> Value:
    return g(Dequantize(), x, *spread(g, p, x.type), name=f"{name}_dequantized")


def spread(g: Graph, p: Parameters, t: TensorType) -> tuple[Value, Value]:
    """Return scale and zero point, each stretched to a tensor."""
    scale = g.constant(np.float32(p.scale))
    zero = g.constant(np.asarray(p.zero_point, DTYPES[p.dtype]))
    return g(Broadcast(t.shape), scale), g(Broadcast(t.shape), zero)
