"""The converter of detection postprocessing: boxes decoded, selected, and sorted by score."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.movement import head
from alpenglow.frontends.presume import Needed
from alpenglow.frontends.tflite.file.flexbuffer import numbers
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add, Maximum, Mul, Sub
from alpenglow.ops.elementwise.comparison import GreaterOrEqual
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.image.suppress import Suppress
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.tensor.gather import Gather, GatherElements
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Concat, Pad, Slice, Transpose, stretch
from alpenglow.ops.tensor.order import TopK

Options = dict[str, int | float]

NEEDED = ("max_detections", "num_classes", "nms_score_threshold", "nms_iou_threshold", "y_scale",
          "x_scale", "h_scale", "w_scale")  # fmt: skip


@on("TFLite_Detection_PostProcess", custom=True)
def detection(s: Site) -> Made:
    """Boxes, classes and scores of what is detected, zeros behind them, and how many there are."""
    options = numbers(s.step.payload.operator.custom_options())
    encodings, scores, anchors = s.rank(0, 3), s.rank(1, 3), s.rank(2, 2)
    n, classes = scores.type.shape[1:]
    if encodings.type.shape[0] != 1 or not known(n) or not known(classes):
        raise Needed("")
    s.check_options(options, NEEDED)
    if not 0 < options["num_classes"] <= classes:
        raise s.wrong(f"num_classes is {options['num_classes']}, expected 1 to {classes}")
    if options["max_detections"] < 1:
        raise s.wrong(f"max_detections is {options['max_detections']}, expected at least 1")
    boxes = decoded(s, options, encodings, anchors)
    background = int(classes - options["num_classes"])
    kept = (1, n, int(options["num_classes"]))
    by_class = s.g(Slice((0, 0, background), kept, (1, 1, 1)), scores)
    regular = bool(options.get("use_regular_nms", False))
    places, kinds, found = (each_class if regular else best_class)(s, options, boxes, by_class)
    return listed(s, int(options["max_detections"]), boxes, places, kinds, found)


def decoded(s: Site, options: Options, encodings: Value, anchors: Value) -> Value:
    """Return boxes [n, 4] as corners y, x, y, x: places and sizes are relative to anchors."""
    n = anchors.type.shape[0]

    def column(v: Value, i: int) -> Value:
        rows = s.reshaped(v, v.type.shape[-2:])
        return s.g(Slice((0, i), (n, 1), (1, 1)), rows)

    corners: list[list[Value]] = []
    for i, (place, size) in enumerate((("y_scale", "h_scale"), ("x_scale", "w_scale"))):
        if not options[place] or not options[size]:
            raise s.wrong(f"{place} is {options[place]} and {size} is {options[size]}, "
                          "expected other than 0")  # fmt: skip
        extent = column(anchors, 2 + i)
        shift = s.g(Mul(), column(encodings, i), s.filled(1 / options[place], extent))
        middle = s.g(Add(), s.g(Mul(), shift, extent), column(anchors, i))
        size_of = s.g(Mul(), column(encodings, 2 + i), s.filled(1 / options[size], extent))
        grown = s.g(Exp(), size_of)
        half = s.g(Mul(), s.g(Mul(), grown, s.filled(0.5, grown)), extent)
        corners.append([s.g(Sub(), middle, half), s.g(Add(), middle, half)])
    return s.g(Concat(1), *(corners[i][k] for k in range(2) for i in range(2)))


def suppressed(s: Site, options: Options, boxes: Value, scores: Value, most: int) -> Value:
    """Return for each class of scores[C, n] the boxes that are kept, the best first, -1 behind."""
    least = np.nextafter(np.float32(options["nms_score_threshold"]), np.float32(-np.inf))
    share = s.g.constant(np.array(options["nms_iou_threshold"], np.float32))
    limit = s.g.constant(np.array(most, np.int64))
    rows = s.reshaped(boxes, (1, *boxes.type.shape)), s.reshaped(scores, (1, *scores.type.shape))
    kept = s.g.add(Suppress(), [*rows, limit, share, s.g.constant(least)]).results[0]
    return s.reshaped(kept, scores.type.shape)


Found = tuple[Value, Value, Value]
"""The numbers of boxes, their classes and their scores; numbers are -1 behind those found."""


def best_class(s: Site, options: Options, boxes: Value, scores: Value) -> Found:
    """Choose boxes whatever their class, by their best one."""
    if (count := options.get("max_classes_per_detection", 1)) != 1:
        raise s.unsupported(f"max_classes_per_detection {count}", "1, or use_regular_nms")
    n = scores.type.shape[1]
    best, kind = s.g.add(TopK(2, 1), [scores]).results
    flat = s.reshaped(best, (n,))
    most = int(options["max_detections"])
    kept = suppressed(s, options, boxes, s.reshaped(best, (1, n)), most)
    at = head(s.g, s.reshaped(kept, (n,)), min(most, int(n)))
    there = s.g(Maximum(), at, s.filled(0, at))
    return at, s.g(Gather(0), s.reshaped(kind, (n,)), there), s.g(Gather(0), flat, there)


def each_class(s: Site, options: Options, boxes: Value, scores: Value) -> Found:
    """Choose boxes of each class, and of all these the best."""
    n, classes = scores.type.shape[1:]
    by_class = s.g(Transpose((1, 0)), s.reshaped(scores, (n, classes)))
    most = int(options.get("detections_per_class", 100))
    kept = suppressed(s, options, boxes, by_class, most)
    kept = head(s.g, kept, min(most, int(n)))
    there = s.g(Maximum(), kept, s.filled(0, kept))
    values = s.g(GatherElements(1), by_class, there)
    chosen = s.g(GreaterOrEqual(), kept, s.filled(0, kept))
    ranked = s.g(Where(), chosen, values, s.filled(-np.inf, values))
    total = int(kept.type.shape[0]) * int(kept.type.shape[1])
    flat = [s.reshaped(v, (total,)) for v in (kept, s.g(Iota(kept.type.shape, 0)), ranked)]
    best, order = s.g.add(TopK(0, min(int(options["max_detections"]), total)), [flat[2]]).results
    at, kinds = (s.g(Gather(0), v, order) for v in flat[:2])
    return at, kinds, best


def listed(s: Site, count: int, boxes: Value, at: Value, kinds: Value, found: Value) -> Made:
    """Return the detections, padded with zeros to `count`."""
    there = s.g(GreaterOrEqual(), at, s.filled(0, at))
    rows = s.g(Gather(0), boxes, s.g(Maximum(), at, s.filled(0, at)))
    mask = stretch(s.g, s.reshaped(there, (*at.type.shape, 1)), rows.type.shape)
    lists = [s.g(Where(), mask, rows, s.filled(0, rows))]
    for v in (s.cast(kinds, "f32"), found):
        lists.append(s.g(Where(), there, v, s.filled(0, v)))
    total = s.g(ReduceSum((0,), True), s.cast(there, "f32"))
    more = count - int(at.type.shape[0])
    made = [s.g(Pad((0,) * v.type.rank, (more, *[0] * (v.type.rank - 1))), v) if more else v
            for v in lists]  # fmt: skip
    return [*(s.reshaped(v, (1, *v.type.shape)) for v in made), total]
