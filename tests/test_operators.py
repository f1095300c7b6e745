"""Properties that every operator has, over all its `examples`.

The type rule says what the reference makes; text reads back; a composite is what it lowers to; and
compiled code agrees with the interpreter.  All examples of an operator are compiled together, as
one graph of unconnected nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.backends.cpu.select import compiles
from alpenglow.base.errors import TypeRuleError
from alpenglow.evaluate import apply, evaluate
from alpenglow.ir.graph import Graph, infer
from alpenglow.ir.op import Composite, Elementwise, Host, Op, Primitive
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.ir.types import (
    COMPLEX,
    FLOATS,
    NAMES,
    NARROW,
    NARROW_FLOATS,
    TensorType,
    type_of,
    width,
)
from alpenglow.ops.blocked import PackConv, PackMatrix, Ungroup
from alpenglow.ops.few_bits import PackNibbles
from alpenglow.ops.fused import Fused
from alpenglow.ops.movement import Broadcast, Concat, Reshape, Slice, Transpose
from alpenglow.ops.winograd import WinogradFilter
from alpenglow.passes.lower import lower

Array = NDArray[Any]

TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-5, "f64": 1e-12}
"""Relative to the largest element: a few roundings.  Integers and booleans are exact."""

UNCOMPILED: dict[type[Op], str] = {
    Reshape: "becomes addressing, or a copy",
    Transpose: "becomes addressing, or a copy",
    Broadcast: "becomes addressing, or a copy",
    Slice: "becomes addressing, or a copy",
    Concat: "its operands are computed in place, or copied",
    PackConv: "applies to constants, when the graph is compiled",
    PackMatrix: "applies to constants, when the graph is compiled",
    PackNibbles: "applies to constants, when the graph is compiled",
    Ungroup: "applies to constants, when the graph is compiled",
    WinogradFilter: "applies to constants, when the graph is compiled",
}
"""Primitives without a kernel, and why they need none."""

OPERATORS = [
    cls
    for cls in Op.registry.values()
    if cls.__module__.startswith("alpenglow.")
    and cls is not Fused  # a fused node is its body
    and not issubclass(cls, Host)  # tests/test_host_operators.py applies these
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
    if t.dtype not in FLOATS | COMPLEX:
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


def logical(array: Array, t: TensorType) -> Array:
    """Return the specified elements: of a blocked tensor, without its padding lanes."""
    if t.blocked is None:
        return array
    assert isinstance(t.blocked, int)
    blocks, lanes = array.shape[1], array.shape[-1]
    flat = np.moveaxis(array, -1, 2)
    return flat.reshape(flat.shape[0], blocks * lanes, *flat.shape[3:])[:, : t.blocked]


def assert_agree(what: str, expected: Array, actual: Array, t: TensorType) -> None:
    """Assert equal elements, or for floats elements within the tolerance of their type."""
    a, b = logical(expected, t), logical(actual, t)
    assert (b.dtype, b.shape) == (a.dtype, a.shape), what
    if t.dtype in NARROW:
        a, b = a.astype(np.float64), b.astype(np.float64)
    if t.dtype not in FLOATS:
        nan = t.dtype in NARROW_FLOATS | COMPLEX
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


@every_operator
def test_there_are_examples(cls: type[Op]) -> None:
    assert list(applications(cls))


@every_operator
def test_examples_vary_every_attribute(cls: type[Op]) -> None:
    """What a form or template leaves out of account shows in one of them."""
    ops = [a.op for a in applications(cls)]
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]  # they are dataclasses
    constant = [name for name in names if len({repr(getattr(op, name)) for op in ops}) < 2]

    assert constant == []


ABSURD = (np.zeros(2, np.float32), [1, 2], {}, b"x", (object(),), np.int64(1), 1j, 10**30)


@pytest.mark.parametrize("cls", [c for c in Op.registry.values() if c is not Fused])
def test_an_attribute_that_is_not_what_its_field_holds_is_refused(cls: type[Op]) -> None:
    op = next(iter(cls.examples()))[0]

    for f in fields(cls):  # type: ignore[arg-type]
        for value in ABSURD:
            with pytest.raises(TypeRuleError, match=f"{cls.name}: attribute {f.name} is "):
                replace(op, **{f.name: value})


@every_operator
def test_absurd_attributes_break_the_type_rule_or_do_not_matter(cls: type[Op]) -> None:
    for a in islice(applications(cls), 6):
        for f in fields(cls):  # type: ignore[arg-type]
            for value in absurd_like(getattr(a.op, f.name)):
                with contextlib.suppress(TypeRuleError):
                    infer(replace(a.op, **{f.name: value}), a.types)


def absurd_like(value: Any) -> Iterator[Any]:
    """Yield values of the type of an attribute that no model has."""
    numbers = (0, -1, 1, 3, 7, 2**31, 2**62, -(2**63))
    if type(value) is int:
        yield from numbers
    elif isinstance(value, float):
        yield from (*map(float, numbers), np.nan, np.inf)
    elif isinstance(value, str):
        yield from ("zzz", "")
    elif isinstance(value, tuple) and value and all(type(x) is int for x in value):
        yield from ((*value[:i], n, *value[i + 1 :]) for i in range(len(value)) for n in numbers)
        yield from (value[:-1], (*value, 1), ())


@every_operator
def test_the_type_rule_says_what_the_reference_makes(cls: type[Op]) -> None:
    random = np.random.default_rng(0)
    for a in applications(cls):
        with np.errstate(all="ignore"):
            made = apply(a.op, a.draw(random))

        expected = [(t.extents, t.numpy) for t in infer(a.op, a.types)]
        actual = [(array.shape, array.dtype) for array in made]

        assert expected == actual, f"{a.op} on {a.types}"


@every_operator
def test_text_reads_back_as_the_same_node(cls: type[Op]) -> None:
    random = np.random.default_rng(1)
    for a in applications(cls):
        g = one_node(a)
        text = print_graph(g)
        again = parse_graph(text)
        given = feeds([a], [a.draw(random)])
        with np.errstate(all="ignore"):
            expected, actual = evaluate(g, given), evaluate(again, given)

        assert text == print_graph(again)
        assert_same(expected, actual)


@pytest.mark.parametrize(
    "cls", [c for c in OPERATORS if issubclass(c, Composite)], ids=lambda cls: cls.name
)
def test_a_composite_is_what_it_lowers_to(cls: type[Op]) -> None:
    random = np.random.default_rng(2)
    for a in applications(cls):
        g, lowered = one_node(a), lower(one_node(a))
        given = feeds([a], [a.draw(random)])
        with np.errstate(all="ignore"):
            expected, actual = evaluate(g, given), evaluate(lowered, given)

        assert all(isinstance(n.op, Primitive) for n in lowered.nodes)
        assert_same(expected, actual)


@every_operator
def test_compiled_code_agrees_with_the_interpreter(cls: type[Op]) -> None:
    assert_compiled_agrees(cls, special=False)


@pytest.mark.parametrize(
    "cls",
    [c for c in OPERATORS if issubclass(c, Elementwise) and c.dtypes & FLOATS],
    ids=lambda cls: cls.name,
)
def test_nan_and_infinities_reach_where_the_interpreter_puts_them(cls: type[Op]) -> None:
    assert_compiled_agrees(cls, special=True)


def assert_compiled_agrees(cls: type[Op], special: bool) -> None:
    cases = list(applications(cls))
    random = np.random.default_rng(3)
    contents = [a.draw(random, special) for a in cases]
    actual = compiled(cls).run(feeds(cases, contents))
    for i, (a, arrays) in enumerate(zip(cases, contents, strict=True)):
        types = infer(a.op, a.types)
        if special and not {t.dtype for t in types} <= FLOATS | {"bool"}:
            continue  # what integer NaN becomes is up to the machine
        with np.errstate(all="ignore"):
            made = apply(a.op, arrays)
        for k, (expected, t) in enumerate(zip(made, types, strict=True)):
            assert_agree(f"{a.op} on {a.types}", expected, actual[f"y{i}_{k}"], t)


def test_every_primitive_compiles_or_the_table_says_why_not() -> None:
    primitives = [c for c in OPERATORS if issubclass(c, Primitive)]
    expected = set(UNCOMPILED)
    actual = {c for c in primitives if not compiles(next(applications(c)).op)}

    assert expected == actual
