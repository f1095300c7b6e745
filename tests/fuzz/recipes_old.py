"""Recipes for forms that operators had in older opsets: attributes where operands are now."""

from __future__ import annotations

import numpy as np

from .draft import FLOATS, Declined, Draft, allowed, recipe
from .recipes_movement import some_axes


def before(d: Draft, opset: int) -> None:
    """Decline where the form is not that of this opset."""
    if d.opset >= opset:
        raise Declined


@recipe("old:Squeeze")
def squeeze(d: Draft, op: str) -> None:
    before(d, 13)
    x = d.pick(allowed("Squeeze", d.opset))
    ones = [i for i, e in enumerate(x.shape) if e == 1]
    d.node("Squeeze", [x], **({"axes": ones[:2]} if ones and d.chance(0.7) else {}))


@recipe("old:Unsqueeze")
def unsqueeze(d: Draft, op: str) -> None:
    before(d, 13)
    x = d.pick(allowed("Unsqueeze", d.opset), 0, 4)
    d.node("Unsqueeze", [x], axes=sorted(d.rng.permutation(x.rank + 2)[:2].tolist()))


@recipe("old:ReduceSum")
def reduce_sum(d: Draft, op: str) -> None:
    before(d, 13)
    x = d.pick(allowed("ReduceSum", d.opset))
    d.node("ReduceSum", [x], axes=sorted(a % x.rank for a in some_axes(d, x.rank)),
           keepdims=d.number(0, 1))  # fmt: skip


@recipe("old:Split")
def split(d: Draft, op: str) -> None:
    before(d, 13)
    x = d.pick(allowed("Split", d.opset), 1)
    axis = d.number(0, x.rank - 1)
    cut = d.number(0, x.shape[axis])
    sizes = [cut, x.shape[axis] - cut]
    if d.is_open:
        raise Declined
    d.node("Split", [x], outputs=2, axis=axis, split=sizes)


@recipe("old:Slice")
def cut(d: Draft, op: str) -> None:
    before(d, 10)
    x = d.pick(allowed("Slice", d.opset), 1)
    axes = sorted(a % x.rank for a in some_axes(d, x.rank))
    begins = [d.one_of((0, 1, -2)) for _ in axes]
    ends = [d.one_of((2, 5, -1, 2**31 - 1)) for _ in axes]
    d.node("Slice", [x], axes=axes, starts=begins, ends=ends)


@recipe("old:Clip")
def clip(d: Draft, op: str) -> None:
    before(d, 11)
    x = d.pick(allowed("Clip", d.opset))
    d.node("Clip", [x], **{k: v for k, v in (("min", -0.5), ("max", 1.5)) if d.chance(0.7)})


@recipe("old:Pad")
def pad(d: Draft, op: str) -> None:
    before(d, 11)
    x = d.pick(allowed("Pad", d.opset), 1, 4, empty=False)
    mode = d.one_of(("constant", "edge", "reflect"))
    if mode == "reflect" and min(x.shape) < 3:
        raise Declined
    value = {"value": 1.5} if mode == "constant" and d.chance(0.5) else {}
    d.node("Pad", [x], mode=mode, pads=[d.number(0, 2) for _ in range(2 * x.rank)], **value)


@recipe("old:TopK")
def top(d: Draft, op: str) -> None:
    before(d, 10)
    x = d.pick(allowed("TopK", d.opset), 1, empty=False)
    axis = d.number(0, x.rank - 1)
    d.node("TopK", [x], outputs=2, axis=axis, k=d.number(1, x.shape[axis]))


@recipe("Upsample")
def upsample(d: Draft, op: str) -> None:
    before(d, 10)
    x = d.pick(["float"], 4, 4, empty=False)
    scales = [1.0, 1.0, float(d.number(1, 3)), float(d.number(1, 3))]
    mode = d.one_of(("nearest", "linear"))
    if d.opset >= 9:
        d.node(op, [x, d.given(np.array(scales, np.float32), True)], mode=mode)
    else:
        d.node(op, [x], scales=scales, mode=mode)


@recipe("old:Resize")
def resize(d: Draft, op: str) -> None:
    if d.opset != 10:
        raise Declined
    x = d.pick(["float"], 4, 4, empty=False)
    scales = np.array([1, 1, d.one_of((0.5, 1, 2)), d.one_of((1, 2, 3))], np.float32)
    if int(x.shape[2] * scales[2]) < 1:
        raise Declined
    d.node("Resize", [x, d.given(scales, True)], mode=d.one_of(("nearest", "linear")))


@recipe("Scatter")
def scatter(d: Draft, op: str) -> None:
    before(d, 11)
    x = d.pick(allowed(op, d.opset), 1, 1, empty=False)
    count = d.number(0, x.shape[0])
    indices = d.rng.permutation(x.shape[0])[:count].astype(np.int64)
    d.node(op, [x, d.given(indices, d.chance(0.5)), d.fresh(x.dtype, (count,))], axis=0)


@recipe("old:Dropout", "old:BatchNormalization")
def trained(d: Draft, op: str) -> None:
    before(d, 12)
    op = op.partition(":")[2]
    x = d.pick([t for t in allowed(op, d.opset) if t in FLOATS], 3, 4, empty=False)
    if op == "Dropout":
        d.node(op, [x], ratio=0.5)
    else:
        each = [d.given(np.abs(d.contents(x.dtype, (x.shape[1],))) + 1, True) for _ in range(4)]
        if d.weights.get(each[0].name) is None:
            raise Declined
        d.node(op, [x, *each], momentum=0.9)


@recipe("old:Gemm")
def gemm(d: Draft, op: str) -> None:
    """The bias is no option yet."""
    before(d, 11)
    x = d.pick(["float", "double"], 2, 2, empty=False)
    n = d.number(1, 9)
    w, c = d.fresh(x.dtype, (x.shape[1], n)), d.fresh(x.dtype, d.one_of(((n,), (x.shape[0], 1))))
    d.node("Gemm", [x, w, c])
