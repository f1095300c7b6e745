"""How exactly a result is determined: the graph is evaluated over and over with noise in it.

Before every operator its operands are moved by a few units in the last place, and so are its
results.  By how much the outputs then move is what rounding alone may do to them; where a
comparison, a cast or a tie falls either way, an output may be anything.  (The idea is that of
stochastic arithmetic: Vignes, 1993.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from alpenglow.evaluate import apply
from alpenglow.ir import op
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.types import FLOATS, NAMES
from alpenglow.ops.elementwise.activation import Sigmoid
from alpenglow.ops.elementwise.arithmetic import Pow
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.quantize import Quantize
from alpenglow.ops.reduction.layer_norm import LayerNorm
from alpenglow.ops.reduction.reduction import ReduceMean, ReduceProd, ReduceSum
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, Transpose

Array = NDArray[Any]

ULPS = 4.0
"""How many units in the last place an operator may be wrong by, and its operands may be off."""


def noisy(
    g: Graph, feeds: Mapping[str, Array], rng: np.random.Generator, precision: str = "f32"
) -> dict[str, Array]:
    """Return the outputs of `g`, evaluated with noise: that of halves, if these are the precision.

    What a contraction reads is rounded to halves, and so is what others read of that.
    """
    half = 0.0 if precision == "f32" else float(ml_dtypes.finfo(HALVES[precision]).eps)
    env: dict[Value, Array] = {v: feeds[k] for k, v in g.inputs.items()}

    def operand(v: Value | None) -> Array | None:
        if v is None:
            return None
        return moved(v.array if v.array is not None else env[v], rng)

    exact = set(g.inputs.values())
    for node in g.nodes:
        if not half and _is_exact(node, exact):
            given = [None if v is None else env.get(v, v.array) for v in node.inputs]
            env |= dict(zip(node.results, apply(node.op, given, node.regions), strict=True))
            exact |= set(node.results)
            continue
        arrays = [operand(v) for v in node.inputs]
        if isinstance(node.op, Pow):
            arrays[1] = unless_whole(node.inputs[1], env, arrays[1])
        if half:
            arrays = [rounded(a, rng, half) for a in arrays]
        with formulas(rng, unit(arrays)):
            results = apply(node.op, arrays, node.regions)
        if isinstance(node.op, ReduceProd) and arrays[0] is not None:
            results = [unless_large(node.op, arrays[0], results[0])]
        many = 0.0 if isinstance(node.op, Elementwise) else terms(node.op, arrays, results)
        least = partial_sums(node.op, arrays, results)
        made = [moved(unless_overflown(y, least), rng, many, least=least) for y in results]
        if isinstance(node.op, Exp | Sigmoid | Softmax):
            made = [underflown(y, x, rng) for y, x in zip(results, made, strict=True)]
        env |= dict(zip(node.results, made, strict=True))
    return {k: env[v] if v.array is None else v.array for k, v in g.outputs.items()}


MOVES = (Broadcast, Concat, Reshape, Slice, Transpose)


def _is_exact(node: Node, exact: set[Value]) -> bool:
    """Whether nothing is rounded but by what quantizes: moves of what is fed or stored, and steps
    of which one is a power of two, so that it is told apart how ties are rounded."""
    if not all(v is None or v.array is not None or v in exact for v in node.inputs):
        return False
    if isinstance(node.op, MOVES):
        return True
    if not isinstance(node.op, Quantize) or node.op.precision != "f32" or node.inputs[0] is None:
        return False
    steps = node.inputs[1]
    while steps is not None and steps.producer is not None and isinstance(steps.producer.op, MOVES):
        steps = steps.producer.inputs[0]
    if steps is None or steps.array is None:
        return False
    wide = steps.array.astype(np.float64)
    return bool((np.frexp(wide)[0] == 0.5).all()) and node.inputs[0].type.dtype == "f32"


def unless_whole(v: Value | None, env: Mapping[Value, Array], moved_: Array | None) -> Array | None:
    """Return exponents as they were moved, but whole ones as they are: a negative number has no
    power to what lies beside these."""
    assert v is not None
    y = v.array if v.array is not None else env[v]
    return np.where(y == np.rint(y), y, moved_)


HALVES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
HALF_TYPES = frozenset(map(np.dtype, HALVES.values()))


def rounded(x: Array | None, rng: np.random.Generator, eps: float) -> Array | None:
    """Return floats as if they had been rounded to `eps`, up or down."""
    if x is None or x.dtype != np.float32:
        return x
    return moved(x, rng, formula=eps)


class NoisyMath:
    """The vocabulary of formulas, with noise on every result that is rounded."""

    def __init__(self, rng: np.random.Generator, eps: float, plain: Any) -> None:
        self.rng = rng
        self.eps = eps
        self.plain = plain

    def __getattr__(self, name: str) -> Any:
        exact = getattr(self.plain, name)
        if name in EXACT:
            return exact
        return lambda *xs: moved(np.asarray(exact(*xs)), self.rng, formula=self.eps)


EXACT = frozenset({"neg", "abs", "sign", "minimum", "maximum", "floor", "ceil", "round", "where",
                   "cast", "bits", "fmod", "mod"})  # fmt: skip
"""What is not rounded, whatever the operands."""


@contextmanager
def formulas(rng: np.random.Generator, eps: float) -> Iterator[None]:
    """Let elementwise operators be computed with noise inside of their formulas."""
    plain = op.NUMPY
    op.NUMPY = NoisyMath(rng, eps, plain)  # type: ignore[assignment]
    try:
        yield
    finally:
        op.NUMPY = plain


def widely(g: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of `g` with halves computed as f32, but where they are cast or leave."""
    env: dict[Value, Array] = {v: feeds[k] for k, v in g.inputs.items()}

    def held(v: Value) -> Array:
        return v.array if v.array is not None else env[v]

    for node in g.nodes:
        given = [None if v is None else held(v) for v in node.inputs]
        if node.regions:
            kinds = [None if v is None else v.type.numpy for v in node.inputs]
            given = [a if k is None or a is None else a.astype(k)
                     for a, k in zip(given, kinds, strict=True)]  # fmt: skip
        else:
            given = [a if a is None or a.dtype not in HALF_TYPES else a.astype(np.float32)
                     for a in given]  # fmt: skip
        env |= dict(zip(node.results, apply(node.op, given, node.regions), strict=True))
    return {k: held(v).astype(v.type.numpy) if held(v).dtype == np.float32 else held(v)
            for k, v in g.outputs.items()}  # fmt: skip


