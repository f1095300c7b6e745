"""Recipes for contractions, windows, reductions, normalisation and recurrence."""

from __future__ import annotations

import numpy as np

from .draft import DTYPES, FLOATS, SYMBOLS, Declined, Draft, Var, allowed, recipe
from .recipes_movement import some_axes

REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
              "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")  # fmt: skip


@recipe(*REDUCTIONS)
def reduce(d: Draft, op: str) -> None:
    extreme = op in ("ReduceMax", "ReduceMin")
    kinds = allowed(op, d.opset)
    if "Log" in op or op == "ReduceL2":
        kinds = [k for k in kinds if k in FLOATS]  # no two runtimes agree on whole logarithms
    x = d.pick(kinds, empty=not extreme)
    keep = {"keepdims": d.number(0, 1)} if d.chance(0.7) else {}
    since = 13 if op == "ReduceSum" else 18
    if not x.rank or d.chance(0.2):
        d.node(op, [x], **keep)
    elif d.opset >= since:
        d.node(op, [x, d.ints(some_axes(d, x.rank))], **keep)
    else:
        d.node(op, [x], axes=some_axes(d, x.rank), **keep)


@recipe("ArgMax", "ArgMin")
def arg(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, empty=False)
    last = {"select_last_index": 1} if d.chance(0.3) else {}
    d.node(op, [x], axis=d.number(-x.rank, x.rank - 1), keepdims=d.number(0, 1), **last)


@recipe("Softmax", "LogSoftmax", "Hardmax", "CumSum", "CumProd", "LpNormalization")
def along(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1)
    axis = d.number(-x.rank, x.rank - 1)
    if op.startswith("Cum"):
        flags = {k: 1 for k in ("exclusive", "reverse") if d.chance(0.3)}
        d.node(op, [x, d.given(np.array(axis, np.int64), True)], **flags)
    else:
        d.node(op, [x], axis=axis)


@recipe("TopK")
def top(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, empty=False)
    axis = d.number(-x.rank, x.rank - 1)
    k = d.ints([d.number(0 if d.chance(0.1) else 1, x.shape[axis])])
    d.node(op, [x, k], outputs=2, axis=axis, largest=d.number(0, 1))


@recipe("MatMul")
def matmul(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 5)
    k, n = x.shape[-1], d.number(0 if d.chance(0.1) else 1, 20)
    lead = x.shape[:-2] if d.chance(0.4) else ()
    shape = (*lead, k, n) if d.chance(0.85) else (k,)
    d.node(op, [x, d.fresh(x.dtype, shape)])


@recipe("Gemm")
def gemm(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2, 2)
    flip, turn = d.number(0, 1), d.number(0, 1)
    m, k = x.shape[::-1] if flip else x.shape
    n = d.number(1, 20)
    w = d.fresh(x.dtype, (n, k) if turn else (k, n))
    bias = d.fresh(x.dtype, d.one_of(((), (n,), (1, n), (m, 1), (m, n)))) if d.chance(0.7) else None
    scaled = {k: d.one_of((0.5, 2.0)) for k in ("alpha", "beta") if d.chance(0.3)}
    if x.dtype not in FLOATS:
        scaled = {}
    d.node(op, [x, w, bias], transA=flip, transB=turn, **scaled)


