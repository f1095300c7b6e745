"""Loop forms of connectionist temporal classification: a sequence in a thread, states in vectors.

Rows of states begin one place before the first label and end one after the last blank, so that a
vector of neighbours reads those before and those after it without looking where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import accumulators, along, combined, unless_masked, width
from alpenglow.ops.sequence.ctc import NONE, Ctc, CtcGradient, shares, summed


@dataclass(frozen=True)
class Sequence:
    """One sequence: where its labels stand, of which there are `places`, and its lengths."""

    k: Loops
    number: Coord
    labels: Source
    classes: int
    inputs: Coord
    count: Coord

    @property
    def places(self) -> int:
        return self.labels.shape[1]

    def label(self, u: Coord) -> Expr:
        """Return the label after a blank, any after the last."""
        if self.places == 0:
            return self.k.constant(0, "i64")
        at = self.k.limited(u.expr(), self.places)
        return self.k.limited(self.labels([self.number, at]), self.classes).expr()

    def repeats(self, u: Coord) -> Expr:
        """Return whether the label after a blank is that before it."""
        return self.k.m.eq(self.label(u), self.label(u - 1))

    def each_state(self, body: Callable[[Coord], None]) -> None:
        """Run `body` for all blanks, in vectors."""
        extent = self.places + 1
        along(self.k, [extent], width(self.k, extent), lambda c, slot: body(c[0]))


@push(Ctc)
def ctc(k: Loops, op: Ctc, ins: list[Source | None], outs: list[Sink]) -> None:
    log_probs, labels, input_lengths, label_lengths = ins
    assert log_probs is not None and labels is not None
    assert input_lengths is not None and label_lengths is not None
    loss, alphas = outs
    scores, dtype = log_probs, log_probs.type.dtype
    steps, batch, classes = log_probs.shape
    none = k.constant(NONE, dtype)
    with k.parallel([batch]) as (n,):
        one = _sequence(k, n, labels, input_lengths, label_lengths, steps, classes)
        row = [alphas.shape[2], alphas.shape[3]]
        with k.loop(steps + 1) as t:
            along(k, row, width(k, row[1]), lambda at, slot: alphas.store([n, t, *at], none))
        alphas.store([n, 0, 0, 0], k.constant(0, dtype))
        total, shift = (k.b.var(k.constant(0, dtype)) for _ in range(2))
        lanes = width(k, one.places + 1)
        with k.b.loop(one.inputs.expr()) as step:
            t = coord(step)
            (peak,) = accumulators(k, NONE, dtype, lanes, 1)
            blank_score = k.b.let(k.m.sub(scores([t, n, op.blank]), shift))

            def state(u: Coord) -> None:
                blank, before = (alphas.load([n, t, i, u]) for i in range(2))
                label = alphas.load([n, t, 1, u + 1])
                blanks, own = op.step(k.m, blank, label, before, one.repeats(u))
                score = k.m.sub(scores([t, n, coord(one.label(u))]), shift)
                place, last = u.expr(), one.count.expr()
                blanks = k.m.where(k.m.le(place, last), k.m.add(blanks, blank_score), NONE)
                own = k.m.where(k.m.lt(place, last), k.m.add(own, score), NONE)
                alphas.store([n, t + 1, 0, u], blanks)
                alphas.store([n, t + 1, 1, u + 1], own)
                top = unless_masked(k, k.m.maximum(blanks, own), NONE)
                k.set(peak, k.m.maximum(peak, top))

            one.each_state(state)
            k.set(total, k.m.add(total, shift))
            top = combined(k, "max", [peak])
            k.set(shift, k.m.where(k.m.eq(top, NONE), 0.0, top))
        ends = [alphas.load([n, one.inputs, i, one.count]) for i in range(2)]
        loss.store([n], k.m.sub(0.0, k.m.add(total, summed(k.m, *ends))))


@push(CtcGradient)
def ctc_gradient(k: Loops, op: CtcGradient, ins: list[Source | None], outs: list[Sink]) -> None:
    dloss, alphas, labels, input_lengths, label_lengths = ins
    assert dloss is not None and alphas is not None and labels is not None
    assert input_lengths is not None and label_lengths is not None
    dx, states = outs
    worth, dtype = alphas, dloss.type.dtype
    steps, batch, classes = dx.shape
    zero = k.constant(0, dtype)
    with k.parallel([batch]) as (n,):
        one = _sequence(k, n, labels, input_lengths, label_lengths, steps, classes)
        with k.loop(steps) as t:
            along(k, [classes], width(k, classes), lambda at, slot: dx.store([t, n, *at], zero))
        row = [states.shape[1], states.shape[2]]
        along(k, row, width(k, row[1]), lambda at, slot: states.store([n, *at], zero))
        ends = [worth([n, one.inputs, i, one.count]) for i in range(2)]
        for i, share in enumerate(shares(k.m, *ends)):
            states.store([n, i, one.count], share)
        down = k.b.let(k.m.neg(dloss([n])))
        with k.b.loop(one.inputs.expr()) as step:
            t = coord(k.inside((one.inputs - 1 - step).expr(), steps))
            _emit(k, op, one, t, down, dx, states)

            def back(u: Coord) -> None:
                at = [worth([n, t, i, u]) for i in range(2)]
                label = worth([n, t, 1, u + 1])
                to = states.load([n, 0, u]), states.load([n, 1, u + 1])
                blanks, own, before = op.back(k.m, at[0], label, at[1], one.repeats(u), *to)
                states.store([n, 0, u], blanks)
                states.store([n, 1, u + 1], own)
                states.store([n, 2, u], before)

            def join(u: Coord) -> None:
                own, after = (states.load([n, i, u + 1]) for i in (1, 2))
                states.store([n, 1, u + 1], k.m.add(own, after))

            one.each_state(back)
            one.each_state(join)


def _emit(
    k: Loops, op: CtcGradient, one: Sequence, t: Coord, down: Expr, dx: Sink, states: Sink
) -> None:
    """Write the gradient of a step: the states of each class, added up."""
    n, dtype = one.number, down.dtype
    (total,) = accumulators(k, 0, dtype, width(k, one.places + 1), 1)

    def blank(u: Coord) -> None:
        k.set(total, k.m.add(total, unless_masked(k, states.load([n, 0, u]), 0)))

    one.each_state(blank)
    dx.store([t, n, op.blank], k.m.mul(down, combined(k, "add", [total])))
    with k.b.loop(one.count.expr()) as u:
        at = [t, n, coord(one.label(coord(u)))]
        share = k.m.mul(down, states.load([n, 1, coord(u) + 1]))
        dx.store(at, k.m.add(dx.load(at), share))


def _sequence(
    k: Loops, n: Coord, labels: Source, input_lengths: Source, label_lengths: Source,
    steps: int, classes: int,
) -> Sequence:  # fmt: skip
    inputs = k.limited(input_lengths([n]), steps + 1)
    count = k.limited(label_lengths([n]), labels.shape[1] + 1)
    return Sequence(k, n, labels, classes, inputs, count)
