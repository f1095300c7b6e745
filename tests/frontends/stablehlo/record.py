"""Record programs of StableHLO, each checked against jaxlib, as goldens of the converters.

    .venv/stablehlo/bin/python -m tests.frontends.stablehlo.record [--only NAMES]

They are programs of one operation, functions of JAX, and operations of JAX whose attributes are
drawn.  A program whose result differs from jaxlib's, evaluated in NumPy, is not kept but printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from tests.frontends.goldens import FOLDER, write
from tests.frontends.stablehlo.jaxlib.functions import cases
from tests.frontends.stablehlo.jaxlib.test_sweep import FAMILIES
from tests.frontends.stablehlo.one_operation import PROGRAMS
from tests.frontends.stablehlo.recorded import graph_of_text

from alpenglow.base.errors import AlpenglowError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array, TensorType

CLOSE = 1e-4
LONGEST = 2500
"""Longer texts of functions are not recorded."""

DRAWS = 16
"""So many programs are kept of each operation with drawn attributes."""

OF_MANY = {"ordered": 3, "exact": 2, "limits": 2}
"""So many of programs that do much at once."""

DEVICE = jax.devices()[0]


def wanted_of(text: str, inputs: list[Array]) -> list[Array]:
    """Return what jaxlib makes of a program."""
    module = ir.Module.parse(text, mlir.make_ir_context())
    made = DEVICE.client.compile_and_load(
        module, xla_client.DeviceList((DEVICE,)), compiler.get_compile_options(1, 1)
    )
    with jax.enable_x64(True):
        placed = [jax.device_put(x) for x in inputs]
    results = made.execute_sharded(placed).disassemble_into_single_device_arrays()
    return [np.asarray(r[0]) for r in results]


def drawn(t: TensorType, numbers: np.random.Generator) -> Array:
    """Return an array of a type: small numbers, so that most functions are defined."""
    shape = t.extents
    if t.numpy.kind == "b":
        return numbers.integers(0, 2, shape).astype(t.numpy)
    if t.numpy.kind in "iu":
        return numbers.integers(0 if t.numpy.kind == "u" else -3, 6, shape).astype(t.numpy)
    if t.numpy.kind == "c":
        parts = numbers.uniform(-1, 1, (2, *shape))
        return (parts[0] + 1j * parts[1]).astype(t.numpy)
    return np.asarray(numbers.uniform(0.05, 0.95, shape)).astype(t.numpy)


def recorded(name: str, text: str) -> tuple[str, Graph] | None:
    """Return a name and the graph of its text; None, printed, if jaxlib makes something else."""
    try:
        graph = graph_of_text(text)
    except (AlpenglowError, AssertionError) as error:
        print(f"refused {name}: {error}", flush=True)
        return None
    numbers = np.random.default_rng(3)
    inputs = [drawn(v.type, numbers) for v in graph.callers_inputs().values()]
    try:
        wanted = wanted_of(text, inputs)
    except Exception as error:
        print(f"jaxlib refuses {name}: {str(error).splitlines()[:1]}", flush=True)
        return None
    made = list(evaluate(graph, dict(zip(graph.callers_inputs(), inputs, strict=True))).values())
    for y, w in zip(made, wanted, strict=True):
        close = {"f2": 2e-3}.get(w.dtype.str[1:], 2e-2 if w.dtype.name == "bfloat16" else CLOSE)
        same = y.dtype == w.dtype and y.shape == w.shape and (
            np.array_equal(y, w) if w.dtype.kind in "biu" else
            np.allclose(y.astype(np.complex128), w.astype(np.complex128), close, close, True)
        )  # fmt: skip
        if not same:
            print(f"WRONG {name}: {y.reshape(-1)[:4]}, expected {w.reshape(-1)[:4]}", flush=True)
            return None
    return name, graph


Texts = dict[str, str]


def functions() -> Texts:
    """Return the functions of JAX that are short, as texts by name."""
    texts = {name: text_of(function, args) for name, (function, args) in sorted(cases().items())}
    return {name: text for name, text in texts.items() if len(text) <= LONGEST}


def of_drawn(number: int) -> Texts:
    """Return operations of JAX with drawn attributes, as texts by name, each once."""
    family = FAMILIES[number]
    texts = {}
    for seed in range(OF_MANY.get(family.__name__, DRAWS)):
        function, args = family(np.random.default_rng([seed, number]))
        texts.setdefault(text_of(function, args), f"{family.__name__} {seed}")
    return {name: text for text, name in texts.items()}


SOURCES: dict[str, Callable[[], Texts]] = {
    **{p.__name__: lambda p=p: dict(p()) for p in PROGRAMS},
    "functions": functions,
    **{f"drawn_{f.__name__}": partial(of_drawn, i) for i, f in enumerate(FAMILIES)},
}
"""What makes the programs of each golden."""


def text_of(function: Any, args: Any) -> str:
    """Return a function as JAX writes it."""
    return str(jax.jit(function, keep_unused=True).lower(*args).as_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", choices=SOURCES, help="only these goldens")
    asked = parser.parse_args()
    count = 0
    for name in asked.only or SOURCES:
        texts = SOURCES[name]()
        kept = [made for key, text in texts.items() if (made := recorded(key, text))]
        write("stablehlo", name, kept)
        if name not in {p.__name__ for p in PROGRAMS}:
            parts = [f"// ---- {key}\n{texts[key].rstrip()}\n" for key, _ in kept]
            (FOLDER / "stablehlo" / f"{name}.mlir").write_text("".join(parts), encoding="utf-8")
        count += len(kept)
        print(f"{name}: {len(kept)} of {len(texts)}", flush=True)
    print(f"{count} programs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
