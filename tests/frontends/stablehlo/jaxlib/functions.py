"""Functions of `jax.numpy` and its kin on small arrays, for comparisons with jaxlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Case = tuple[Callable[..., Any], Sequence[np.ndarray[Any, Any]]]

rng = np.random.default_rng(0)
X = rng.normal(0, 2, (4, 6)).astype(np.float32)
Y = rng.normal(0, 2, (4, 6)).astype(np.float32)
P = np.abs(X) + np.float32(0.5)
U = rng.uniform(-0.9, 0.9, (4, 6)).astype(np.float32)
V = rng.normal(0, 1, (6,)).astype(np.float32)
W = rng.normal(0, 1, (6,)).astype(np.float32)
SQUARE = (rng.normal(0, 1, (4, 4)) + 3 * np.eye(4)).astype(np.float32)
K = rng.integers(-20, 20, (4, 6)).astype(np.int32)
L = rng.integers(1, 9, (4, 6)).astype(np.int32)
B = X > 0
C = Y > 0
Z = (X + 1j * Y).astype(np.complex64)
CUBE = rng.normal(0, 1, (2, 3, 4)).astype(np.float32)
IMAGE = rng.normal(0, 1, (2, 8, 8, 3)).astype(np.float32)
AT = np.array([0, 3, 1, 1], np.int32)

UNARY = [
    "abs",
    "acos",
    "acosh",
    "angle",
    "arccos",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "atan",
    "ceil",
    "conj",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "floor",
    "i0",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "nan_to_num",
    "negative",
    "positive",
    "rad2deg",
    "radians",
    "real",
    "reciprocal",
    "rint",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "cbrt",
    "arccosh",
]
POSITIVE = {"log", "log10", "log1p", "log2", "sqrt"}
WITHIN = {"acos", "arccos", "arcsin", "arctanh"}
BEYOND = {"acosh", "arccosh"}

BINARY = [
    "add",
    "arctan2",
    "copysign",
    "divide",
    "equal",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "greater",
    "greater_equal",
    "heaviside",
    "hypot",
    "less",
    "less_equal",
    "logaddexp",
    "logaddexp2",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "nextafter",
    "not_equal",
    "power",
    "remainder",
    "subtract",
    "true_divide",
    "float_power",
]
INTEGER = [
    "add",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "floor_divide",
    "gcd",
    "lcm",
    "left_shift",
    "mod",
    "multiply",
    "remainder",
    "right_shift",
    "subtract",
    "maximum",
    "minimum",
    "divide",
    "fmod",
]
REDUCTIONS = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "average",
    "cumprod",
    "cumsum",
    "max",
    "mean",
    "median",
    "min",
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "prod",
    "ptp",
    "std",
    "sum",
    "var",
    "count_nonzero",
]


def cases() -> dict[str, Case]:
    """Return functions by name, each with its arguments."""
    made: dict[str, Case] = {}
    for name in UNARY:
        x = P if name in POSITIVE else U if name in WITHIN else P + 1 if name in BEYOND else X
        made[name] = getattr(jnp, name), [x]
    for name in BINARY:
        x = P if name in ("power", "float_power") else X
        made[name] = getattr(jnp, name), [x, Y]
    for name in INTEGER:
        made[f"{name}_int"] = getattr(jnp, name), [K, L]
    for name in REDUCTIONS:
        made[name] = getattr(jnp, name), [X]
        made[f"{name}_axis"] = lambda x, f=getattr(jnp, name): f(x, axis=1), [X]
    made |= OTHERS
    return made


OTHERS: dict[str, Case] = {
    "bitwise_not": (jnp.bitwise_not, [K]),
    "bitwise_count": (jnp.bitwise_count, [K]),
    "logical_and": (jnp.logical_and, [B, C]),
    "logical_or": (jnp.logical_or, [B, C]),
    "logical_xor": (jnp.logical_xor, [B, C]),
    "where": (jnp.where, [B, X, Y]),
    "select": (lambda a, b, x, y: jnp.select([a, b], [x, y], 7.0), [B, C, X, Y]),
    "clip": (lambda x: jnp.clip(x, -1, 1), [X]),
    "reshape": (lambda x: jnp.reshape(x, (3, 8)), [X]),
    "ravel": (jnp.ravel, [X]),
    "transpose": (jnp.transpose, [CUBE]),
    "swapaxes": (lambda x: jnp.swapaxes(x, 0, 2), [CUBE]),
    "moveaxis": (lambda x: jnp.moveaxis(x, 0, -1), [CUBE]),
    "squeeze": (lambda x: jnp.squeeze(x[None]), [X]),
    "expand_dims": (lambda x: jnp.expand_dims(x, (0, 2)), [X]),
    "broadcast_to": (lambda x: jnp.broadcast_to(x, (3, 4, 6)), [X]),
    "concatenate": (lambda x, y: jnp.concatenate([x, y]), [X, Y]),
    "stack": (lambda x, y: jnp.stack([x, y], 1), [X, Y]),
    "vstack": (lambda x, y: jnp.vstack([x, y]), [X, Y]),
    "hstack": (lambda x, y: jnp.hstack([x, y]), [X, Y]),
    "dstack": (lambda x, y: jnp.dstack([x, y]), [X, Y]),
    "column_stack": (lambda x, y: jnp.column_stack([x, y]), [V, W]),
    "split": (lambda x: jnp.split(x, 3, 1), [X]),
    "array_split": (lambda x: jnp.array_split(x, 4, 1), [X]),
    "tile": (lambda x: jnp.tile(x, (2, 3)), [X]),
    "repeat": (lambda x: jnp.repeat(x, 3, 1), [X]),
    "flip": (jnp.flip, [X]),
    "fliplr": (jnp.fliplr, [X]),
    "flipud": (jnp.flipud, [X]),
    "roll": (lambda x: jnp.roll(x, 2, 1), [X]),
    "rot90": (jnp.rot90, [X]),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (0, 3))), [X]),
    "pad_reflect": (lambda x: jnp.pad(x, 2, "reflect"), [X]),
    "pad_edge": (lambda x: jnp.pad(x, 2, "edge"), [X]),
    "pad_wrap": (lambda x: jnp.pad(x, 2, "wrap"), [X]),
    "pad_linear_ramp": (lambda x: jnp.pad(x, 2, "linear_ramp"), [X]),
    "take": (lambda x, i: jnp.take(x, i, 0), [X, AT]),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i[:, None], 1), [X, AT]),
    "index": (lambda x, i: x[i, 2], [X, AT]),
    "index_negative": (lambda x, i: x[-i], [X, AT]),
    "mask": (lambda x, b: jnp.where(b, x, 0).sum(), [X, B]),
    "at_set": (lambda x, i: x.at[i].set(1.0), [X, AT]),
    "at_add": (lambda x, i: x.at[i].add(1.0), [X, AT]),
    "at_multiply": (lambda x, i: x.at[i, 1].multiply(3.0), [X, AT]),
    "at_min": (lambda x, i: x.at[i].min(0.5), [X, AT]),
    "at_max": (lambda x, i: x.at[i].max(0.5), [X, AT]),
    "at_get_fill": (lambda x, i: x.at[i + 2].get(mode="fill", fill_value=9.0), [X, AT]),
    "at_set_drop": (lambda x, i: x.at[i + 2].set(5.0, mode="drop"), [X, AT]),
    "at_apply": (lambda x: x.at[jnp.array([0, 2])].apply(jnp.exp), [X]),
    "dot": (jnp.dot, [V, W]),
    "vdot": (jnp.vdot, [V, W]),
    "inner": (jnp.inner, [X, Y]),
    "outer": (jnp.outer, [V, W]),
    "matmul": (lambda x, y: x @ y.T, [X, Y]),
    "matmul_int": (lambda x, y: x @ y.T, [K, L]),
    "tensordot": (lambda x, y: jnp.tensordot(x, y, 2), [X, Y]),
    "einsum": (lambda x, y: jnp.einsum("ij,kj->ik", x, y), [X, Y]),
    "einsum_batch": (lambda x, y: jnp.einsum("bij,bkj->bik", x, y), [CUBE, CUBE]),
    "kron": (jnp.kron, [V, W]),
    "cross": (lambda x, y: jnp.cross(x[:, :3], y[:, :3]), [X, Y]),
    "trace": (jnp.trace, [SQUARE]),
    "diag": (jnp.diag, [V]),
    "diagonal": (jnp.diagonal, [X]),
    "tril": (jnp.tril, [X]),
    "triu": (jnp.triu, [X]),
    "tri": (lambda x: x + jnp.tri(4, 6), [X]),
    "eye": (lambda x: x + jnp.eye(4, 6), [X]),
    "vander": (lambda x: jnp.vander(x, 4), [V]),
    "arange": (lambda x: x + jnp.arange(6), [X]),
    "linspace": (lambda x: x + jnp.linspace(0, 1, 6), [X]),
    "logspace": (lambda x: x + jnp.logspace(0, 1, 6), [X]),
    "meshgrid": (lambda x, y: jnp.meshgrid(x, y), [V, W]),
    "indices": (lambda x: x + jnp.indices((4, 6))[1], [X]),
    "sort": (jnp.sort, [X]),
    "sort_axis": (lambda x: jnp.sort(x, 0), [X]),
    "sort_descending": (lambda x: jnp.sort(x, descending=True), [X]),
    "sort_int": (jnp.sort, [K]),
    "argsort": (jnp.argsort, [X]),
    "argsort_descending": (lambda x: jnp.argsort(x, descending=True), [K]),
    "lexsort": (lambda x, y: jnp.lexsort((x[0], y[0] % 3)), [X, K]),
    "sort_complex": (jnp.sort_complex, [Z[0]]),
    "partition": (lambda x: jnp.sort(jnp.partition(x, 2)[:, :3]), [X]),
    "top_k": (lambda x: lax.top_k(x, 3), [X]),
    "approx_max_k": (lambda x: jnp.max(x, 1), [X]),
    "searchsorted": (lambda x, y: jnp.searchsorted(jnp.sort(x), y), [V, W]),
    "digitize": (lambda x: jnp.digitize(x, jnp.array([-1.0, 0.0, 1.0])), [X]),
    "bincount": (lambda x: jnp.bincount(x, length=5), [AT]),
    "histogram": (lambda x: jnp.histogram(x, 4, (-3.0, 3.0))[0], [X]),
    "quantile": (lambda x: jnp.quantile(x, 0.3, 1), [X]),
    "percentile": (lambda x: jnp.percentile(x, 70, 1), [X]),
    "nanquantile": (lambda x: jnp.nanquantile(x, 0.3, 1), [X]),
    "unique": (lambda x: jnp.unique(x, size=4), [AT]),
    "nonzero": (lambda x: jnp.nonzero(x, size=5), [AT]),
    "interp": (lambda x, y: jnp.interp(x, jnp.sort(y), y), [V, W]),
    "convolve": (lambda x, y: jnp.convolve(x, y[:3]), [V, W]),
    "correlate": (lambda x, y: jnp.correlate(x, y[:3]), [V, W]),
    "polyval": (lambda x, y: jnp.polyval(x, y), [V, W]),
    "diff": (jnp.diff, [X]),
    "ediff1d": (jnp.ediff1d, [V]),
    "gradient": (lambda x: jnp.gradient(x), [V]),
    "trapezoid": (jnp.trapezoid, [V]),
    "cov": (jnp.cov, [X]),
    "corrcoef": (jnp.corrcoef, [X]),
    "cummax": (lambda x: lax.cummax(x, 1), [X]),
    "cummin": (lambda x: lax.cummin(x, 0), [X]),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 1), [X]),
    "associative_scan": (lambda x: lax.associative_scan(jnp.maximum, x), [X]),
    "allclose": (lambda x: jnp.allclose(x, x + 1e-9), [X]),
    "isclose": (lambda x: jnp.isclose(x, x + 1e-3), [X]),
    "array_equal": (lambda x, y: jnp.array_equal(x, y), [X, Y]),
    "astype_int": (lambda x: x.astype(jnp.int32), [X * 3]),
    "astype_uint8": (lambda x: x.astype(jnp.uint8), [P * 90]),
    "astype_bf16": (lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), [X]),
    "view": (lambda x: x.view(jnp.int32), [X]),
    "complex_abs": (jnp.abs, [Z]),
    "complex_mul": (lambda z: z * z, [Z]),
    "complex_div": (lambda z: 1 / z, [Z]),
    "complex_exp": (jnp.exp, [Z]),
    "complex_log": (jnp.log, [Z]),
    "complex_sqrt": (jnp.sqrt, [Z]),
    "complex_sin": (jnp.sin, [Z]),
    "complex_tanh": (jnp.tanh, [Z]),
    "complex_angle": (jnp.angle, [Z]),
    "complex_matmul": (lambda z: z @ z.T, [Z]),
    "complex_sum": (jnp.sum, [Z]),
    "complex_prod": (lambda z: jnp.prod(z, 1), [Z]),
    "fft": (jnp.fft.fft, [Z]),
    "ifft": (jnp.fft.ifft, [Z]),
    "rfft": (jnp.fft.rfft, [X]),
    "irfft": (jnp.fft.irfft, [Z]),
    "fft2": (jnp.fft.fft2, [Z]),
    "fftshift": (jnp.fft.fftshift, [X]),
    "norm": (jnp.linalg.norm, [X]),
    "norm_1": (lambda x: jnp.linalg.norm(x, 1), [X]),
    "matrix_power": (lambda x: jnp.linalg.matrix_power(x, 3), [SQUARE]),
    "relu": (jax.nn.relu, [X]),
    "gelu": (jax.nn.gelu, [X]),
    "gelu_exact": (lambda x: jax.nn.gelu(x, approximate=False), [X]),
    "silu": (jax.nn.silu, [X]),
    "elu": (jax.nn.elu, [X]),
    "selu": (jax.nn.selu, [X]),
    "softplus": (jax.nn.softplus, [X]),
    "sigmoid": (jax.nn.sigmoid, [X]),
    "log_sigmoid": (jax.nn.log_sigmoid, [X]),
    "softmax": (jax.nn.softmax, [X]),
    "log_softmax": (jax.nn.log_softmax, [X]),
    "logsumexp": (jax.nn.logsumexp, [X]),
    "one_hot": (lambda i: jax.nn.one_hot(i, 5), [AT]),
    "standardize": (jax.nn.standardize, [X]),
    "erf": (jax.scipy.special.erf, [X]),
    "erfc": (jax.scipy.special.erfc, [X]),
    "erfinv": (jax.scipy.special.erfinv, [U]),
    "gammaln": (jax.scipy.special.gammaln, [P]),
    "digamma": (jax.scipy.special.digamma, [P]),
    "betaln": (jax.scipy.special.betaln, [P, np.abs(Y) + np.float32(0.5)]),
    "entr": (jax.scipy.special.entr, [P]),
    "logit": (jax.scipy.special.logit, [np.abs(U)]),
    "xlogy": (jax.scipy.special.xlogy, [P, P]),
    "i0e": (jax.scipy.special.i0e, [X]),
    "i1": (jax.scipy.special.i1, [X]),
    "ndtri": (jax.scipy.special.ndtri, [np.abs(U) + np.float32(0.01)]),
    "gammainc": (jax.scipy.special.gammainc, [P, P]),
    "betainc": (jax.scipy.special.betainc, [P, P, np.abs(U)]),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), [X]),
    "switch": (lambda i, x: lax.switch(i[1], [jnp.sin, jnp.cos, jnp.tan], x), [AT, X]),
    "while_loop": (lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: c * 2, x), [P]),
    "fori_loop": (lambda x: lax.fori_loop(0, 5, lambda i, c: c * 0.5 + i, x), [X]),
    "scan": (lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x), [X]),
    "map": (lambda x: lax.map(lambda r: jnp.sort(r)[::2], x), [X]),
    "vmap": (jax.vmap(lambda r: jnp.outer(r, r)), [X]),
    "grad": (jax.grad(lambda x: (jnp.tanh(x) ** 2).sum()), [X]),
    "hessian": (jax.hessian(lambda x: (jnp.sin(x) ** 3).sum()), [V]),
    "jacfwd": (jax.jacfwd(lambda x: jnp.cumsum(x * x)), [V]),
    "max_pool": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        [IMAGE],
    ),
    "avg_pool": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4,
        [IMAGE],
    ),
    "max_pool_grad": (
        jax.grad(
            lambda x: (
                lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2
            ).sum()
        ),
        [IMAGE],
    ),
    "reduce_any_body": (
        lambda x: lax.reduce(x, np.float32(0), lambda a, b: jnp.hypot(a, b), (1,)), [X]
    ),
    "reduce_two": (
        lambda x, y: lax.reduce(
            (x, y), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)
        ),
        [X, Y],
    ),
    "sort_by_two": (lambda x, y: lax.sort((y[0] % 4, x[0], y[0]), num_keys=2), [X, K]),
    "resize": (lambda x: jax.image.resize(x, (2, 5, 11, 3), "bilinear"), [IMAGE]),
    "resize_nearest": (lambda x: jax.image.resize(x, (2, 16, 4, 3), "nearest"), [IMAGE]),
    "resize_cubic": (lambda x: jax.image.resize(x, (2, 12, 12, 3), "cubic"), [IMAGE]),
    "threefry": (lambda x: x + jax.random.uniform(jax.random.key(3), (4, 6)), [X]),
    "normal": (lambda x: x + jax.random.normal(jax.random.key(3), (4, 6)), [X]),
    "randint": (lambda x: x + jax.random.randint(jax.random.key(3), (4, 6), 0, 9), [K]),
    "permutation": (lambda x: jax.random.permutation(jax.random.key(3), x), [X]),
    "categorical": (lambda x: jax.random.categorical(jax.random.key(3), x), [X]),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (2, 3)), [X, AT]),
    "dynamic_update_slice": (
        lambda x, i: lax.dynamic_update_slice(x, x[:2, :3] + 1, (i[1], i[2])), [X, AT]
    ),
    "segment_sum": (lambda x, i: jax.ops.segment_sum(x, i, 4), [X, AT]),
    "segment_max": (lambda x, i: jax.ops.segment_max(x, i, 4), [X, AT]),
    "conv": (
        lambda x, k: lax.conv_general_dilated(
            x, jnp.ones((3, 3, 3, 4)) * k[0], (2, 1), "SAME", rhs_dilation=(1, 2),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        ),
        [IMAGE, V],
    ),
    "conv_transpose": (
        lambda x, k: lax.conv_transpose(
            x, jnp.ones((3, 3, 3, 4)) * k[0], (2, 2), "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        ),
        [IMAGE, V],
    ),
    "depthwise": (
        lambda x, k: lax.conv_general_dilated(
            x, jnp.ones((3, 3, 1, 6)) * k[0], (1, 1), "SAME", feature_group_count=3,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        ),
        [IMAGE, V],
    ),
    "conv_grad": (
        jax.grad(
            lambda k, x: lax.conv_general_dilated(
                x, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            ).sum()
        ),
        [np.ones((3, 3, 3, 4), np.float32), IMAGE],
    ),
}  # fmt: skip