def strange(g: Graph, feeds: Mapping[str, Array]) -> set[str]:
    """Return what is among the floats inside of `g`: nan, large (what f16 does not hold), huge (of
    which f32 does not hold the square)."""
    env: dict[Value, Array] = {v: feeds[k] for k, v in g.inputs.items()}
    for node in g.nodes:
        given = [
            v if v is None else v.array if v.array is not None else env[v] for v in node.inputs
        ]
        results = apply(node.op, given, node.regions)
        env |= dict(zip(node.results, results, strict=True))
    arrays = [*env.values(), *(v.array for v in g.outputs.values() if v.array is not None)]
    floats = [widest(y) for y in arrays if NAMES.get(y.dtype) in FLOATS]
    found = {"nan"} if any(np.isnan(y).any() for y in floats) else set()
    most = max(map(largest, floats), default=0.0)
    if most > float(np.finfo(np.float16).max):
        found.add("large")
    if most > math.sqrt(np.finfo(np.float32).max):
        found.add("huge")
    return found


def unit(arrays: Sequence[Array | None]) -> float:
    """Return the unit in the last place that formulas are computed with: of f64, or of f32."""
    wide = any(a is not None and a.dtype == np.float64 for a in arrays)
    return float(np.finfo(np.float64 if wide else np.float32).eps)


def terms(op: Op, arrays: Sequence[Array | None], results: Sequence[Array]) -> float:
    """Return by how much more an operator may be off that adds up many terms: 1 for a few.

    Equal terms added one by one are all rounded the same way, so errors grow with their number.
    """
    most = max((a.size for a in arrays if a is not None), default=0)
    rows = sum(y.size for y in results)
    if isinstance(op, LayerNorm):
        rows = math.prod(results[0].shape[: op.axis])
    return max(1.0, most / max(rows, 1) / MANY)


MANY = 64.0


def unless_large(op: ReduceProd, x: Array, y: Array) -> Array:
    """Return products, NaN where one of some factors may overflow before others make it small."""
    if NAMES.get(x.dtype) not in FLOATS:
        return y
    sizes = np.abs(x.astype(np.float64))
    grown = np.log(np.where(sizes > 1, sizes, 1)).sum(op.axes, keepdims=op.keepdims)
    wide = x.dtype if x.dtype.itemsize > 2 else np.dtype(np.float32)
    most = math.log(float(ml_dtypes.finfo(wide).max))
    return np.where(grown > most, np.nan, y).astype(y.dtype)


def unless_overflown(y: Array, least: float) -> Array:
    """Return sums, 0 where they are no number that may have overflown on the way only."""
    if NAMES.get(y.dtype) not in FLOATS or least < float(ml_dtypes.finfo(y.dtype).max):
        return y
    return np.where(np.isfinite(y), y, 0).astype(y.dtype)


def underflown(y: Array, moved_: Array, rng: np.random.Generator) -> Array:
    """Return exponentials y as they were moved, but 0, some of them, where they are hardly normal
    numbers or less."""
    if y.dtype not in (np.float32, np.float64):
        return moved_
    tiny = np.abs(y) < 4 * np.finfo(y.dtype).tiny
    return np.where(tiny & (rng.random(y.shape) < 0.5), 0, moved_).astype(y.dtype)


