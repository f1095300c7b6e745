"""Properties that every operator has, over all its `examples`.

The type rule says what the reference makes; text reads back; a composite is what it lowers to; and
compiled code agrees with the interpreter.  All examples of an operator are compiled together, as
one graph of unconnected nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from alpenglow.base.errors import TypeRuleError
from alpenglow.evaluate import apply, evaluate
from alpenglow.ir.graph import infer
from alpenglow.ir.op import Composite, Elementwise, Op, Primitive
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.ir.types import FLOATS
from alpenglow.machines.vector.select import compiles
from alpenglow.ops.control.loop import While
from alpenglow.passes.lower import lower
from operator_cases import (
    OPERATORS,
    UNCOMPILED,
    applications,
    assert_agree,
    assert_same,
    compiled,
    every_operator,
    feeds,
    one_node,
)


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


@pytest.mark.parametrize("cls", [c for c in Op.registry.values() if hasattr(c, "examples")])
def test_an_attribute_that_is_not_what_its_field_holds_is_refused(cls: type[Op]) -> None:
    op = next(iter(cls.examples()))[0]

    for f in fields(cls):  # type: ignore[arg-type]
        for value in ABSURD:
            with pytest.raises(TypeRuleError, match=f"{cls.name}: attribute {f.name} is "):
                replace(op, **{f.name: value})


@every_operator
@pytest.mark.sampled(145)
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
@pytest.mark.sampled(116)
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
@pytest.mark.sampled(28)
def test_a_composite_is_what_it_lowers_to(cls: type[Op]) -> None:
    random = np.random.default_rng(2)
    for a in applications(cls):
        g, lowered = one_node(a), lower(one_node(a))
        given = feeds([a], [a.draw(random)])
        with np.errstate(all="ignore"):
            expected, actual = evaluate(g, given), evaluate(lowered, given)

        assert all(isinstance(n.op, Primitive | While) for n in lowered.nodes)
        assert_same(expected, actual)


@every_operator
@pytest.mark.sampled(11)
def test_compiled_code_agrees_with_the_interpreter(cls: type[Op]) -> None:
    assert_compiled_agrees(cls, special=False)


@pytest.mark.parametrize(
    "cls",
    [c for c in OPERATORS if issubclass(c, Elementwise) and c.dtypes & FLOATS],
    ids=lambda cls: cls.name,
)
@pytest.mark.sampled(8)
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
