"""Validation of passes: what a pass made must compute what stood there before.

The graph as imported is evaluated once on generated inputs; after every pass the new graph is
evaluated on the same inputs and must agree.  Programs are interpreted, memory and all.

A loop whose condition depends on its inputs need not end on generated ones: a graph that takes too
many iterations is not validated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Node
from alpenglow.ir.op import Control
from alpenglow.ir.types import COMPLEX, NAMES, NARROW, Array, TensorType
from alpenglow.ops.control.loop import Scan
from alpenglow.passes.table import Pass
from alpenglow.program import Program
from alpenglow.program.interpret import interpret
from alpenglow.program.text import print_ir

TOLERANCE = {"f16": 2e-2, "bf16": 1e-1, "f32": 2e-4, "f64": 1e-9}
"""Relative to the largest output: passes may reassociate."""

STEPS = 0.05
"""How far quantized outputs may be off on average, relative to the largest.  One tensor is a step
off where it was near the middle between two; through many layers few stay as they were."""


MOST_ITERATIONS = 2_000
"""How often regions may run, beside the iterations of loops of known count."""


class _EndlessError(Exception):
    """Loops took more iterations than allowed."""


class Validator:
    """Remembers what the outputs must be; a pass that changed nothing costs no evaluation."""

    def __init__(self) -> None:
        self.text = ""
        self.coarsest = 0.0
        self.feeds: dict[str, Array] = {}
        self.expected: dict[str, Array] = {}
        self.iterations = self.most = 0

    def begin(self, ir: Graph | Program) -> None:
        """Generate inputs and evaluate what the pipeline starts from."""
        rng = np.random.default_rng(0)
        if isinstance(ir, Graph):
            types = {k: v.type for k, v in ir.inputs.items()}
            within = {v.type.dtype for node in ir.nodes for v in node.results}
            self.coarsest = max((TOLERANCE.get(dtype, 0.0) for dtype in within), default=0.0)
            self.most = MOST_ITERATIONS + _known_iterations(ir.nodes)
        else:
            outer = (*ir.inputs, *ir.variables)
            types = {k: t for k in outer if (t := ir.buffers[k].type) is not None}
            self.most = MOST_ITERATIONS
        self.feeds = {k: generate(t, rng) for k, t in types.items()}
        try:
            self.expected = self.outputs(ir)
        except FeedError:  # an index is out of range
            self.expected = self._of_zeros(ir)
        except _EndlessError:
            self.expected = {}
        self.most = MOST_ITERATIONS + 2 * self.iterations
        self.text = print_ir(ir)

    def after(self, p: Pass, ir: Any) -> None:
        """Assert that `ir` computes what was expected."""
        text = print_ir(ir)
        if text == self.text or not self.expected:
            return
        self.text = text
        try:
            outputs = self.outputs(ir)
        except _EndlessError:
            raise AssertionError(f"pass {p.name} makes a loop take more iterations") from None
        for name, got in outputs.items():
            want = self.expected[name]
            problem = apart(want, got) if p.steps else difference(want, got, self.coarsest)
            assert not problem, f"pass {p.name} changes output '{name}': {problem}"
        if p.steps:
            # What follows must compute what stands there now, as exactly as ever.
            self.expected = outputs

    def _of_zeros(self, ir: Graph | Program) -> dict[str, Array]:
        """Return outputs where all integers given are 0; none if even those are out of range."""
        integers = {k: np.zeros_like(a) for k, a in self.feeds.items() if a.dtype.kind in "iu"}
        self.feeds |= integers
        try:
            return self.outputs(ir)
        except (FeedError, _EndlessError):
            return {}

    def outputs(self, ir: Graph | Program) -> dict[str, Array]:
        """Return the outputs of a graph or program on the generated inputs."""
        self.iterations = 0
        if isinstance(ir, Graph):
            return evaluate(ir, self.feeds, enter=self._enter)
        return interpret(ir, self.feeds, self._enter)

    def _enter(self) -> None:
        self.iterations += 1
        if self.iterations > self.most:
            raise _EndlessError


def _known_iterations(nodes: Iterable[Node]) -> int:
    """Return how often regions of `Scan` run, if each other region runs once."""
    total = 0
    for node in nodes:
        if node.regions and isinstance(node.op, Control):
            inner = 1 + sum(_known_iterations(r.nodes) for r in node.regions)
            count = node.op.count if isinstance(node.op, Scan) else 1
            assert isinstance(count, int), "all extents are known"
            total += inner * count
    return total


def generate(t: TensorType, rng: np.random.Generator) -> Array:
    """Return contents for an input: N(0,1) for floats and parts of complex numbers, small counts
    for integers.

    Floats that have no sign are the sizes of such numbers.
    """
    if t.dtype in COMPLEX:
        pairs = rng.standard_normal((*t.extents, 2))
        return np.asarray(pairs.view(np.complex128)[..., 0].astype(t.numpy))
    if t.dtype == "bool":
        return np.asarray(rng.random(t.extents) < 0.5)
    if t.numpy.kind in "iu":
        return rng.integers(0, 4, t.extents).astype(t.numpy)
    values = np.asarray(rng.standard_normal(t.extents))
    return (np.abs(values) if t.dtype == "f8e8m0" else values).astype(t.numpy)


def apart(want: Array, got: Array) -> str:
    """Return how far two outputs are apart if that is more than steps here and there."""
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    a, b = want.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return ""
    scale = max(float(np.max(np.abs(a[finite]))), 1e-6)
    error = float(np.sqrt(np.mean((a[finite] - b[finite]) ** 2))) / scale
    return f"{error:.1%} of the largest element on average" if error > STEPS else ""


def difference(want: Array, got: Array, coarsest: float = 0.0) -> str:
    """Return how two outputs differ, or an empty string.

    What was computed on the way in halves is no closer than these are: `coarsest`.
    """
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if want.size == 0:
        return ""
    if want.dtype.kind in "iub":
        wrong = int(np.count_nonzero(want != got))
        # Quantized values may round the other way after reassociation.
        off = np.max(np.abs(want.astype(np.int64) - got.astype(np.int64)))
        return f"{wrong} of {want.size} elements differ, by up to {off}" if off > 1 else ""
    if NAMES[want.dtype] in COMPLEX:
        want, got = (np.stack([x.real, x.imag]) for x in (want, got))
    a, b = want.astype(np.float64), got.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return "NaN in other places"
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "infinities in other places"
    scale = max(float(np.max(np.abs(a[finite]), initial=0.0)), 1e-6)
    error = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0)) / scale
    key = NAMES[want.dtype]
    if key in NARROW:  # a rounding that goes the other way is a step of up to half the element
        return f"error {error:.1e} of the largest element" if error > 0.5 else ""
    return (
        f"error {error:.1e} of the largest element" if error > max(TOLERANCE[key], coarsest) else ""
    )


def made_up(t: TensorType, rng: np.random.Generator) -> Array:
    """Return contents for an input.  What may be an index is 0 or 1: most tables have both."""
    array = generate(t, rng)
    return array % 2 if t.dtype in ("i32", "i64") else array
