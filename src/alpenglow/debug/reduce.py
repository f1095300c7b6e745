"""Making a failing model small: what is left is what the failure needs.

Outputs, nodes, attributes, operands, extents and values go, as long as the smaller model still
fails in the same way; that is delta debugging (Zeller and Hildebrandt, 2002) on the graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from alpenglow.compiler.validate import generate
from alpenglow.debug import peer
from alpenglow.debug.failure import Failure, Trial, examined
from alpenglow.debug.probe import Lost, Probe
from alpenglow.driver.compile import compile
from alpenglow.frontends import load
from alpenglow.frontends.onnx import cut
from alpenglow.frontends.onnx.cut import Case
from alpenglow.ir.types import NAMES, Array, TensorType

Fails = Callable[[Case], bool]
Report = Callable[[Case], None]


class Spent(Exception):
    """The time for a reduction is over."""


class Minimisation:
    """The smallest failing case so far, and the trials that try to beat it."""

    def __init__(
        self, case: Case, fails: Fails, values: Callable[[Case], Mapping[str, Array]],
        seconds: float, report: Report,
    ) -> None:  # fmt: skip
        self.best = case
        self.fails = fails
        self.values = values
        self.until = time.monotonic() + seconds
        self.report = report

    def run(self) -> Case:
        """Return the smallest case that time allows to find."""
        try:
            better = True
            while better:
                better = False
                for step in self._steps():
                    better |= step()
        except Spent:
            pass
        typed = cut.typed(self.best)
        return typed if self.fails(typed) else self.best

    def accepts(self, candidate: Case | None) -> bool:
        """Make `candidate` the best case if it is one that fails; raise Spent if time is over."""
        if time.monotonic() > self.until:
            raise Spent
        if candidate is None or not self.fails(candidate):
            return False
        self.best = candidate
        self.report(candidate)
        return True

    def _steps(self) -> Sequence[Callable[[], bool]]:
        return (self._one_output, self._early_end, self._fewer_nodes, self._fewer_attributes,
                self._smaller_extents, self._plainer_values)  # fmt: skip

    def _one_output(self) -> bool:
        names = self.best.outputs
        return len(names) > 1 and any(
            self.accepts(cut.with_outputs(self.best, [name])) for name in names
        )

    def _early_end(self) -> bool:
        """Drop nodes from the end, as many as a bisection finds."""
        low, high, better = 0, len(self.best.nodes), False
        case = self.best
        while high - low > 1:
            middle = (low + high) // 2
            written = [o for n in case.nodes[:middle] for o in n.output if o]
            read = {name for n in case.nodes[:middle] for name in cut.reads(n)}
            ends = [o for o in written if o not in read or o in case.outputs]
            if ends and self.accepts(cut.with_nodes(case, range(middle), {}, ends)):
                high, better = middle, True
            else:
                low = middle
        return better

    def _fewer_nodes(self) -> bool:
        """Cut out runs of nodes, long ones first; what they made becomes inputs."""
        better = False
        values = self.values(self.best)
        run = max(1, len(self.best.nodes) // 2)
        while True:
            begin = 0
            while begin < len(self.best.nodes):
                count = len(self.best.nodes)
                left = [i for i in range(count) if not begin <= i < begin + run]
                if left and self.accepts(cut.with_nodes(self.best, left, values)):
                    better = True
                else:
                    begin += run
            if run == 1:
                return better
            run //= 2

    def _fewer_attributes(self) -> bool:
        better = False
        for i in range(len(self.best.nodes)):
            if i >= len(self.best.nodes):
                break
            for name in [a.name for a in self.best.nodes[i].attribute]:
                better |= self.accepts(cut.without_attribute(self.best, i, name))
            for k in reversed(range(len(self.best.nodes[i].input))):
                operands = self.best.nodes[i].input if i < len(self.best.nodes) else ()
                if k < len(operands) and operands[k]:
                    better |= self.accepts(cut.without_operand(self.best, i, k))
        return better

    def _smaller_extents(self) -> bool:
        better = False
        for old in cut.extents(self.best):
            for new in dict.fromkeys((1, 2, 3, old // 4, old // 2, old - 1)):
                if 0 < new < old and any(
                    self.accepts(cut.resized(self.best, old, new, too)) for too in (False, True)
                ):
                    better = True
                    break
        return better

    def _plainer_values(self) -> bool:
        better = False
        if any(not is_random(self.best.feeds, name) for name in self.best.feeds):
            better = self.accepts(cut.fed(self.best, random_feeds(self.best.feeds)))
        for name, array in self.best.feeds.items():
            for plain in (np.zeros_like(array), np.ones_like(array)):
                done = np.array_equal(array, plain) or is_random(self.best.feeds, name)
                if not done and self.accepts(cut.fed(self.best, {name: plain})):
                    better = True
                    break
        return better


def reduce(
    case: Case, fails: Fails, values: Callable[[Case], Mapping[str, Array]], seconds: float,
    report: Report = lambda case: None,
) -> Case:  # fmt: skip
    """Return a case, as small as can be found in so many seconds, of which `fails` still holds.

    `values` returns what is known of the values inside a case; `report` sees each smaller case.
    """
    return Minimisation(case, fails, values, seconds, report).run()


def reduced(
    case: Case, trial: Trial, wanted: Failure, probe: Probe, seconds: float,
    report: Report = lambda case: None,
) -> Case:  # fmt: skip
    """Return a small case that fails as `case` does: with `wanted`, when tried as `trial` says."""

    def fails(candidate: Case) -> bool:
        model = candidate.model.SerializeToString()
        return examined(trial, model, candidate.feeds, probe) == wanted

    def values(candidate: Case) -> Mapping[str, Array]:
        model = cut.exposed(candidate).model.SerializeToString()
        answer = probe(recorded, model, dict(candidate.feeds))
        return {} if isinstance(answer, Lost) else answer

    start = cut.fixed(case)
    return reduce(start if fails(start) else case, fails, values, seconds, report)


def recorded(model: bytes, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a model, by whatever can make them: their real values, or random ones.

    That is the interpreter, ONNX Runtime, or, of random ones, the types that ONNX infers.
    """
    shapes = {name: array.shape for name, array in feeds.items()}
    outputs: Mapping[str, Any] = {}
    makers: tuple[Callable[[], Mapping[str, Any]], ...] = (
        lambda: compile(load(model, shapes), "interpreter").run(feeds),
        lambda: peer.session(model, 1).run(feeds),
    )
    for make in makers:
        # This is about models that fail, and any way to fail will do.
        try:
            with np.errstate(all="ignore"):
                outputs = make()
            break
        except Exception:
            continue
    rng = np.random.default_rng(0)
    random = {name: generate(t, rng) for name, t in cut.inferred(model).items()}
    return {**random, **{k: a for k, a in outputs.items() if cut.storable(a)}}


def random_feeds(feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays that every command feeds when it is given none."""
    rng = np.random.default_rng(0)
    return {k: generate(TensorType(NAMES[a.dtype], a.shape), rng) for k, a in feeds.items()}


def is_random(feeds: Mapping[str, Array], name: str) -> bool:
    """Whether an input is fed what `random_feeds` would feed it."""
    drawn = random_feeds(feeds)[name]
    return drawn.tobytes() == np.ascontiguousarray(feeds[name]).tobytes()
