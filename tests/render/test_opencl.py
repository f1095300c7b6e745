"""Kernels as OpenCL C: on the runtimes that are here they leave the bits the evaluator leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from alpenglow.ir.op import Op
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Compare, Const, Fma, Load
from group_kernels import exchanges, products
from kernel_cases import Case, formulas, mapped, statements
from loop_kernels import chosen, examples, loop_cases, sampled
from opencl_devices import NAMES, Runtime, check, runtime_called

pytestmark = pytest.mark.opencl


@pytest.fixture(params=NAMES)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return runtime_called(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cls" in metafunc.fixturenames:
        some = sampled(metafunc.config.getoption("--sample"))
        names = [f"{cls.name}-{lanes}" for cls, lanes in some]
        metafunc.parametrize(("cls", "lanes"), some, ids=names)


@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_operators_of_each_element_type(
    runtime: Runtime, lanes: int, pytestconfig: pytest.Config
) -> None:
    some = chosen(formulas(lanes), pytestconfig.getoption("--sample"))
    check((mapped(f, lanes) for f in some), runtime)


def test_memory_loops_and_branches(runtime: Runtime) -> None:
    check(statements(), runtime)


def test_groups_meet_at_barriers(runtime: Runtime) -> None:
    check([tiled(16, 32, 24, 8)], runtime)


def test_threads_exchange_values_through_shared_memory(runtime: Runtime) -> None:
    check(exchanges(16), runtime)


def test_fragments_are_arrays_of_threads(runtime: Runtime) -> None:
    check(products(), runtime)


def test_subgroups_exchange_values_where_there_are_some() -> None:
    """Intel's runtime reads once whether it may vectorise; if not, it has no subgroups."""
    name = runtime_called("intel").name
    script = Path(__file__).parents[1] / "opencl_subgroups.py"
    path = os.pathsep.join(filter(None, sys.path))
    variables = {**os.environ, "PYTHONPATH": path, "CL_CONFIG_CPU_VECTORIZER_MODE": "0"}
    run = subprocess.run([sys.executable, script, name], env=variables, check=False)

    assert run.returncode == 0


def test_threads_add_to_one_place(runtime: Runtime) -> None:
    check([gathered(400)], runtime)


def gathered(n: int) -> Case:
    """What all threads bring to one place, by way of one for each group of eight.

    Sums are of whole numbers, which make the same in any order.
    """
    b = Builder("gathered")
    x, y, total = b.buffer("x", "f32"), b.buffer("y", "f32", True), b.buffer("n", "i32", True)
    part = b.array("f32", 1, "shared")
    with b.loop(n // 8, "group") as g, b.loop(8, "thread") as t:
        with b.when(Compare("eq", t, Const(0))):
            b.store(part, 0, Const(0.0, "f32"))
        b.barrier()
        b.atomic("add", part, 0, Load(x, g * 8 + t))
        b.atomic("min", y, 1, Load(x, g * 8 + t))
        b.atomic("max", y, 2, Load(x, g * 8 + t))
        b.atomic("add", total, 0, Const(1, "i32"))
        b.barrier()
        with b.when(Compare("eq", t, Const(0))):
            b.atomic("add", y, 0, Load(part, Const(0)))
    numbers = np.random.default_rng(0).integers(-999, 999, n).astype(np.float32)
    operands = {"x": numbers, "y": np.zeros(3, np.float32), "n": np.zeros(1, np.int32)}
    return Case(b.done(), operands, {})


def tiled(m: int, n: int, k: int, tile: int) -> Case:
    """A product of matrices: each group loads tiles of both into memory that its threads share."""
    b = Builder("tiled")
    x, w, y = b.buffer("a", "f32"), b.buffer("b", "f32"), b.buffer("c", "f32", True)
    rows, columns = (b.array("f32", tile * tile, "shared") for _ in range(2))
    with (
        b.loop(m // tile, "group") as gy,
        b.loop(n // tile, "group") as gx,
        b.loop(tile, "thread") as ty,
        b.loop(tile, "thread") as tx,
    ):
        total = b.var(Const(0.0, "f32"))
        with b.loop(k // tile) as step:
            b.store(rows, ty * tile + tx, Load(x, (gy * tile + ty) * k + step * tile + tx))
            b.store(columns, ty * tile + tx, Load(w, (step * tile + ty) * n + gx * tile + tx))
            b.barrier()
            with b.loop(tile, "unrolled") as p:
                pair = Load(rows, ty * tile + p), Load(columns, p * tile + tx)
                b.set(total, Fma(*pair, total))
            b.barrier()
        b.store(y, (gy * tile + ty) * n + gx * tile + tx, total)
    numbers = np.random.default_rng(0).standard_normal
    operands = {"a": numbers(m * k), "b": numbers(k * n), "c": np.zeros(m * n)}
    return Case(b.done(), {name: v.astype(np.float32) for name, v in operands.items()}, {})


def test_loop_forms(
    cls: type[Op], lanes: int, runtime: Runtime, pytestconfig: pytest.Config
) -> None:
    count = examples(pytestconfig.getoption("--sample"))
    check(loop_cases(cls, lanes, count), runtime)
