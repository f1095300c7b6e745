"""The cases of all rules with something changed: an attribute, a number, a type, two operands.

A rule asks of what it matches whatever its author thought of.  Here its case is changed in one
place at a time; where the changed graph is well typed, the pass must neither raise anything nor
change what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from alpenglow.base.errors import AlpenglowError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES, FLOATS, TensorType
from alpenglow.machines.vector.passes.propagate_layout import propagate_layout
from alpenglow.passes.absorb import absorb
from alpenglow.passes.cse import cse
from alpenglow.passes.recover import recover
from alpenglow.passes.simplify import simplify
from alpenglow.passes.sink import sink
from pass_cases import cases, drawn

Array = NDArray[Any]
Change = Callable[[Graph], Graph | None]

PASSES: dict[str, tuple[Callable[[Graph], Graph], float]] = {
    "absorb": (absorb, 1e-4),
    "merge": (cse, 0),
    "recover": (recover, 1e-4),
    "simplify": (simplify, 0),
    "sink": (sink, 0),
    "propagate_layout": (propagate_layout, 0),
}
"""Each pass with the tolerance that it has on floats of 32 bits."""

NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 6.0, 1e-30, 1e30, 12582912.0, -12582912.0, 1e-5, 8388609.0)
"""What constants become: what rules look for, and what they should not."""

WIDER = {"f16": 200.0, "bf16": 1000.0, "f64": 1e-4, "f32": 1.0}
"""By how much the tolerance grows with a type."""


def rebuilt(
    g: Graph,
    op: Callable[[int, Node], Op] = lambda i, node: node.op,
    array: Callable[[int, Array], Array] = lambda i, a: a,
    dtype: Callable[[str], str] = lambda d: d,
    same: tuple[str, str] | None = None,
) -> Graph | None:
    """Return a graph of the same nodes with operators, constants, types of inputs changed, or with
    one input in the place of another; None if that is not well typed."""
    new, env = Graph(g.name), dict[Value, Value]()
    try:
        for name, v in g.inputs.items():
            t = TensorType(dtype(v.type.dtype), v.type.shape, v.type.layout)
            env[v] = env[g.inputs[same[0]]] if same and same[1] == name else new.input(name, t)
        for i, c in enumerate(dict.fromkeys(g.constants())):
            assert c.array is not None
            with np.errstate(all="ignore"):
                made = array(i, c.array).astype(DTYPES[dtype(c.type.dtype)])
            env[c] = new.constant(made, c.name)
        for i, node in enumerate(g.nodes):
            given = [None if v is None else env[v] for v in node.inputs]
            made_by = new.add(op(i, node), given, node.regions)
            env.update(zip(node.results, made_by.results, strict=True))
    except (AlpenglowError, ValueError, OverflowError, AssertionError):
        return None
    for name, v in g.outputs.items():
        new.output(name, env[v])
    return new


def values_near(value: Any) -> Iterator[Any]:
    """Yield other values of an attribute."""
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, value - 1, value + 3)
        case float():
            yield from (0.0, -1.0, value * 2, value + 0.001)
        case tuple():
            for i, part in enumerate(value):
                for other in values_near(part):
                    yield (*value[:i], other, *value[i + 1 :])


def other_attributes(g: Graph) -> Iterator[tuple[str, Graph | None]]:
    for at, node in enumerate(g.nodes):
        for f in fields(node.op):  # type: ignore[arg-type]  # operators are dataclasses
            for value in values_near(getattr(node.op, f.name)):
                other = replace(node.op, **{f.name: value})  # type: ignore[type-var]
                changed = rebuilt(g, op=lambda i, n, o=other, at=at: o if i == at else n.op)
                yield f"{node.op.name} {f.name}={value}", changed


def other_numbers(g: Graph) -> Iterator[tuple[str, Graph | None]]:
    for at, c in enumerate(dict.fromkeys(g.constants())):
        if c.type.dtype not in FLOATS or not c.type.size:
            continue
        for number in NUMBERS:
            whole = np.full(c.type.extents, number)
            yield (
                f"{c.name}={number}",
                rebuilt(g, array=lambda i, a, w=whole, at=at: w if i == at else a),
            )
            part = whole.copy()
            part.flat[1:] = c.array.reshape(-1)[1:]  # type: ignore[union-attr]  # a constant
            yield (
                f"{c.name}[0]={number}",
                rebuilt(g, array=lambda i, a, p=part, at=at: p if i == at else a),
            )


def opposed_numbers(g: Graph) -> Iterator[tuple[str, Graph | None]]:
    """Change all constants at once, by turns to a number, what undoes adding it, multiplying."""
    for number in (12582912.0, 1e-30, 1e30, 7e-5):
        for undone in (-number, 1 / number, number):
            both = (number, undone)
            yield (
                f"{number}, {undone}, …",
                rebuilt(
                    g, array=lambda i, a, b=both: np.full(a.shape, b[i % 2]) if _real(a) else a
                ),
            )


def _real(a: Array) -> bool:
    return a.dtype.kind == "f"


def other_types(g: Graph) -> Iterator[tuple[str, Graph | None]]:
    types = {v.type.dtype for v in (*g.inputs.values(), *g.constants())}
    for old in types:
        for new in ("f16", "bf16", "f32", "f64", "i8", "i32", "i64", "u8", "u64", "bool", "c64"):
            if new != old:
                yield (
                    f"{old} as {new}",
                    rebuilt(g, dtype=lambda d, old=old, new=new: new if d == old else d),
                )


def equal_operands(g: Graph) -> Iterator[tuple[str, Graph | None]]:
    names = list(g.inputs)
    for i, one in enumerate(names):
        for two in names[i + 1 :]:
            yield f"{one} for {two}", rebuilt(g, same=(one, two))


CHANGES = {
    "attributes": other_attributes,
    "numbers": other_numbers,
    "opposed numbers": opposed_numbers,
    "types": other_types,
    "operands": equal_operands,
}


def close(expected: Array, actual: Array, tolerance: float) -> bool:
    """Whether two results agree, relative to the largest number, wherever they are finite."""
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        return False
    if expected.dtype.kind in "iub":
        return np.array_equal(expected, actual)
    if expected.dtype.kind == "c":
        return close(expected.real, actual.real, tolerance) and close(
            expected.imag, actual.imag, tolerance
        )
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(a)
    room = tolerance * np.abs(a[finite]).max(initial=0)
    with np.errstate(invalid="ignore"):
        near = np.abs(a[finite] - b[finite]) <= room
    return np.array_equal(a[~finite], b[~finite], equal_nan=True) and bool(near.all())


def outcome(g: Graph, feeds: dict[str, Array]) -> tuple[dict[str, Array], str]:
    """Return what a graph computes, or what it says of the numbers that it is given."""
    with np.errstate(all="ignore"):
        try:
            return evaluate(g, feeds), ""
        except AlpenglowError as error:
            return {}, str(error)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", PASSES)
@pytest.mark.sampled(5)
def test_a_changed_case_means_the_same_afterwards(name: str, change: str) -> None:
    rewrite, tolerance = PASSES[name]
    wrong, tried = [], 0
    for case in cases(name):
        g = case.parsed()
        g = g.bind({n: 2 for v in g.inputs.values() for n in v.type.symbols()})
        for what, changed in CHANGES[change](g):
            if changed is None:
                continue
            tried += 1
            feeds = drawn(changed, finite=True)
            expected, refused = outcome(changed, feeds)
            actual, error = outcome(rewrite(changed), feeds)
            if refused != error:
                wrong.append(
                    f"{case.name}, {what}: {error or 'runs'}, expected {refused or 'a run'}"
                )
                continue
            for key, want in expected.items():
                room = tolerance * WIDER.get(str(changed.outputs[key].type.dtype), 1)
                if not close(want, actual[key], room):
                    wrong.append(f"{case.name}, {what}: {key}")

    assert wrong == []
    assert tried > 20 or change == "operands"
