"""Choosing boxes: the best of each class that overlap none better (ONNX NonMaxSuppression)."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.types import Array, TensorType


class Suppress(Primitive):
    """For each batch and class the boxes that are kept, the best first, and their number.

    Boxes are f32[batch, n, 4], scores f32[batch, classes, n].  In the order of their scores, the
    lower index first where these are equal, a box is kept unless the part that it shares with one
    kept before it is more than `overlap` (0 if absent) of what both cover.  At most `limit` are
    kept, and only boxes whose score is above `threshold`, where that is given; NaN is the lowest
    score.  Result 0 is i64[batch, classes, n], -1 behind the boxes that are kept, and result 1
    i64[batch, classes].

    A box is y, x, y, x of two opposite corners, or with `center` x, y, width, height, of which
    x, y are the middle.
    """

    center: bool = False

    def infer(
        self,
        boxes: TensorType,
        scores: TensorType,
        limit: TensorType,
        overlap: TensorType | None = None,
        threshold: TensorType | None = None,
    ) -> tuple[TensorType, TensorType]:
        check_dtype(self, "boxes", boxes, {"f32"})
        check_dtype(self, "scores", scores, {"f32"})
        check_rank(self, "boxes", boxes, 3, 3)
        check_rank(self, "scores", scores, 3, 3)
        batch, classes, n = scores.shape
        if boxes.shape != (batch, n, 4):
            raise TypeRuleError(
                f"suppress: boxes are {boxes}, expected f32[{batch},{n},4] for scores {scores}"
            )
        for what, t, wanted in (
            ("limit", limit, TensorType("i64", ())),
            ("overlap", overlap, TensorType("f32", ())),
            ("threshold", threshold, TensorType("f32", ())),
        ):
            if t not in (None, wanted):
                raise TypeRuleError(f"suppress: {what} is {t}, expected {wanted}")
        return TensorType("i64", scores.shape), TensorType("i64", (batch, classes))

    def reference(
        self,
        boxes: Array,
        scores: Array,
        limit: Array,
        overlap: Array | None = None,
        threshold: Array | None = None,
    ) -> tuple[Array, Array]:
        most = np.array(0, np.float32) if overlap is None else overlap
        kept = np.full(scores.shape, -1, np.int64)
        counts = np.zeros(scores.shape[:2], np.int64)
        for b, c in np.ndindex(*counts.shape):
            score = scores[b, c]
            chosen: list[int] = []
            key = np.where(np.isnan(score), -np.inf, score)
            for i in np.argsort(-key, kind="stable").tolist():
                if len(chosen) >= limit:
                    break
                if threshold is not None and not score[i] > threshold:
                    continue
                if not overlaps(corners(boxes[b, i], self.center),
                                corners(boxes[b, chosen], self.center), most).any():  # fmt: skip
                    chosen.append(i)
            kept[b, c, : len(chosen)] = chosen
            counts[b, c] = len(chosen)
        return kept, counts

    @classmethod
    def examples(cls) -> Examples:
        boxes = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11],
                          [1, 11.1, 0, 10.1], [0, 100, 1, 101]], np.float32)[None]  # fmt: skip
        scores = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3], [0.5, 0.5, np.nan, 0.5, 0.5, 0.9]]],
                          np.float32)  # fmt: skip
        half, low = np.array(0.5, np.float32), np.array(0.4, np.float32)
        yield cls(), boxes, scores, np.array(3), half
        yield cls(), boxes, scores, np.array(9), half, low
        yield cls(), boxes, scores, np.array(9), None, low
        yield cls(), boxes, scores, np.array(9)
        yield cls(), boxes, scores, np.array(0), half
        yield cls(True), boxes, scores, np.array(9), np.array(0.1, np.float32)
        random = np.random.default_rng(0)
        many = random.uniform(0, 4, (2, 40, 4)).astype(np.float32)
        drawn = random.integers(0, 20, (2, 3, 40)).astype(np.float32)
        yield cls(), many, drawn, np.array(40), low
        yield cls(True), many, drawn, np.array(7), low, np.array(9, np.float32)
        yield cls(), "f32[1,0,4]", "f32[1,2,0]", np.array(3)
        yield cls(), "f32[2,3,4]", "f32[2,0,3]", np.array(3)


def corners(boxes: Array, center: bool) -> tuple[Array, Array, Array, Array]:
    """Return the least and the largest x and the least and the largest y of boxes."""
    a, b, c, d = np.moveaxis(boxes, -1, 0)
    if center:
        w, h = c * np.float32(0.5), d * np.float32(0.5)
        return a - w, a + w, b - h, b + h
    return np.minimum(b, d), np.maximum(b, d), np.minimum(a, c), np.maximum(a, c)


def overlaps(
    box: tuple[Array, Array, Array, Array], others: tuple[Array, Array, Array, Array], most: Array
) -> Array:
    """Return whether a box and each of the others share more than `most` of what they cover."""
    left, right, low, high = box
    width = np.maximum(np.minimum(right, others[1]) - np.maximum(left, others[0]), 0)
    height = np.maximum(np.minimum(high, others[3]) - np.maximum(low, others[2]), 0)
    shared = width * height
    own = (right - left) * (high - low)
    covered = own + (others[1] - others[0]) * (others[3] - others[2]) - shared
    with np.errstate(all="ignore"):
        return np.asarray((shared > 0) & (covered > 0) & (shared / covered > most))
