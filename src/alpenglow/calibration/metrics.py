"""Metrics: what a quantized model loses, as one number between 0 (nothing) and 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from alpenglow.base.errors import FeedError, OptionError
from alpenglow.ir.types import Array

Metric = Literal["top1", "top5", "agreement", "cosine", "sqnr"]
METRICS: tuple[Metric, ...] = get_args(Metric)

Outputs = Sequence[Mapping[str, Array]]
"""What came out for each sample, by name."""


def check_metric(metric: str, labels: Array | None) -> None:
    """Raise OptionError unless there is such a metric, FeedError if it needs labels."""
    if metric not in METRICS:
        raise OptionError(f"metric is '{metric}', expected one of {', '.join(METRICS)}")
    if metric in ("top1", "top5") and labels is None:
        raise FeedError(
            f"{metric} compares with labels, but the data set has none",
            hint="an array `labels` next to the samples; agreement, cosine and sqnr need none",
        )


def loss(metric: Metric, outputs: Outputs, reference: Outputs, labels: Array | None) -> float:
    """Return how much is lost of what the model should answer.

    - top1, top5: the share of labels that are not the greatest, or among the five greatest,
      elements of a row of the first output.
    - agreement: the share of rows whose greatest element is not that of the reference.
    - cosine: 1 minus the cosine of the angle between outputs and reference, on average.
    - sqnr: the power of the difference as a share of the power of the reference.
    """
    match metric:
        case "top1" | "top5":
            assert labels is not None, "checked before"
            return _missed(outputs, labels, 1 if metric == "top1" else 5)
        case "agreement":
            wanted = np.stack([_rows(o, len(_first(o))).argmax(1) for o in reference])
            return _missed(outputs, wanted, 1)
        case "cosine":
            return float(np.mean([_angle(a, b) for a, b in _pairs(outputs, reference)]))
        case "sqnr":
            pairs = list(_pairs(outputs, reference))
            noise = sum(float(((a - b) ** 2).sum()) for a, b in pairs)
            return noise / (sum(float((b**2).sum()) for _, b in pairs) or 1.0)


def decibels(noise: float) -> float:
    """Return a share of noise as a ratio of signal to noise in decibels; inf for none at all."""
    return float(-10 * np.log10(noise)) if noise > 0 else np.inf


def _missed(outputs: Outputs, labels: Array, count: int) -> float:
    missed = total = 0
    for actual, wanted in zip(outputs, labels, strict=True):
        rows = _rows(actual, len(wanted))
        if wanted.min() < 0 or wanted.max() >= rows.shape[1]:
            raise FeedError(
                f"labels are {wanted.min()} to {wanted.max()}, but the first output scores "
                f"0 to {rows.shape[1] - 1}",
                hint="are classes counted from 1, or is the first output another one?",
            )
        best = np.argsort(-rows, axis=1, kind="stable")[:, :count]
        missed += int((best != wanted[:, None]).all(1).sum())
        total += len(wanted)
    return missed / total


def _first(arrays: Mapping[str, Array]) -> Array:
    first = next(iter(arrays.values()))
    return first if first.ndim > 1 else first[None]


def _rows(arrays: Mapping[str, Array], count: int) -> Array:
    """Return the first output as one row of scores for each label."""
    first = _first(arrays)
    if first.size % count or first.size == 0:
        raise FeedError(
            f"output has shape {first.shape}, expected a row for each of {count} labels"
        )
    return first.reshape(count, -1).astype(np.float64)


def _pairs(outputs: Outputs, reference: Outputs) -> list[tuple[Array, Array]]:
    """Return all that came out, each beside what should have."""
    return [
        (actual[name].astype(np.float64), wanted[name].astype(np.float64))
        for actual, wanted in zip(outputs, reference, strict=True)
        for name in wanted
        if wanted[name].dtype.kind == "f"
    ]


def _angle(a: Array, b: Array) -> float:
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return 1 - float((a * b).sum()) / lengths if lengths else float(bool(a.any() or b.any()))
