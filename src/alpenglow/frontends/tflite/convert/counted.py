"""Converters whose results are as long as the data ask for: WHERE, UNIQUE, choosing boxes.

Ours make results of the greatest length and a count.  `Site.cut` tells the count, if need be by
running what comes before.  Chosen boxes are padded instead.
"""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.movement import head
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Maximum, Minimum
from alpenglow.ops.elementwise.comparison import GreaterOrEqual
from alpenglow.ops.elementwise.floating import NextAfter
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.image.suppress import Suppress
from alpenglow.ops.tensor.counted import Unique
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Pad, Transpose


@on("WHERE", moves=True)
def where(s: Site) -> Made:
    """The coordinates of elements that are not 0, a row each."""
    x = s.input(0)
    if not x.type.rank:
        raise s.unsupported(f"condition {x.type}", "rank 1 or more")
    return s.g(Transpose((1, 0)), s.places(x))


@on("UNIQUE", moves=True)
def unique(s: Site) -> Made:
    """Different elements in the order in which they come, and which of them each element is."""
    x = s.rank(0, 1)
    leaders, kinds, _, count = s.g.add(Unique(0, False), [x]).results
    (n,), (leaders, kinds) = s.cut(count, leaders, kinds)
    values = s.g(Gather(0), x, head(s.g, leaders, n))
    return [values, s.cast(kinds, s.output(1).dtype)]


@on("NON_MAX_SUPPRESSION_V4")
def non_max_suppression_v4(s: Site) -> Made:
    indices, count = suppressed(s)
    return [s.g(Maximum(), indices, s.filled(0, indices)), count]


@on("NON_MAX_SUPPRESSION_V5")
def non_max_suppression_v5(s: Site) -> Made:
    """The same with the scores of boxes that are chosen."""
    if s.constant(5).any():
        raise s.unsupported("soft_nms_sigma other than 0", "0")
    indices, count = suppressed(s)
    at = s.g(Maximum(), indices, s.filled(0, indices))
    scores = s.g(Gather(0), s.input(1), at)
    there = s.g(GreaterOrEqual(), indices, s.filled(0, indices))
    return [at, s.g(Where(), there, scores, s.filled(0, scores)), count]


def suppressed(s: Site) -> tuple[Value, Value]:
    """Return the numbers of boxes that are chosen, -1 behind them, and how many these are.

    A box goes if its overlap with a better one is at least the threshold; `Suppress` drops a box of
    more overlap, so it gets the number before.
    """
    boxes, scores, most = s.rank(0, 2), s.rank(1, 1), s.number(2)
    n = fixed(scores.type.shape[0])
    if most < 0:
        raise s.wrong(f"max_output_size is {most}, expected at least 0")
    share = s.scalar(3)
    overlap = s.g(NextAfter(), share, s.filled(-1, share))
    limit = s.g.constant(np.array(most, np.int64))
    rows = s.reshaped(boxes, (1, *boxes.type.shape)), s.reshaped(scores, (1, 1, n))
    kept, count = s.g.add(Suppress(), [*rows, limit, overlap, s.scalar(4)]).results
    flat = s.reshaped(kept, (n,))
    flat = head(s.g, flat, most) if most <= n else s.g(Pad((0,), (int(most - n),), value=-1), flat)
    total = s.g(Minimum(), s.reshaped(count, ()), limit)
    return s.cast(flat, "i32"), s.cast(total, "i32")
