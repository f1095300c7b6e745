"""Products of bytes four at once: the same sums, on a grid whose device has an instruction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import test_conv
import test_matmul

from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array
from alpenglow.kernel.expr import Intrinsic
from alpenglow.kernel.rewrite import expressions
from alpenglow.kernel.stmt import Kernel
from alpenglow.ops.product.contraction import MatMul
from grid_programs import DOTS, run
from grid_runs import assert_alike

PAIRS = [("u8", "i8"), ("i8", "u8"), ("i8", "i8")]
DRAWN = {"tile": test_matmul.drawn, "conv": test_conv.drawn}


def drawn_bytes(
    family: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Callable[[], Graph], dict[str, Array]]:
    """Return what builds a product of bytes of a family, and any bytes for it."""
    for module in (test_matmul, test_conv):
        monkeypatch.setattr(module, "DTYPES", PAIRS)
    build, _ = DRAWN[family](seed)
    return build, {name: any_numbers(seed, v.type.numpy, v.type.extents)
                   for name, v in build().inputs.items()}  # fmt: skip


def any_numbers(seed: int, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    limits = np.iinfo(dtype)
    numbers = np.random.default_rng(seed)
    ends = numbers.choice([limits.min, limits.max], shape)
    inner = numbers.integers(limits.min, limits.max, shape, endpoint=True)
    return np.where(numbers.random(shape) < 0.3, ends, inner).astype(dtype)


def instructions(kernel: Kernel) -> set[str]:
    return {e.name for e in expressions(kernel) if isinstance(e, Intrinsic)}


@pytest.mark.parametrize("family", DRAWN)
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sampled(3)
def test_products_of_any_bytes(family: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    build, feeds = drawn_bytes(family, seed, monkeypatch)
    ran = run(build, feeds, DOTS)

    assert [len(instructions(c.kernel)) for c in ran.cases] == [1]
    assert_alike(ran, exact=True)


def test_bytes_without_signs_are_multiplied_one_by_one() -> None:
    def build() -> Graph:
        g = Graph("product")
        g.output("z", g(MatMul(), g.input("x", "u8[9,21]"), g.input("y", "u8[21,12]")))
        return g

    ran = run(build, {"x": any_numbers(0, np.dtype("u1"), (9, 21)),
                      "y": any_numbers(1, np.dtype("u1"), (21, 12))}, DOTS)  # fmt: skip

    assert [instructions(c.kernel) for c in ran.cases] == [set()]
    assert_alike(ran, exact=True)
