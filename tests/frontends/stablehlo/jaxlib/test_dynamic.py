"""Programs with open extents, from StableHLO's suite, beside jaxlib, which is told the extents."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax._src import compiler, xla_bridge
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jaxlib import _jax
from tests.frontends.stablehlo.programs import FOLDER

import alpenglow as ag
from alpenglow.frontends.stablehlo.loading import load
from alpenglow.frontends.stablehlo.module import Function, Tensor, main_of
from alpenglow.frontends.stablehlo.text.text import read_text
from alpenglow.ir.types import DTYPES, Array

PROGRAMS = FOLDER / "testdata" / "dynamic"
NAMES = sorted(p.stem for p in PROGRAMS.glob("*.mlir"))
EXTENT = 4
"""What every open extent is, and every number that stands for one."""

UNFIT = frozenset(
    {
        "conv_general_dilated_1d_stride_2_even_dynamic",
        "conv_general_dilated_1d_stride_2_odd_dynamic",
        "dynamlic_slice_t2",
    }
)
"""Programs that jaxlib does not read, or that want other extents."""

SPELLED = {"bool": "i1", "c64": "complex<f32>", "c128": "complex<f64>"}

pytestmark = pytest.mark.skipif(not NAMES, reason=f"no suite in {FOLDER}")


def spelled(t: Any, open_extent: str) -> str:
    """Return a type as MLIR writes it."""
    assert isinstance(t, Tensor) and isinstance(t.dtype, str) and t.shape is not None
    dtype = SPELLED.get(t.dtype, t.dtype.replace("u", "ui", 1) if t.dtype[0] == "u" else t.dtype)
    extents = [open_extent if d is None else str(d) for d in t.shape]
    return f"tensor<{'x'.join([*extents, dtype])}>"


def told(text: str, main: Function) -> str:
    """Return a program that calls another with arguments of known extents."""
    inputs = main.signature.inputs
    outer, inner = ([spelled(t, d) for t in inputs] for d in (str(EXTENT), "?"))
    results = ", ".join(spelled(t, "?") for t in main.signature.results)
    lines = []
    for i, (a, b) in enumerate(zip(outer, inner, strict=True)):
        if a == "tensor<i64>":
            lines.append(f"%c{i} = stablehlo.constant dense<{EXTENT}> : tensor<i64>")
        else:
            lines.append(f"%c{i} = stablehlo.convert %a{i} : ({a}) -> {b}")
    count = len(main.signature.results)
    made = [f"%r#{i}" for i in range(count)] if count > 1 else ["%r"]
    names = ", ".join(f"%c{i}" for i in range(len(inputs)))
    lines.append(
        f"%r{f':{count}' if count > 1 else ''} = call @inner({names}) : "
        f"({', '.join(inner)}) -> ({results})"
    )
    lines.append(f"return {', '.join(made)} : {results}")
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(outer))
    caller = f"func.func public @main({arguments}) -> ({results}) {{\n" + "\n".join(lines) + "\n}\n"
    text = text.replace("func.func public @main", "func.func private @inner", 1)
    return text[: text.rindex("}")] + caller + "}\n"


def theirs(text: str, main: Function, args: list[Array]) -> list[Array]:
    """Return what jaxlib makes of arguments."""
    backend = xla_bridge.get_backend("cpu")
    devices = backend.local_devices()[:1]
    with mlir.make_ir_context(), jax.enable_x64(True):
        module = ir.Module.parse(told(text, main))
        content = mlir.module_to_bytecode(module)
        refined = _jax.mlir.refine_polymorphic_shapes(
            content, enable_shape_assertions=True, validate_static_shapes=True
        )
        options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
        executable = compiler.backend_compile_and_load(
            backend, ir.Module.parse(refined), _jax.DeviceList(tuple(devices)), options, []
        )
        results = executable.execute_sharded([jax.device_put(a, devices[0]) for a in args])
        return [np.asarray(y[0]) for y in results.disassemble_into_single_device_arrays()]


def arguments(main: Function) -> list[Array]:
    chance = np.random.default_rng(0)
    made: list[Array] = []
    for t in main.signature.inputs:
        assert isinstance(t, Tensor) and isinstance(t.dtype, str) and t.shape is not None
        shape, dtype = [EXTENT if d is None else d for d in t.shape], DTYPES[t.dtype]
        if t.dtype == "i64" and not shape:
            made.append(np.array(EXTENT))
        elif dtype.kind in "biu":
            most = 2 if dtype.kind == "b" else 6
            made.append(np.asarray(chance.integers(0, most, shape)).astype(dtype))
        elif dtype.kind == "c":
            made.append((chance.normal(size=shape) + 1j * chance.normal(size=shape)).astype(dtype))
        else:
            made.append(np.asarray(chance.normal(size=shape)).astype(dtype))
    return made


def both(name: str, target: str) -> tuple[list[Array], list[Array]]:
    """Return what we make of a program, and what jaxlib does."""
    text = (PROGRAMS / f"{name}.mlir").read_text()
    main = main_of(read_text(text))
    args = arguments(main)
    exe = ag.compile(load(PROGRAMS / f"{name}.mlir"), target=target)
    ours = list(exe.run(dict(zip(exe.inputs, args, strict=True))).values())
    return ours, theirs(text, main, args)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", [n for n in NAMES if n not in UNFIT])
def test_a_program_with_open_extents_makes_what_jaxlib_makes(name: str) -> None:
    for y, wanted in zip(*both(name, "interpreter"), strict=True):
        assert (y.dtype, y.shape) == (wanted.dtype, wanted.shape)
        close = 2e-2 if y.dtype.itemsize == 2 else 1e-4
        wide = np.complex128 if y.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(y.astype(wide), wanted.astype(wide), close, close)
