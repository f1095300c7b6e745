"""PyTorch's spellings of operations; each line runs at once in eager."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from ..elements import Array, Shape
from ..inference import Declined

DTYPES = {
    "bool": torch.bool, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32,
    "int64": torch.int64, "uint8": torch.uint8, "float16": torch.float16,
    "bfloat16": torch.bfloat16, "float": torch.float32, "double": torch.float64,
    "complex64": torch.complex64,
}  # fmt: skip
NAMES = {t: n for n, t in DTYPES.items()}
GLOBALS = {"torch": torch, "F": torch.nn.functional, "T": DTYPES, "inf": float("inf"),
           "nan": float("nan")}  # fmt: skip

PLAIN = ["abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh",
    "deg2rad", "digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "i0",
    "isfinite", "isinf", "isnan", "isneginf", "isposinf", "lgamma", "log", "log10", "log1p",
    "log2", "logical_not", "logit", "nan_to_num", "neg", "positive", "rad2deg", "reciprocal",
    "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinc", "sinh", "sqrt",
    "square", "tan", "tanh", "trunc", "real", "imag", "conj", "angle"]
FUNCTIONAL = ["celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "mish", "relu6", "selu", "silu", "softplus", "softshrink", "softsign",
    "tanhshrink"]
PAIRS = {
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "shl": "bitwise_left_shift",
    "shr": "bitwise_right_shift", "max": "maximum", "min": "minimum", "floor_div": "floor_divide",
    **{n: n for n in ["add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "pow",
        "atan2", "fmax", "fmin", "fmod", "gcd", "lcm", "heaviside", "hypot", "ldexp",
        "logaddexp", "logaddexp2", "logical_and", "logical_or", "logical_xor", "nextafter",
        "remainder", "xlogy", "complex", "polar"]},
}  # fmt: skip
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "lt": "<", "ge": ">=",
         "and": "&", "or": "|", "xor": "^", "pow": "**", "floor_div": "//",
         "remainder": "%"}  # fmt: skip
REDUCED = {"sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin", "all": "all", "any": "any",
           "logsumexp": "logsumexp", "nansum": "nansum", "nanmean": "nanmean"}  # fmt: skip


def _any_of(text: str) -> str:
    """Return a spelling of values, and of those at their indices: any will do, where some tie."""
    return f"(lambda t: (t[0], {{0}}.gather({{axis}}, t[1])))({text})"


SPELLINGS: dict[str, Sequence[str]] = {
    **{n: (f"torch.{n}({{0}})",) for n in PLAIN},
    **{n: (f"F.{n}({{0}})",) for n in FUNCTIONAL},
    **{n: (f"torch.{m}({{0}}, {{1}})", *((f"{{0}} {SIGNS[n]} {{1}}",) if n in SIGNS else ()))
       for n, m in PAIRS.items()},
    **{n: (f"torch.{m}({{0}}, dim={{axes}}, keepdim={{keep}})",) for n, m in REDUCED.items()},
    # Of NaN the sign is any.
    "signbit": ("torch.signbit(torch.nan_to_num({0}))",),
    "copysign": ("torch.copysign({0}, torch.nan_to_num({1}))",),
    "not": ("~{0}", "torch.bitwise_not({0})"),
    "gelu_tanh": ("F.gelu({0}, approximate='tanh')",),
    "log_sigmoid": ("F.logsigmoid({0})",),
    "threshold": ("F.threshold({0}, 0.5, -1.0)",),
    "trunc_div": ("torch.div({0}, {1}, rounding_mode='trunc')",
                  "torch.div({0}, {1}, rounding_mode='floor')"),
    "prelu": ("torch.prelu({0}, {1})",),
    "add_scalar": ("{0} + {c}", "torch.add({0}, {c})", "{c} + {0}"),
    "mul_scalar": ("{0} * {c}", "{c} * {0}"),
    "sub_scalar": ("{0} - {c}",), "div_scalar": ("{0} / {c}",),
    "pow_scalar": ("{0} ** {c}", "torch.pow({0}, {c})"),
    "scalar_pow": ("{c} ** {0}", "torch.pow({c}, {0})"),
    "from_scalar": ("{c} - {0}", "torch.rsub({0}, {c})"), "over_scalar": ("{c} / {0}",),
    "remainder_scalar": ("{0} % {c}", "torch.fmod({0}, {c})"),
    "floor_div_scalar": ("{0} // {c}", "torch.div({0}, {c}, rounding_mode='trunc')"),
    "max_scalar": ("torch.clamp({0}, min={c})", "torch.clamp({0}, max={c})"),
    "lt_scalar": ("{0} < {c}", "{0} >= {c}", "{0} > {c}"),
    "eq_scalar": ("{0} == {c}", "{0} != {c}"),
    "where": ("torch.where({0}, {1}, {2})",),
    "where_scalar": ("torch.where({0}, {1}, {c})", "torch.where({0}, {c}, {1})"),
    "masked_fill": ("{0}.masked_fill({1}, {c})",),
    "clamp": ("torch.clamp({0}, {low}, {high})", "F.hardtanh({0}, {low}, {high})"),
    "clamp_min": ("{0}.clamp(min={low})",), "clamp_max": ("{0}.clamp_max({high})",),
    "clamp_values": ("torch.clamp({0}, {1}, {2})", "torch.clamp({0}, max={1})"),
    "lerp": ("torch.lerp({0}, {1}, {2})", "torch.lerp({0}, {1}, {c})"),
    "addcmul": ("torch.addcmul({0}, {1}, {2}, value={c})",),
    "addcdiv": ("torch.addcdiv({0}, {1}, {2}, value={c})",),
    "cast": ("{0}.to(T[{dtype}])", "{0}.type(T[{dtype}])"),
    "bitcast": ("{0}.view(T[{dtype}])",),
    "count_nonzero": ("torch.count_nonzero({0}, dim={axes})",),
    "var": ("torch.var({0}, dim={axes}, keepdim={keep}, correction={correction})",),
    "std": ("torch.std({0}, dim={axes}, keepdim={keep}, correction={correction})",),
    "var_mean": ("torch.var_mean({0}, dim={axes}, keepdim={keep}, correction={correction})",),
    "norm1": ("torch.linalg.vector_norm({0}, 1, dim={axes}, keepdim={keep})",),
    "norm2": ("torch.linalg.vector_norm({0}, 2, dim={axes}, keepdim={keep})",),
    "norm3": ("torch.linalg.vector_norm({0}, 3, dim={axes}, keepdim={keep})",),
    "norm0": ("torch.linalg.vector_norm({0}, 0, dim={axes}, keepdim={keep})",),
    "norm_inf": ("torch.linalg.vector_norm({0}, inf, dim={axes}, keepdim={keep})",
                 "torch.linalg.vector_norm({0}, -inf, dim={axes}, keepdim={keep})"),
    "prod": ("torch.prod({0}, 0)",), "prod_all": ("torch.prod({0}, {axis}, {keep})", "{0}.prod()"),
    "argmax": ("torch.argmax({0}, {axis}, {keep})",),
    "argmin": ("torch.argmin({0}, {axis}, {keep})",),
    "argmax_all": ("{0}.argmax()",), "argmin_all": ("{0}.argmin()",),
    "sum_all": ("{0}.sum()", "{0}.mean()"),
    "max_all": ("{0}.max()", "{0}.min()", "{0}.any()", "{0}.all()"),
    "std_all": ("{0}.std()", "{0}.var()", "{0}.norm()"),
    "median": (_any_of("torch.median({0}, {axis}, True)"),),
    "mode": (_any_of("torch.mode({0}, {axis}, True)"),),
    "nanmedian": (_any_of("torch.nanmedian({0}, {axis}, True)"),),
    "max_with": ("torch.max({0}, {axis}, {keep})",),
    "min_with": ("torch.min({0}, {axis}, {keep})",),
    "kthvalue": (_any_of("torch.kthvalue({0}, {k}, {axis}, True)"),),
    "quantile": ("torch.quantile({0}, {q}, {axis}, {keep})",),
    "cumsum": ("torch.cumsum({0}, {axis})",), "cumprod": ("torch.cumprod({0}, {axis})",),
    "logcumsumexp": ("torch.logcumsumexp({0}, {axis})",), "cummax": ("torch.cummax({0}, {axis})",),
    "cummin": ("torch.cummin({0}, {axis})",), "diff": ("torch.diff({0}, dim={axis})",),
    "flip_cumsum": ("torch.flip(torch.cumsum(torch.flip({0}, [{axis}]), {axis}), [{axis}])",),
    "softmax": ("torch.softmax({0}, {axis})",), "log_softmax": ("F.log_softmax({0}, {axis})",),
    "softmin": ("F.softmin({0}, {axis})",), "normalize": ("F.normalize({0}, dim={axis})",),
    "glu": ("F.glu({0}, {axis})",), "logsumexp_axis": ("torch.logsumexp({0}, {axis})",),
    "layer_norm": ("F.layer_norm({0}, {shape}, {1}, {2}, {eps})",),
    "layer_norm_plain": ("F.layer_norm({0}, {shape})",),
    "rms_norm": ("F.rms_norm({0}, {shape}, {1}, {eps})",),
    "batch_norm": ("F.batch_norm({0}, {3}, {4}, {1}, {2}, eps={eps})",
                   "F.batch_norm({0}, {3}, {4})"),
    "batch_norm_trained": ("F.batch_norm({0}, None, None, {1}, {2}, training=True, eps={eps})",
                           "F.batch_norm({0}, {3}.clone(), {4}.clone(), training=True)"),
    "instance_norm": ("F.instance_norm({0}, None, None, {1}, {2}, eps={eps})",),
    "group_norm": ("F.group_norm({0}, {groups}, {1}, {2}, {eps})",),
    "sort": ("torch.sort({0}, dim={axis}, descending={descending}, stable=True)",),
    "sort_values": ("torch.sort({0}, {axis}, {descending})[0]",),
    "argsort": ("torch.argsort({0}, dim={axis}, descending={descending}, stable=True)",),
    "topk": (_any_of("torch.topk({0}, {k}, {axis})"),),
    "topk_smallest": (_any_of("torch.topk({0}, {k}, {axis}, False)"),),
    "searchsorted": ("torch.searchsorted({0}, {1}, right={right})",),
    "bucketize": ("torch.bucketize({1}, {0}, right={right})",),
    "reshape": ("{0}.reshape({shape})",), "reshape_open": ("{0}.reshape({shape})",),
    "view": ("{0}.view({shape})",), "transpose": ("{0}.permute({perm})",),
    "swap": ("{0}.transpose({a}, {b})",), "moveaxis": ("torch.movedim({0}, {a}, {b})",),
    "flatten": ("{0}.flatten({a}, {b})",), "unsqueeze": ("{0}.unsqueeze({new})",),
    "squeeze": ("{0}.squeeze({axis})",), "squeeze_all": ("{0}.squeeze()",),
    "slice": ("{0}[{raw}]",), "narrow": ("{0}.narrow({axis}, {start}, {count})",),
    "select": ("{0}.select({axis}, {at})",), "flip": ("{0}.flip({axes})",),
    "roll": ("{0}.roll({shifts}, {axes})", "{0}.roll({k})"),
    "rot90": ("torch.rot90({0}, {k}, {axes})",),
    "pad": ("F.pad({0}, {flat}, value={c})",), "pad_negative": ("F.pad({0}, {flat}, value={c})",),
    "pad_reflect": ("F.pad({0}, {flat}, mode='reflect')",),
    "pad_replicate": ("F.pad({0}, {flat}, mode='replicate')",),
    "pad_circular": ("F.pad({0}, {flat}, mode='circular')",),
    "cat": ("torch.cat([{raw}], {axis})",), "stack": ("torch.stack([{raw}], {axis})",),
    "hstack": ("torch.hstack([{raw}])",), "vstack": ("torch.vstack([{raw}])",),
    "split": ("torch.split({0}, {size}, {axis})",), "chunk": ("torch.chunk({0}, {size}, {axis})",),
    "unbind": ("torch.unbind({0}, {axis})",),
    "tensor_split": ("torch.tensor_split({0}, {size}, {axis})",),
    "expand": ("{0}.expand({shape})",), "broadcast_to": ("torch.broadcast_to({0}, {shape})",),
    "tile": ("{0}.repeat({times})", "torch.tile({0}, {times})"),
    "repeat_interleave": ("{0}.repeat_interleave({count}, {axis})",),
    "gather": ("torch.gather({0}, {axis}, {1}.long())",),
    "take_along": ("torch.take_along_dim({0}, {1}.long(), {axis})",),
    "scatter": ("torch.scatter({0}, {axis}, {1}.long(), {2})",),
    "scatter_value": ("torch.scatter({0}, {axis}, {1}.long(), {c})",),
    "scatter_add": ("torch.scatter_add({0}, {axis}, {1}.long(), {2})",),
    **{f"scatter_{n}": (f"torch.scatter_reduce({{0}}, {{axis}}, {{1}}.long(), {{2}}, '{n}', "
                        "include_self={include})",) for n in ("sum", "amax", "amin", "mean",
                        "prod")},
    "index_select": ("torch.index_select({0}, {axis}, {1})",),
    "take": ("torch.take({0}, {1}.long())",),
    "embedding": ("F.embedding({1}, {0})",),
    "index_add": ("torch.index_add({0}, {axis}, {1}, {2})",
                  "torch.index_add({0}, {axis}, {1}, {2}, alpha=2)"),
    "index_copy": ("torch.index_copy({0}, {axis}, {1}, {2})",),
    "index_fill": ("torch.index_fill({0}, {axis}, {1}.long(), {c})",),
    "index_put_add": ("{0}.index_put(({1},), {2}, accumulate=True)",), "index_get": ("{0}[{1}]",),
    "index_mixed": ("{0}[{raw}]",), "index_put_mixed": ("{y} = {0}.clone(); {y}[{raw}] = {c}",
                                                        "{y} = {0}.clone(); {y}[{raw}] += {c}"),
    "tril": ("torch.tril({0}, {k})",), "triu": ("torch.triu({0}, {k})",),
    "diagonal": ("torch.diagonal({0}, {k}, {a}, {b})",),
    "diag_embed": ("torch.diag_embed({0}, {k})",),
    "trace": ("torch.trace({0})",), "diag": ("torch.diag({0}, {k})",),
    "block_diag": ("torch.block_diag({0}, {0})",),
    "unfold": ("{0}.unfold({axis}, {size}, {step})",),
    "pixel_shuffle": ("F.pixel_shuffle({0}, {r})",),
    "pixel_unshuffle": ("F.pixel_unshuffle({0}, {r})",),
    "channel_shuffle": ("F.channel_shuffle({0}, {r})",),
    "im2col": ("F.unfold({0}, {kernel}, {dilation}, {padding}, {stride})",),
    "fold_back": ("F.fold(F.unfold({0}, {kernel}, {dilation}, {padding}, {stride}), {0}.shape[2:], "
                  "{kernel}, {dilation}, {padding}, {stride})",),
    "arange": ("torch.arange({start}, {end}, {step}, dtype=T[{dtype}])", "torch.arange({count})"),
    "linspace": ("torch.linspace({start}, {end}, {count}, dtype=T[{dtype}])",),
    "full": ("torch.full({shape}, {c}, dtype=T[{dtype}])",),
    "eye": ("torch.eye({count}, dtype=T[{dtype}])",),
    "full_like": ("torch.full_like({0}, {c})",), "zeros_like": ("torch.zeros_like({0})",),
    "one_hot": ("F.one_hot({0}.long(), {n})",),
    "matmul": ("{0} @ {1}", "torch.matmul({0}, {1})"),
    "linear": ("F.linear({0}, {1}, {2})", "F.linear({0}, {1})"),
    "bmm": ("torch.bmm({0}, {1})",), "mv": ("torch.mv({0}, {1})",), "dot": ("torch.dot({0}, {1})",),
    "addmm": ("torch.addmm({2}, {0}, {1}, beta={beta}, alpha={alpha})",),
    "baddbmm": ("torch.baddbmm({2}, {0}, {1}, beta={beta}, alpha={alpha})",),
    "outer": ("torch.outer({0}, {1})",), "kron": ("torch.kron({0}, {1})",),
    "inner": ("torch.inner({0}, {1})",), "einsum": ("torch.einsum({text}, {raw})",),
    "conv": ("F.conv{raw_n}d({0}, {1}, {2}, {stride}, {padding}, {dilation}, {groups})",
             "F.conv{raw_n}d({0}, {1}, None, {stride}, {padding}, {dilation}, {groups})"),
    "conv_same": ("F.conv{raw_n}d({0}, {1}, {2}, 1, 'same', {dilation}, {groups})",),
    "conv_transpose": ("F.conv_transpose{raw_n}d({0}, {1}, {2}, {stride}, {padding}, {extra}, "
                       "{groups}, {dilation})",),
    "max_pool": ("F.max_pool{raw_n}d({0}, {kernel}, {stride}, {padding}, {dilation}, {ceil})",),
    "max_pool_indices": ("F.max_pool{raw_n}d({0}, {kernel}, {stride}, {padding}, {dilation}, "
                         "{ceil}, "
                         "return_indices=True)",),
    "avg_pool": ("F.avg_pool{raw_n}d({0}, {kernel}, {stride}, {padding}, {ceil}, {count})",),
    "lp_pool": ("F.lp_pool{raw_n}d({0}, {p}, {kernel}, {stride}, {ceil})",),
    "adaptive_avg_pool": ("F.adaptive_avg_pool{raw_n}d({0}, {size})",),
    "adaptive_max_pool": ("F.adaptive_max_pool{raw_n}d({0}, {size})",),
    "interpolate": ("F.interpolate({0}, {size}, mode={mode}, align_corners={align})",
                    "F.interpolate({0}, scale_factor={scale}, mode={mode}, align_corners={align})"),
    "attention": ("F.scaled_dot_product_attention({0}, {1}, {2}, scale={scale}, "
                  "is_causal={causal})",),
    "attention_masked": ("F.scaled_dot_product_attention({0}, {1}, {2}, {3}, scale={scale})",),
    "cdist": ("torch.cdist({0}, {1}, {p})",),
    "cosine_similarity": ("F.cosine_similarity({0}, {1}, {axis})",),
    "pairwise": ("F.pairwise_distance({0}, {1}, {p})",), "cross": ("torch.linalg.cross({0}, {1})",),
    "mse": ("F.mse_loss({0}, {1}, reduction={reduction})",
            "F.l1_loss({0}, {1}, reduction={reduction})"),
    "smooth_l1": ("F.smooth_l1_loss({0}, {1}, reduction={reduction}, beta={beta})",),
    "huber": ("F.huber_loss({0}, {1}, reduction={reduction}, delta={beta})",),
    "bce": ("F.binary_cross_entropy({0}, {1}, reduction={reduction})",),
    "bce_logits": ("F.binary_cross_entropy_with_logits({0}, {1}, reduction={reduction})",),
    "kl_div": ("F.kl_div({0}, {1}, reduction={reduction})",),
    "nll": ("F.nll_loss({0}, {1}.long(), reduction={reduction}, ignore_index={ignore})",),
    "cross_entropy": ("F.cross_entropy({0}, {1}.long(), reduction={reduction}, "
                      "label_smoothing={smoothing}, ignore_index={ignore})",),
    "cond": ("torch.cond({2}, lambda x: x + {1}.sum(), lambda x: x * 2 + {1}.sum(), ({0},))",
             "torch.cond({2}, lambda x: x.sin(), lambda x: x.flip(0), ({0},))"),
    "while": ("torch.ops.higher_order.while_loop(lambda i, x: i < {count}, "
              "lambda i, x: (i + 1, x * 0.5 + i), (torch.tensor(0), {0}))[1]",),
    "while_data": ("torch.ops.higher_order.while_loop(lambda i, x: (x.abs().sum() > {limit}) & "
                   "(i < 9), "
                   "lambda i, x: (i + 1, x * 0.5), (torch.tensor(0), {0}))[1]",),
    # ── in place ──
    "add_": ("{0}.add_({1})", "{0}.add_({1}, alpha=2)", "{0}.add_({c})"),
    "mul_": ("{0}.mul_({1})",),
    "sub_": ("{0}.sub_({1})",), "div_": ("{0}.div_({1})",), "pow_": ("{0}.pow_(2)",),
    "copy_": ("{0}.copy_({1})",), "clamp_": ("{0}.clamp_({low}, {high})",),
    "fill_": ("{0}.fill_({c})",),
    "zero_": ("{0}.zero_()",), "relu_": ("F.relu({0}, inplace=True)", "{0}.relu_()"),
    "neg_": ("{0}.neg_()",), "sigmoid_": ("{0}.sigmoid_()", "{0}.tanh_()", "{0}.exp_()"),
    "masked_fill_": ("{0}.masked_fill_({2}, {c})",), "lerp_": ("{0}.lerp_({1}, 0.5)",),
    "addcmul_": ("{0}.addcmul_({1}, {1}, value=2)",), "cumsum_": ("{0}.cumsum_({axis})",),
    "triu_": ("{0}.triu_({c})", "{0}.tril_({c})"),
    "write_slice": ("{y} = {0}; {y}[{raw}] = {1}", "{y} = {0}.clone(); {y}[{raw}] = {1}",
                    "{y} = {0}; {y}[{raw}] *= {1}"),
    "write_row": ("{y} = {0}; {y}[{raw_row}] = {1}", "{y} = {0}; {y}[{raw_row}] += {1}"),
    "write_scalar": ("{y} = {0}; {y}[{raw}] = {c}", "{y} = {0}; {y}[...] = {c}"),
    "write_view": ("{y} = {0}[{raw}]; {y}.mul_({c})", "{y} = {0}[{raw}]; {y}.copy_({1})"),
    "write_transposed": ("{y} = {0}.transpose({axis}, {b}); {y}.add_({c}); {y}[0] = {c}",),
    "write_diagonal": ("{y} = {0}; {y}.diagonal(0, {axis}, {b}).fill_({c})",
                       "{y} = {0}; {y}.diagonal(1, {axis}, {b}).mul_({c})"),
    "write_chunk": ("{y} = {0}; {y}.chunk(2, {axis})[-1].add_({c})",),
    "write_unbound": ("{y} = {0}; {y}.unbind({axis})[0].sub_({c})",),
    "write_narrow": ("{y} = {0}.narrow({axis}, {start}, {count}); {y}.add_({1})",),
    "write_expanded": ("{y} = {0}.clone(); {y}.unsqueeze(0).squeeze(0).mul_({c})",),
    "write_flat": ("{y} = {0}; {y}.view(-1)[{start}:].fill_({c})",
                   "{y} = {0}; {y}.flatten()[:2].add_({c})"),
    "write_out": ("{y} = torch.empty_like({0}); torch.mul({0}, {c}, out={y})",
                  "{y} = torch.empty_like({0}); torch.add({0}, {1}, out={y})"),
    "write_mask": ("{y} = {0}; {y}[{2}] = {c}", "{y} = {0}.clone(); {y}[{2}] += {c}"),
    "squeeze_": ("{0}.unsqueeze_({axis})", "{0}.clone().squeeze_()"),
    "transpose_": ("{0}.clone().transpose_({axis}, {b})", "{0}.clone().t_()"),
    "as_strided": ("{0}.contiguous().as_strided(({size},), ({step},))",),
    "write_both": ("{y} = {0}[{raw}]; {0}.mul_({c}); {y}.add_({c})",),
    "write_detached": ("{y} = {0}.detach(); {y}.add_({c})", "{y} = {0}.contiguous(); {y}.add_({c})",
                       "{y} = {0}.reshape(-1); {y}.add_({c})",
                       "{y} = {0}.to(T['float']); {y}.add_({c})"),
    "write_real": ("{y} = torch.view_as_real({0}); {y}.mul_({c})", "{y} = {0}.real; {y}.add_({c})"),
    "where_write": ("{y} = {0}; {y}[{y} > 0] = {c}", "{y} = {0}; {y}[{y} > 0] *= 2"),
    "iadd": ("{y} = {0}; {y} += {1}", "{y} = {0}; {y} -= {c}"), "imul": ("{y} = {0}; {y} *= {1}",),
    "write_stepped": ("{y} = {0}[::{step}]; {y}.add_({c})", "{y} = {0}; {y}[::2] = {y}[::2] + {c}"),
    "write_self": ("{y} = {0}; {y}[{raw}] = {y}[{raw}] * 2",
                   "{y} = {0}; {y}.copy_({y}.flip({axis}))"),
}  # fmt: skip


def tensor_of(array: Array) -> torch.Tensor:
    """Return a copy of an array as a tensor."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array, order="C"))


def array_of(x: torch.Tensor) -> Array:
    """Return a tensor as an array."""
    x = x.detach().resolve_conj().resolve_neg()
    if x.dtype == torch.bfloat16:
        return np.asarray(x.contiguous().view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(x.numpy())


class TorchWriter:
    """Runs lines in eager, without gradients."""

    dtypes = tuple(DTYPES)
    spellings = SPELLINGS

    def __init__(self) -> None:
        self.env: dict[str, Any] = dict(GLOBALS)

    def feed(self, name: str, array: Array) -> None:
        self.env[name] = tensor_of(array)

    def run(self, text: str, results: Sequence[str]) -> list[tuple[str, Shape]] | None:
        """Run a line in eager."""
        with torch.no_grad(), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                exec(text, self.env)
            except Exception as error:
                raise Declined from error
        made = [self.env[n] for n in results]
        if not all(isinstance(x, torch.Tensor) and x.dtype in NAMES for x in made):
            return None
        return [(NAMES[x.dtype], tuple(x.shape)) for x in made]
