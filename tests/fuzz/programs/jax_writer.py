"""JAX's spellings of operations; each line is typed at once by tracing it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 "
                      "--xla_llvm_disable_expensive_passes=true "
                      "--xla_disable_hlo_passes=algsimp")  # fmt: skip
import jax
from jax import lax
from jax import numpy as jnp

from ..elements import Array, Shape
from ..inference import Declined

NAMES = {"float32": "float", "float64": "double"}
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "bfloat16", "float", "double", "complex64")  # fmt: skip
TYPES = {n: jnp.dtype({v: k for k, v in NAMES.items()}.get(n, n)) for n in DTYPES}
GLOBALS: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax, "nn": jax.nn,
                           "sp": jax.scipy.special, "T": TYPES, "inf": float("inf"),
                           "nan": float("nan")}  # fmt: skip

PLAIN = {
    "abs": "abs", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
    "atan": "arctan", "atanh": "arctanh", "not": "invert", "neg": "negative",
    **{n: n for n in ["cbrt", "ceil", "cos", "cosh", "deg2rad", "exp", "exp2", "expm1", "floor",
        "i0", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "log", "log10", "log1p",
        "log2", "logical_not", "nan_to_num", "positive", "rad2deg", "reciprocal", "round", "sign",
        "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "real",
        "imag", "conj", "angle"]},
}  # fmt: skip
NN = {n: n for n in ["celu", "elu", "gelu", "leaky_relu", "log_sigmoid", "mish", "relu", "relu6",
    "selu", "sigmoid", "silu", "softplus"]}  # fmt: skip
NN |= {"softsign": "soft_sign", "hardsigmoid": "hard_sigmoid", "hardswish": "hard_swish",
       "hardtanh": "hard_tanh"}  # fmt: skip
PAIRS = {
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "shl": "left_shift",
    "shr": "right_shift", "max": "maximum", "min": "minimum", "floor_div": "floor_divide",
    "div": "true_divide", "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal", "pow": "power", "atan2": "arctan2",
    **{n: n for n in ["add", "sub", "mul", "fmax", "fmin", "fmod", "gcd", "lcm",
        "heaviside", "hypot", "ldexp", "logaddexp", "logaddexp2", "logical_and", "logical_or",
        "logical_xor", "nextafter", "remainder"]},
    "sub": "subtract", "mul": "multiply",
}  # fmt: skip
LAX_PLAIN = {"popcount": "population_count", "clz": "clz", "rsqrt": "rsqrt", "lgamma": "lgamma",
             "tanh": "tanh", "exp": "exp", "log": "log", "sin": "sin", "sqrt": "sqrt", "abs": "abs",
             "not": "bitwise_not", "neg": "neg", "sigmoid": "logistic", "square": "square",
             "cbrt": "cbrt", "erfinv": "erf_inv", "sign": "sign", "expm1": "expm1",
             "tan": "tan"}  # fmt: skip
LAX_PAIRS = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "pow": "pow",
             "remainder": "rem", "max": "max", "min": "min", "atan2": "atan2", "shl": "shift_left",
             "shr": "shift_right_arithmetic", "shr_logical": "shift_right_logical",
             "nextafter": "nextafter", "complex": "complex", "eq": "eq", "lt": "lt",
             "and": "bitwise_and"}  # fmt: skip


def _spelled() -> dict[str, tuple[str, ...]]:
    """Return what comes of the tables of names, several spellings of one operation joined."""
    found: dict[str, tuple[str, ...]] = {}
    for table, form in (
        (PLAIN, "jnp.{}({{0}})"), (NN, "nn.{}({{0}})"), (LAX_PLAIN, "lax.{}({{0}})"),
        (PAIRS, "jnp.{}({{0}}, {{1}})"), (LAX_PAIRS, "lax.{}({{0}}, {{1}})"),
    ):  # fmt: skip
        for name, there in table.items():
            found[name] = (*found.get(name, ()), form.format(there))
    for name in ("sum", "prod", "mean", "all", "any", "nansum", "nanmean", "count_nonzero"):
        found[name] = (f"jnp.{name}({{0}}, axis={{axes}}, keepdims={{keep}})",)
    return found


SPELLINGS: dict[str, Sequence[str]] = {
    **_spelled(),
    **{n: (f"sp.{n}({{0}})",) for n in ("digamma", "erf", "erfc", "erfinv", "logit")},
    **{n: (f"sp.{n}({{0}}, {{1}})",) for n in ("xlogy", "xlog1py")},
    "gelu_tanh": ("nn.gelu({0}, approximate=True)",), "gelu": ("nn.gelu({0}, approximate=False)",),
    "round": ("jnp.round({0})", "lax.round({0}, lax.RoundingMode.AWAY_FROM_ZERO)",
              "lax.round({0}, lax.RoundingMode.TO_NEAREST_EVEN)"),
    "is_zero": ("{0} == 0",),
    "trunc_div": ("lax.div({0}, {1})",),
    "sub": ("{0} - {1}", "lax.sub({0}, {1})"), "mul": ("{0} * {1}", "lax.mul({0}, {1})"),
    "squared_difference": ("jnp.square({0} - {1})",),
    "add_scalar": ("{0} + {c}",), "mul_scalar": ("{0} * {c}",), "sub_scalar": ("{0} - {c}",),
    "div_scalar": ("{0} / {c}",), "pow_scalar": ("{0} ** {c}", "lax.integer_pow({0}, {c})"),
    "scalar_pow": ("{c} ** {0}",), "from_scalar": ("{c} - {0}",), "over_scalar": ("{c} / {0}",),
    "remainder_scalar": ("{0} % {c}", "jnp.fmod({0}, {c})"), "floor_div_scalar": ("{0} // {c}",),
    "max_scalar": ("jnp.maximum({0}, {c})",), "lt_scalar": ("{0} < {c}",),
    "eq_scalar": ("{0} == {c}",),
    "where": ("jnp.where({0}, {1}, {2})", "lax.select({0}, {1}, {2})"),
    "where_scalar": ("jnp.where({0}, {1}, {c})", "jnp.where({0}, {c}, {1})"),
    "clamp": ("jnp.clip({0}, {low}, {high})",), "clamp_min": ("jnp.clip({0}, {low})",),
    "clamp_values": ("lax.clamp({1}, {0}, {2})", "jnp.clip({0}, {1}, {2})"),
    "fma": ("{0} * {1} + {2}",), "addcmul": ("{0} + {c} * {1} * {2}",),
    "cast": ("{0}.astype(T[{dtype}])", "lax.convert_element_type({0}, T[{dtype}])"),
    "cast_saturated": ("lax.convert_element_type({0}, T[{dtype}])",),
    "bitcast": ("lax.bitcast_convert_type({0}, T[{dtype}])",),
    "amax": ("jnp.max({0}, axis={axes}, keepdims={keep})",),
    "amin": ("jnp.min({0}, axis={axes}, keepdims={keep})",),
    "logsumexp": ("sp.logsumexp({0}, axis={axes}, keepdims={keep})",),
    "var": ("jnp.var({0}, axis={axes}, keepdims={keep}, ddof={correction})",),
    "std": ("jnp.std({0}, axis={axes}, keepdims={keep}, ddof={correction})",),
    "norm1": ("jnp.sum(jnp.abs({0}), axis={axes}, keepdims={keep})",),
    "norm2": ("jnp.sqrt(jnp.sum(jnp.square({0}), axis={axes}))",),
    "reduce_and": ("lax.reduce_and({0}, tuple(a % {0}.ndim for a in {axes}))",),
    "reduce_or": ("lax.reduce_or({0}, tuple(a % {0}.ndim for a in {axes}))",),
    "reduce_xor": ("lax.reduce_xor({0}, tuple(a % {0}.ndim for a in {axes}))",),
    "argmax": ("jnp.argmax({0}, axis={axis}, keepdims={keep})",
               "lax.argmax({0}, {axis} % {0}.ndim, jnp.int32)"),
    "argmin": ("jnp.argmin({0}, axis={axis}, keepdims={keep})",
               "lax.argmin({0}, {axis} % {0}.ndim, jnp.int32)"),
    "argmax_all": ("jnp.argmax({0})", "jnp.nanargmax({0})"), "argmin_all": ("jnp.argmin({0})",),
    "sum_all": ("jnp.sum({0})", "jnp.mean({0})"), "max_all": ("jnp.max({0})", "jnp.ptp({0})"),
    "prod_all": ("jnp.prod({0})",), "std_all": ("jnp.std({0})",),
    "quantile": ("jnp.quantile({0}, {q}, axis={axis})", "jnp.median({0}, axis={axis})"),
    "cumsum": ("jnp.cumsum({0}, axis={axis})",
               "lax.cumsum({0}, {axis} % {0}.ndim, reverse={reverse})"),
    "cumprod": ("jnp.cumprod({0}, axis={axis})",
                "lax.cumprod({0}, {axis} % {0}.ndim, reverse={reverse})"),
    "cummax_values": ("lax.cummax({0}, {axis} % {0}.ndim, reverse={reverse})",),
    "cummin_values": ("lax.cummin({0}, {axis} % {0}.ndim, reverse={reverse})",),
    "logcumsumexp": ("lax.cumlogsumexp({0}, {axis} % {0}.ndim, reverse={reverse})",),
    "associative_scan": ("lax.associative_scan(jnp.maximum, {0}, axis={axis}, reverse={reverse})",
                         "lax.associative_scan(lambda a, b: a * b + b, {0}, axis={axis})"),
    "diff": ("jnp.diff({0}, axis={axis})",),
    "softmax": ("nn.softmax({0}, axis={axis})",),
    "log_softmax": ("nn.log_softmax({0}, axis={axis})",),
    "standardize": ("nn.standardize({0}, axis={axis})",), "glu": ("nn.glu({0}, axis={axis})",),
    "logsumexp_axis": ("nn.logsumexp({0}, axis={axis})",),
    "sort": ("lax.sort_key_val({0}, lax.broadcasted_iota(jnp.int32, {0}.shape, {axis} % "
             "{0}.ndim), {axis})",),
    "sort_values": ("jnp.sort({0}, axis={axis})", "lax.sort({0}, {axis} % {0}.ndim)"),
    "sort_two": ("lax.sort(({0}, {1}), {axis} % {0}.ndim, num_keys={keys})",),
    "argsort": ("jnp.argsort({0}, axis={axis}, descending={descending})",),
    "topk": ("lax.top_k({0}, {k})",),
    "searchsorted": ("jnp.searchsorted({0}, {1}, side='right' if {right} else 'left')",),
    "bucketize": ("jnp.digitize({1}, {0}, {right})",),
    "reshape": ("{0}.reshape({shape})", "lax.reshape({0}, {shape})"),
    "reshape_open": ("{0}.reshape({shape})",),
    "transpose": ("{0}.transpose({perm})", "lax.transpose({0}, {perm})"),
    "swap": ("jnp.swapaxes({0}, {a}, {b})",), "moveaxis": ("jnp.moveaxis({0}, {a}, {b})",),
    "expand_dims": ("jnp.expand_dims({0}, {new})",), "unsqueeze": ("jnp.expand_dims({0}, {new})",),
    "squeeze": ("jnp.squeeze({0}, {axis})",), "squeeze_all": ("jnp.squeeze({0})",),
    "flatten": ("{0}.ravel()",),
    "slice": ("{0}[{raw}]",), "slice_backwards": ("{0}[{raw}]",),
    "slice_in_dim": ("lax.slice_in_dim({0}, {start}, {start} + {count}, axis={axis})",),
    "index_in_dim": ("lax.index_in_dim({0}, {at}, {axis})",
                     "lax.dynamic_index_in_dim({0}, {at}, {axis})"),
    "strided_slice": ("lax.slice({0}, {begins}, {ends}, {steps})",),
    "dynamic_slice": ("lax.dynamic_slice({0}, ({raw},), {sizes})",),
    "dynamic_update_slice": ("lax.dynamic_update_slice({0}, {1}, ({raw},))",),
    "flip": ("jnp.flip({0}, {axes})", "lax.rev({0}, tuple(a % {0}.ndim for a in {axes}))"),
    "roll": ("jnp.roll({0}, {shifts}, {axes})", "jnp.roll({0}, {k})"),
    "rot90": ("jnp.rot90({0}, {k}, {axes})",),
    "pad": ("jnp.pad({0}, {pairs}, constant_values={c})",),
    "pad_interior": ("lax.pad({0}, jnp.array({c}, {0}.dtype), {edges})",),
    "pad_negative": ("lax.pad({0}, jnp.array({c}, {0}.dtype), {edges})",),
    **{f"pad_{m}": (f"jnp.pad({{0}}, {{pairs}}, mode='{m}')",) for m in ("reflect", "edge",
    "symmetric", "wrap")},
    "cat": ("jnp.concatenate([{raw}], axis={axis})",),
    "stack": ("jnp.stack([{raw}], axis={axis})",),
    "hstack": ("jnp.hstack([{raw}])",), "vstack": ("jnp.vstack([{raw}])",),
    "tensor_split": ("jnp.array_split({0}, {size}, axis={axis})",),
    "unbind": ("jnp.unstack({0}, axis={axis})",),
    "broadcast_to": ("jnp.broadcast_to({0}, {shape})",), "tile": ("jnp.tile({0}, {times})",),
    "repeat_interleave": ("jnp.repeat({0}, {count}, axis={axis})",),
    "broadcast_in_dim": ("lax.broadcast_in_dim({0}, {outer}, {dims})",),
    "take_along": ("jnp.take_along_axis({0}, {1}, axis={axis})",),
    "gather": ("jnp.take_along_axis({0}, {1}, axis={axis}, mode='clip')",),
    "take": ("jnp.take({0}, {1}, axis={axis}, mode='clip')", "jnp.take({0}, {1}, axis={axis})"),
    "index_select": ("jnp.take({0}, {1}, axis={axis}, mode='wrap')",), "index_get": ("{0}[{1}]",),
    "get_mode": ("{0}.at[{1} + 1].get(mode={mode})",),
    **{f"at_{n}": (f"{{0}}.at[{{1}}].{n}({{2}})", f"{{0}}.at[{{1}}].{n}({{2}}, mode={{mode}})")
       for n in ("add", "max", "min", "set")},
    "at_mul": ("{0}.at[{1}].multiply({2})",), "index_mixed": ("{0}[{raw}]",),
    "at_set_mixed": ("{0}.at[{raw}].set({c})",), "at_add_mixed": ("{0}.at[{raw}].add({c})",),
    "tril": ("jnp.tril({0}, {k})",), "triu": ("jnp.triu({0}, {k})",),
    "trace": ("jnp.trace({0}, {k}, {a}, {b})",),
    "diagonal": ("jnp.diagonal({0}, {k}, {a}, {b})",), "diag": ("jnp.diag({0}, {k})",),
    "arange": ("jnp.arange({start}, {end}, {step}, dtype=T[{dtype}])",),
    "linspace": ("jnp.linspace({start}, {end}, {count}, dtype=T[{dtype}])",),
    "full": ("jnp.full({shape}, {c}, T[{dtype}])",), "eye": ("jnp.eye({count}, dtype=T[{dtype}])",),
    "iota": ("lax.broadcasted_iota(T[{dtype}], {shape}, {axis})",),
    "tri": ("jnp.tri({count}, {count} + 2, {c})",),
    "full_like": ("jnp.full_like({0}, {c})",), "zeros_like": ("jnp.zeros_like({0})",),
    "one_hot": ("nn.one_hot({0}, {n})",),
    "matmul": ("{0} @ {1}", "jnp.matmul({0}, {1})"), "outer": ("jnp.outer({0}, {1})",),
    "dot": ("jnp.vdot({0}, {1})",),
    "linear": ("{0} @ {1}.T + {2}",), "kron": ("jnp.kron({0}, {1})",),
    "inner": ("jnp.inner({0}, {1})",),
    "bmm": ("lax.batch_matmul({0}, {1})",), "einsum": ("jnp.einsum({text}, {raw})",),
    "dot_general": ("lax.dot_general({0}, {1}, {dims})",
                    "lax.dot_general({0}, {1}, {dims}, preferred_element_type=jnp.float32)"),
    "conv": ("lax.conv_general_dilated({0}, {1}, {stride}, tuple((p, p) for p in {padding}), "
             "rhs_dilation={dilation}, feature_group_count={groups})",),
    "conv_same": ("lax.conv_general_dilated({0}, {1}, {stride}, {same}, "
                  "feature_group_count={groups})",),
    "conv_general": (
        "lax.conv_general_dilated({0}, {1}, {stride}, {pads}, lhs_dilation={lhs}, "
        "rhs_dilation={dilation}, dimension_numbers={layouts}, feature_group_count={groups})",
        "lax.conv_general_dilated({0}, {1}, {stride}, {pads}, lhs_dilation={lhs}, "
        "rhs_dilation={dilation}, batch_group_count={0}.shape[0])",
        "lax.conv_general_dilated(jnp.moveaxis({0}, 1, -1), jnp.moveaxis({1}, (0, 1), (-1, -2)), "
        "{stride}, "
        "{pads}, lhs_dilation={lhs}, dimension_numbers={channels_last}, "
        "feature_group_count={groups})",
    ),
    "conv_transpose": ("lax.conv_transpose({0}, jnp.moveaxis({1}, (0, 1), (-2, -1)), {stride}, "
                       "{same}, "
                       "{dilation}, dimension_numbers={turned}, transpose_kernel=False)",),
    "reduce_window": (
        "lax.reduce_window({0}, jnp.array(0, {0}.dtype), lax.add, {window}, {strides}, {pads}, "
        "{base}, {spread})",
        "lax.reduce_window({0}, jnp.array(-inf if jnp.issubdtype({0}.dtype, jnp.floating) else "
        "jnp.iinfo({0}.dtype).min, {0}.dtype), lax.max, {window}, {strides}, {pads}, {base}, "
        "{spread})",
        "lax.reduce_window({0}, jnp.array(1, {0}.dtype), lax.mul, {window}, {strides}, {pads}, "
        "{base}, {spread})",
    ),
    "interpolate": ("jax.image.resize({0}, {full}, {method}, antialias={antialias})",),
    "attention": ("nn.dot_product_attention({0}, {1}, {2}, is_causal={causal})",),
    "cross": ("jnp.cross({0}, {1})",), "mse": ("jnp.mean(({0} - {1}) ** 2)",),
    "cond": ("lax.cond({2}, lambda x: x + {1}.sum().astype(x.dtype), lambda x: x * 2, {0})",
             "lax.cond({0}.sum() > 0, lambda x: jnp.sin(x), lambda x: "
             "jnp.flip(x).reshape(x.shape), {0})"),
    "switch": ("lax.switch({3}, [lambda x: x, lambda x: x * 2, lambda x: -x], {0})",),
    "while": ("lax.while_loop(lambda s: s[0] < {3}, lambda s: (s[0] + 1, s[1] * 2 + "
              "s[0].astype(s[1].dtype)), "
              "(jnp.int32({low}), {0}))[1]",),
    "while_data": ("lax.while_loop(lambda s: (jnp.abs(s[1]).sum() > {limit}) & (s[0] < 9), "
                   "lambda s: (s[0] + 1, (s[1] * 0.5).astype(s[1].dtype)), (0, {0}))[1]",),
    "while_two": ("lax.while_loop(lambda s: s[0] < {3}, lambda s: (s[0] + 1, s[2], s[1] + s[2]), "
                  "(jnp.int32(0), {0}, {0} + 1))[1:]",),
    "fori": ("lax.fori_loop({low}, {count}, lambda i, c: c * 2 + i.astype(c.dtype), {0})",
             "lax.fori_loop({low}, {count}, lambda i, c: (c + {1}).astype(c.dtype) if False else "
             "jnp.roll(c, i), {0})"),
    "fori_open": ("lax.fori_loop({low}, {3}, lambda i, c: c + i.astype(c.dtype), {0})",),
    "scan": ("lax.scan(lambda c, i: (c * {c} + i.astype(c.dtype), c.sum()), {0}, "
             "jnp.arange({count}))",
             "lax.scan(lambda c, i: ((c + i).astype(c.dtype), jnp.flip(c)), {0}, None, "
             "length={count}) if False else "
             "lax.scan(lambda c, _: (jnp.flip(c) + 1, c), {0}, None, length={count})"),
    "scan_xs": ("lax.scan(lambda c, x: (c + x.sum().astype(jnp.float32), x * 2), jnp.float32(0), "
                "{0})",
                "lax.scan(lambda c, x: (jnp.maximum(c, x), c), {0}[0], {0})"),
    "scan_reverse": ("lax.scan(lambda c, x: (c + x, c), jnp.zeros_like({0}[0]), {0}, "
                     "reverse={reverse})",),
    "map": ("lax.map(lambda x: jnp.sort(x.ravel()), {0})", "lax.map(lambda x: x.sum() * 2, {0})"),
    "vmap": ("jax.vmap(lambda x: jnp.cumsum(x.ravel()))({0})",
             "jax.vmap(lambda x: lax.dynamic_update_index_in_dim(x.ravel(), x.ravel()[0], 1, "
             "0))({0})",
             "jax.vmap(lambda x: lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * 2, s[1] + "
             "1), (x, 0))[0])({0})"),
    "checkpoint": ("jax.checkpoint(lambda x: jnp.sin(x) * 2)({0})",),
}  # fmt: skip


class JaxWriter:
    """Traces lines on types."""

    dtypes = DTYPES
    spellings = SPELLINGS

    def __init__(self) -> None:
        self.env: dict[str, Any] = {}

    def feed(self, name: str, array: Array) -> None:
        self.env[name] = jax.ShapeDtypeStruct(array.shape, array.dtype)

    def run(self, text: str, results: Sequence[str]) -> list[tuple[str, Shape]] | None:
        """Trace a line."""

        def traced(env: dict[str, Any]) -> list[Any]:
            scope = {**GLOBALS, **env}
            exec(text, scope)
            return [scope[n] for n in results]

        try:
            made = jax.eval_shape(traced, {k: v for k, v in self.env.items() if k in text})
        except Exception as error:
            raise Declined from error
        if not all(isinstance(x, jax.ShapeDtypeStruct) for x in made):
            return None
        names = [NAMES.get(str(x.dtype), str(x.dtype)) for x in made]
        if not set(names) <= {*DTYPES}:
            return None
        self.env.update(zip(results, made, strict=True))
        return [(n, tuple(map(int, x.shape))) for n, x in zip(names, made, strict=True)]
