"""Kernels legalised for C11 and compiled by gcc: they leave the bits that the evaluator leaves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from alpenglow.ir.op import Op
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.legalise import INSTRUCTIONS, Lacks, legalise
from alpenglow.render.c.render import Unit, render
from c_library import call, shared_library
from kernel_cases import Case, formulas, mapped, statements
from loop_kernels import chosen, examples, loop_cases, same_bits, sampled

pytestmark = pytest.mark.opencl

SCALARS = Lacks(
    lanes=1,
    masks=True,
    halves=frozenset({"f16", "bf16"}),
    logic=True,
    lookups=True,
    instructions=INSTRUCTIONS,
)
"""What the scalars of C11 lack."""

VECTORS = Lacks()
"""What is lacking of C with vectors, beside what its renderer knows by itself."""

MODES = pytest.mark.parametrize("lacks", [SCALARS, VECTORS], ids=["scalars", "vectors"])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cls" in metafunc.fixturenames:
        some = sampled(metafunc.config.getoption("--sample"))
        names = [f"{cls.name}-{lanes}" for cls, lanes in some]
        metafunc.parametrize(("cls", "lanes"), some, ids=names)


def check(cases: Iterable[Case], lacks: Lacks, folder: Path) -> None:
    """Assert that each kernel leaves the bits that the evaluator leaves."""
    unit = Unit(portable=lacks is SCALARS, fast=False)
    named = [c._replace(kernel=replace(c.kernel, name=f"k{i}")) for i, c in enumerate(cases)]
    for case in named:
        unit.add(legalise(case.kernel, lacks), exported=True)
    library = shared_library(unit.text(), folder)
    for kernel, operands, extents in named:
        expected = {name: a.copy() for name, a in operands.items()}
        actual = {name: a.copy() for name, a in operands.items()}
        loop = kernel.parallel
        part = None if loop is None else (0, loop.extent.value)
        evaluate(kernel, expected, extents, part)
        call(library, kernel, actual, extents, part)
        for name, a in expected.items():
            assert same_bits(a, actual[name]), (
                f"{name}: {a} and {actual[name]}\n{render(legalise(kernel, lacks))}"
            )


@MODES
@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_operators_of_each_element_type(
    lacks: Lacks, lanes: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    some = chosen(formulas(lanes), pytestconfig.getoption("--sample"))
    check((mapped(f, lanes) for f in some), lacks, tmp_path)


@MODES
def test_memory_loops_and_branches(lacks: Lacks, tmp_path: Path) -> None:
    check(statements(), lacks, tmp_path)


@MODES
def test_loop_forms(
    cls: type[Op], lanes: int, lacks: Lacks, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    count = examples(pytestconfig.getoption("--sample"))
    check(loop_cases(cls, lanes, count), lacks, tmp_path)
