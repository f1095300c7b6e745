"""Extents of PyTorch's programs: expressions of symbols, and what must be true of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.base.errors import FeedError, ModelError, UnsupportedError
from alpenglow.frontends.torch.symbols import conditions, extent
from alpenglow.ir.dims import bind, holds, parse

AUTO = torch.export.Dim.AUTO


class Applied(nn.Module):
    """A function as a module of one tensor."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


EXPRESSIONS: dict[str, Callable[[int], int]] = {
    "Max(4, s)": lambda s: max(4, s),
    "Min(s, 7, 2*s - 3)": lambda s: min(s, 7, 2 * s - 3),
    "Abs(s - 3)": lambda s: abs(s - 3),
    "TruncToInt(1.5*ToFloat(s))": lambda s: math.trunc(1.5 * s),
    "TruncToInt(IntTrueDiv(s - 9, 2))": lambda s: math.trunc((s - 9) / 2),
    "FloorToInt(IntTrueDiv(s - 9, 2))": lambda s: math.floor((s - 9) / 2),
    "CeilToInt(IntTrueDiv(s - 9, 4))": lambda s: math.ceil((s - 9) / 4),
    "TruncToInt(FloatTrueDiv(1.5*ToFloat(s), 7.0))": lambda s: math.trunc(1.5 * s / 7.0),
    "(s**2 - 1)//(s + 1)": lambda s: (s * s - 1) // (s + 1),
    "Mod(s - 5, 3)": lambda s: (s - 5) % 3,
    "PowByNatural(s, 3)": lambda s: s**3,
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_what_pytorch_computes(text: str) -> None:
    d = extent(text)

    assert parse(str(d)) == d
    for s in [*range(60), 1000, 99_999]:
        assert bind(d, {"s": s}) == EXPRESSIONS[text](s), s


@pytest.mark.parametrize(
    "text", ["TruncToInt(1.1*ToFloat(s))", "RoundToInt(IntTrueDiv(s, 2))", "s**t",
             "TruncToInt(2.0*IntTrueDiv(s, 3))"],
)  # fmt: skip
def test_what_would_be_rounded_otherwise_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match=r"the dimension .* is"):
        extent(text)


CONDITIONS: dict[str, Callable[[int], bool]] = {
    "s >= 3": lambda s: s >= 3,
    "Eq(Mod(s, 3), 0)": lambda s: s % 3 == 0,
    "Ne(s, 4)": lambda s: s != 4,
    "(s > 2) & (s <= 9)": lambda s: 2 < s <= 9,
    "2 < s and not s == 5": lambda s: s > 2 and s != 5,
    "max(4, s) <= 7": lambda s: max(4, s) <= 7,
    "min(4, s) >= 3": lambda s: min(4, s) >= 3,
    "3 < max(s, 2)": lambda s: max(s, 2) > 3,
    "s == 1 or s % 4 == 0": lambda s: s == 1 or s % 4 == 0,
    "(s > 7) | (s < 3)": lambda s: s > 7 or s < 3,
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_holds_where_pytorch_says_so(text: str) -> None:
    guards = conditions(text)

    assert [holds(guards, {"s": s}) for s in range(12)] == list(map(CONDITIONS[text], range(12)))


def test_conditions_that_guards_cannot_say_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="the dimension"):
        conditions("not (s > 2 and s < 7)")
    with pytest.raises(ModelError, match="never holds"):
        conditions("3 < 2")


def checked(x: torch.Tensor) -> torch.Tensor:
    torch._check(x.shape[0] % 3 == 0)
    return x.view(3, -1, x.shape[1])


def branched(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[0] > 4 else x - 1


def cut(x: torch.Tensor) -> torch.Tensor:
    return x[:, : max(x.shape[0], 4)]


@pytest.mark.parametrize(
    ("function", "example", "right", "refused"),
    [(checked, 6, (6, 9, 12), (7, 10)), (branched, 6, (5, 6, 20), (2, 4)), (cut, 3, (2, 4), (6,))],
)
def test_what_the_exporter_found_of_extents_is_demanded_of_them(
    function: Callable[[torch.Tensor], torch.Tensor],
    example: int,
    right: tuple[int, ...],
    refused: tuple[int, ...],
) -> None:
    module = Applied(function)
    shapes = ({0: AUTO},)
    exe = ag.compile(module, args=(torch.randn(example, 5),), dynamic_shapes=shapes)

    for n in right:
        x = torch.randn(n, 5)
        np.testing.assert_array_equal(exe(x.numpy()), module(x))
    for n in refused:
        with pytest.raises(FeedError, match=r"dimensions are .*, expected"):
            exe(np.zeros((n, 5), np.float32))


def last(x: torch.Tensor) -> torch.Tensor:
    return x[-4:] + 1


def padded(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.pad(x, (1, 0, 0, -x.shape[0] % 4), value=3.0)


@pytest.mark.parametrize("function", [last, padded])
def test_what_is_cut_or_padded_to_an_extent_equals_eager(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    module = Applied(function)
    exe = ag.compile(module, args=(torch.randn(6, 3),), dynamic_shapes=({0: AUTO},))

    for n in (5, 6, 8, 11):
        x = torch.randn(n, 3)
        np.testing.assert_array_equal(exe(x.numpy()), module(x))


def test_a_file_demands_the_same(tmp_path: Path) -> None:
    path = tmp_path / "checked.pt2"
    shapes = ({0: AUTO},)
    program = torch.export.export(Applied(checked), (torch.randn(6, 5),), dynamic_shapes=shapes)
    torch.export.save(program, path)

    read, traced = set(ag.load(path).guards), set(ag.load(program).guards)

    assert read <= traced  # decompositions, which a file has behind it, may ask for more
    assert any(str(x) == "(s77%3)" and relation == "==" for x, relation in read)


def test_a_length_that_is_the_larger_of_two_follows_the_extent() -> None:
    module = Applied(lambda x: torch.cat([x, torch.ones(max(10 - x.shape[0], 2), 3)]) * 2)
    exe = ag.compile(module, args=(torch.randn(4, 3),), dynamic_shapes=({0: AUTO},))

    for n in (2, 4, 9, 13):
        x = torch.randn(n, 3)
        np.testing.assert_array_equal(exe(x.numpy()), module(x))


def test_dynamic_dimensions_whose_sum_is_fixed_are_refused() -> None:
    class Stacked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.ones(9, 3, dtype=torch.bool))

        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return torch.vstack([x, y, z]).masked_fill(self.mask, 0)

    args = tuple(torch.ones(n, 3) for n in (2, 3, 4))
    program = torch.export.export(Stacked(), args, dynamic_shapes=({0: AUTO},) * 3)

    with pytest.raises(UnsupportedError, match=r"the program fixes it as f32\[9,3\]"):
        ag.load(program)
