"""Operations with drawn attributes beside jaxlib: what no list of cases thinks of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.frontends.stablehlo.jaxlib.exported import agree

Rng = np.random.Generator
Drawn = tuple[Callable[..., Any], tuple[Any, ...]]

INTS = ("int8", "int32", "uint8", "uint32")
CLOSE = 1e-5


def array(rng: Rng, shape: Sequence[int], dtype: str = "float32") -> Any:
    """Return small integers, whose sums and products are exact."""
    low = 0 if dtype.startswith("u") else -4
    return jnp.asarray(rng.integers(low, 5, tuple(shape)).astype(dtype))


def some(rng: Rng, items: Sequence[int]) -> tuple[int, ...]:
    """Return a part of items in order."""
    return tuple(i for i in items if rng.random() < 0.5)


def shuffled(rng: Rng, items: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(i) for i in rng.permutation(np.array(items, int)))


def gather(rng: Rng) -> Drawn:
    """Slices at drawn places, many of them out of range."""
    shape = rng.integers(1, 5, rng.integers(1, 4))
    axes = list(range(len(shape)))
    batching = some(rng, axes)[:1] if rng.random() < 0.3 else ()
    rest = [a for a in axes if a not in batching]
    started = shuffled(rng, some(rng, rest))
    sizes = [1 if a in batching else int(rng.integers(1, d + 1)) for a, d in enumerate(shape)]
    collapsed = some(rng, [a for a in rest if sizes[a] == 1])
    batch = [int(shape[a]) for a in batching] + rng.integers(1, 4, rng.integers(0, 3)).tolist()
    offsets = len(axes) - len(collapsed) - len(batching)
    rank = len(batch) + offsets
    at = tuple(sorted(shuffled(rng, range(rank))[:offsets]))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=at, collapsed_slice_dims=collapsed, start_index_map=started,
        operand_batching_dims=batching, start_indices_batching_dims=tuple(range(len(batching))),
    )  # fmt: skip
    index = jnp.asarray(rng.integers(-2, 6, (*batch, len(started))), "int32")
    mode = str(rng.choice(["fill", "clip", "promise_in_bounds"]))

    def run(x: Any, i: Any) -> Any:
        return lax.gather(x, i, numbers, tuple(sizes), mode=mode)

    return run, (array(rng, shape, str(rng.choice(["float32", "int32"]))), index)


def scatter(rng: Rng) -> Drawn:
    """Windows at drawn places, some of which are in range with a part.

    There is an index: of many updates that have none jaxlib takes the last alone.
    """
    shape = rng.integers(1, 5, rng.integers(1, 4))
    axes = list(range(len(shape)))
    batching = some(rng, axes)[:1] if len(axes) > 1 and rng.random() < 0.3 else ()
    rest = [a for a in axes if a not in batching]
    inserted = some(rng, rest)
    started = shuffled(rng, some(rng, rest)) or tuple(rest[:1])
    batch = [int(shape[a]) for a in batching] + rng.integers(1, 4, rng.integers(0, 3)).tolist()
    kept = [a for a in rest if a not in inserted]
    windows = [int(rng.integers(1, shape[a] + 1)) for a in kept]
    rank = len(batch) + len(windows)
    at = tuple(sorted(shuffled(rng, range(rank))[: len(windows)]))
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=at, inserted_window_dims=inserted,
        scatter_dims_to_operand_dims=started, operand_batching_dims=batching,
        scatter_indices_batching_dims=tuple(range(len(batching))),
    )  # fmt: skip
    sizes, others = iter(windows), iter(batch)
    update = [next(sizes) if i in at else next(others) for i in range(rank)]
    index = jnp.asarray(rng.integers(-2, 6, (*batch, len(started))), "int32")
    put = [lax.scatter_add, lax.scatter_mul, lax.scatter_min, lax.scatter_max][rng.integers(4)]
    mode = str(rng.choice(["fill", "clip", "promise_in_bounds"]))
    dtype = str(rng.choice(["float32", "int32"]))

    def run(x: Any, i: Any, u: Any) -> Any:
        return put(x, i, u, numbers, mode=mode)

    return run, (array(rng, shape, dtype), index, array(rng, update, dtype))


def sliced(rng: Rng) -> Drawn:
    """Dynamic slices, read and written, that begin anywhere."""
    shape = rng.integers(1, 6, rng.integers(1, 4))
    sizes = tuple(int(rng.integers(1, d + 1)) for d in shape)
    starts = jnp.asarray(rng.integers(-3, 8, len(shape)), "int32")

    def run(x: Any, u: Any, i: Any) -> Any:
        return lax.dynamic_slice(x, i, sizes), lax.dynamic_update_slice(x, u, i)

    return run, (array(rng, shape), array(rng, sizes), starts)


def padded(rng: Rng) -> Drawn:
    shape = rng.integers(1, 5, rng.integers(1, 4))
    edges = []
    for d in shape:
        interior = int(rng.integers(0, 3))
        long = int(d) + (int(d) - 1) * interior
        low = int(rng.integers(-long, 4))
        edges.append((low, int(rng.integers(-(long + low), 4)), interior))

    def run(x: Any, v: Any) -> Any:
        return lax.pad(x, v, edges)

    return run, (array(rng, shape), jnp.float32(7))


def windows(rng: Rng) -> Drawn:
    """Reductions of windows with strides, both dilations, and padding."""
    rank = int(rng.integers(1, 4))
    shape = rng.integers(1, 7, rank)
    size, strides, base, dilation = (tuple(map(int, rng.integers(1, 4, rank))) for _ in range(4))
    need = [(d - 1) * b + 1 for d, b in zip(shape, base, strict=True)]
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    edges = []
    for n, r in zip(need, reach, strict=True):
        low = int(rng.integers(0, 3))
        edges.append((low, max(int(rng.integers(0, 3)), r - int(n) - low)))
    init, body = [
        (np.float32(0), lax.add), (np.float32(-np.inf), lax.max), (np.float32(np.inf), lax.min),
        (np.float32(1), lax.mul),
    ][rng.integers(4)]  # fmt: skip

    def run(x: Any) -> Any:
        return lax.reduce_window(x, init, body, size, strides, edges, base, dilation)

    return run, (array(rng, shape),)


def convolved(rng: Rng) -> Drawn:
    """Convolutions with groups of features or batches, dilations, and padding of either sign."""
    rank = int(rng.integers(1, 4))
    groups, batch_groups = [(1, 1), (2, 1), (3, 1), (1, 2)][rng.integers(4)]
    inputs, outputs = groups * int(rng.integers(1, 4)), groups * batch_groups * 2
    batch = batch_groups * int(rng.integers(1, 3))
    extents, taps = rng.integers(3, 8, rank), rng.integers(1, 4, rank)
    strides, left, right = (tuple(map(int, rng.integers(1, 3, rank))) for _ in range(3))
    edges = []
    for n, k, a, b in zip(extents, taps, left, right, strict=True):
        least = (int(k) - 1) * b + 1 - ((int(n) - 1) * a + 1)
        low = int(rng.integers(-1, 3))
        edges.append((low, max(int(rng.integers(-1, 3)), least - low)))
    orders = ["NCHW"[: rank + 2], "NHWC" if rank == 2 else "N" + "HWD"[:rank] + "C"]
    spatial = "HWD"[:rank]
    at = orders[1] if rng.random() < 0.5 else "NC" + spatial
    of = [f"OI{spatial}", f"{spatial}IO"][rng.integers(2)]
    sizes = dict(zip(spatial, map(int, extents), strict=True))
    counts = dict(zip(spatial, map(int, taps), strict=True))
    x = array(rng, [{"N": batch, "C": inputs, **sizes}[c] for c in at])
    w = array(rng, [{"O": outputs, "I": inputs // groups, **counts}[c] for c in of])

    def run(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, strides, edges, left, right, (at, of, at), groups, batch_groups
        )

    return run, (x, w)


def multiplied(rng: Rng) -> Drawn:
    """Products over any axes, with any batches."""
    names = shuffled(rng, range(6))
    batch, contracted, lefts, rights = names[:1], names[1:3], names[3:4], names[4:6]
    extents = rng.integers(1, 5, 6)
    batch, contracted = some(rng, batch), some(rng, contracted)
    first = shuffled(rng, (*batch, *contracted, *lefts))
    second = shuffled(rng, (*batch, *contracted, *rights))
    numbers = (
        (tuple(map(first.index, contracted)), tuple(map(second.index, contracted))),
        (tuple(map(first.index, batch)), tuple(map(second.index, batch))),
    )
    dtype = str(rng.choice(["float32", "int32"]))
    x, y = (array(rng, [extents[a] for a in axes], dtype) for axes in (first, second))
    return lambda x, y: lax.dot_general(x, y, numbers), (x, y)


def ordered(rng: Rng) -> Drawn:
    """Stable sorts of several tensors by some of them, and extremes with their indices."""
    shape = rng.integers(1, 6, rng.integers(1, 4))
    axis, count = int(rng.integers(len(shape))), int(rng.integers(1, 4))
    xs = [array(rng, shape, str(rng.choice(["float32", "int32"]))) for _ in range(count)]
    keys = int(rng.integers(1, count + 1))

    def run(*xs: Any) -> Any:
        made = lax.sort(xs, dimension=axis, num_keys=keys)
        return (*made, lax.argmax(xs[0], axis, jnp.int32), lax.argmin(xs[0], axis, jnp.int32),
                lax.cummax(xs[0], axis), lax.cumsum(xs[-1], axis, reverse=True))  # fmt: skip

    return run, tuple(xs)


def exact(rng: Rng) -> Drawn:
    """Integers at their limits through all that is done to integers."""
    dtype = np.dtype(str(rng.choice(INTS)))
    info = np.iinfo(dtype)
    limits = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 7, info.bits - 1, info.bits]
    x, y = (jnp.asarray(rng.choice(np.array(limits, np.int64), 40).astype(dtype))
            for _ in range(2))  # fmt: skip

    def run(x: Any, y: Any) -> Any:
        return (
            lax.add(x, y), lax.sub(x, y), lax.mul(x, y), lax.div(x, y), lax.rem(x, y),
            lax.max(x, y), lax.min(x, y), lax.neg(x), lax.sign(x), lax.abs(x) if info.min else x,
            lax.shift_left(x, y), lax.shift_right_logical(x, y), lax.shift_right_arithmetic(x, y),
            lax.population_count(x), lax.clz(x), lax.bitwise_xor(x, y), lax.bitwise_not(x),
            lax.clamp(jnp.minimum(x, y), x, y), x.astype("float32"), x.astype("bool"),
            x.astype("int16"), x.astype("uint16"), lax.lt(x, y), lax.ge(x, y),
        )  # fmt: skip

    return run, (x, y)


def limits(rng: Rng) -> Drawn:
    """Floats at their limits through what is exact of them."""
    values = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e9, -3e9, 5e9, 3e38, 127.5, -129.0, 255.5,
              np.inf, -np.inf, np.nan, 1e-30]  # fmt: skip
    x, y = (jnp.asarray(rng.choice(np.array(values, np.float32), 40)) for _ in range(2))

    def run(x: Any, y: Any) -> Any:
        return (
            lax.floor(x), lax.ceil(x), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
            lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), lax.sign(x), lax.abs(x),
            lax.is_finite(x), lax.lt(x, y), lax.ge(x, y), lax.eq(x, y), lax.ne(x, y),
            lax.max(x, y) + 0, lax.min(x, y) + 0, lax.rem(x, y), lax.clamp(-1.0, x, 1.0) + 0,
            x.astype("int32"), x.astype("int8"), x.astype("uint8"), x.astype("uint32"),
            x.astype("bool"), x.astype("bfloat16").astype("float32"),
            x.astype("float16").astype("float32"), lax.reduce_precision(x, 5, 7),
            lax.bitcast_convert_type(x, jnp.int32), lax.nextafter(x, y),
        )  # fmt: skip

    return run, (x, y)


def bits(rng: Rng) -> Drawn:
    """Random bits, which are to be the same; counters near their end carry."""
    shape = tuple(rng.integers(1, 8, rng.integers(0, 4)).tolist())
    dtype = getattr(jnp, str(rng.choice(["uint8", "uint16", "uint32"])))
    kinds = lax.RandomAlgorithm
    kind = (kinds.RNG_DEFAULT, kinds.RNG_PHILOX, kinds.RNG_THREE_FRY)[rng.integers(3)]
    state = rng.choice(np.array([0, 7, 2**32 - 2, 2**32 - 1], np.uint32), 4)
    return lambda s: lax.rng_bit_generator(s, shape, dtype, kind), (jnp.asarray(state),)


FAMILIES = [
    gather,
    scatter,
    sliced,
    padded,
    windows,
    convolved,
    multiplied,
    ordered,
    exact,
    limits,
    bits,
]


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
@pytest.mark.sampled(30)
def test_what_is_drawn_makes_what_jaxlib_makes(family: Callable[[Rng], Drawn], seed: int) -> None:
    rng = np.random.default_rng([seed, FAMILIES.index(family)])

    agree(*family(rng), CLOSE, ("interpreter", "cpu")[seed % 2])


def test_numbers_drawn_by_jax_are_the_same() -> None:
    def draw(state: Any) -> Any:
        key = jax.random.wrap_key_data(state, impl="rbg")
        return [jax.random.normal(k, (5, 7)) for k in jax.random.split(key)]

    agree(draw, (jnp.array([1, 2, 3, 4], jnp.uint32),))


def test_a_window_is_written_as_a_whole_or_not_at_all() -> None:
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    index, x = jnp.array([[4], [-1], [0], [3]]), jnp.zeros(5)
    updates = jnp.arange(1.0, 9).reshape(4, 2)

    agree(lambda x, u: lax.scatter_add(x, index, u, numbers, mode="fill"), (x, updates), 0)
