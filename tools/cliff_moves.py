"""Cases of operators that move, choose, order or repeat elements, and of recurrences."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliff_cases import in_torch
from cliff_draw import BF16, BOOL, F16, F32, F64, I32, I64, Case, Draw, Peer, family, ints


def copied(view: Peer) -> Peer:
    """Return a caller that makes PyTorch's view a tensor of its own."""
    return lambda t, *x: view(t, *x).clone(memory_format=t.contiguous_format)


@family(8, "Transpose")
def transpose(d: Draw, op: str) -> Case:
    shape = d.shape((2, 3, 4, 5))
    perm = d.random.sample(range(len(shape)), len(shape))
    return Case(
        op, (d.array(shape, d.any_type()),), {"perm": perm},
        numpy=lambda x: x.transpose(perm).copy(),
        torch=copied(lambda t, x: x.permute(perm)),
    )  # fmt: skip


@family(5, "Pad")
def pad(d: Draw, op: str) -> Case:
    shape = d.shape((2, 3, 4))
    mode = d.choice(("constant", "constant", "reflect", "edge", "wrap"))
    before = [min(n - 1, d.choice((0, 0, 1, 2, 5, 16))) for n in shape]
    after = [min(n - 1, d.choice((0, 0, 1, 2, 5, 16))) for n in shape]
    widths = list(zip(before, after, strict=True))
    dtype = d.choice((F32, F32, F32, F16, F64, I32)) if mode == "constant" else F32
    return Case(
        op, (d.array(shape, dtype), ints(*before, *after)), {"mode": mode}, frozenset([1]),
        numpy=(lambda x, _: np.pad(x, widths, mode)),  # type: ignore[call-overload]
        torch=(lambda t, x, _: in_torch("nn.functional.pad")(
            t, x, [n for pair in reversed(widths) for n in pair])) if mode == "constant" else None,
    )  # fmt: skip


