"""Operands of different element types are computed in the type that PyTorch promotes them to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.promote import shared
from alpenglow.frontends.torch.whole import graph_of
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import TensorType

REALS = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip
EVERY = (*REALS, torch.complex64, torch.complex128)
NUMBERS = (True, 3, 2.5)
SHAPES = ((3,), ())

Tensors = Sequence[torch.Tensor]


def name(dtype: torch.dtype) -> str:
    return fx.DTYPES[str(dtype).removeprefix("torch.")]


def value(g: Graph, tensor: torch.Tensor) -> Value:
    return g.input(f"x{len(g.inputs)}", TensorType(name(tensor.dtype), tuple(tensor.shape)))


def sample(dtype: torch.dtype, shape: tuple[int, ...], start: int) -> torch.Tensor:
    numbers = torch.tensor([start, start + 1, 2], dtype=torch.float32).to(dtype)
    return numbers if shape else numbers[0]


@pytest.mark.parametrize("a", EVERY, ids=str)
def test_two_tensors_share_what_pytorch_says(a: torch.dtype) -> None:
    for b, shape, other in itertools.product(EVERY, SHAPES, SHAPES):
        x, y = torch.ones(shape, dtype=a), torch.ones(other, dtype=b)

        assert_shared(torch.result_type(x, y), x, y)


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_a_tensor_and_a_number_share_what_pytorch_says(dtype: torch.dtype) -> None:
    for number, shape in itertools.product((*NUMBERS, 1j), SHAPES):
        x = torch.ones(shape, dtype=dtype)

        assert_shared(torch.result_type(x, number), x, number)


def assert_shared(expected: torch.dtype, *operands: Any) -> None:
    """Assert which type operands share; complex numbers of halves are refused."""
    g = Graph("operands")
    ours = [value(g, x) if isinstance(x, torch.Tensor) else x for x in operands]
    if expected == torch.complex32:
        with pytest.raises(UnsupportedError, match="expected complex64"):
            shared(ours)
    else:
        assert name(expected) == shared(ours), f"{operands}"


def arithmetic(a: Any, b: Any) -> list[torch.Tensor]:
    """Apply operators that each promote in a way of their own."""
    condition = torch.tensor([True, False, True])
    return [
        torch.add(a, b), torch.mul(a, b), torch.div(a, b), torch.eq(a, b), torch.lt(a, b),
        torch.where(condition, a, b), torch.maximum(a, torch.as_tensor(b)),
        torch.div(a, b, rounding_mode="floor"), torch.remainder(a, b), torch.pow(a, b),
    ]  # fmt: skip


def both_ways(f: Callable[..., list[torch.Tensor]], tensors: Tensors) -> None:
    """Assert that a function makes what it makes of tensors when it is imported and interpreted."""
    expected = f(*tensors)
    graph = graph_of(fx.traced(make_fx(f)(*tensors)))
    feeds = dict(zip(graph.inputs, map(fx.array_of, tensors), strict=True))
    actual = ag.compile(graph, "interpreter").run(feeds).values()
    for i, (y, e) in enumerate(zip(actual, expected, strict=True)):
        reference = fx.array_of(e)

        assert y.dtype == reference.dtype, f"result {i}: {y.dtype}, expected {reference.dtype}"
        wide = [v.astype(np.float64) for v in (y, reference)]
        np.testing.assert_allclose(*wide, rtol=1e-2 if "16" in str(e.dtype) else 1e-6)


@pytest.mark.parametrize("a", REALS, ids=str)
@pytest.mark.parametrize("b", REALS, ids=str)
def test_operators_on_two_tensors_equal_eager(a: torch.dtype, b: torch.dtype) -> None:
    for shape, other in (((3,), (3,)), ((3,), ())):
        x, y = sample(a, shape, 5), sample(b, other, 2)
        both_ways(truths if torch.result_type(x, y) == torch.bool else arithmetic, (x, y))


def truths(a: Any, b: Any) -> list[torch.Tensor]:
    """Apply those operators that truths have."""
    return [torch.add(a, b), torch.mul(a, b), torch.div(a, b), torch.eq(a, b), torch.lt(a, b)]


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("number", NUMBERS)
def test_operators_on_a_tensor_and_a_number_equal_eager(dtype: torch.dtype, number: Any) -> None:
    for shape in SHAPES:
        x = sample(dtype, shape, 5)
        plain = torch.result_type(x, number) == torch.bool
        operators = truths if plain else arithmetic
        both_ways(partial(with_number, operators, number), (x,))


def with_number(
    operators: Callable[..., list[torch.Tensor]], number: Any, a: torch.Tensor
) -> list[torch.Tensor]:
    return operators(a, number)
