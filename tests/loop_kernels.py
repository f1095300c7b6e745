"""The kernels of all examples of operators that have a loop form, for vectors of any width."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np

from alpenglow.ir.graph import infer
from alpenglow.ir.op import Op
from alpenglow.ir.target import Facts
from alpenglow.ir.types import Array
from alpenglow.loops import build, has_form
from alpenglow.program.instr import Instr, whole
from kernel_cases import Case
from operator_cases import OPERATORS, Application, applications

T = TypeVar("T")
LANES = (1, 4, 16)
FORMS = [cls for cls in OPERATORS if any(has_form(a.op) for a in applications(cls))]


def loop_cases(cls: type[Op], lanes: int, limit: int | None = None) -> Iterator[Case]:
    """Yield a kernel with operands for each example of an operator, or for the first `limit`."""
    numbers = np.random.default_rng(3)
    for a in islice(applications(cls), limit):
        case = loop_case(a, lanes, numbers)
        if case is not None:
            yield case


def loop_case(a: Application, lanes: int, numbers: np.random.Generator) -> Case | None:
    """Return the kernel of an example; None if the operator has no form."""
    if not has_form(a.op):
        return None
    arrays = a.draw(numbers)
    outs = tuple(whole(f"y{i}", t) for i, t in enumerate(infer(a.op, a.types)))
    ins = tuple(None if t is None else whole(f"x{i}", t) for i, t in enumerate(a.types))
    kernel = build(a.op.name, Instr(a.op, outs, ins), Facts(lanes=lanes)).done()
    operands = {f"y{i}": np.zeros(r.type.size, r.type.numpy) for i, r in enumerate(outs)}
    operands |= {f"x{i}": np.ravel(x) for i, x in enumerate(arrays) if x is not None}
    word = np.zeros(1, np.int64)  # by which a kernel is stopped, or says what is at fault
    return Case(kernel, {b.name: operands.get(b.name, word) for b in kernel.buffers}, {})


def examples(share: float) -> int | None:
    """Return how many examples of an operator a sample of operators compiles; None: all."""
    return None if share == 1 else 2


def sampled(share: float) -> list[tuple[type[Op], int]]:
    """Return operators and widths: all of them, or a share that a seed chooses."""
    return chosen([(cls, lanes) for cls in FORMS for lanes in LANES], share)


def chosen(every: Iterable[T], share: float) -> list[T]:
    """Return a share of some things, at least one, as a seed chooses them."""
    things = list(every)
    count = max(1, round(share * len(things)))
    return things if count == len(things) else random.Random(7).sample(things, count)


def same_bits(expected: Array, actual: Array) -> bool:
    """Whether two arrays hold the same: by bits, but for those of NaN and the sign of a zero."""
    if expected.dtype.kind in "biu":
        return bool(np.array_equal(expected, actual))
    if expected.dtype.kind == "c":
        part = np.float32 if expected.dtype.itemsize == 8 else np.float64
        return same_bits(expected.view(part), actual.view(part))
    differ = expected.view(f"u{expected.itemsize}") != actual.view(f"u{actual.itemsize}")
    x, y = expected[differ].astype(np.float64), actual[differ].astype(np.float64)
    return bool(np.array_equal(x, y, equal_nan=True))
