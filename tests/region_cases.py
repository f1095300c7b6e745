"""Graphs with control flow, for tests of what walks over graphs: small, each of one shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.region import take_in
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan, While
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Broadcast, Reshape

Array = NDArray[Any]


def weights(rows: int, columns: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)


def rnn(count: Dim = 5, width: int = 8, reverse: bool = False, inside: bool = False) -> Graph:
    """Return h' = tanh(h w + x) over the rows of xs, and the softmax of each h'.

    The weight is captured, or a constant of the region.  With a softmax the loop is not one kernel.
    """
    body = Graph("step")
    body.input("i", "i64[]")
    h, x = (body.input(n, f"f32[2,{width}]") for n in ("h", "x"))
    w = body.input("w", f"f32[{width},{width}]")
    new = body(Tanh(), body(Add(), body(MatMul(), h, w, name="product"), x), name="new")
    body.output("h1", new)
    body.output("softmax", body(Softmax(1), new))
    g = Graph("rnn")
    first, xs = g.input("h0", f"f32[2,{width}]"), g.input("xs", f"f32[{count},2,{width}]")
    weight = g.constant(weights(width, width), "weight")
    node = g.add(Scan(count, 1, 1, reverse), [first, xs, weight], [body])
    if inside:
        take_in(node)
    g.output("h", node.results[0])
    g.output("ys", node.results[1])
    return g


def countdown() -> Graph:
    """Return x w, w, … as often as `limit` says."""
    body = Graph("turn")
    i, x = body.input("i", "i64[]"), body.input("x", "f32[2,4]")
    limit, w = body.input("limit", "i64[]"), body.input("w", "f32[4,4]")
    after = body(Add(), i, body.constant(np.int64(1)))
    y = body(Tanh(), body(MatMul(), x, w, name="turned"))
    body.output("going", body(Less(), after, limit))
    body.output("after", after)
    body.output("y", y)
    g = Graph("countdown")
    x, limit = g.input("x", "f32[2,4]"), g.input("limit", "i64[]")
    start = g.constant(np.int64(0))
    going = g(Less(), start, limit)
    operands = [going, start, x, limit, g.constant(weights(4, 4), "weight")]
    node = g.add(While(2), operands, [body])
    g.output("count", node.results[0])
    g.output("y", node.results[1])
    return g


def branch(t: str, one: Callable[[Graph, Value], Value], other: Callable[[Graph, Value], Value]
           ) -> tuple[Graph, Graph]:  # fmt: skip
    """Return two regions of one value."""
    regions = Graph("one"), Graph("other")
    for region, make in zip(regions, (one, other), strict=True):
        region.output("y", make(region, region.input("x", t)))
    return regions


def choosing() -> Graph:
    """Return running sums of the rows of xs, of which those in odd places are negated."""
    body = Graph("step")
    i, h, x = body.input("i", "i64[]"), body.input("h", "f32[4]"), body.input("x", "f32[4]")
    two = body.constant(np.int64(2))
    odd = body(Less(), body.constant(np.int64(0)), body(Sub(), i, two))
    regions = branch("f32[4]", lambda g, v: g(Neg(), v), lambda g, v: g(Tanh(), v))
    chosen = body.add(If(), [odd, x], regions).output
    total = body(Add(), h, chosen, name="total")
    body.output("h1", total)
    body.output("row", total)
    g = Graph("choosing")
    first, xs = g.input("h0", "f32[4]"), g.input("xs", "f32[6,4]")
    node = g.add(Scan(6, 1, 1), [first, xs], [body])
    g.output("h", node.results[0])
    g.output("ys", node.results[1])
    return g


def nested() -> Graph:
    """Return a table of products, made by a loop in a loop, with the numbers of both."""
    inner = Graph("inner")
    j, total, x, row = (inner.input(n, "i64[]") for n in ("j", "total", "x", "row"))
    product = inner(Mul(), inner(Add(), row, j), x)
    inner.output("total", inner(Add(), total, product))
    inner.output("cell", product)
    outer = Graph("outer")
    i, sums = outer.input("i", "i64[]"), outer.input("sums", "i64[]")
    xs = outer.input("xs", "i64[3]")
    made = outer.add(Scan(3, 1, 1, True), [sums, xs, i], [inner])
    outer.output("sums", made.results[0])
    outer.output("cells", made.results[1])
    outer.output("number", i)
    g = Graph("nested")
    xs = g.input("xs", "i64[3]")
    node = g.add(Scan(4, 1), [g.constant(np.int64(0)), xs], [outer])
    for name, v in zip(("total", "table", "numbers"), node.results, strict=True):
        g.output(name, v)
    return g


def swapped(dtype: str) -> Graph:
    """Return two carried values that change places each turn, and what does not change."""
    body = Graph("swap")
    body.input("i", "i64[]")
    a, b, x = (body.input(n, f"{dtype}[3]") for n in "abx")
    fixed = body.constant(np.zeros(3, a.type.numpy))
    for name, v in (("b", b), ("a", a), ("x", x), ("again", x), ("fixed", fixed)):
        body.output(name, v)
    g = Graph("swapped")
    types = {"a": f"{dtype}[3]", "b": f"{dtype}[3]", "xs": f"{dtype}[5,3]"}
    node = g.add(Scan(5, 2, 1, True), [g.input(*x) for x in types.items()], [body])
    for i, v in enumerate(node.results):
        g.output(f"y{i}", v)
    return g


def stretched() -> Graph:
    """Return a loop that reads a value stretched outside, and stretches one inside."""
    body = Graph("step")
    body.input("i", "i64[]")
    h, wide = (body.input(n, "f32[2,3]") for n in ("h", "wide"))
    column = body(Broadcast((2, 3)), body.constant(np.float32(0.5)))
    body.output("h", body(Add(), body(Mul(), h, column), wide))
    body.output("wide", wide)
    body.output("column", column)
    g = Graph("stretched")
    h, x = g.input("h", "f32[2,3]"), g.input("x", "f32[3]")
    node = g.add(Scan(4, 1), [h, g(Broadcast((2, 3)), g(Reshape((1, 3)), x))], [body])
    for i, v in enumerate(node.results):
        g.output(f"y{i}", v)
    return g


def feeds(g: Graph, seed: int = 0) -> dict[str, Array]:
    """Return numbers for the inputs of a graph, small ones."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, v in g.callers_inputs().items():
        x = rng.standard_normal(v.type.extents) * (2 if v.type.dtype[0] in "iu" else 1)
        if v.type.dtype[0] == "c":
            x = x + 1j * rng.standard_normal(v.type.extents)
        made[name] = np.asarray(x > 0 if v.type.dtype == "bool" else abs(x) if
                                v.type.dtype[0] == "u" else x).astype(v.type.numpy)  # fmt: skip
    return made | ({"limit": np.array(3)} if "limit" in made else {})
