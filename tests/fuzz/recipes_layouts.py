"""Recipes for what moves elements around operators: transpositions, padding, joined parts, and
channels that become places.
"""

from __future__ import annotations

from math import prod

import numpy as np

from .draft import SYMBOLS, Draft, Var
from .elements import Shape
from .inference import Declined, allowed
from .recipe import PATTERNS, recipe
from .recipes_patterns import BLOCKS, activated, convolved, images, reduced
from .windows import window

MOVES = ("Pad", "Pad", "Slice", "Slice", "Concat", "Softmax", "ReduceMax", "Relu", "Add")
LIKE = ("Relu", "Neg", "Add", "self", "Mul")


@recipe("turned there and back", "turned, padded, turned back", table=PATTERNS)
def there_and_back(d: Draft, op: str) -> None:
    """Something between two transpositions, as converters from other layouts write."""
    x = d.pick(["float", "float", "float", "int32", "float16"], d.one_of((2, 3, 3, 4, 4, 4)), 5,
               empty=d.chance(0.1))  # fmt: skip
    perm = d.rng.permutation(x.rank)
    if d.chance(0.7):
        # The channels go to the end, or come from there; or all axes do: not what undoes itself.
        first = 0 if x.rank < 4 else d.number(0, 1)
        perm = np.array([*range(first), *np.roll(np.arange(first, x.rank), d.one_of((1, -1)))])
    y = d.node("Transpose", [x], perm=perm.tolist())[0]
    for i in range(d.one_of((0, 1, 1, 1, 2, 2, 3))):
        before = len(d.nodes)
        for _ in range(4):  # not all opsets have all operators for all types
            moves = LIKE if i and d.chance(0.6) else MOVES
            y = between(d, y, "Pad" if "padded" in op and not i else d.one_of(moves))
            if len(d.nodes) > before:
                break
    back = np.argsort(perm) if d.chance(0.7) else d.rng.permutation(x.rank)
    if y.rank == x.rank:
        d.node("Transpose", [y], perm=back.tolist())


