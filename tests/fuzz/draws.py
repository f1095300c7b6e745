"""Models that draw random numbers: no two engines draw the same, so parts are compared.

What a node draws must be of the type and shape that others give it, and distributed as ONNX says.
The rest of the model is fed what we drew, and so has results that others can confirm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference

from alpenglow.base.errors import FeedError
from alpenglow.frontends.onnx.cut import Case, fixed, with_nodes

from .draft import every
from .elements import Shape
from .oracles import runtime
from .reference import Reference, loaded

Array = NDArray[Any]
Values = Mapping[str, Array]

SIGMAS = 6.0
"""A mean is farther from what is expected once in 500 million."""

MANY = 64
"""Elements from which on the spread is looked at, too."""


class Odd(Exception):
    """What was drawn is not what the node describes."""


@dataclass(frozen=True, slots=True)
class Parted:
    """The rest of a model, None where there is nothing else, and how our draws compare: same if
    others draw what has these types and shapes, alone if nobody else draws."""

    rest: Case | None
    word: str


def draws(n: onnx.NodeProto) -> bool:
    """Whether a node may draw random numbers."""
    return n.op_type in CHECKS and (n.op_type != "Dropout" or len(n.input) > 2)


def is_random(model: onnx.ModelProto) -> bool:
    return any(map(draws, every(model.graph.node)))


def parted(model: onnx.ModelProto, reference: Reference) -> Parted | None:
    """Part a model that draws; None where a branch or a loop does, or nothing is to be shown.

    Raises Odd if what we draw is not distributed as it should be, or of another type than others
    draw, or not the same in the whole model and beside the rest of it.
    """
    top = [n for n in model.graph.node if draws(n)]
    if len(top) < sum(map(draws, every(model.graph.node))):
        return None
    names = {o for n in top for o in n.output if o}
    made = {o for n in model.graph.node for o in n.output}
    read = {i for n in top for i in n.input if i in made}
    content = _showing(model, names | read).SerializeToString()
    values = dict(reference.feeds)
    values |= {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    try:
        values |= Reference(loaded(content, reference.feeds), reference.feeds).expected
    except FeedError:
        return None  # only the shape was read of what fails
    for n in top:
        CHECKS[n.op_type](n, values)
    for name, y in reference.expected.items():
        if name in names and y.tobytes() != values[name].tobytes():
            raise Odd(f"'{name}' is drawn otherwise where more is an output")
    others = drawn_by_others(content, reference.feeds)
    for name in sorted(names & others.keys()):
        if others[name] != (values[name].dtype, values[name].shape):
            raise Odd(f"'{name}' is {values[name].dtype}{values[name].shape}, not {others[name]}")
    kept = [i for i, n in enumerate(model.graph.node) if not draws(n)]
    rest = with_nodes(Case(model, reference.feeds), kept, {n: values[n] for n in names})
    return Parted(rest, "same" if names <= others.keys() else "alone")


def _showing(model: onnx.ModelProto, names: set[str]) -> onnx.ModelProto:
    """Return a model whose outputs are some of its values, and no others."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in sorted(names))
    return shown


def drawn_by_others(model: bytes, feeds: Values) -> dict[str, tuple[np.dtype[Any], Shape]]:
    """Return types and shapes of outputs: those that ONNX Runtime makes, or that ONNX infers."""
    run = runtime(model)
    results = None if run is None else run(feeds)
    shown = onnx.load_model_from_string(model)
    if results is not None:
        named = zip([o.name for o in shown.graph.output], results, strict=True)
        return {name: (y.dtype, y.shape) for name, y in named}
    found = {}
    for o in fixed_outputs(shown, feeds):
        t = o.type.tensor_type
        known = t.HasField("shape") and all(d.HasField("dim_value") for d in t.shape.dim)
        if t.elem_type and known:
            kind = helper.tensor_dtype_to_np_dtype(t.elem_type)
            found[o.name] = kind, tuple(d.dim_value for d in t.shape.dim)
    return found


def fixed_outputs(model: onnx.ModelProto, feeds: Values) -> Sequence[onnx.ValueInfoProto]:
    """Return outputs with the types that ONNX infers for the very shapes that are fed."""
    settled = fixed(Case(model, feeds)).model
    return list(shape_inference.infer_shapes(settled, data_prop=True).graph.output)


# ── what each operator promises ──


