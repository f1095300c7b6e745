"""Recovery: operators that an exporter wrote out in small steps are found again.

A softmax, a layer normalisation or a GELU costs several passes over memory as its parts and one
as itself; sums at constant indices (`places`) are interpolations.  The patterns are those that
exporters write; constants are looked for behind broadcasts, and factors in any order.  Rounding may
differ from that of the parts.  Of halves, the square of what is normalised overflows as it is
written, and does not where the whole is one operator: so theirs are found under numerics="fast"
only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations

from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import FLOATS, HALVES
from alpenglow.ops.elementwise.activation import Gelu, HardSigmoid, HardSwish, LeakyRelu, Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Div, Mul, Neg, Pow, Reciprocal, Sub
from alpenglow.ops.elementwise.comparison import Greater, GreaterOrEqual, IsNaN
from alpenglow.ops.elementwise.normal import Erfc
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.elementwise.transcendental import Erf, Exp, Sqrt
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.layer_norm import LayerNorm, RMSNorm
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceMean, ReduceSum
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Concat, Reshape, Slice, Transpose, unstretched
from alpenglow.passes import places
from alpenglow.passes.constants import read_once, uniform

rules = Rules()
for root, group in places.rules.by_root.items():
    for rule in group:
        rules.on(root)(rule)

fast_rules = Rules()
"""The rules whose results are computed in another way, not only rounded otherwise."""


def recover(g: Graph) -> Graph:
    """Find operators in what they were decomposed into, but for those of halves."""
    return rules.exhaust(g, lambda node: node.results[0].type.dtype not in HALVES)


def recover_halves(g: Graph) -> Graph:
    """Find those of halves, and norms by a variance that cancels as it is written, too."""
    return rules.exhaust(fast_rules.exhaust(rules.exhaust(g)))


@rules.on(Div, Mul)
def softmax(g: Graph, node: Node) -> Rewritten:
    """div(e, sum(e)), e = exp(sub(x, max(x))) => softmax(x)"""
    for e, total in _quotients(node):
        match e, total:
            case (
                Value(Node(Exp(), [Value(Node(Sub(), [Value() as x, Value() as top]))])),
                Value(Node(ReduceSum(axes=(axis,), keepdims=True), [summed])),
            ) if summed is e and x.type.is_plain:
                match unstretched(top):
                    case Value(Node(ReduceMax(axes=(a,), keepdims=True), [y])):
                        return g(Softmax(axis), x) if y is x and a == axis else None
    return None


@rules.on(MatMul)
def shares_first(g: Graph, node: Node) -> Rewritten:
    """mat_mul(x, transpose(s)) => transpose(mat_mul(s, transpose(x)))   with s = softmax(y), and
    transposes of the last two axes: as products of shares by values are known"""
    match node.inputs:
        case (
            Value() as x,
            Value(Node(Transpose(perm), [Value(Node(Softmax())) as s])) as turned,
        ) if read_once(g, turned):
            last = s.type.rank - 1
            swap = (*range(last - 1), last, last - 1)
            if perm == swap and x.type.rank == s.type.rank:
                return g(Transpose(swap), g(node.op, s, g(Transpose(swap), x)))
    return None


@rules.on(Where)
def softmax_without_nan(g: Graph, node: Node) -> Rewritten:
    """where(is_na_n(s), 0, s), s = softmax(x) => softmax(x, zeros="undefined")"""
    match node.inputs:
        case (
            Value(Node(IsNaN(), [tested])),
            Value() as zero,
            Value(Node(Softmax(axis=axis), [Value() as x])) as s,
        ) if tested is s and uniform(zero) == 0:
            return g(Softmax(axis, "undefined"), x)
    return None


@rules.on(Div, Mul)
def mean(g: Graph, node: Node) -> Rewritten:
    """mul(reduce_sum(x), 1 / n) => reduce_mean(x);  div(reduce_sum(x), n) => reduce_mean(x)   of
    floats, with n the number of elements that are summed"""
    a, b = node.inputs
    assert a is not None and b is not None
    for total, c in ((a, b), (b, a))[: 1 if isinstance(node.op, Div) else 2]:
        match total:
            case Value(Node(ReduceSum(axes=axes, keepdims=keepdims), [Value() as x])) if (
                axes and total.type.dtype in FLOATS and read_once(g, total)
            ):  # fmt: skip
                count = product([x.type.shape[i] for i in axes])
                if not isinstance(count, int) or not count:
                    return None
                if _near(c, count if isinstance(node.op, Div) else 1 / count):
                    return g(ReduceMean(axes, keepdims), x)
    return None


@rules.on(Cast)
def reduction_of_halves(g: Graph, node: Node) -> Rewritten:
    """cast(reduce_sum(cast(x, f32)), t) => reduce_sum(x)   and means, of halves t, which reductions
    sum in f32 and round once"""
    match node:
        case Node(Cast(dtype), [
            Value(Node(ReduceSum() | ReduceMean() as op, [Value(Node(Cast("f32"), [x]))])) as wide
        ]) if x is not None and x.type.dtype == dtype in HALVES and read_once(g, wide):  # fmt: skip
            return g(op, x)
    return None


@rules.on(Div, Mul)
def layer_norm(g: Graph, node: Node) -> Rewritten:
    """div(c, sqrt(add(mean(c c), e))), c = sub(x, mean(x)) => layer_norm(x)   on the last axes"""
    norms = (_layer_norm(g, c, deviation) for c, deviation in _quotients(node))
    return next(filter(None, norms), None)


@fast_rules.on(Div, Mul)
def layer_norm_in_one_pass(g: Graph, node: Node) -> Rewritten:
    """div(sub(x, m), sqrt(add(clip(sub(mean(x x), mul(m, m)), 0), e))) => layer_norm(x)   with
    m = mean(x), as Flax has it;  likewise by a root that is multiplied by a scale before"""
    norms = (_one_pass_norm(g, c, deviation) for c, deviation in _quotients(node))
    if (y := next(filter(None, norms), None)) is not None or isinstance(node.op, Div):
        return y
    for c, share in _either_way(node):
        match share:
            case Value(Node(Mul()) as inner) if read_once(g, share):
                for reciprocal, scale in _either_way(inner):
                    for a, root in _by_reciprocal(c, reciprocal):
                        if (y := _one_pass_norm(g, a, root)) is not None:
                            return g(Mul(), y, scale)
    return None


@rules.on(Div, Mul)
def rms_norm(g: Graph, node: Node) -> Rewritten:
    """div(x, sqrt(add(mean(x x), e))) => rms_norm(x)   on the last axes"""
    norms = (_rms_norm(g, x, root) for x, root in _quotients(node))
    return next(filter(None, norms), None)


@rules.on(Mul)
def norm_by_scaled_root(g: Graph, node: Node) -> Rewritten:
    """mul(x, mul(reciprocal(sqrt(add(mean(x x), e))), s)) => mul(rms_norm(x), s)   and the same of
    layer_norm"""
    for x, share in _either_way(node):
        match share:
            case Value(Node(Mul()) as inner) if read_once(g, share):
                for reciprocal, scale in _either_way(inner):
                    for a, root in _by_reciprocal(x, reciprocal):
                        y = _layer_norm(g, a, root) or _rms_norm(g, a, root)
                        if y is not None:
                            return g(Mul(), y, scale)
    return None


@rules.on(Mul)
def scale_of_norm(g: Graph, node: Node) -> Rewritten:
    """mul(layer_norm(x), broadcast(s)) => layer_norm(x, s)   and the same of rms_norm"""
    for y, s in _either_way(node):
        match y:
            case Value(Node(LayerNorm(axis) | RMSNorm(axis) as op, [x])) if read_once(g, y):
                if _trails(s, y, axis):
                    return g(op, x, _trailing(g, s, y, axis))
    return None


@rules.on(Add)
def layer_norm_bias(g: Graph, node: Node) -> Rewritten:
    """add(layer_norm(x, s), broadcast(b)) => layer_norm(x, s, b)"""
    for y, b in _either_way(node):
        match y:
            case Value(Node(LayerNorm(axis=axis) as op, [x] | [x, _] as inputs)) if read_once(g, y):
                if _trails(b, y, axis):
                    scale = inputs[1] if len(inputs) > 1 else None
                    return g(op, x, scale, _trailing(g, b, y, axis))
    return None


@rules.on(Add)
def rotation(g: Graph, node: Node) -> Rewritten:
    """add(mul(x, c), mul(concat(neg(v), u), s)) => concat(sub(mul(u, c), mul(v, s)), add(mul(v, c),
    mul(u, s)))   with u and v the halves of x on its last axis, and those of c and s"""
    for plain, turned in _either_way(node):
        for x, c in _factors(g, plain):
            for swapped, s in _factors(g, turned):
                halves = _swapped_halves(g, swapped, x)
                if halves is None:
                    continue
                u, v = halves
                low, high = (n.op for n in (u.producer, v.producer) if n is not None)
                (c_u, s_u), (c_v, s_v) = ((g(at, c), g(at, s)) for at in (low, high))
                first = g(Sub(), g(Mul(), u, c_u), g(Mul(), v, s_u))
                second = g(Add(), g(Mul(), v, c_v), g(Mul(), u, s_v))
                return g(Concat(-1), first, second)
    return None


@rules.on(Mul)
def gelu(g: Graph, node: Node) -> Rewritten:
    """mul(mul(x, 0.5), add(erf(x / sqrt(2)), 1)) => gelu(x);  likewise with tanh of a cubic"""
    for factors in _triples(node):
        for half, x, share in permutations(factors):
            if uniform(half) == 0.5 and read_once(g, share):
                tanh = _share_is_tanh(share, x)
                if tanh is not None:
                    return g(Gelu(tanh), x)
    return None


@rules.on(Where)
def leaky_relu(g: Graph, node: Node) -> Rewritten:
    """where(greater_or_equal(x, 0), x, mul(x, a)) => leaky_relu(x, a)   of floats, a finite"""
    match node.inputs:
        case (
            Value(Node(GreaterOrEqual() | Greater() as test, [Value() as tested, Value() as zero])),
            Value() as x,
            Value(Node(Mul()) as line),
        ) if tested is x and uniform(zero) == 0 and x.type.dtype in FLOATS:
            for y, alpha in _either_way(line):
                slope = uniform(alpha)
                if y is not x or slope is None or not math.isfinite(slope):
                    continue
                # At 0 itself x and a x are the same zero if a is above 0.
                if slope > 0 or isinstance(test, GreaterOrEqual):
                    return g(LeakyRelu(slope), x)
    return None


@rules.on(Div, Mul)
def hard_sigmoid(g: Graph, node: Node) -> Rewritten:
    """div(clip(add(x, 3), 0, 6), 6) => hard_sigmoid(x, 1 / 6, 1 / 2)   of floats"""
    line = _sixth(node)
    x = line and _clipped_line(line)
    return g(HardSigmoid(1 / 6, 0.5), x) if line and x and read_once(g, line) else None


@rules.on(Div, Mul)
def hard_swish(g: Graph, node: Node) -> Rewritten:
    """mul(x, hard_sigmoid(x, 1 / 6, 1 / 2)) => hard_swish(x);
    div(mul(x, clip(add(x, 3), 0, 6)), 6) => hard_swish(x)   of floats"""
    product = _sixth(node)
    if product is not None and product.producer and isinstance(product.producer.op, Mul):
        for x, line in _either_way(product.producer):
            if _clipped_line(line) is x and read_once(g, product):
                return g(HardSwish(), x)
    if isinstance(node.op, Mul):
        for x, share in _either_way(node):
            match share:
                case Value(Node(HardSigmoid(alpha=a, beta=0.5), [y])) if (
                    y is x and math.isclose(a, 1 / 6, rel_tol=1e-4)
                ):  # fmt: skip
                    return g(HardSwish(), x)
    return None


def _either_way(node: Node) -> list[tuple[Value, Value]]:
    a, b = node.inputs
    assert a is not None and b is not None
    return [(a, b), (b, a)]


def _factors(g: Graph, v: Value) -> list[tuple[Value, Value]]:
    """Return the factors of a product that only its sum reads, either way."""
    match v:
        case Value(Node(Mul()) as node) if read_once(g, v):
            return _either_way(node)
    return []


def _swapped_halves(g: Graph, v: Value, x: Value) -> tuple[Value, Value] | None:
    """Return the halves of x if v is their other order, the second one negated."""
    match v:
        case Value(Node(Concat(axis), [Value(Node(Neg(), [Value() as high])), Value() as low])) if (
            read_once(g, v) and axis in (-1, x.type.rank - 1)
        ):
            half, rest = divmod(x.type.shape[-1], 2)
            if rest == 0 and _is_part(low, x, 0, half) and _is_part(high, x, half, half):
                return low, high
    return None


def _is_part(v: Value, x: Value, start: Dim, size: Dim) -> bool:
    """Whether v is so many elements of x along its last axis."""
    *outer, _ = x.type.shape
    ones = (1,) * x.type.rank
    match v:
        case Value(Node(Slice(starts, sizes, steps), [y])) if y is x:
            return (starts, sizes, steps) == ((*[0] * len(outer), start), (*outer, size), ones)
    return False


def _quotients(node: Node) -> Iterator[tuple[Value, Value]]:
    """Yield (x, y) for each way to see a node as x / y, y before it was stretched."""
    a, b = node.inputs
    assert a is not None and b is not None
    if isinstance(node.op, Div):
        yield a, unstretched(b)
        return
    for x, y in ((a, b), (b, a)):
        yield from _by_reciprocal(x, y)


def _by_reciprocal(x: Value, y: Value) -> Iterator[tuple[Value, Value]]:
    """Yield (x, z) if y is 1 / z, z before it was stretched."""
    match unstretched(y):
        case Value(Node(Reciprocal(), [Value() as z])):
            yield x, unstretched(z)
        case Value(Node(Div(), [Value() as one, Value() as z])) if uniform(one) == 1:
            yield x, unstretched(z)


def _layer_norm(g: Graph, c: Value, deviation: Value) -> Value | None:
    """Return the norm that c / deviation is, if it is one."""
    match c:
        case Value(Node(Sub(), [Value() as x, Value() as m])):
            axes = _mean_axes(unstretched(m), x)
            epsilon = _epsilon(deviation, c, axes)
            if epsilon is not None:
                return g(LayerNorm(axes[0], epsilon), x)
    return None


def _one_pass_norm(g: Graph, c: Value, deviation: Value) -> Value | None:
    """Return the norm that c / deviation is, if the variance is mean(x x) - mean(x) mean(x)."""
    match c, _under_root(deviation):
        case Value(Node(Sub(), [Value() as x, Value() as m])), Value(Node(Add()) as shifted):
            axes = _kept_axes(unstretched(m), x)
        case _:
            return None
    last = axes == tuple(range(x.type.rank - len(axes), x.type.rank))
    if not axes or not last or x.type.dtype not in FLOATS:
        return None
    for variance, e in _either_way(shifted):
        epsilon = uniform(e)
        if epsilon is None or not 0 <= epsilon < math.inf:
            continue
        match _unshaped(variance):
            case Value(Node(Clip(low=0, high=math.inf), [Value(Node(Sub(), [
                Value(Node(ReduceMean(axes=a), [Value() as square])),
                Value(Node(Mul(), [Value(Node(ReduceMean(axes=b), [y])) as p, q])),
            ]))])) if a == b == axes and y is x and p is q and _is_square(square, x):  # fmt: skip
                return g(LayerNorm(axes[0], epsilon), x)
    return None


def _unshaped(v: Value) -> Value:
    """Return v before it was reshaped."""
    match v:
        case Value(Node(Reshape(), [Value() as x])):
            return x
    return v


def _kept_axes(v: Value, x: Value) -> tuple[int, ...]:
    """Return the axes if v is the mean of x along some, in the shape that keeps them; else none."""
    match _unshaped(v):
        case Value(Node(ReduceMean(axes=axes), [y])) if y is x and axes:
            shape = tuple(1 if i in axes else d for i, d in enumerate(x.type.shape))
            return axes if v.type.shape == shape else ()
    return ()


def _rms_norm(g: Graph, x: Value, root: Value) -> Value | None:
    """Return the norm that x / root is, if it is one."""
    axes = _square_axes(root)
    epsilon = _epsilon(root, x, axes)
    return None if epsilon is None else g(RMSNorm(axes[0], epsilon), x)


def _mean_axes(v: Value, x: Value) -> tuple[int, ...]:
    """Return the axes if v is the mean of x along some, kept; else none."""
    match v:
        case Value(Node(ReduceMean(axes=axes, keepdims=True), [y])) if y is x:
            return axes
    return ()


def _square_axes(root: Value) -> tuple[int, ...]:
    """Return the axes of the mean under a root; none if there is none."""
    match _under_root(root):
        case Value(Node(Add()) as node):
            for mean, _ in _either_way(node):
                match mean:
                    case Value(Node(ReduceMean(axes=axes, keepdims=True))):
                        return axes
    return ()


def _epsilon(deviation: Value, c: Value, axes: tuple[int, ...]) -> float | None:
    """Return e if `deviation` is sqrt(mean(c c) + e) along these axes, and a norm has such.

    It is over the last axes of floats, and e is finite and not negative.
    """
    last = axes == tuple(range(c.type.rank - len(axes), c.type.rank))
    if not last or c.type.dtype not in FLOATS:
        return None
    match _under_root(deviation):
        case Value(Node(Add()) as node):
            for variance, e in _either_way(node):
                match variance:
                    case Value(Node(ReduceMean(axes=kept, keepdims=True), [Value() as square])):
                        epsilon = uniform(e)
                        if axes and kept == axes and _is_square(square, c) and epsilon is not None:
                            return epsilon if 0 <= epsilon < math.inf else None
    return None


def _under_root(v: Value) -> Value | None:
    match v:
        case Value(Node(Sqrt(), [x])):
            return x
        case Value(Node(Pow(), [x, Value() as y])) if uniform(y) == 0.5:
            return x
    return None


def _is_square(v: Value, x: Value) -> bool:
    match v:
        case Value(Node(Mul(), [Value() as a, b])):
            return a is b and _same(a, x)
        case Value(Node(Pow(), [Value() as a, Value() as y])):
            return _same(a, x) and uniform(y) == 2
    return False


def _same(a: Value, b: Value, depth: int = 4) -> bool:
    """Whether two values are computed alike from the same: exporters write a mean out twice."""
    if a is b or depth == 0:
        return a is b
    m, n = a.producer, b.producer
    if m is None or n is None or m.op != n.op or not m.op.pure or m.regions or n.regions:
        return False
    return len(m.inputs) == len(n.inputs) and all(
        x is y or (x is not None and y is not None and _same(x, y, depth - 1))
        for x, y in zip(m.inputs, n.inputs, strict=True)
    )


def _trails(v: Value, y: Value, axis: int) -> bool:
    """Whether v is one element for each of the normalised axes of y, stretched over the others."""
    source = unstretched(v).type
    trailing = y.type.shape[axis:]
    more = source.rank - len(trailing)
    return more >= 0 and source.shape == (1,) * more + trailing


def _trailing(g: Graph, v: Value, y: Value, axis: int) -> Value:
    """Return the value that v, which `_trails`, stretches, in the shape of the normalised axes."""
    source = unstretched(v)
    shape = y.type.shape[axis:]
    return source if source.type.shape == shape else g(Reshape(shape), source)


def _triples(node: Node) -> Iterator[tuple[Value, Value, Value]]:
    """Yield a product of three factors, however it is put together."""
    for a, b in _either_way(node):
        match b:
            case Value(Node(Mul(), [Value() as c, Value() as d])):
                yield a, c, d


def _share_is_tanh(v: Value, x: Value) -> bool | None:
    """Tell which form of 1 + the error function of x v is, if it is one."""
    match v.producer:
        case Node(Erfc(), [Value() as z]):
            return False if _is_multiple(z, x, -math.sqrt(0.5)) else None
        case Node(Add()) as node:
            for one, curve in _either_way(node):
                match curve:
                    case Value(Node(Erf(), [Value() as z])) if uniform(one) == 1:
                        return False if _is_multiple(z, x, math.sqrt(0.5)) else None
                    case Value(Node(Tanh(), [Value() as z])) if uniform(one) == 1:
                        return True if _is_cubic(z, x) else None
    return None


def _is_cubic(v: Value, x: Value) -> bool:
    """Whether v is sqrt(2 / pi) (x + 0.044715 x³)."""
    match v.producer:
        case Node(Mul()) as node:
            for factor, total in _either_way(node):
                if not _near(factor, math.sqrt(2 / math.pi)):
                    continue
                match total:
                    case Value(Node(Add(), [a, Value() as b])) if a is x:
                        return _is_cube_term(b, x)
                    case Value(Node(Add(), [Value() as b, a])) if a is x:
                        return _is_cube_term(b, x)
    return False


def _is_cube_term(v: Value, x: Value) -> bool:
    match v.producer:
        case Node(Mul()) as node:
            for factor, cube in _either_way(node):
                if _near(factor, 0.044715):
                    return _is_cube(cube, x)
    return False


def _is_cube(v: Value, x: Value) -> bool:
    match v.producer:
        case Node(Pow(), [a, Value() as y]):
            return a is x and uniform(y) == 3
        case Node(Mul()) as node:
            return any(a is x and _is_square(b, x) for a, b in _either_way(node))
    return False


def _is_multiple(v: Value, x: Value, factor: float) -> bool:
    match v.producer:
        case Node(Neg(), [Value() as a]):
            return _is_multiple(a, x, -factor) or (a is x and factor == -1)
        case Node(Mul()) as node:
            return any(
                (a is x and _near(b, factor)) or (_is_negated(a, x) and _near(b, -factor))
                for a, b in _either_way(node)
            )
        case Node(Div(), [Value() as a, Value() as b]):
            wanted = 1 / factor
            return (a is x and _near(b, wanted)) or (_is_negated(a, x) and _near(b, -wanted))
    return False


def _is_negated(v: Value, x: Value) -> bool:
    match v:
        case Value(Node(Neg(), [a])):
            return a is x
    return False


def _sixth(node: Node) -> Value | None:
    """Return v if the node is v / 6."""
    a, b = node.inputs
    assert a is not None and b is not None
    if isinstance(node.op, Div):
        return a if uniform(b) == 6 else None
    return next((v for v, c in ((a, b), (b, a)) if _near(c, 1 / 6)), None)


def _clipped_line(v: Value) -> Value | None:
    """Return x if v is x + 3 limited to [0, 6], and these are floats."""
    match v:
        case Value(Node(Clip(low=0, high=6), [Value(Node(Add()) as line)])) if (
            v.type.dtype in FLOATS
        ):  # fmt: skip
            return next((x for x, c in _either_way(line) if uniform(c) == 3), None)
    return None


def _near(v: Value, wanted: float) -> bool:
    """Whether v is this number everywhere, as precisely as its type and writers of models are."""
    value = uniform(v)
    precision = {"f16": 1e-3, "bf16": 1e-2, "f64": 1e-9}.get(v.type.dtype, 1e-4)
    return value is not None and math.isclose(value, wanted, rel_tol=precision)