def partial_sums(op: Op, arrays: Sequence[Array | None], results: Sequence[Array]) -> float:
    """Return how large sums may have been on the way, however little is left of them."""
    if not isinstance(op, SUMS):
        return 0.0
    xs = [a for a in arrays[:2] if a is not None and a.size and NAMES.get(a.dtype) in FLOATS]
    count = max((a.size for a in xs), default=1) / max(sum(y.size for y in results), 1)
    if isinstance(op, Conv | MatMul) and len(xs) == 2:
        kernel = math.prod(xs[1].shape[1:]) if isinstance(op, Conv) else xs[0].shape[-1]
        count = max(count, float(kernel))
    sizes = math.prod(largest(a.astype(np.float64)) for a in xs)
    return float(sizes * math.sqrt(max(count, 1.0)) / (count if isinstance(op, ReduceMean) else 1))


SUMS = (ReduceSum, ReduceMean, CumSum, Conv, MatMul)


def moved(
    x: Array, rng: np.random.Generator, whole: float = 0.0, formula: float = 0.0,
    least: float = 0.0,
) -> Array:  # fmt: skip
    """Return x with noise: relative to each element and, if `whole`, to the largest as well.

    Inside of a formula, it is one unit of the size `formula`.  Elements count as `least` at least.
    """
    if not isinstance(x, np.ndarray) or NAMES.get(x.dtype) not in FLOATS:
        return x
    eps = formula or ULPS * float(ml_dtypes.finfo(x.dtype).eps)
    wide = x.astype(np.float64)
    noise = rng.uniform(-1, 1, x.shape)
    exact = np.abs(wide) if not whole else whole * (np.abs(wide) + 0.25 * largest(wide))
    exact = exact + 0.25 * least
    least = float(ml_dtypes.finfo(x.dtype).smallest_subnormal)
    # What is zero stays zero: that is how sparse data, padding and masks are.
    off = np.where((wide == 0) & (not whole), 0.0, (eps * exact + least) * noise)
    return np.where(np.isfinite(wide), wide + off, wide).astype(x.dtype)


def largest(wide: Array) -> float:
    finite = np.abs(wide[np.isfinite(wide)])
    return float(finite.max()) if finite.size else 0.0


def is_text(x: Array) -> bool:
    return x.dtype.kind in "OUST"


def widest(x: Array) -> Array:
    """Return x as f64, or as complex numbers of two f64."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def spread(
    expected: Mapping[str, Array], results: Iterable[Mapping[str, Array]]
) -> dict[str, Array]:
    """Return by how much each element of each output is off in any of `results`."""
    found = {k: np.zeros(y.shape) for k, y in expected.items()}
    for result in results:
        for k in expected:
            y = result.get(k)
            if y is None or y.shape != expected[k].shape:
                found[k] = np.full(expected[k].shape, np.inf)
                continue
            if is_text(y):
                continue
            a, b = widest(expected[k]), widest(y)
            apart = np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), np.inf)
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            found[k] = np.maximum(found[k], np.where(same, 0.0, apart))
    return found


def wrong(
    expected: Array, actual: Array, allowed: Array, times: float, least: float = 0.0,
    overflows: bool = True,
) -> str:  # fmt: skip
    """Return what is wrong with a result, "" if nothing is.

    It may be off by `times` the slack and as many units in the last place, or by `least` relative
    to the largest, or to 1.  What overflows need not, unless `overflows`.
    """
    if is_text(expected) and is_text(actual) and expected.shape == actual.shape:
        same_text = expected.astype(str) == actual.astype(str)
        return "" if same_text.all() else f"{actual} instead of {expected}"
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    a, b = widest(expected), widest(actual)
    limit = times * allowed + least * max(largest(a), 1.0)
    if NAMES.get(expected.dtype) in FLOATS:
        kind = ml_dtypes.finfo(expected.dtype)
        size = np.where(np.isfinite(a), np.abs(a), 0.0)
        # AVX-512 converts to bf16 without subnormal numbers.
        least_size = kind.tiny if kind.bits == 16 and kind.nexp == 8 else kind.smallest_subnormal
        limit = limit + times * (float(kind.eps) * size + float(least_size))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    close = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= limit)
    # What may have the other sign may be 0 on the way, and what is divided by that infinite.
    blown = np.isfinite(a) & (a != 0) & np.isinf(b) & (times * allowed > np.abs(a))
    bad = ~(same | close | blown | np.isinf(allowed))
    if not overflows:
        bad &= np.isfinite(a)
    if not bad.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"{int(bad.sum())} of {bad.size} elements, at {first} {actual[first]!r} instead of "
        f"{expected[first]!r} ± {float(np.broadcast_to(limit, bad.shape)[first]):.1e}"
    )
