"""Gradients of what was traced, where a formula has none and PyTorch says which it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import alpenglow as ag
from alpenglow.autodiff import gradients

ROWS = [[0.0, 0, 0], [1, 2, -3], [0, 2, 0]]
EQUAL = [[1.0, 2, 3], [1, 2, 3], [0, 0, 1]]
FAR = [-1e3, -50.0, -30, -5, -1, 0, 0.999, 1, 5, 8, 30, 50, 1e3]
INFINITY = float("inf")
ENDS = [-INFINITY, -1e30, -3, -1, 0, 0.5, 1, 3, 1e30, INFINITY]
CORNERS = [-2.0, -1, -0.0, 0, 0.5, 1, 2, 3, 6, 7]


class Called(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def normed(p: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.linalg.vector_norm(x, p, 1)


def columns(p: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.linalg.vector_norm(x, p, 0)


def complex_logaddexp(x: torch.Tensor) -> torch.Tensor:
    a, b = torch.view_as_complex(x).unbind(1)
    return torch.view_as_real(torch.logaddexp(a, b))


CASES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Any]] = {
    **{f"norm {p}": (normed(p), ROWS) for p in (0.5, 1, 1.5, 2, 3, -1, -2)},
    **{f"norm {p}": (normed(p), ROWS[:2]) for p in (float("inf"), -float("inf"))},
    **{f"norm of columns {p}": (columns(p), ROWS) for p in (0.5, 2, 4)},
    "norm of all": (torch.linalg.norm, np.zeros((2, 2)).tolist()),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.0), ROWS),
    "normalize": (lambda x: functional.normalize(x, dim=1), ROWS),
    "pdist": (functional.pdist, EQUAL),
    "cdist": (lambda x: torch.cdist(x, x, 1.5), EQUAL),
    "euclidean cdist": (lambda x: torch.cdist(x, x), EQUAL),
    "std": (lambda x: x.std(1), [*EQUAL, [2.0, 2, 2]]),
    "log_ndtr": (torch.special.log_ndtr, FAR),
    "selu": (functional.selu, FAR),
    "celu": (lambda x: functional.celu(x, 2.0), FAR),
    "celu of alpha 1": (functional.celu, [*FAR, 1e4]),
    "elu": (lambda x: functional.elu(x, 2.0), FAR),
    "leaky_relu": (functional.leaky_relu, CORNERS),
    "hardtanh": (functional.hardtanh, CORNERS),
    "relu6": (functional.relu6, CORNERS),
    "clamp": (lambda x: x.clamp(-1, 2), CORNERS),
    "clamp_min": (lambda x: x.clamp_min(0), CORNERS),
    "clamp by tensors": (lambda x: torch.clamp(x, 0 * x, 0 * x + 1), CORNERS),
    "limits of a clamp": (lambda x: torch.clamp(torch.ones_like(x), x, x + 1), CORNERS),
    "fmax": (lambda x: torch.fmax(x, torch.ones_like(x)), CORNERS),
    "fmin": (lambda x: torch.fmin(x, torch.ones_like(x)), CORNERS),
    "logit": (lambda x: torch.logit(x, 0.25), [0.1, 0.25, 0.5, 0.75, 0.9]),
    "xlogy": (lambda x: torch.xlogy(x[0], x[1]), [[0.0, 0, 1, -1], [2.0, 3, 3, 0.5]]),
    "xlogy of a number": (lambda x: torch.xlogy(x, 2), CORNERS),
    "xlog1py": (lambda x: torch.special.xlog1py(x[0], x[1]), [[0.0, 0, 1, -1], [2.0, 0, 3, 9]]),
    "sinc": (torch.sinc, [0.0, -0.0, 0.25, 1, -1, 2.5, 1e-300]),
    "floor of a quotient": (
        lambda x: torch.div(torch.ones_like(x), x, rounding_mode="floor").clamp(-9, 9) + x,
        CORNERS,
    ),
    "softplus": (functional.softplus, [*FAR, 20.0]),
    "hardswish": (functional.hardswish, [*CORNERS, -3, INFINITY, -INFINITY]),
    "erfc": (torch.erfc, [*FAR, INFINITY, -INFINITY]),
    "angle from a line": (lambda x: torch.atan2(x, torch.ones_like(x)), ENDS),
    "angle to a line": (lambda x: torch.atan2(torch.ones_like(x), x), ENDS),
    "huber_loss": (
        lambda x: functional.huber_loss(x, torch.ones_like(x), reduction="none", delta=2.0), ENDS
    ),
    "smooth_l1_loss": (
        lambda x: functional.smooth_l1_loss(x, torch.ones_like(x), reduction="none", beta=2.0),
        ENDS,
    ),
    "logaddexp": (lambda x: torch.logaddexp(x, torch.ones_like(x)), ENDS),
    "complex logaddexp": (complex_logaddexp, [[[1e10, 0], [1, 0]], [[1e10, 0], [1e10, 0]],
                                              [[-1e10, 0], [800, 0]], [[1, 2], [-3, 1]]]),
    "steep softplus": (lambda x: functional.softplus(x, 2.0, 10.0), [*FAR, 5.0]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_at_an_edge_is_that_of_pytorch(name: str) -> None:
    function, numbers = CASES[name]
    x = torch.tensor(numbers, dtype=torch.float64)
    g = ag.load(torch.export.export(Called(function), (x,)))
    ((inside, value),), ((out, y),) = g.inputs.items(), g.outputs.items()
    g.output("slope", gradients(g, y, [value])[0])
    results = ag.compile(g, target="interpreter").run({inside: x.numpy()})
    x.requires_grad_()
    expected = function(x)
    expected.sum().backward()

    assert x.grad is not None and x.grad.isfinite().all()
    np.testing.assert_allclose(results[out], expected.detach().numpy(), 1e-12, 1e-300)
    np.testing.assert_allclose(results["slope"], x.grad.numpy(), 1e-9, 1e-15)


AT_NAN = (
    "selu", "celu", "celu of alpha 1", "elu", "leaky_relu", "hardtanh", "relu6", "clamp",
    "clamp_min", "hardswish", "softplus", "xlogy of a number",
)  # fmt: skip


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize("name", AT_NAN)
def test_a_gradient_at_nan_is_that_of_pytorch(name: str, target: str) -> None:
    function, _ = CASES[name]
    x = torch.tensor([float("nan"), 1], dtype=torch.float64)
    g = ag.load(torch.export.export(Called(function), (x,)))
    ((inside, value),), ((_, y),) = g.inputs.items(), g.outputs.items()
    g.output("slope", gradients(g, y, [value])[0])
    results = ag.compile(g, target).run({inside: x.numpy()})
    x.requires_grad_()
    function(x).sum().backward()

    assert x.grad is not None
    np.testing.assert_allclose(results["slope"], x.grad.numpy(), 1e-9, equal_nan=True)
