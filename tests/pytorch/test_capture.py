"""Tracing modules: what torch.export takes for one is told apart."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import alpenglow as ag
from alpenglow.base.errors import ModelError
from alpenglow.frontends.torch.capture import TrainingModeWarning, capture

ONE, TEN = np.ones(3, np.float32), np.full(3, 10, np.float32)


class Nested(torch.nn.Module):  # type: ignore[misc]  # mypy sees no torch
    def forward(self, a: Any, b: Any) -> Any:
        return a[0] * 2 + b["x"]


class Sum(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, a: Any, b: Any) -> Any:
        return a * 2 + b * 4 + self.weight


@pytest.mark.parametrize("names", [("a", "b"), ()])
def test_arguments_that_were_one_tensor_are_two_inputs(names: tuple[str, ...]) -> None:
    x = torch.ones(3)
    kwargs = dict.fromkeys(names[1:], x)
    args = (x,) if names else (x, x)
    exe = ag.compile(Sum().eval(), args=args, kwargs=kwargs)

    np.testing.assert_array_equal(exe(ONE, TEN), 2 * ONE + 4 * TEN + 1)


def test_tensors_within_arguments_are_told_apart() -> None:
    x = torch.ones(3)
    exe = ag.compile(Nested(), args=([x], {"x": x}))

    np.testing.assert_array_equal(exe([ONE], {"x": TEN}), 2 * ONE + TEN)  # type: ignore[arg-type, list-item]


def test_an_argument_is_not_the_parameter_that_it_was() -> None:
    module = Sum().eval()
    exe = ag.compile(module, args=(module.weight, torch.ones(3)))

    np.testing.assert_array_equal(exe(TEN, ONE), 2 * TEN + 4 * ONE + 1)


def test_a_program_of_arguments_that_were_one_tensor_is_refused() -> None:
    x = torch.ones(3)
    program = torch.export.export(Sum().eval(), (x, x))

    with pytest.raises(ModelError, match="were one tensor") as refused:
        ag.compile(program)
    assert "x.detach().clone()" in str(refused.value)
    with pytest.raises(ModelError, match="2 inputs were 1 tensors"):
        ag.load(_saved(program))


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_of_an_argument_that_was_the_parameter_is_refused(strict: bool) -> None:
    module = Sum().eval()
    program = torch.export.export(module, (torch.ones(3), module.weight), strict=strict)

    with pytest.raises(ModelError, match="an input was 'weight' of the module"):
        ag.compile(program)
    with pytest.raises(ModelError, match="an input was a parameter, and 'weight' is read nowhere"):
        ag.load(_saved(program))


def test_files_of_arguments_that_share_memory_or_are_parameters_of_others_are_read() -> None:
    x = torch.nn.Parameter(torch.ones(4))
    for given in ((x.detach()[:3], x.detach()[1:]), (x[:3].clone(), torch.nn.Parameter(x[:3]))):
        model = _saved(torch.export.export(Sum().eval(), given))
        np.testing.assert_array_equal(ag.compile(model)(ONE, TEN), 2 * ONE + 4 * TEN + 1)


def _saved(program: Any) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def test_a_program_of_an_argument_that_was_a_buffer_is_refused() -> None:
    for persistent in (True, False):
        module = Nested()
        module.register_buffer("kept", torch.ones(3), persistent=persistent)
        program = torch.export.export(module, ([module.kept], {"x": torch.ones(3)}))
        with pytest.raises(ModelError, match="an input was 'kept' of the module"):
            ag.compile(program)


class Layers(torch.nn.Module):  # type: ignore[misc]
    """Layers that compute otherwise in training, and some that do not."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True)
        self.norm = torch.nn.BatchNorm1d(3)
        self.recurrent = torch.nn.GRU(4, 4, 2, dropout=0.1, batch_first=True)
        self.whole = torch.nn.Dropout(0.0)
        self.always = torch.nn.BatchNorm1d(3, track_running_stats=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.recurrent(self.norm(self.attention(x, x, x)[0]))[0]
        return self.always(self.whole(x))


def test_a_module_in_training_mode_is_warned_of_with_the_layers_that_differ() -> None:
    x = torch.randn(2, 3, 4)
    expected = r"Layers is .* training mode: 3 layers \(attention, norm, recurrent\) .*eval\(\)"
    with pytest.warns(TrainingModeWarning, match=expected):
        capture(Layers(), (x,), {}, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainingModeWarning)
        capture(Layers().eval(), (x,), {}, None)
        capture(torch.nn.Linear(4, 4), (x,), {}, None)
