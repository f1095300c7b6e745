"""Operators equal eager at zeros of either sign, infinities, NaN, and signs of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import alpenglow as ag
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.whole import graph_of

EDGES = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -7.0, 1e-40, 3e38, float("inf"), -float("inf"),
     float("nan")]
)  # fmt: skip
SUBNORMAL, LARGE = 8, 9
"""Of which PyTorch's remainders in vectors are NaN, and its incomplete gamma functions wrong."""

PAIRS = torch.cartesian_prod(EDGES, EDGES)
TAME = torch.cartesian_prod(*[EDGES[[i for i in range(13) if i not in (SUBNORMAL, LARGE)]]] * 2)
MODERATE = torch.tensor([0.5, 1.0, 2.0, 2.5, 3.0, 9.5, 40.0])
WHOLE = torch.tensor([0, 1, -1, 2, -2, 3, 7, -7, 8, 100, -128, 127])

SPECIAL = torch.special

UNARY: dict[str, Callable[[Any], Any]] = {
    f.__name__: f
    for f in (
        torch.exp, torch.exp2, torch.expm1, torch.log, torch.log1p, torch.log2, torch.log10,
        torch.sqrt, torch.rsqrt, torch.reciprocal, torch.sin, torch.cos, torch.tan, torch.asin,
        torch.acos, torch.atan, torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.acosh,
        torch.atanh, torch.erf, torch.erfc, torch.erfinv, torch.lgamma, torch.digamma,
        torch.floor, torch.ceil, torch.round, torch.trunc, torch.frac, torch.sign, torch.signbit,
        torch.abs, torch.neg, torch.isnan, torch.isinf, torch.isfinite, torch.isposinf,
        torch.sigmoid, torch.angle, torch.sinc, torch.nan_to_num, torch.frexp, torch.logit,
        SPECIAL.erfcx, SPECIAL.ndtri, SPECIAL.log_ndtr, SPECIAL.entr, SPECIAL.i0, SPECIAL.i0e,
        SPECIAL.i1, SPECIAL.i1e, SPECIAL.bessel_j0, SPECIAL.bessel_j1, SPECIAL.bessel_y0,
        SPECIAL.bessel_y1, SPECIAL.modified_bessel_k0, SPECIAL.modified_bessel_k1,
        SPECIAL.scaled_modified_bessel_k0, SPECIAL.scaled_modified_bessel_k1, SPECIAL.airy_ai,
        SPECIAL.spherical_bessel_j0,
    )
}  # fmt: skip

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
} | {
    f.__name__: f
    for f in (
        torch.add, torch.sub, torch.mul, torch.div, torch.floor_divide, torch.remainder, torch.fmod,
        torch.pow, torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.atan2, torch.hypot,
        torch.copysign, torch.nextafter, torch.logaddexp, torch.logaddexp2, torch.xlogy,
        torch.heaviside, torch.eq, torch.ne, torch.lt, torch.ge, torch.isclose, torch.igamma,
        torch.igammac, SPECIAL.xlog1py,
    )
}  # fmt: skip

OF_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
    "bitwise_and": torch.bitwise_and, "bitwise_xor": torch.bitwise_xor, "lt": torch.lt,
}  # fmt: skip

OF_DIVISORS: dict[str, Callable[[Any, Any], Any]] = {
    "floor_divide": torch.floor_divide, "remainder": torch.remainder, "fmod": torch.fmod,
    "trunc_divide": BINARY["trunc_divide"],
}  # fmt: skip


def assert_equals_eager(f: Callable[..., Any], *tensors: torch.Tensor) -> None:
    """Assert that a function is imported as what it is, interpreted and compiled."""

    def listed(*xs: Any) -> list[Any]:
        made = f(*xs)
        return [made] if isinstance(made, torch.Tensor) else list(made)

    expected = listed(*tensors)
    module: Any = listed
    for _ in range(2):  # what decompositions mutate is made functional by the second
        functional = torch.func.functionalize(module, remove="mutations_and_views")
        module = make_fx(functional, decomposition_table=fx.decompositions())(*tensors)
    graph = graph_of(fx.traced(module))
    feeds = dict(zip(graph.inputs, map(fx.array_of, tensors), strict=True))
    for target in ("interpreter", "cpu"):
        results = ag.compile(graph, target).run(feeds).values()
        for y, e in zip(results, expected, strict=True):
            made = torch.from_numpy(np.array(y))
            wide = torch.complex128 if e.is_complex() else torch.float64
            near = torch.isclose(made.to(wide), e.to(wide), rtol=2e-6, atol=1e-5, equal_nan=True)

            assert made.dtype == e.dtype
            assert bool(near.all()), f"{target}: {differing(made, e, ~near, tensors)}"


def differing(
    y: torch.Tensor, e: torch.Tensor, bad: torch.Tensor, tensors: Sequence[torch.Tensor]
) -> str:
    """Say where results differ, with what they were made of."""
    places = bad.flatten().nonzero().flatten()[:6].tolist()
    of = [t.expand_as(e).flatten() for t in tensors]
    return "; ".join(
        f"of {[t[i].item() for t in of]}: {y.flatten()[i].item()}, eager {e.flatten()[i].item()}"
        for i in places
    )


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(name: str) -> None:
    assert_equals_eager(UNARY[name], EDGES)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers(name: str) -> None:
    pairs = TAME if name in OF_DIVISORS | {"igamma": 0, "igammac": 0} else PAIRS
    assert_equals_eager(BINARY[name], pairs[:, 0].contiguous(), pairs[:, 1].contiguous())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8], ids=str)
@pytest.mark.parametrize("name", OF_INTEGERS | OF_DIVISORS)
def test_functions_of_two_integers(name: str, dtype: torch.dtype) -> None:
    numbers = WHOLE.to(dtype)
    a, b = torch.cartesian_prod(numbers, numbers).unbind(1)
    if name in OF_DIVISORS:  # dividing by 0 is an error of eager
        a, b = a[b != 0], b[b != 0]
    assert_equals_eager((OF_INTEGERS | OF_DIVISORS)[name], a.contiguous(), b.contiguous())


def test_zeta_where_it_is_a_sum() -> None:
    whole = torch.tensor([2.0, 3.0, 6.0])
    q = torch.tensor([-3.5, -0.25, 0.0, -2.0])
    assert_equals_eager(SPECIAL.zeta, *torch.cartesian_prod(MODERATE, MODERATE).unbind(1))
    assert_equals_eager(SPECIAL.zeta, *torch.cartesian_prod(whole, q).unbind(1))


@pytest.mark.parametrize("a", [3.0, 150.0, 9e4, 2e7, 3e8, 1e12])
def test_the_incomplete_gamma_function_of_many_sizes(a: float) -> None:
    near = torch.tensor([0.5, 0.99, 0.9999, 1.0, 1.00001, 1.001, 1.5], dtype=torch.float64) * a
    for f in (torch.igamma, torch.igammac):
        assert_equals_eager(f, torch.full_like(near, a), near)


@pytest.mark.parametrize("f", [torch.any, torch.all], ids=lambda f: f.__name__)
def test_any_and_all_over_no_axes_reduce_nothing(f: Callable[..., Any]) -> None:
    x = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, -0.0]])
    assert_equals_eager(lambda x: f(x, dim=()), x)
