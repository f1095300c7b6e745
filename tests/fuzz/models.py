"""Random models, one a seed, and what to feed them.

A third of the models have one operator alone, a third have one pattern, a sixth have two operators
that follow each other, and a sixth are graphs.  The operators and the patterns go round: so many
seeds in a row have each of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx

from alpenglow import load
from alpenglow.base.errors import AlpenglowError, UnsupportedError
from alpenglow.frontends.onnx.converters import find

from .dice import SIZES
from .draft import OPSETS, SYMBOLS, Draft, operators
from .elements import FLOATS, NARROW, Array, is_whole, limits, name_of
from .recipe import PATTERNS, RECIPES, STAGED, attempt, grow
from .views import viewed

# What fills the tables of recipes.
for _found in pkgutil.iter_modules([str(Path(__file__).parent)], prefix=f"{__package__}."):
    if ".recipes_" in _found.name:
        importlib.import_module(_found.name)

KINDS = ((False, False), (False, False), (False, False), (False, False), (True, False),
         (True, False), (False, True), (True, True))  # fmt: skip
"""Whether a draft is open, and whether it is staged."""

LATEST = onnx.defs.onnx_opset_version()


# ── which operators, and of which opset ──


def names() -> list[str]:
    """Return the operators that have a recipe, in an order that mixes them."""
    known = sorted(RECIPES.keys() | STAGED.keys())
    return [known[i] for i in np.random.default_rng(0).permutation(len(known))]


@cache
def forms(name: str) -> list[tuple[int, int]]:
    """Return the first and last opset of each form of an operator that the importer knows."""
    domain, _, op = name.rpartition(":")
    if domain not in ("", "training"):
        return [(7, 24)]  # they mean the same in all, and ONNX Runtime does not have the latest
    since = sorted({s.since_version for s in onnx.defs.get_all_schemas_with_history()
                    if (s.domain, s.name) == ("", op)})  # fmt: skip
    spans = [(a, b - 1) for a, b in pairwise([*since, LATEST + 1])]
    known = [(a, b) for a, b in spans if find("", op, b) is not None]
    return known or spans or [(1, 9)]


def draft(seed: int) -> Draft:
    """Return the random model of a seed."""
    rng = np.random.default_rng(seed)
    every = names()
    if seed % 3 == 0:
        d = chosen(rng, [every[seed // 3 % len(every)]])
    elif seed % 3 == 1:
        d = patterned(rng, sorted(PATTERNS)[seed // 3 % len(PATTERNS)])
    elif seed % 6 == 2:
        first, second = seed // 6 % len(every), int(rng.integers(len(every)))
        pair = [every[first], every[second]]
        d = chosen(rng, pair if rng.random() < 0.5 else pair[::-1])
    else:
        d = started(rng, int(rng.choice(OPSETS)))
        d.views = float(rng.choice([0.0, 0.1, 0.3]))
        grow(d, int(rng.integers(3, 11)))
    finish(d)
    return d


def chosen(rng: np.random.Generator, wanted: list[str]) -> Draft:
    """Return a draft with operators one after the other, of an opset that has them."""
    for _ in range(20):
        spans = forms(wanted[int(rng.integers(len(wanted)))])
        first, last = spans[int(rng.integers(len(spans)))]
        d = started(rng, int(rng.integers(first, last + 1)))
        d.is_staged |= any(name not in RECIPES for name in wanted)
        d.views = float(rng.choice([0.0, 0.5])) if len(wanted) == 1 else 0.15
        d.joins = 0.9
        if all(attempt(d, RECIPES if n in RECIPES else STAGED, n) for n in wanted):
            return d
    return d


def patterned(rng: np.random.Generator, name: str) -> Draft:
    """Return a draft with one pattern, and sometimes a node behind it."""
    for _ in range(20):
        d = started(rng, int(rng.choice(OPSETS)))
        d.joins = 0.9
        if attempt(d, PATTERNS, name):
            break
    if d.chance(0.3):
        grow(d, 1)
    return d


def started(rng: np.random.Generator, opset: int) -> Draft:
    d = Draft(rng, opset, view=viewed)
    d.is_open, d.is_staged = KINDS[int(rng.integers(len(KINDS)))]
    if opset < 11:
        d.is_staged = False
    d.versions["ai.onnx.ml"] = int(rng.integers(1, 6))
    return d


def finish(d: Draft) -> None:
    """Choose outputs: some that are read as well, inputs, weights, and one value twice.

    There may be inputs and weights that nobody reads.  Where the model only holds at the extents
    that it was drafted with, none is open.
    """
    d.shown |= {v.name for v in d.vars if v.name in d.made and d.chance(0.12)}
    ends = [v for v in d.vars if v.name in d.made]
    if ends and d.chance(0.06):
        v = d.one_of(ends)
        d.node("Identity", [v], types=[(v.dtype, v.shape)])
    given = [v for v in d.vars if v.name in d.inputs and v.name not in d.controls]
    if given and d.chance(0.04):
        d.shown.add(d.one_of(given).name)
    stored = [v for v in d.vars if v.name in d.weights]
    if stored and d.chance(0.04):
        d.shown.add(d.one_of(stored).name)
    if d.chance(0.04):
        d.idle.add(d.given(d.contents("float", d.shape(0, 3))).name)
    if d.is_open and not holds(d):
        d.is_open = False


def holds(d: Draft) -> bool:
    """Return whether a model can be imported at other extents, too: if not, it is ill typed."""
    model = d.model().SerializeToString()
    shapes = {k: a.shape for k, a in sizes(d)[0].items()}
    try:
        load(model, shapes)
    except UnsupportedError:
        return True
    except AlpenglowError:
        return False
    return True


# ── what to feed ──


def sizes(d: Draft) -> list[dict[str, Array]]:
    """Return feeds for a draft at other extents and with other decisions, fit or not."""
    found = []
    for values in SIZES if d.is_open else ():
        extents = dict(zip(SYMBOLS.values(), values, strict=True))
        found.append({k: _stretched(a, extents) for k, a in d.feeds().items()})
    for name, others in d.controls.items():
        found += [{**d.feeds(), name: other} for other in others if name in d.feeds()]
    return found


def _stretched(array: Array, extents: dict[int, int]) -> Array:
    """Return an array with some extents replaced: elements are repeated, or left out."""
    for axis, old in enumerate(array.shape):
        if old in extents:
            array = np.take(array, np.arange(extents[old]) % old, axis)
    return array


WEIGHTED = ("Conv", "Resize", "Upsample", "LRN", "RoiAlign", "GridSample", "Deform", "Col2Im",
            "DFT", "STFT", "FusedConv", "QuantizeLinear", "Nhwc", "CropAndResize", "CausalConv",
            "ConvTranspose")  # fmt: skip
"""Operators that may or may not multiply what has the weight 0, or make integers of NaN."""

SINGLE = frozenset({
    "Abs", "Add", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "Greater", "HardSigmoid",
    "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "Log", "Max", "Min", "Mish",
    "Mul", "Neg", "PRelu", "Reciprocal", "Relu", "Selu", "Shrink", "Sigmoid", "Sign", "Softplus",
    "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu", "Transpose", "Reshape", "Concat",
    "Slice", "Split", "Expand", "Gather", "Squeeze", "Unsqueeze", "ReduceMax", "ReduceMin",
    "MaxPool", "Where", "Pad", "Tile", "Atan", "Asinh", "Ceil", "Floor", "Round", "QuickGelu",
    "FastGelu", "ArgMax", "ArgMin", "TopK", "CumSum", "Softmax", "LogSoftmax", "Hardmax",
})  # fmt: skip
"""Operators of which a model may be fed the largest numbers that there are: no result depends on
the order in which products are added."""


def special(d: Draft, rng: np.random.Generator) -> dict[str, Array]:
    """Return feeds of strange numbers.

    Mostly infinities, NaN, zeros of both signs and the least and largest numbers; otherwise all are
    large, all are tiny, many are the same, or they are sorted.
    """
    single = set(operators(d.nodes)) <= SINGLE
    ways = ["strange"] * 3 + ["ties", "sorted", "equal", "tiny"] + ["large"] * (3 if single else 0)
    way = str(rng.choice(ways))
    changed = {"strange": _strange, "large": _large, "tiny": _tiny, "ties": _ties,
               "sorted": _in_order, "equal": _equal}[way]  # fmt: skip
    return {
        name: array if name in d.controls or not array.size or name_of(array.dtype) in NARROW
        or array.dtype.kind == "c" else changed(d, array.copy(), rng)
        for name, array in d.feeds().items()
    }  # fmt: skip


def _strange(d: Draft, a: Array, rng: np.random.Generator) -> Array:
    """Return an array with the strangest numbers in some places.

    The largest are such that a few may be multiplied in any order.  Convolutions get finite ones
    only: Winograd's way spreads infinities over a tile, dense blocks over groups.  So does what
    has weights of 0 for its neighbours.
    """
    if a.dtype.kind in "iu":
        ends = np.iinfo(a.dtype)
        strange = np.array([ends.min, ends.max, 0, 1], a.dtype)
    elif a.dtype == np.bool_:
        strange = np.array([True, False])
    else:
        ends = ml_dtypes.finfo(a.dtype)
        numbers = [0.0, -0.0, float(ends.smallest_subnormal), -float(ends.tiny)]
        if not any(op.startswith(WEIGHTED) for op in operators(d.nodes)):
            numbers += [np.nan, np.inf, -np.inf, float(ends.max) ** 0.25]
        strange = np.array(numbers, np.float64).astype(a.dtype)
    flat = a.reshape(-1)
    spots = rng.random(flat.size) < 0.2
    flat[spots] = rng.choice(strange, int(spots.sum()))
    return a


def _large(d: Draft, a: Array, rng: np.random.Generator) -> Array:
    """Return an array of numbers of all magnitudes that the type has."""
    if name_of(a.dtype) not in FLOATS:
        return _strange(d, a, rng)
    ends = ml_dtypes.finfo(a.dtype)
    reach = np.log10(float(ends.max))
    signs = np.where(rng.random(a.shape) < 0.5, -1.0, 1.0)
    return np.asarray(signs * 10.0 ** rng.uniform(-reach, reach, a.shape)).astype(a.dtype)


def _tiny(d: Draft, a: Array, rng: np.random.Generator) -> Array:
    if name_of(a.dtype) not in FLOATS:
        return _strange(d, a, rng)
    least = float(ml_dtypes.finfo(a.dtype).tiny)
    return np.asarray(a.astype(np.float64) * least * 8).astype(a.dtype)


def _ties(d: Draft, a: Array, rng: np.random.Generator) -> Array:
    some = rng.choice(a.reshape(-1), min(3, a.size))
    return np.asarray(rng.choice(some, a.shape)).astype(a.dtype)


def _in_order(d: Draft, a: Array, rng: np.random.Generator) -> Array:
    return np.asarray(np.sort(a.reshape(-1)).reshape(a.shape))


def _equal(d: Draft, a: Array, rng: np.random.Generator) -> Array:
    return np.full_like(a, rng.choice(a.reshape(-1)))


__all__ = ["draft", "forms", "is_whole", "limits", "names", "sizes", "special"]