def between(d: Draft, y: Var, how: str) -> Var:
    """Return y after what treats its axes differently, or all elements alike."""
    axis = d.number(0, y.rank - 1)
    if how == "Pad":
        mode = d.one_of(("constant", "constant", "constant", "reflect", "edge"))
        if mode == "constant" or min(y.shape, default=0) < 2:
            return padded(d, y, [d.number(0, 3) for _ in range(2 * y.rank)])
        most = [min(3, e - 1) for e in y.shape] * 2
        return padded(d, y, [d.number(0, n) for n in most], mode)
    if how == "Slice" and d.opset >= 10:
        first = [d.number(0, e // 2) for e in y.shape]
        shape = tuple(e - a for e, a in zip(y.shape, first, strict=True))
        given = [y, d.ints(first), d.ints(y.shape)]
        return d.node(how, given, types=[(y.dtype, shape)])[0]
    if how == "Concat":
        return d.node(how, [y, y], axis=axis)[0]
    if how == "ReduceMax" and y.dtype == "float" and y.shape[axis]:
        return reduced(d, how, y, axis)
    if how == "Softmax" and y.dtype == "float" and d.opset >= 13 and 0 not in y.shape:
        return d.node(how, [y], axis=axis)[0]
    if how in ("Relu", "Neg") and y.dtype in allowed(how, d.opset):
        return d.node(how, [y])[0]
    if how in ("Add", "Mul"):
        return d.node(how, [y, d.beside(y)])[0]
    return d.node("Add", [y, y])[0] if how == "self" else y


def padded(d: Draft, x: Var, pads: list[int], mode: str = "constant") -> Var:
    """Return x with so many elements before each axis, and then behind each: zeros, or its own."""
    shape = tuple(e + pads[i] + pads[i + x.rank] for i, e in enumerate(x.shape))
    types = [(x.dtype, shape)]
    if d.opset < 11:
        if x.dtype[:5] != "float":
            return x
        return d.node("Pad", [x], types=types, mode=mode, pads=pads)[0]
    return d.node("Pad", [x, d.ints(pads)], types=types, mode=mode)[0]


@recipe("borders", table=PATTERNS)
def borders(d: Draft, op: str) -> None:
    """A tensor that goes on outside with its own elements: mostly along axes of open extents."""
    d.is_open |= not d.nodes and d.chance(0.6)

    def shape() -> Shape:
        known = list(SYMBOLS.values())
        is_open = [d.is_open and d.chance(0.7) for _ in range(d.one_of((1, 2, 2, 3, 4)))]
        return tuple(int(d.one_of(known)) if o else d.extent(9) for o in is_open)

    x = d.pick(["float", "float", "float16", "int32", "uint8"], 1, 4, empty=False, shape=shape)
    modes = ("reflect", "reflect", "edge", "wrap")
    mode = d.one_of(modes if d.opset >= 19 else modes[:3])
    y = padded(d, x, [d.number(0, min(3, e - (mode == "reflect"))) for e in x.shape * 2], mode)
    if y is x:
        raise Declined
    if d.chance(0.5):
        between(d, y, d.one_of(LIKE))


@recipe("zeros around a pool", table=PATTERNS)
def padded_pool(d: Draft, op: str) -> None:
    """Padding, and a pool that pads as well: windows see one, the other, both or neither."""
    x = images(d)
    x = d.node("Relu", [x], types=[(x.dtype, x.shape)])[0] if d.chance(0.4) else x
    sides = [d.one_of((0, 1, 1, 2)) for _ in range(4)]
    x = padded(d, x, [0, 0, *sides[:2], 0, 0, *sides[2:]])
    op = d.one_of(("AveragePool", "AveragePool", "AveragePool", "MaxPool", "LpPool"))
    kernel = [d.one_of((2, 3, 4, 5, 5)) for _ in range(2)]
    if op == "LpPool" and d.opset < 18:
        op = "AveragePool"
    w = window(d, op, 2, pooling=True, kernel=kernel)
    if max(w.dilations) > 1:
        raise Declined  # a window may hold nothing but padding
    types = [(x.dtype, (*x.shape[:2], *w.extents(x.shape[2:])))]
    d.node(op, [x], types=types, **w.attributes, **d.some(op, count_include_pad=(0, 1)))


@recipe("layers, joined again", table=PATTERNS)
def joined(d: Draft, op: str) -> None:
    """Convolutions, each of some of those before it, the same one more than once."""
    side = d.one_of((4, 5, 8, 9))
    x = images(d, lambda: (d.one_of((1, 1, 2)), d.one_of(BLOCKS), side, side + d.one_of((0, 1))))
    made = [convolved(d, x, d.one_of(BLOCKS), [1, 1])]
    for _ in range(d.number(1, 2)):
        like = [v for v in made if v.shape[2:] == made[-1].shape[2:]]
        parts = [made[-1], *(d.one_of(like) for _ in range(d.number(1, 3)))]
        parts = [parts[i] for i in d.rng.permutation(len(parts))]
        y = d.node("Concat", parts, axis=1)[0]
        if prod(y.shape) > 16384:
            raise Declined
        made.append(activated(d, convolved(d, y, d.one_of(BLOCKS), [1, 1])))


@recipe("channels become places", table=PATTERNS)
def shifted(d: Draft, op: str) -> None:
    """A layer before what makes places of channels, or behind what makes channels of places."""
    b, side = d.one_of((2, 2, 3)), d.number(1, 5)
    to_space = d.chance(0.6)
    if d.opset < 11:
        raise Declined  # there were no modes
    if not to_space:
        x = images(d, lambda: (1, d.number(1, 9), b * side, b * d.number(1, 5)))
        if x.shape[2] % b or x.shape[3] % b:
            raise Declined
        convolved(d, d.node("SpaceToDepth", [x], blocksize=b)[0])
        return
    x = images(d, lambda: (d.number(1, 2), d.number(1, 9), side, d.number(1, 7)))
    x = convolved(d, x, d.one_of((1, 2, 3, 5, 8)) * b * b)
    activated(d, d.node("DepthToSpace", [x], blocksize=b, **d.some("DepthToSpace", mode=("DCR",
              "CRD", "CRD")))[0])  # fmt: skip
