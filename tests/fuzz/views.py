"""Other ways to come by an array: of a larger, turned, stretched or divided one, by a node.

What templates and loop forms read then has steps of 0, negative and large ones, and lies in the
middle of something else.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .draft import SYMBOLS, Draft, Var
from .elements import Array, name_of
from .inference import Declined

Way = Callable[[Draft, Array], Var]


def viewed(d: Draft, array: Array) -> Var:
    """Return a value with the elements of `array` that a node makes of something else.

    Raises Declined where the way that was drawn does not serve this array, or this opset.
    """
    fixed = not (d.is_open and set(array.shape) & set(SYMBOLS.values()))
    return d.one_of(WAYS if fixed else OPEN_WAYS)(d, array)


def stretch(d: Draft, array: Array) -> Array:
    """Return an array whose elements repeat along some axes, so that it can be stretched."""
    for axis in range(array.ndim):
        if array.shape[axis] and d.chance(0.5):
            array = np.broadcast_to(np.take(array, [0], axis), array.shape)
    return np.ascontiguousarray(array)


def expanded(d: Draft, array: Array) -> Var:
    base = array
    for axis in range(array.ndim):
        first = base[(slice(None),) * axis + (slice(0, 1),)]
        if base.shape[axis] > 1 and np.array_equal(np.broadcast_to(first, base.shape), base):
            base = first
    while base.ndim and base.shape[0] == 1 and d.chance(0.3):
        base = base[0]
    if base.shape == array.shape:
        raise Declined
    x = d.given(np.ascontiguousarray(base))
    return d.node("Expand", [x, d.given(np.array(array.shape, np.int64), True)])[0]


def turned(d: Draft, array: Array) -> Var:
    if array.ndim < 2:
        raise Declined
    perm = d.rng.permutation(array.ndim)
    x = d.given(np.ascontiguousarray(array.transpose(np.argsort(perm))))
    return d.node("Transpose", [x], perm=perm.tolist())[0]


def cut(d: Draft, array: Array) -> Var:
    """Return the array as every so manyth element of a larger one, forwards or backwards."""
    axes = [i for i in range(array.ndim) if array.shape[i] and d.chance(0.6)]
    if not axes:
        raise Declined
    old = d.opset < 10
    starts, ends, steps = [], [], []
    whole = array
    for axis in axes:
        step = 1 if old else int(d.one_of((1, 1, 2, 3, -1, -1, -2)))
        before, behind = d.number(0, 3), d.number(0, 3)
        count = array.shape[axis]
        reach = (count - 1) * abs(step) + 1
        shape = list(whole.shape)
        shape[axis] = before + reach + behind
        if np.prod(shape) > 8192:
            raise Declined
        wider = d.contents(name_of(array.dtype), tuple(shape)).astype(array.dtype)
        first, last = (before, before + reach) if step > 0 else (before + reach - 1, before - 1)
        at = np.arange(count) * step + first
        wider[(slice(None),) * axis + (at,)] = whole
        whole = wider
        starts.append(first)
        ends.append(last if last >= 0 else -(2**62))
        steps.append(step)
    x = d.given(whole)
    if old:
        return d.node("Slice", [x], axes=axes, starts=starts, ends=ends)[0]
    operands = [starts, ends, axes, steps]
    return d.node("Slice", [x, *(d.given(np.array(n, np.int64), True) for n in operands)])[0]


def divided(d: Draft, array: Array) -> Var:
    """Return the array as a part of a Split, whose other parts something may read."""
    if not array.ndim:
        raise Declined
    axis = d.number(0, array.ndim - 1)
    number = d.number(0, 2)
    sizes = [d.number(0, 4) for _ in range(number + d.number(0 if number else 1, 2))]
    sizes.insert(number, array.shape[axis])
    pieces = []
    for i, size in enumerate(sizes):
        shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
        pieces.append(array if i == number else d.contents(name_of(array.dtype), shape))
    x = d.given(np.concatenate(pieces, axis).astype(array.dtype))
    if d.opset < 13:
        return d.node("Split", [x], len(sizes), axis=axis, split=sizes)[number]
    lengths = d.given(np.array(sizes, np.int64), True)
    return d.node("Split", [x, lengths], len(sizes), axis=axis)[number]


def reshaped(d: Draft, array: Array) -> Var:
    if array.ndim < 2 or not array.size or d.opset < 5:
        raise Declined
    at = d.number(0, array.ndim - 2)
    merged = (*array.shape[:at], array.shape[at] * array.shape[at + 1], *array.shape[at + 2 :])
    x = d.given(array.reshape(merged))
    return d.node("Reshape", [x, d.given(np.array(array.shape, np.int64), True)])[0]


def squeezed(d: Draft, array: Array) -> Var:
    axis = d.number(0, array.ndim)
    x = d.given(np.expand_dims(array, axis))
    if d.opset < 13:
        return d.node("Squeeze", [x], axes=[axis])[0]
    return d.node("Squeeze", [x, d.given(np.array([axis]), True)])[0]


def gathered(d: Draft, array: Array) -> Var:
    if not array.ndim:
        x = d.given(np.array([array, array]).astype(array.dtype))
        return d.node("Gather", [x, d.given(np.array(d.number(-2, 1)), True)], axis=0)[0]
    axis = d.number(0, array.ndim - 1)
    perm = d.rng.permutation(array.shape[axis])
    x = d.given(np.take(array, np.argsort(perm), axis))
    return d.node("Gather", [x, d.given(perm, True)], axis=axis)[0]


def joined(d: Draft, array: Array) -> Var:
    if not array.ndim:
        raise Declined
    axis = d.number(0, array.ndim - 1)
    parts = np.split(array, sorted(d.number(0, array.shape[axis]) for _ in range(d.number(1, 2))),
                     axis)  # fmt: skip
    return d.node("Concat", [d.given(np.ascontiguousarray(p)) for p in parts], axis=axis)[0]


def copied(d: Draft, array: Array) -> Var:
    return d.node("Identity", [d.given(array)])[0]


WAYS: tuple[Way, ...] = (expanded, expanded, turned, turned, cut, cut, cut, divided, reshaped,
                         squeezed, gathered, joined, copied)  # fmt: skip
OPEN_WAYS: tuple[Way, ...] = (turned, turned, squeezed, copied)
"""Ways that need no shapes: for arrays of open extents."""
