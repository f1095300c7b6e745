"""Applications of every operator, by its `examples`: as graphs, with operands drawn, compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.extensions import bring_extras, bring_operators
from alpenglow.extras.linalg.factorization import Cholesky, Eig, Eigh, Svd
from alpenglow.extras.linalg.indefinite import Ldl, SolveLdl
from alpenglow.extras.linalg.reflections import Qr, Reflect, Reflected
from alpenglow.extras.linalg.solving import Lu, MatrixExp, SolveTriangular, Swaps
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Control, Host, Op
from alpenglow.ir.types import (
    COMPLEX,
    FLOATS,
    NAMES,
    NARROW,
    NARROW_FLOATS,
    PARTS,
    TensorType,
    type_of,
    width,
)
from alpenglow.machines.vector.operators.blocked import Ungroup
from alpenglow.machines.vector.operators.few_bits import PackNibbles
from alpenglow.ops.control.jump import Jump
from alpenglow.ops.elementwise.complex import ViewAsComplex, ViewAsReal
from alpenglow.ops.fused import Fused
from alpenglow.ops.random.mersenne import (
    MersenneInteger,
    MersenneNormal,
    MersennePermutation,
    MersenneUniform,
    MersenneUniformWhere,
)
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, Transpose
from alpenglow.ops.tensor.packing import PackMatrix

Array = NDArray[Any]

TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-5, "f64": 1e-12}
"""Relative to the largest element: a few roundings.  Integers and booleans are exact."""

UNCOMPILED: dict[type[Op], str] = {
    Reshape: "becomes addressing, or a copy",
    Transpose: "becomes addressing, or a copy",
    Broadcast: "becomes addressing, or a copy",
    Slice: "becomes addressing, or a copy",
    ViewAsReal: "becomes addressing, or a copy",
    ViewAsComplex: "becomes addressing, or a copy",
    Concat: "its operands are computed in place, or copied",
    PackMatrix: "applies to constants, when the graph is compiled",
    PackNibbles: "applies to constants, when the graph is compiled",
    Ungroup: "applies to constants, when the graph is compiled",
    **dict.fromkeys((Qr, Reflect, Reflected, Svd, Eigh, Eig, Cholesky), "is LAPACK's, by NumPy"),
    **dict.fromkeys((Lu, Swaps, SolveTriangular, MatrixExp), "is interpreted, in NumPy"),
    **dict.fromkeys((Ldl, SolveLdl), "is interpreted, in NumPy"),
    **dict.fromkeys((MersenneUniform, MersenneNormal), "is drawn by NumPy's generator"),
    **dict.fromkeys(
        (MersenneInteger, MersennePermutation, MersenneUniformWhere),
        "is drawn by NumPy's generator",
    ),
}
"""Primitives without a kernel, and why they need none."""

bring_operators()  # which there are must not depend on what else was imported
bring_extras()

OPERATORS = [
    cls
    for cls in Op.registry.values()
    if cls.__module__.startswith("alpenglow.")
    and cls is not Fused  # a fused node is its body
    and not issubclass(cls, Host)  # tests/ops/test_host_operators.py applies these
    and not issubclass(cls, Control)  # tests/region_cases.py and control_cases.py apply these
    and cls is not Jump  # an instruction of programs
]

every_operator = pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.name)


@dataclass(frozen=True)
class Application:
    """One example: an operator on operands of given types; some come with their contents."""

    op: Op
    types: tuple[TensorType | None, ...]
    given: tuple[Array | None, ...]

    def draw(self, random: np.random.Generator, special: bool = False) -> list[Array | None]:
        """Return contents for all operands; with `special`, NaN and infinities among them."""
        return [
            a if a is not None or t is None else drawn(random, t, special)
            for t, a in zip(self.types, self.given, strict=True)
        ]


def applications(cls: type[Op]) -> Iterator[Application]:
    for op, *operands in cls.examples():
        types = [
            type_of(x) if isinstance(x, np.ndarray) else x if x is None else TensorType.parse(x)
            for x in operands
        ]
        given = [x if isinstance(x, np.ndarray) else None for x in operands]
        yield Application(op, tuple(types), tuple(given))


def drawn(random: np.random.Generator, t: TensorType, special: bool) -> Array:
    if t.dtype == "bool":
        return np.asarray(random.random(t.extents) < 0.5)
    if t.dtype in NARROW:
        codes = random.integers(0, 1 << width(t.dtype), t.extents, dtype=np.uint8)
        return np.asarray(codes).view(t.numpy)
    if t.dtype in COMPLEX:
        parts = [drawn(random, t.with_dtype(PARTS[t.dtype]), special) for _ in range(2)]
        return np.stack(parts, axis=-1).view(t.numpy)[..., 0]
    if t.dtype not in FLOATS:
        return random.integers(0 if t.dtype[0] == "u" else -5, 6, t.extents).astype(t.numpy)
    x = np.asarray(random.normal(0, 3, t.extents))
    if special:
        kinds = random.integers(0, 8, t.extents)
        for kind, value in enumerate((np.nan, np.inf, -np.inf, 0.0)):
            x = np.where(kinds == kind, value, x)
    return x.astype(t.numpy)


def one_node(a: Application) -> Graph:
    return forest([a])


def forest(cases: list[Application]) -> Graph:
    """Return a graph of one unconnected node for each application."""
    g = Graph("examples")
    for i, a in enumerate(cases):
        operands = [None if t is None else g.input(f"x{i}_{k}", t) for k, t in enumerate(a.types)]
        for k, v in enumerate(g.add(a.op, operands).results):
            g.output(f"y{i}_{k}", v)
    return g


def feeds(cases: list[Application], contents: list[list[Array | None]]) -> dict[str, Array]:
    assert len(cases) == len(contents)
    return {
        f"x{i}_{k}": x
        for i, arrays in enumerate(contents)
        for k, x in enumerate(arrays)
        if x is not None
    }


@cache
def compiled(cls: type[Op]) -> ag.Executable:
    """Return all examples of an operator, compiled together."""
    return ag.compile(forest(list(applications(cls))), target="cpu", threads=1)


def assert_agree(what: str, expected: Array, actual: Array, t: TensorType) -> None:
    """Assert equal elements, or for floats elements within the tolerance of their type."""
    a, b = t.layout.specified(expected), t.layout.specified(actual)
    assert (b.dtype, b.shape) == (a.dtype, a.shape), what
    if t.dtype in COMPLEX:
        t = t.with_dtype(PARTS[t.dtype])
        a, b = (np.stack([x.real, x.imag]) for x in (a, b))
    if t.dtype in NARROW:
        a, b = a.astype(np.float64), b.astype(np.float64)
    if t.dtype not in FLOATS:
        nan = t.dtype in NARROW_FLOATS
        assert np.array_equal(a, b, equal_nan=nan), f"{what}: {a} and {b}"
        return
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    assert np.array_equal(a[~finite], b[~finite], equal_nan=True), f"{what}: {a} and {b}"
    scale = np.abs(a[finite]).max(initial=0) or 1.0
    error = np.abs(a[finite] - b[finite]).max(initial=0) / scale
    assert error <= TOLERANCE[t.dtype], f"{what}: {error:.1e} of the largest element"


def assert_same(expected: dict[str, Array], actual: dict[str, Array]) -> None:
    """Assert equal elements under equal names; NaN equals NaN."""
    assert list(actual) == list(expected)
    for name, array in expected.items():
        # The floats of ml_dtypes know no isnan.
        short = array.dtype.itemsize == 2 or NAMES[array.dtype] in NARROW
        wide = np.float64 if short else array.dtype
        np.testing.assert_array_equal(actual[name].astype(wide), array.astype(wide))