def windowed(d: Draft, spatial: int, given: bool) -> dict[str, object]:
    """Return the attributes of a window of so many axes."""
    kernel = [d.one_of((1, 2, 3, 3, 4)) for _ in range(spatial)]
    found: dict[str, object] = {"kernel_shape": kernel} if given or d.chance(0.5) else {}
    if d.chance(0.5):
        found["strides"] = [d.number(1, 3) for _ in range(spatial)]
    if d.chance(0.2):
        found["auto_pad"] = d.one_of(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif d.chance(0.6):
        found["pads"] = [d.number(0, max(k - 1, 0)) for k in kernel * 2]
    found["kernel"] = kernel
    return found


def check_fit(x: Var, kernel: list[int], window: dict[str, object]) -> None:
    """Decline a window that is larger than what it stands on, which ONNX infers wrongly."""
    if str(window.get("auto_pad", "")).startswith("SAME"):
        return
    pads, dilations = window.get("pads"), window.get("dilations")
    for i, k in enumerate(kernel):
        around = pads[i] + pads[i + len(kernel)] if isinstance(pads, list) else 0
        reach = (k - 1) * (dilations[i] if isinstance(dilations, list) else 1) + 1
        if x.shape[2 + i] + around < reach:
            raise Declined


def divisor(d: Draft, channels: int) -> int:
    """Return a number of groups: one, where the number of channels is open."""
    if d.is_open and channels in SYMBOLS.values():
        return 1
    return int(d.one_of([g for g in range(1, channels + 1) if channels % g == 0]))


def image(d: Draft, dtypes: list[str], spatial: int) -> Var:
    x = d.pick(dtypes, spatial + 2, spatial + 2, empty=False)
    if min(x.shape[2:]) < 4 and d.chance(0.8):
        shape = (*(d.number(1, 4) for _ in range(2)), *(d.number(4, 9) for _ in range(spatial)))
        x = d.fresh(x.dtype, shape, False)
    return x


@recipe("Conv", "ConvTranspose")
def conv(d: Draft, op: str) -> None:
    x = image(d, allowed(op, d.opset), d.one_of((1, 2, 2, 2, 3)))
    window = windowed(d, x.rank - 2, False)
    kernel = window.pop("kernel")
    assert isinstance(kernel, list)
    if d.chance(0.2):
        window["dilations"] = [d.number(1, 2) for _ in kernel]
    if op != "ConvTranspose":
        check_fit(x, kernel, window)
    channels = x.shape[1]
    group = divisor(d, channels)
    each = d.number(1, 5)
    if op == "ConvTranspose":
        window.pop("auto_pad", None)  # ONNX Runtime has a mind of its own
        shape = (channels, each, *kernel)
        if d.chance(0.2) and "auto_pad" not in window:
            steps = window.get("strides", [1] * len(kernel))
            assert isinstance(steps, list)
            window["output_padding"] = [d.number(0, max(s - 1, 0)) for s in steps]
    else:
        shape = (each * group, channels // group, *kernel)
    w = d.fresh(x.dtype, shape, d.chance(0.7))
    features = each * group
    bias = d.fresh(x.dtype, (features,)) if d.chance(0.6) else None
    d.node(op, [x, w, bias], group=group, **window)


@recipe("AveragePool", "MaxPool", "LpPool")
def pool(d: Draft, op: str) -> None:
    x = image(d, allowed(op, d.opset), d.one_of((1, 2, 2, 2, 3)))
    window = windowed(d, x.rank - 2, True)
    kernel = window.pop("kernel")
    if d.chance(0.3) and not {"auto_pad", "pads"} & window.keys():  # ONNX counts one too many
        window["ceil_mode"] = 1
    if op == "AveragePool":
        window["count_include_pad"] = d.number(0, 1)
    outputs = 2 if op == "MaxPool" and d.chance(0.3) else 1
    if op == "MaxPool" and d.chance(0.2) and "auto_pad" not in window:
        window["dilations"] = [2] * (x.rank - 2)
    assert isinstance(kernel, list)
    check_fit(x, kernel, window)
    d.node(op, [x], outputs=outputs, **window)


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "InstanceNormalization", "LRN",
        "BatchNormalization", "GroupNormalization", "MeanVarianceNormalization")  # fmt: skip
def by_channel(d: Draft, op: str) -> None:
    kinds = ["float"] if op == "MeanVarianceNormalization" else allowed(op, d.opset)
    x = d.pick(kinds, 4 if op in ("MeanVarianceNormalization", "LRN") else 3, 5,
               empty=False)  # fmt: skip
    channels = x.shape[1]

    def each() -> Var:
        return d.given((np.abs(d.contents(x.dtype, (channels,))) + DTYPES[x.dtype].type(0.5)), True)

    if op == "InstanceNormalization":
        d.node(op, [x, each(), each()])
    elif op == "BatchNormalization":
        d.node(op, [x, each(), each(), each(), each()])
    elif op == "GroupNormalization":
        if d.opset < 21:
            raise Declined  # replaced: scales by group
        groups = d.one_of([g for g in range(1, channels + 1) if channels % g == 0])
        d.node(op, [x, each(), each()], types=[(x.dtype, x.shape)], num_groups=groups)
    elif op == "LRN":
        d.node(op, [x], size=d.one_of((1, 3, 5)))
    elif op == "MeanVarianceNormalization":
        d.node(op, [x], types=[(x.dtype, x.shape)])
    else:
        d.node(op, [x])


@recipe("LayerNormalization", "RMSNormalization")
def normalize(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 5, empty=False)
    axis = d.number(0, x.rank - 1)
    scale = d.fresh(x.dtype, x.shape[axis:])
    more = [d.fresh(x.dtype, x.shape[axis:])] if op[0] == "L" and d.chance(0.6) else []
    d.node(op, [x, scale, *more], axis=axis if d.chance(0.5) else axis - x.rank)


@recipe("Einsum")
def einsum(d: Draft, op: str) -> None:
    letters = {c: d.number(1, 5) for c in "abcd"}
    equation = d.one_of(("ab,bc->ac", "abc,acd->abd", "ab->ba", "aab->ab", "ab,ab->", "ab,cd->adcb",
                         "...a,...a->...", "abc->b", "abc,c", "a,b->ab", "aa->a"))  # fmt: skip
    terms = equation.partition("->")[0].split(",")
    kind = d.dtype(allowed(op, d.opset))
    shapes = [tuple(letters[c] for c in t.replace("...", "bc")) for t in terms]
    d.node(op, [d.fresh(kind, s) for s in shapes], equation=equation)


@recipe("RNN", "GRU", "LSTM")
def recurrent(d: Draft, op: str) -> None:
    kind = d.one_of([t for t in allowed(op, d.opset) if t == "float"])
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    length, batch, size, hidden = d.number(1, 5), d.number(1, 3), d.number(1, 5), d.number(1, 5)
    direction = d.one_of(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    x = d.fresh(kind, (length, batch, size), False)
    w = d.fresh(kind, (ways, gates * hidden, size), True)
    r = d.fresh(kind, (ways, gates * hidden, hidden), True)
    b = d.fresh(kind, (ways, 2 * gates * hidden)) if d.chance(0.7) else None
    lengths = None
    if d.chance(0.3):
        lengths = d.given(d.rng.integers(1, length + 1, batch).astype(np.int32))
    state = d.fresh(kind, (ways, batch, hidden)) if d.chance(0.5) else None
    reset = {"linear_before_reset": 1} if op == "GRU" and d.chance(0.5) else {}
    d.node(op, [x, w, r, b, lengths, state], outputs=3 if op == "LSTM" else 2, hidden_size=hidden,
           direction=direction, **reset)  # fmt: skip
