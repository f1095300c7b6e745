"""Positions that tensors hold: mixtures of them, open extents, masks, and what is out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.base.errors import FeedError, UnsupportedError


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *xs: torch.Tensor) -> Any:
        return self.f(*xs)


def check(f: Callable[..., Any], *xs: torch.Tensor, target: str = "cpu") -> None:
    """Assert that what is exported of a function makes what the function makes."""
    expected = f(*(x.clone() for x in xs))
    exe = ag.compile(torch.export.export(Calls(f), xs), target)
    actual = exe(*(x.numpy() for x in xs))

    assert actual.dtype == expected.numpy().dtype
    np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-6)


def put(x: torch.Tensor, index: Any, values: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[index] = values
    return y


def places(*shape: int, below: int) -> torch.Tensor:
    return torch.randint(-below, below, shape)


X = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)

READS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "first axis": (lambda x, i: x[i], (X, places(3, 2, below=2))),
    "last axis": (lambda x, i: x[..., i], (X, places(7, below=5))),
    "neighbours": (lambda x, i, j: x[:, i, j], (X, places(6, below=3), places(2, 1, below=4))),
    "apart": (lambda x, i, j: x[i, :, j], (X, places(6, below=2), places(6, below=4))),
    "new axes": (lambda x, i, j: x[None, i, 1:, None, j],
                 (X, places(3, below=2), places(1, below=4))),
    "all": (lambda x, i, j: x[i, j, i, j], (X, places(2, 2, below=2), places(2, below=3))),
    "none": (lambda x, i: x[i], (X, places(0, below=2))),
    "known mask": (lambda x: x[:, torch.tensor([True, False, True])], (X,)),
    "single": (lambda x, i: x[i], (X, torch.tensor(-1))),
}  # fmt: skip

WRITES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "axis": (lambda x, i, v: x.index_put((i,), v), (X, torch.tensor([1, 0]), X + 1)),
    "added": (lambda x, i: x.index_put((i, i), torch.ones(5), accumulate=True),
              (X, torch.tensor([[0, 1], [1, -1], [0, 0]]))),
    "apart": (lambda x, i: put(x, (i, slice(None), i), torch.arange(5.0)),
              (X, torch.tensor([1, 0]))),
    "one mask": (lambda x: torch.where(x > 9, x, 0).masked_fill(x > 50, 7), (X,)),
    "mask put": (lambda x: x.index_put((x > 7,), torch.tensor(2.0)), (X,)),
    "mask of rows": (lambda x, m: put(x, (slice(None), m), torch.arange(5.0)),
                     (X, torch.tensor([True, False, True]))),
    "mask added": (lambda x: x.index_put((x > 7,), torch.tensor(2.0), accumulate=True), (X,)),
    "masked scatter": (lambda x: x.masked_scatter(x % 3 == 0, -x), (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_elements_are_read_where_an_index_points(name: str) -> None:
    f, xs = READS[name]

    check(f, *xs)


@pytest.mark.parametrize("name", WRITES)
def test_elements_are_put_where_an_index_points(name: str) -> None:
    f, xs = WRITES[name]

    check(f, *xs)


OPEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "roll": lambda x: x.roll((2, -1), (0, 1)), "roll flat": lambda x: x.roll(3),
    "tril": lambda x: x.tril(), "triu": lambda x: x.triu(1), "flip": lambda x: x.flip(0),
    "diagonal": lambda x: x.diagonal(), "diag embed": lambda x: x.diag_embed(),
    "all but the last": lambda x: x[:-1], "last": lambda x: x[-2:], "steps": lambda x: x[::2],
    "slice put": lambda x: x.slice_scatter(x[1:] * 2, 0, 1),
    "row put": lambda x: x.select_scatter(torch.ones(4), 0, -1),
    "sort": lambda x: x.sort(0, descending=True)[1], "topk": lambda x: x.topk(2, 0)[0],
    "kth": lambda x: x.kthvalue(2, 0)[0], "windows": lambda x: x.unfold(0, 2, 1),
    "gather": lambda x: x.gather(1, (x > 0).long()),
    "scatter": lambda x: torch.zeros_like(x).scatter(1, (x > 0).long(), x),
    "scatter add": lambda x: x.scatter_add(0, torch.zeros_like(x, dtype=torch.int64), x),
    "scatter reduce": lambda x: x.scatter_reduce(1, (x > 0).long(), x * 2, "amax"),
    "masked scatter": lambda x: x.masked_scatter(x > 0, x * 2),
    "mask put": lambda x: x.index_put((x > 0,), torch.tensor(1.0)),
    "rows": lambda x: x[(x[:, 0] > 0).long()],
    "pairs": lambda x: x[torch.arange(x.shape[0])[:, None], torch.tensor([[0, 2]])],
    "repeated": lambda x: x.repeat_interleave(2, 0), "turned": lambda x: x.rot90(),
    "searched": lambda x: torch.searchsorted(torch.tensor([0.0, 0.5, 1.0]), x),
    "rows added": lambda x: x.index_add(0, torch.tensor([0, 1]), x[:2]),
    "taken": lambda x: x.take(torch.tensor([0, 3])),
    "spectrum": lambda x: torch.fft.rfft(x).abs(), "exact": lambda x: torch.linalg.svdvals(x),
    "factor": lambda x: torch.linalg.lu(x)[2],
    "root": lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(x.shape[0])),
}  # fmt: skip


def test_open_extents_are_indexed() -> None:
    def f(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: g(x) for name, g in OPEN.items()}

    rows = torch.export.Dim("rows", min=3, max=64)
    program = torch.export.export(Calls(f), (torch.randn(6, 4),),
                                  dynamic_shapes={"xs": ({0: rows},)})  # fmt: skip
    exe = ag.compile(program)

    for n in (3, 7, 40):
        x = torch.randn(n, 4)
        actual = exe(x.numpy())
        for name, expected in f(x).items():
            np.testing.assert_allclose(actual[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("f", [
    lambda x, i: x[i], lambda x, i: x[:, i, i], lambda x, i: x.index_put((i,), x[0]),
    lambda x, i: x.take(i * 100), lambda x, i: x.index_select(0, i),
    lambda x, i: x[:, 0, 0].scatter(0, i[:, None].expand(-1, 5), 1.0),
    lambda x, i: x[:, 0, 0].gather(0, i[:, None]), lambda x, i: x.index_add(0, i, x[i]),
])  # fmt: skip
def test_an_index_out_of_range_ends_the_call(f: Callable[..., Any]) -> None:
    exe = ag.compile(torch.export.export(Calls(f), (X, torch.tensor([1, 0]))))

    for place in (5, -6):
        with pytest.raises(FeedError, match="an index on axis"):
            exe(X.numpy(), np.array([0, place]))


def test_more_elements_than_a_mask_has_end_the_call() -> None:
    exe = ag.compile(torch.export.export(Calls(lambda x, m, y: x.masked_scatter(m, y)),
                                         (X[0, 0], X[0, 0] > 1e9, torch.ones(3))))  # fmt: skip

    with pytest.raises(FeedError, match="an element of the source"):
        exe(X[0, 0].numpy(), np.ones((4, 5), bool), np.ones(3, np.float32))


def test_repetitions_are_as_many_as_data_say() -> None:
    def f(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return x.repeat_interleave(counts, 0) * 2

    exe = ag.compile(torch.export.export(Calls(f), (X[0], torch.tensor([1, 0, 2]))))

    for counts in ([1, 0, 2], [0, 0, 0], [3, 1, 4]):
        expected = f(X[0], torch.tensor(counts))
        np.testing.assert_array_equal(exe(X[0].numpy(), np.array(counts)), expected)


def test_a_view_of_memory_that_lies_otherwise_is_refused() -> None:
    program = torch.export.export(Calls(lambda x: x.as_strided((2,), (1,))), (X[0, 0].t(),))

    with pytest.raises(UnsupportedError, match="not contiguous"):
        ag.load(program)