def attribute(n: onnx.NodeProto, name: str, otherwise: float) -> float:
    return next((float(helper.get_attribute_value(a)) for a in n.attribute if a.name == name),
                otherwise)  # fmt: skip


def _normal(n: onnx.NodeProto, values: Values) -> None:
    mean, scale = attribute(n, "mean", 0.0), attribute(n, "scale", 1.0)
    _spread(n, values[n.output[0]], mean, scale)


def _uniform(n: onnx.NodeProto, values: Values) -> None:
    low, high = attribute(n, "low", 0.0), attribute(n, "high", 1.0)
    y = values[n.output[0]]
    wide = y.astype(np.float64)
    if not ((wide >= low) & (wide <= high)).all():
        raise Odd(f"{n.op_type} draws {wide.min()} to {wide.max()} of {low} to {high}")
    _spread(n, y, (low + high) / 2, (high - low) / np.sqrt(12))


def _spread(n: onnx.NodeProto, y: Array, mean: float, scale: float) -> None:
    """Check the mean and the deviation of independent numbers."""
    wide = y.astype(np.float64)
    if not np.isfinite(wide).all():
        raise Odd(f"{n.op_type} draws what is no number")
    if not wide.size:
        return
    off = abs(float(wide.mean()) - mean) / (abs(scale) or 1.0)
    if off > SIGMAS / np.sqrt(wide.size) + 0.01:
        raise Odd(f"{n.op_type}: the mean of {wide.size} is {wide.mean()}, expected {mean}")
    share = float(wide.std()) / (abs(scale) or 1.0)
    if wide.size >= MANY and abs(share - 1) > SIGMAS / np.sqrt(wide.size):
        raise Odd(f"{n.op_type}: the deviation of {wide.size} is {share} of what it should be")


def _bernoulli(n: onnx.NodeProto, values: Values) -> None:
    p, y = (values[name].astype(np.float64) for name in (n.input[0], n.output[0]))
    if not np.isin(y, (0.0, 1.0)).all() or (y[p <= 0] != 0).any() or (y[p >= 1] != 1).any():
        raise Odd("Bernoulli draws what is impossible")
    sure = np.clip(p, 0.0, 1.0)
    _share(n, float(y.sum()), sure)


def _share(n: onnx.NodeProto, count: float, chances: Array) -> None:
    """Check how often something happened that had these chances."""
    spread = float(np.sqrt((chances * (1 - chances)).sum()))
    if abs(count - float(chances.sum())) > SIGMAS * spread + 1:
        raise Odd(f"{n.op_type}: {count} of {chances.size}, expected {chances.sum()}")


def _multinomial(n: onnx.NodeProto, values: Values) -> None:
    x, y = values[n.input[0]], values[n.output[0]]
    if y.size and not ((y >= 0) & (y < x.shape[1])).all():
        raise Odd(f"Multinomial draws {y.min()} to {y.max()} of {x.shape[1]}")


def _dropout(n: onnx.NodeProto, values: Values) -> None:
    """What is kept is divided by the share of that, all else is 0."""
    x, y = values[n.input[0]].astype(np.float64), values[n.output[0]].astype(np.float64)
    ratio = float(values[n.input[1]]) if n.input[1] else 0.5
    if not values[n.input[2]].any():
        ratio = 0.0
    mask = values[n.output[1]] if len(n.output) > 1 and n.output[1] else None
    kept = (y != 0) | (x == 0) if mask is None else mask
    with np.errstate(all="ignore"):
        expected = np.where(kept, x / (1 - ratio), 0.0)
    ends = ml_dtypes.finfo(values[n.input[0]].dtype)
    off = {"rtol": 4 * float(ends.eps), "atol": float(ends.tiny)}
    near = np.isclose(y, expected, **off, equal_nan=True)
    if not near.all():
        raise Odd("Dropout: an element is neither kept nor 0")
    unsure = kept if mask is not None else kept[x != 0]
    _share(n, float(unsure.sum()), np.full(unsure.shape, 1 - ratio))


CHECKS: dict[str, Callable[[onnx.NodeProto, Values], None]] = {
    "RandomNormal": _normal,
    "RandomNormalLike": _normal,
    "RandomUniform": _uniform,
    "RandomUniformLike": _uniform,
    "Bernoulli": _bernoulli,
    "Multinomial": _multinomial,
    "Dropout": _dropout,
}
"""How the draws of an operator are checked."""
