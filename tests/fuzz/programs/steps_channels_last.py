"""Steps on images whose channels come last, and on integers that stand for reals."""

from __future__ import annotations

from .program import Draw, Value, recipe

KINDS = ("float", "float", "int8", "int8", "uint8", "int16")


def image(d: Draw, channels: int = 0) -> Value:
    """Return an image: some batches, height, width, channels."""
    fitting = [v for v in d.made if v.rank == 4 and v.dtype in KINDS and 0 not in v.shape]
    if fitting and d.chance(0.6) and not channels:
        return fitting[-1]
    kind = str(d.one_of([k for k in KINDS if k in d.writer.dtypes]))
    return d.fresh(kind, (d.number(1, 2), d.extent(12), d.extent(12), channels or d.extent(9)))


@recipe("conv_last", "depthwise_last", "transposed_last", "max_pool_last", "avg_pool_last",
"l2_pool_last")
def windows(d: Draw, op: str) -> None:
    x = image(d)
    kh, kw, c = d.number(1, 4), d.number(1, 4), x.shape[3]
    more, out = d.number(1, 3), d.extent(9)
    sh, sw, pad = d.number(1, 3), d.number(1, 3), d.number(0, 1)
    kind = {"int16": "int8"}.get(x.dtype, x.dtype)
    operands = [x]
    if "pool" not in op:
        shape = (1, kh, kw, c * more) if op == "depthwise_last" else (out, kh, kw, c)
        operands.append(weights(d, kind, shape))
        wide = {"float": "float", "int16": "int64"}.get(x.dtype, "int32")
        operands.append(weights(d, wide, (shape[3 if op == "depthwise_last" else 0],)))
    size = ((x.shape[1] - 1) * sh + (kh if pad else 1), (x.shape[2] - 1) * sw + (kw if pad else 1))
    zero = {"int8": d.number(-9, 9), "uint8": 120}.get(x.dtype, 0)
    grid = None if x.dtype == "float" else (float(d.one_of([0.05, 0.2, 1.0])), zero)
    d.step(op, *operands, pad=pad, sh=sh, sw=sw, kh=kh, kw=kw, dh=d.one_of([1, 1, 2]),
           dw=d.one_of([1, 1, 2]), more=more, grid=grid, size=(x.shape[0], *size, out))  # fmt: skip


def weights(d: Draw, dtype: str, shape: tuple[int, ...]) -> Value:
    """Return weights; those of integers are of their grid."""
    from_ = d.rng.standard_normal(shape)
    if dtype != "float":
        from_ = from_ * (40 if dtype in ("int8",
        "uint8") else 200) + (120 if dtype == "uint8" else 0)
    limits = {"int8": (-127, 127), "uint8": (0, 255)}.get(dtype, (-9999, 9999))
    return d.given(from_.clip(*limits).astype("float32" if dtype == "float" else dtype), True)


@recipe("resize_last", "space_to_depth", "depth_to_space")
def sizes(d: Draw, op: str) -> None:
    r = d.number(1, 3)
    x = image(d) if op == "resize_last" else d.fresh(
        "float", (1, d.number(1, 3) * r, d.number(1, 3) * r, d.number(1, 3) * r * r))  # fmt: skip
    d.step(op, x, r=r, to=(d.extent(12), d.extent(12)), align=d.chance(0.4), half=d.chance(0.4))


@recipe("quantize", "requantize", "dequantize", "fake_quant", "add_n", "shape", "gather_nd")
def quantize(d: Draw, op: str) -> None:
    if op == "gather_nd":
        x = d.pick(least=1, empty=False)
        depth = d.number(1, x.rank)
        at = d.indices((*d.shape(1, 2), depth), min(x.shape[:depth]))
        d.step(op, x, at)
        return
    x = d.pick(("float",) if op in ("quantize",
    "fake_quant") else KINDS[2:] if "quant" in op else ())
    scale = float(d.one_of([0.01, 0.05, 0.1, 1 / 64]))
    d.step(op, x, d.like(x, x.shape), grid=(scale, d.number(-128, 127)),
           ugrid=(scale, d.number(0, 255)), bits=d.one_of([8, 4]))  # fmt: skip
