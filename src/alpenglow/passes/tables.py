"""Quantized models: what other rules have left between a dequantize and a quantize.

A function of one tensor of bytes becomes a table of its 256 values; reals that are quantized are
multiplied, not divided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import DTYPES, Array
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import BYTES
from alpenglow.ops.quantized.quantize import FITS, Quantize, Requantize
from alpenglow.ops.tensor.lookup import Lookup
from alpenglow.ops.tensor.movement import Broadcast
from alpenglow.passes.constants import read_once, uniform
from alpenglow.passes.grid import (
    LEAST,
    MOST,
    dequantized,
    grid_of,
    known_array,
    quantized,
    spread,
)
from alpenglow.passes.pointwise import wanted

rules = Rules()

LONGEST = 64
"""A chain of functions has at most so many nodes."""


@rules.on(Quantize)
def table_of_function(g: Graph, node: Node) -> Rewritten:
    """quantize(f(dequantize(x, s, a)), t, b) => lookup(x, the 256 values)   where x are bytes and
    f is elementwise, of x and numbers"""
    to = grid_of(node)
    y = node.inputs[0]
    if to is None or not to.uniform or y is None:
        return None
    chain = Chain.of(y)
    if chain is None:
        return None
    values = chain.tabulated(node)
    return g(Cast(to.dtype), g(Lookup(), chain.q, g.constant(values.astype(np.int32))))


@dataclass
class Chain:
    """Elementwise nodes that compute one value from bytes dequantized and from numbers."""

    q: Value
    nodes: list[Node]

    @classmethod
    def of(cls, y: Value) -> Chain | None:
        """Return the chain that computes y, if there is one."""
        nodes: dict[Node, None] = {}
        leaves: dict[Value, Node] = {}
        stack = [y]
        while stack:
            v = stack.pop()
            if v in leaves or uniform(v) is not None:
                continue
            source, node = quantized(v), v.producer
            if source is not None and node is not None:
                if not source[1].uniform or source[1].dtype not in BYTES:
                    return None
                leaves[v] = node
            elif node is not None and isinstance(node.op, Elementwise | Relu):
                nodes[node] = None
                stack += [i for i in node.inputs if i is not None]
                if len(nodes) > LONGEST:
                    return None
            else:
                return None
        sources = {node.inputs[0] for node in leaves.values()}
        if len(sources) != 1 or not nodes:
            return None
        (q,) = sources
        assert q is not None
        return cls(q, list(nodes))

    def tabulated(self, quantize: Node) -> Array:
        """Return the result for each byte, in the order of their bits."""
        g = Graph("table")
        bytes_ = np.arange(256, dtype=np.uint8).view(DTYPES[self.q.type.dtype])
        q = g.input("q", self.q.type.with_shape((256,)))
        copies: dict[Value, Value] = {self.q: q}

        def built(v: Value) -> Value:
            if v not in copies:
                node = v.producer
                number = uniform(v)
                if number is not None:
                    one = g.constant(np.asarray(number, v.type.numpy))
                    copies[v] = g(Broadcast((256,)), one)
                else:
                    assert node is not None, f"{v} is part of a chain"
                    copies[v] = g(node.op, *[built(i) for i in node.inputs if i is not None])
            return copies[v]

        g.output("y", built(quantize.output))
        return evaluate(g, {"q": bytes_})["y"]


@rules.on(Requantize)
def products_that_fit(g: Graph, node: Node) -> Rewritten:
    """requantize(x, m, z) => requantize(x, m, z), which fits   where x are sums in i32 and m is
    small"""
    x, multiplier, zero = node.inputs
    op = node.op
    if not isinstance(op, Requantize) or op.fits or op.rounding != "even":
        return None
    if x is None or multiplier is None:
        return None
    factors = known_array(multiplier)
    if x.type.dtype != "i32" or factors is None:
        return None
    if not (np.abs(factors) * 2.0**31 < FITS).all():
        return None
    return g(replace(op, fits=True), x, multiplier, zero)


@rules.on(Quantize)
def sum_in_steps(g: Graph, node: Node) -> Rewritten:
    """quantize(add(dequantize(x, s, a), dequantize(y, t, b)), u, c)
    => requantize(add(dequantize(x, s / u, a), dequantize(y, t / u, b)), 1, c);
    through relu and clip, which become bounds"""
    match wanted(node):
        case (Value(Node(Add(), terms)) as v, to) if read_once(g, v):
            parts = [quantized(term) for term in terms]
        case _:
            return None
    scaled, reach = [], 0.0
    for part in parts:
        if part is None:
            return None
        q, grid = part
        scales = tuple(s / to.grid.scale for s in grid.scales)
        if not all(LEAST < s < MOST for s in scales):
            return None
        reach += max(scales) * 2.0 ** (8 * DTYPES[grid.dtype].itemsize)
        scaled.append(dequantized(g, q, replace(grid, scales=scales)))
    one = spread(g, (1.0,), "f32", None, v.type)
    return to.made(g, g(Add(), *scaled), one, reach < FITS)


@rules.on(Quantize)
def multiply_by_reciprocal(g: Graph, node: Node) -> Rewritten:
    """quantize(x, s, z) => requantize(x, 1 / s, z)   where x are reals in f32"""
    goal = wanted(node)
    if goal is None or goal[0].type.dtype != "f32":
        return None
    v, to = goal
    return to.made(g, v, spread(g, (1 / to.grid.scale,), "f32", None, v.type))
