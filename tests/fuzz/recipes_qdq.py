"""Recipes for networks that were quantized: floats between dequantized and quantized tensors."""

from __future__ import annotations

from math import prod

import numpy as np

from .draft import Draft, Var
from .elements import Shape
from .grids import BYTES, extreme, scale, steps, stored, through, zeros
from .inference import Declined
from .recipe import PATTERNS, recipe
from .recipes_movement import some_axes
from .recipes_patterns import added, number, softmax
from .windows import divisor, features, image, window


def bias_of(d: Draft, x_step: float, w: Var, count: int) -> Var:
    """Return a bias: whole numbers of steps, as tools write it, or any floats."""
    if d.chance(0.5):
        whole = d.given(d.rng.integers(-999, 999, count).astype(np.int32), True)
        step = d.given(np.asarray(x_step * 2.0**-4, np.float32), True)
        return d.node("DequantizeLinear", [whole, step])[0]
    return d.given(np.round(d.contents("float", (count,))), True)


@recipe("qdq:Conv", table=PATTERNS)
def conv(d: Draft, op: str) -> None:
    """A convolution between quantizations, perhaps with Relu, Add or a pool, as QDQ models have."""
    x = through(d, image(d, ["float"], d.one_of((1, 2, 2, 2, 3))))
    w = window(d, "Conv", x.rank - 2)
    out = w.extents(x.shape[2:])
    group = divisor(d, x.shape[1])
    each = x.shape[1] // group
    count = features(d, group, each * prod(w.kernel))
    weights = stored(d, (count, each, *w.kernel), 0)
    bias = bias_of(d, 0.25, weights, count) if d.chance(0.6) else None
    shape = (x.shape[0], count, *out)
    y = d.node("Conv", [x, weights, bias], types=[("float", shape)], group=group, **w.attributes)[0]
    if d.chance(0.5):
        y = d.node("Relu", [y])[0]
    y = through(d, y)
    if d.chance(0.3):
        other = y if d.chance(0.2) else through(d, d.fresh("float", y.shape))
        y = through(d, d.node("Add", [y, other])[0])
    if d.chance(0.3):
        through(d, d.node("GlobalAveragePool", [y])[0])