@family(6, "Slice")
def cut(d: Draw, op: str) -> Case:
    shape = d.shape((1, 2, 3, 4))
    starts, ends, steps = [], [], []
    for n in shape:
        step = d.choice((1, 1, 1, 1, 2, 3, -1, -2))
        first, last = sorted((d.between(0, n // 3), d.between(n // 2, n)))
        if d.chance() < 0.4:
            first, last = 0, n
        starts.append(first if step > 0 else last - 1)
        ends.append(max(last, first + 1) if step > 0 else (first - 1 if first else -n - 1))
        steps.append(step)
    index = tuple(slice(s, None if e == -n - 1 else e, t)
                  for s, e, t, n in zip(starts, ends, steps, shape, strict=True))  # fmt: skip
    operands = (d.array(shape, d.any_type()), ints(*starts), ints(*ends),
                ints(*range(len(shape))), ints(*steps))  # fmt: skip
    return Case(
        op, operands, {}, frozenset([1, 2, 3, 4]), numpy=lambda x, *_: x[index].copy(),
        torch=copied(lambda t, x, *_: x[index]) if min(steps) > 0 else None,
    )  # fmt: skip


@family(4, "Concat")
def concat(d: Draw, op: str) -> Case:
    number, shape, dtype = d.log(2, 12), d.shape((1, 2, 3, 4)), d.any_type()
    axis = d.axis(len(shape))
    each = [max(1, round(shape[axis] / number * d.random.uniform(0.5, 1.5))) for _ in range(number)]
    operands = tuple(d.array([*shape[:axis], n, *shape[axis + 1 :]], dtype) for n in each)
    return Case(
        op, operands, {"axis": axis}, numpy=lambda *x: np.concatenate(x, axis),
        torch=lambda t, *x: t.cat(x, axis),
    )  # fmt: skip


@family(3, "Split")
def split(d: Draw, op: str) -> Case:
    shape = d.shape((2, 3, 4))
    axis, number = d.axis(len(shape)), d.log(2, 8)
    each = [max(1, round(shape[axis] / number * d.random.uniform(0.5, 1.5))) for _ in range(number)]
    shape[axis] = sum(each)
    return Case(
        op, (d.array(shape, d.any_type()), ints(*each)), {"axis": axis}, frozenset([1]),
        numpy=lambda x, _: [p.copy() for p in np.split(x, np.cumsum(each)[:-1], axis)],
        torch=lambda t, x, _: [p.clone(memory_format=t.contiguous_format)
                               for p in t.split(x, each, axis)], results=number,
    )  # fmt: skip


@family(12, "Gather", "GatherElements", "GatherND")
def gather(d: Draw, op: str) -> Case:
    shape, dtype = d.shape((1, 2, 3)), d.any_type()
    axis = d.axis(len(shape))
    x, n = d.array(shape, dtype), shape[axis]
    if op == "GatherND":
        depth = d.between(1, len(shape))
        rest = max(1, int(np.prod(shape[depth:])))
        rows = max(1, min(d.count(12, 18) // rest, 1 << 20))
        index = np.stack([d.indices([rows], e) for e in shape[:depth]], -1)
        return Case(
            op, (x, index), numpy=lambda x, i: x[tuple(i[:, k] for k in range(depth))],
            torch=lambda t, x, i: x[tuple(i[:, k] for k in range(depth))],
        )  # fmt: skip
    if op == "GatherElements":
        index = d.indices([*shape[:axis], max(1, round(n * d.random.uniform(0.3, 2))),
                           *shape[axis + 1 :]], n)  # fmt: skip
        return Case(
            op, (x, index), {"axis": axis}, numpy=lambda x, i: np.take_along_axis(x, i, axis),
            torch=lambda t, x, i: t.gather(x, axis, i),
        )  # fmt: skip
    rows = max(1, round(n * d.random.uniform(0.1, 2)))
    index = d.indices([rows] if d.chance() < 0.7 else [2, max(1, rows // 2)], n,
                      d.choice((I64, I64, I32)))  # fmt: skip
    one = index.ndim == 1
    return Case(
        op, (x, index), {"axis": axis}, d.some(1), numpy=lambda x, i: np.take(x, i, axis),
        torch=(lambda t, x, i: t.index_select(x, axis, i)) if one else None,
    )  # fmt: skip


@family(8, "ScatterElements", "ScatterND")
def scatter(d: Draw, op: str) -> Case:
    shape, dtype = d.shape((1, 2, 3)), d.choice((F32, F32, F32, F64, I32, I64))
    how = d.choice(("none", "none", "add", "max", "min", "mul"))
    attributes = {"reduction": how}
    x = d.array(shape, dtype)
    if op == "ScatterND":
        depth = d.between(1, len(shape))
        rows = max(1, min(round(np.prod(shape[:depth]) * d.random.uniform(0.05, 1)), 1 << 18))
        if how == "none":
            flat = d.numbers.permutation(int(np.prod(shape[:depth])))[:rows]
            index = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(I64)
        else:
            index = np.stack([d.indices([rows], e) for e in shape[:depth]], -1)
        updates = d.array([len(index), *shape[depth:]], dtype, 3)
        return Case(op, (x, index, updates), attributes)
    axis = d.axis(len(shape))
    attributes |= {"axis": axis}  # type: ignore[dict-item]
    length = max(1, round(shape[axis] * d.random.uniform(0.1, 1)))
    index = d.indices([*shape[:axis], length, *shape[axis + 1 :]], shape[axis])
    if how == "none":
        index = np.argsort(d.numbers.random(shape), axis).take(range(length), axis).astype(I64)
    updates = d.array(index.shape, dtype, 3)
    torched = {"none": lambda t, x, i, u: x.scatter(axis, i, u),
               "add": lambda t, x, i, u: x.scatter_add(axis, i, u)}.get(how)  # fmt: skip
    return Case(op, (x, index, updates), attributes, torch=torched)


@family(5, "Tile", "Expand")
def repeat(d: Draw, op: str) -> Case:
    shape, dtype = d.shape((1, 2, 3, 4), d.count(10, 18)), d.any_type()
    if op == "Tile":
        repeats = [d.choice((1, 1, 2, 3, 7)) for _ in shape]
        return Case(
            op, (d.array(shape, dtype), ints(*repeats)), {}, frozenset([1]),
            numpy=lambda x, _: np.tile(x, repeats), torch=lambda t, x, _: t.tile(x, repeats),
        )  # fmt: skip
    x = d.array(broadcast_extents(d, shape), dtype)
    return Case(
        op, (x, ints(*shape)), {}, frozenset([1]),
        numpy=lambda x, _: np.broadcast_to(x, shape).copy(),
        torch=copied(lambda t, x, _: x.expand(shape)),
    )  # fmt: skip


def broadcast_extents(d: Draw, shape: list[int]) -> list[int]:
    """Return a shape with some extents 1."""
    return [n if d.chance() < 0.5 else 1 for n in shape]


@family(5, "TopK")
def top(d: Draw, op: str) -> Case:
    shape, dtype = d.shape((1, 2, 3)), d.choice((F32, F32, F32, F64, I32, I64))
    axis = d.axis(len(shape)) if d.chance() < 0.4 else len(shape) - 1
    k = min(shape[axis], d.choice((1, 3, 5, 10, 50, 100, 1000, shape[axis])))
    largest = d.between(0, 1)
    x = d.array(shape, dtype, 1 << 30)
    return Case(
        op, (x, ints(k)), {"axis": axis, "largest": largest}, frozenset([1]), results=2,
        torch=lambda t, x, _: t.topk(x, k, axis, bool(largest)),
    )  # fmt: skip


@family(6, "OneHot", "NonZero", "Compress", "Unique", "Trilu", "ReverseSequence", "Range",
        "EyeLike")  # fmt: skip
def chosen(d: Draw, op: str) -> Case:
    if op == "OneHot":
        depth = d.log(4, 1000)
        index = d.indices(d.shape((1, 2), max(2, d.count(12, 20) // depth)), depth)
        values = np.array([0, 1], d.choice((F32, F32, I64)))
        operands = (index, ints(depth)[0], values)
        return Case(op, operands, {"axis": d.choice((-1, -1, 0, 1))}, frozenset([1, 2]))
    if op == "Range":
        n = d.count()
        return Case(op, (np.array(0, I64), np.array(n, I64), np.array(2, I64)))
    if op == "Unique":
        x = d.array([d.count(11, 16)], d.choice((F32, I64)), d.choice((10, 1 << 30)))
        return Case(op, (x,), {"sorted": 1}, results=d.choice((1, 4)))
    shape = d.shape((2, 3))
    if op == "EyeLike":
        return Case(op, (d.array(shape[:2]),))
    x = d.array(shape, d.any_type())
    if op == "NonZero":
        x = d.array(shape, BOOL) if d.chance() < 0.4 else np.maximum(d.array(shape), 0)
        return Case(op, (x,), numpy=lambda x: np.array(np.nonzero(x)),
                    torch=lambda t, x: t.nonzero(x).T.contiguous())  # fmt: skip
    if op == "Compress":
        x = x if x.dtype != BF16 else d.array(shape)
        axis = d.axis(len(shape))
        keep = d.array([shape[axis]], BOOL)
        return Case(op, (x, keep), {"axis": axis}, numpy=lambda x, k: x.compress(k, axis))
    if op == "Trilu":
        upper = d.between(0, 1)
        name = "triu" if upper else "tril"
        return Case(op, (x,), {"upper": upper}, numpy=getattr(np, name), torch=in_torch(name))
    lengths = d.indices([shape[1]], shape[0]) + 1
    return Case(op, (x, lengths), {"time_axis": 0, "batch_axis": 1})


@family(8, "LSTM", "GRU", "RNN")
def recurrence(d: Draw, op: str) -> Case:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    both = d.chance() < 0.3
    directions = 2 if both else 1
    hidden, inputs, batch = d.near(d.log(8, 384)), d.near(d.log(4, 384)), d.choice((1, 1, 2, 5, 16))
    work = gates * hidden * (hidden + inputs) * batch * directions
    steps = min(max(1, d.work(20, 25) // work), 500)
    x = d.array([steps, batch, inputs])
    w = d.array([directions, gates * hidden, inputs]) * 0.1
    r = d.array([directions, gates * hidden, hidden]) * 0.1
    b = d.array([directions, 2 * gates * hidden]) if d.chance() < 0.8 else None
    attributes: dict[str, Any] = {"hidden_size": hidden}
    attributes["direction"] = "bidirectional" if both else d.choice(("forward", "reverse"))
    if op == "GRU":
        attributes["linear_before_reset"] = d.between(0, 1)
    operands = (x, w.astype(F32), r.astype(F32), *(() if b is None else (b,)))
    torched = None
    if b is not None and not both and attributes["direction"] == "forward":
        torched = recurrence_in_torch(op, operands, attributes.get("linear_before_reset", 1))
    results = 3 if op == "LSTM" else 2
    constant = frozenset(range(1, len(operands)))
    return Case(op, operands, attributes, constant, results=results, torch=torched,
                alike=False)  # fmt: skip


def recurrence_in_torch(op: str, operands: tuple[Any, ...], linear: int) -> Peer | None:
    """Return PyTorch's recurrence with about the same work; its gates are in another order."""
    if not linear:
        return None
    name = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}[op]
    hidden, batch = operands[2].shape[-1], operands[0].shape[1]

    def torched(t: Any, x: Any, w: Any, r: Any, b: Any) -> Any:
        b1, b2 = b[0].chunk(2)
        zero = t.zeros(1, batch, hidden)
        state = (zero, zero) if op == "LSTM" else zero
        weights = [w[0], r[0], b1, b2]
        return getattr(t, name)(x, state, weights, True, 1, 0.0, False, False, False)

    return torched


@family(6, "Attention", "MultiHeadAttention", "RotaryEmbedding")
def attention(d: Draw, op: str) -> Case:
    size, heads, batch = d.choice((16, 32, 40, 64, 64, 80, 128)), d.log(1, 16), d.choice((1, 1, 2))
    keys = d.near(d.log(8, 1024))
    queries = d.choice((1, keys, keys, max(1, keys // 2)))
    while batch * heads * queries * keys * size > (1 << 27):
        queries, keys = max(1, queries // 2), max(8, keys // 2)
    if op == "RotaryEmbedding":
        x = d.array([batch, heads, keys, size])
        angles = d.array([batch, keys, size // 2]), d.array([batch, keys, size // 2])
        return Case(op, (x, *angles), {"interleaved": d.between(0, 1)}, opset=23)
    if op == "MultiHeadAttention":
        width = heads * size
        operands = [d.array([batch, n, width]) for n in (queries, keys, keys)]
        return Case(op, tuple(operands), {"num_heads": heads}, domain="com.microsoft")
    fewer = d.choice([h for h in range(1, heads + 1) if heads % h == 0] + [heads] * 3)
    shapes = ([heads, queries], [fewer, keys], [fewer, keys])
    operands = [d.array([batch, *s, size]) for s in shapes]
    causal = d.between(0, 1) if queries == keys else 0
    if not causal and d.chance() < 0.3:
        operands.append(d.array([queries, keys]))

    def torched(t: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        call = t.nn.functional.scaled_dot_product_attention
        return call(q, k, v, mask, 0.0, bool(causal), enable_gqa=fewer != heads)

    return Case(op, tuple(operands), {"is_causal": causal}, opset=23, torch=torched)


@family(3, "NonMaxSuppression", "DFT", "STFT")
def rare(d: Draw, op: str) -> Case:
    if op == "NonMaxSuppression":
        boxes, classes = d.log(50, 3000), d.choice((1, 1, 4, 20, 80))
        corners = d.numbers.random((1, boxes, 4), np.float32)
        corners[..., 2:] = corners[..., :2] + corners[..., 2:] * 0.2
        scores = d.numbers.random((1, classes, boxes), np.float32)
        limits = ints(d.choice((10, 100))), np.array([0.5], F32), np.array([0.3], F32)
        return Case(op, (corners, scores, *limits), {}, frozenset([2, 3, 4]))
    if op == "STFT":
        frame = d.choice((256, 400, 512))
        step = frame // d.choice((2, 4))
        signal = d.array([1, max(frame, d.count(13, 18)), 1])
        window = d.positive([frame])
        operands = (signal, ints(step)[0], window, ints(frame)[0])
        return Case(op, operands, {"onesided": 1}, frozenset([1, 2, 3]))
    length, complex_ = d.choice((d.near(d.log(16, 2048)), 1 << d.between(4, 11))), d.between(1, 2)
    x = d.array([max(1, d.count(13, 18) // length), length, complex_])
    one = d.between(0, 1) if complex_ == 1 else 0
    return Case(op, (x, None, ints(1)[0]), {"onesided": one}, frozenset([2]))
