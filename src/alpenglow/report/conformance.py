"""Conformance of a machine: what it makes of every operator's examples and of ONNX's node tests.

For makers of machines.  Each case is compiled for a target and run.  Examples are measured against
the interpreter, node tests against what onnx says.  A case is *equal* (bit by bit), *near* (floats,
within the tolerance), *refused* (by an error that says why), or *wrong*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from alpenglow.base.errors import AlpenglowError, FeedError
from alpenglow.base.extensions import bring_extras, bring_operators
from alpenglow.compiler import Options
from alpenglow.compiler.validate import difference, generate
from alpenglow.driver.compile import Model, compile
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx.node_tests import NodeTest
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Host, Op
from alpenglow.ir.target import Target
from alpenglow.ir.types import NAMES, Array, TensorType

Verdict = Literal["equal", "near", "refused", "wrong"]

BF16 = 2**-6
"""What bf16 may differ by, relative to its size, as onnx's own comparator has it."""

STRICT = Options(numerics="strict", check=False)


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """A case of an operator on a target, and whether any of it was interpreted."""

    operator: str
    case: str
    verdict: Verdict
    detail: str = ""
    interpreted: bool = False


@dataclass(frozen=True, slots=True)
class OperatorTally:
    """The trials of one operator, counted."""

    operator: str
    equal: int
    near: int
    refused: int
    wrong: int
    interpreted: int


def tables(trials: Iterable[CaseOutcome]) -> list[OperatorTally]:
    """Return a row for each operator, in order of their names."""
    of: dict[str, list[CaseOutcome]] = {}
    for t in trials:
        of.setdefault(t.operator, []).append(t)
    return [_row(operator, of[operator]) for operator in sorted(of)]


def _row(operator: str, trials: list[CaseOutcome]) -> OperatorTally:
    def count(verdict: Verdict) -> int:
        return sum(t.verdict == verdict for t in trials)

    interpreted = sum(t.interpreted for t in trials)
    return OperatorTally(
        operator, count("equal"), count("near"), count("refused"), count("wrong"), interpreted
    )


# ── examples of operators ──


def examples(wanted: Callable[[str], bool]) -> list[tuple[str, Op, tuple[Any, ...]]]:
    """Return the examples of all operators whose names are wanted: name, operator, operands."""
    bring_operators()
    bring_extras()
    return [
        (f"{cls.name} {number}", op, tuple(operands))
        for cls in Op.registry.values()
        if not issubclass(cls, Host) and hasattr(cls, "examples") and wanted(cls.name)
        for number, (op, *operands) in enumerate(cls.examples())
    ]


def try_example(case: str, op: Op, operands: tuple[Any, ...], target: Target) -> CaseOutcome:
    """Compile and run an operator on one of its examples; the interpreter is the measure."""
    g, rng = Graph("example"), np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    inputs: list[Value | None] = []
    for i, operand in enumerate(operands):
        if operand is None:
            inputs.append(None)
            continue
        is_array = isinstance(operand, np.ndarray)
        t = (TensorType(NAMES[operand.dtype], operand.shape) if is_array
             else TensorType.parse(operand))  # fmt: skip
        feeds[f"x{i}"] = operand if is_array else generate(t, rng)
        inputs.append(g.input(f"x{i}", t))
    for i, v in enumerate(g.add(op, inputs).results):
        g.output(f"y{i}", v)
    try:
        expected = evaluate(g, feeds)
    except FeedError as error:
        return CaseOutcome(op.name, case, "refused", f"the example has no result: {error.message}")
    types = {name: v.type for name, v in g.outputs.items()}
    return _tried(op.name, case, g, feeds, target, lambda y: _compared(types, expected, y))


def _compared(
    types: Mapping[str, TensorType], expected: Mapping[str, Array], actual: Mapping[str, Any]
) -> tuple[Verdict, str]:
    verdict: Verdict = "equal"
    for name, t in types.items():
        arrays = (np.asarray(y[name]) for y in (expected, actual))
        want, got = (t.layout.specified(y) if y.shape == t.shape else y for y in arrays)
        if got.dtype == want.dtype and got.tobytes() == want.tobytes():
            continue
        problem = difference(want, got)
        if problem:
            return "wrong", f"{name}: {problem}"
        verdict = "near"
    return verdict, ""


# ── ONNX node tests ──


def try_node(test: NodeTest, target: Target) -> CaseOutcome:
    """Compile and run a node test of ONNX, which says what must come out."""

    def compare(actual: Mapping[str, Any]) -> tuple[Verdict, str]:
        verdict: Verdict = "equal"
        for name, want in test.expected.items():
            grade = _as_expected(want, actual[name], test)
            if grade == "wrong":
                return "wrong", f"{name}: another value than onnx expects"
            verdict = "near" if grade == "near" else verdict
        return verdict, ""

    return _tried(test.operator, test.name, test.model, test.feeds, target, compare)


def _as_expected(want: Any, got: Any, test: NodeTest) -> Verdict:
    if want is None or got is None:
        return "equal" if want is None and got is None else "wrong"
    if isinstance(want, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(want):
            return "wrong"
        parts = [_as_expected(w, g, test) for w, g in zip(want, got, strict=True)]
        return "wrong" if "wrong" in parts else "near" if "near" in parts else "equal"
    a, b = np.asarray(want), np.asarray(got)
    if a.shape != b.shape or (a.dtype.kind in "OUS") != (b.dtype.kind in "OUS"):
        return "wrong"
    if a.dtype.kind in "OUS":
        return "equal" if a.astype(object).tolist() == b.astype(object).tolist() else "wrong"
    if a.dtype == b.dtype and a.tobytes() == b.tobytes():
        return "equal"
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    rtol = max(test.rtol, BF16) if NAMES.get(a.dtype) == "bf16" else test.rtol
    near = bool(np.allclose(y, x, rtol, test.atol, equal_nan=True))
    return "near" if a.dtype == b.dtype and near else "wrong"


def _tried(
    operator: str,
    case: str,
    model: Model,
    feeds: Mapping[str, Any],
    target: Target,
    compare: Callable[[Mapping[str, Any]], tuple[Verdict, str]],
) -> CaseOutcome:
    """Compile, run and compare; what a machine raises that is no error of ours is wrong, too."""
    try:
        exe = compile(model, target, threads=1, options=STRICT)
        actual = exe.run(feeds)
    except AlpenglowError as error:
        return CaseOutcome(operator, case, "refused", error.message)
    except Exception as error:
        return CaseOutcome(operator, case, "wrong", f"{type(error).__name__}: {error}")
    interpreted = any(a.interpreted() for a in exe.artifacts)
    verdict, detail = compare(actual)
    return CaseOutcome(operator, case, verdict, detail, interpreted)