@recipe("qdq:MatMul", "qdq:Gemm", table=PATTERNS)
def matmul(d: Draft, op: str) -> None:
    op = op.partition(":")[2]
    x = through(d, d.pick(["float"], 2, 2 if op == "Gemm" else 4, empty=False))
    n = d.extent(max(min(8192 // x.shape[-1], 130), 1))
    turned = op == "Gemm" and d.chance(0.5)
    w = stored(d, (n, x.shape[-1]) if turned else (x.shape[-1], n), 0 if turned else 1)
    if op == "Gemm":
        y = d.node(op, [x, w, bias_of(d, 0.25, w, n)], transB=int(turned))[0]
    else:
        y = d.node(op, [x, w])[0]
    through(d, y)


@recipe("qdq:two computed", table=PATTERNS)
def both(d: Draft, op: str) -> None:
    """A product of any two kinds of bytes, none of which is stored, as attention has."""
    lead = d.one_of(((), (), (2,), (1, 3)))
    m, k, n = d.extent(17), d.extent(65), d.extent(33)
    if d.opset >= 10 and d.chance(0.5):
        x, y = (d.given(extreme(d, d.one_of(BYTES), shape), False)
                for shape in ((*lead, m, k), (*lead, k, n)))  # fmt: skip
        given = [zeros(d, v.dtype, 1)[0] if d.chance(0.5) else None for v in (x, y)]
        d.node("MatMulInteger", [x, y, *given])
        return
    x = through(d, d.fresh("float", (*lead, m, k), False))
    if d.chance(0.5):
        y = through(d, d.fresh("float", (*lead, n, k), False))
        last = len(lead)
        y = d.node("Transpose", [y], perm=[*range(last), last + 1, last])[0]
    else:
        y = through(d, d.fresh("float", (*lead, k, n), False))
    through(d, d.node("MatMul", [x, y])[0])


@recipe("qdq:attention", table=PATTERNS)
def attention(d: Draft, op: str) -> None:
    """softmax(q k) v between quantizations, also of the scores, with masks or without."""
    lead = d.one_of(((), (2,), (1, 3), (2, 2)))
    rows, keys, inner, outer = d.extent(40), d.extent(150), d.extent(33), d.extent(70)
    if 0 in (rows, keys) or prod(lead) * max(rows, keys) * max(rows, inner, outer) > 20000:
        raise Declined
    last = len(lead)
    q, k, v = (through(d, d.fresh("float", (*lead, *shape), False))
               for shape in ((rows, inner), (keys, inner), (keys, outer)))  # fmt: skip
    k = d.node("Transpose", [k], perm=[*range(last), last + 1, last])[0]
    scores = d.node("MatMul", [q, k])[0]
    scores = through(d, scores) if d.chance(0.5) else scores
    if d.chance(0.5):
        scores = d.node("Mul", [scores, number(d, "float", d.one_of((0.25, 0.0625, -0.5)))])[0]
        scores = through(d, scores) if d.chance(0.3) else scores
    if d.chance(0.4):
        shape = tuple(1 if d.chance(0.4) else e for e in (*lead, rows, keys))
        scores = added(d, scores, d.fresh("float", shape))
    shares = through(d, softmax(d, scores), step=scale(d, (), -9, -5))
    through(d, d.node("MatMul", [shares, v])[0])


@recipe("qdq:moves", table=PATTERNS)
def moves(d: Draft, op: str) -> None:
    """An operator that moves or selects elements, between quantizations of one grid or of two."""
    x = through(d, d.pick(["float"], 1, 4, empty=False))
    how = d.one_of(("Transpose", "Concat", "Slice", "Relu", "Softmax", "Mul", "ReduceMean",
                    "Sigmoid", "Gather"))  # fmt: skip
    axis = d.number(0, x.rank - 1)
    if how == "Transpose":
        y = d.node(how, [x], perm=d.rng.permutation(x.rank).tolist())[0]
    elif how == "Concat":
        y = d.node(how, [x, x if d.chance(0.3) else through(d, d.fresh("float", x.shape))],
                   axis=axis)[0]  # fmt: skip
    elif how == "Slice":
        numbers = ([d.number(0, 1)], [x.shape[axis]], [axis], [d.one_of((1, 2))])
        y = d.node(how, [x, *(d.given(np.array(n, np.int64), True) for n in numbers)])[0]
    elif how == "Mul":
        y = d.node(how, [x, x if d.chance(0.3) else through(d, d.fresh("float", x.shape))])[0]
    elif how == "ReduceMean":
        axes = some_axes(d, x.rank)
        more = {"axes": axes} if d.opset < 18 else {}
        given = [x] if d.opset < 18 else [x, d.ints(axes)]
        y = d.node(how, given, **more)[0]
    elif how == "Gather":
        at = d.rng.integers(0, x.shape[axis], 3).astype(np.int64)
        y = d.node(how, [x, d.given(at, True)], axis=axis)[0]
    else:
        y = d.node(how, [x])[0]
    through(d, y)


@recipe("qdq:limits", table=PATTERNS)
def limits(d: Draft, op: str) -> None:
    """A limit, or a border, of what has been dequantized: perhaps where no byte stands for it."""
    if d.opset < 11:
        raise Declined
    x = through(d, d.pick(["float"], 1, 4, empty=False))
    if d.chance(0.6):
        low = d.one_of((None, 0, -1, -np.inf, 1e4))
        high = d.one_of((None, 2, 6, np.inf, -1e4))
        ends = [None if end is None else d.given(np.float32(end), True) for end in (low, high)]
        y = d.node("Clip", [x, *ends])[0]
    else:
        pads = [d.number(0, 2) for _ in range(2 * x.rank)]
        value = d.given(np.float32(d.one_of((0, 0, 1, 0.3, 1e4, -1e4, -np.inf))), True)
        shape = tuple(e + pads[i] + pads[x.rank + i] for i, e in enumerate(x.shape))
        y = d.node("Pad", [x, d.ints(pads), value], types=[("float", shape)])[0]
    if d.chance(0.7):
        through(d, y)


@recipe("weights of few bits", table=PATTERNS)
def few_bits(d: Draft, op: str) -> None:
    """A product of floats with weights that are dequantized: by columns, or by blocks of rows."""
    if d.opset < 21:
        raise Declined
    rows = d.one_of((1, 2, 3, 6, 7, 16, 17))
    k = d.one_of((16, 32, 48, 64, 128))
    x = d.pick(["float"], 2, 3, empty=False, shape=lambda: (rows, k),
               where=lambda v: v.shape[-1] in (16, 32, 48, 64, 128))  # fmt: skip
    k = x.shape[-1]
    n = d.one_of((1, 8, 15, 16, 17, 32, 33, 64, 100))
    kind = d.one_of(("int4", "uint4", "int8", "uint8"))
    q = d.given(extreme(d, kind, (k, n)), True)
    block = d.one_of((0, 0, 16, 32))
    if block > k:
        raise Declined
    shape: Shape = (-(-k // block), n) if block else d.one_of(((n,), ()))
    step = scale(d, shape, -5, -2)
    zero = d.given(d.contents(kind, shape), True) if d.chance(0.6) else None
    more = {"axis": 0, "block_size": block} if block else {"axis": 1} if shape else {}
    w = d.node("DequantizeLinear", [q, step, zero], types=[("float", (k, n))], **more)[0]
    if d.chance(0.3):
        turned = d.given(np.ascontiguousarray(d.weights[q.name].T), True)
        if block or len(shape):
            raise Declined
        w = d.node("DequantizeLinear", [turned, step, zero], types=[("float", (n, k))])[0]
        w = d.node("Transpose", [w], perm=[1, 0])[0]
    y = d.node("MatMul", [x, w])[0]
    if d.chance(0.4):
        d.node("Add", [y, d.fresh("float", (n,), True)])


@recipe("rows of a table of bytes", table=PATTERNS)
def table(d: Draft, op: str) -> None:
    if d.opset < 13:
        raise Declined
    rows, width = d.number(2, 20), d.extent(65)
    kind = d.one_of((*BYTES, "int8"))
    q = d.given(extreme(d, kind, (rows, width)), True)
    each = d.chance(0.5)
    step = scale(d, (rows,) if each else (), -5, -2)
    zero = d.given(d.contents(kind, step.shape), True) if d.chance(0.6) else None
    w = d.node("DequantizeLinear", [q, step, zero], axis=0)[0]
    at = d.given(d.rng.integers(0, rows, (d.number(1, 3), d.number(1, 5))).astype(np.int64))
    if at.name in d.inputs:
        d.controls[at.name] = []
    d.node("Gather", [w, at], axis=0)


@recipe("a chain of grids", table=PATTERNS)
def grids(d: Draft, op: str) -> None:
    """Quantized, dequantized, and quantized again with another scale and zero."""
    x = d.pick(["float"], 1, 4, empty=False)
    if d.opset < 13:
        raise Declined
    for _ in range(d.number(1, 3)):
        kind = d.one_of(BYTES)
        step, zero = steps(d, 1)[0], zeros(d, kind, 1)[0]
        q = d.node("QuantizeLinear", [x, step, zero])[0]
        x = d.node("DequantizeLinear", [q, step, zero])[0]
        if d.chance(0.4):
            x = d.node(d.one_of(("Relu", "Neg", "Sigmoid")), [x])[0]
