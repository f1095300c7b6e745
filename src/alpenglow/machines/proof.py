"""That the kernel of an instruction stays within the memory of its operands.

What cannot be proved is a mistake, but for operators whose form says why it need not be
(`loops.form.UNPROVED`): then it is the form that keeps within bounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence

from alpenglow.base import knobs
from alpenglow.base.errors import TypeRuleError
from alpenglow.ir import dims
from alpenglow.ir.dims import Atom, Dim, Ratio, Sym, symbol
from alpenglow.ir.op import Op
from alpenglow.kernel.bounds import Access, accesses
from alpenglow.kernel.faults import FAULT
from alpenglow.kernel.inequality import Premises
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.stoppable import STOP
from alpenglow.kernel.sums import Sum, constant, number, plus, product, scaled
from alpenglow.kernel.verify import verify_kernel
from alpenglow.loops.form import UNPROVED
from alpenglow.machines.guards import Guard, atoms, strongest
from alpenglow.program.instr import Instr, Region


def admitted(kernel: Kernel, instr: Instr) -> bool:
    """Whether a kernel may run: nothing outside of its operands is read or written.

    Under ALPENGLOW_CHECK the kernel is verified first.

    What is not proved of open extents is tried again for operands that have elements, and the code
    then serves such calls.  What is not proved then is a mistake under ALPENGLOW_CHECK.  Otherwise
    a `ProofWarning` says what becomes of it: a kernel for open extents serves those of the call
    alone, if it is proved for these; what is not proved for numbers does not run.
    """
    if knobs.check():
        verify_kernel(kernel)
    lost = _lost(kernel, instr)
    if lost and dims.assumed() is not None:
        for dim in dict.fromkeys(d for r in (*instr.outs, *instr.reads()) for d in r.shape):
            # Guards: no extent is negative, and what is empty is compiled by itself.
            if not (dim == 0 or dim >= 0):
                raise TypeRuleError(f"{instr.op.name}: dimension is {dim}, expected 0 or more")
        lost = _lost(kernel, instr)
    assert not lost or not knobs.check(), _place(kernel, instr, lost)
    if lost and dims.assumed() is not None:
        text = f"{_place(kernel, instr, lost)} for other extents than these: it serves these alone"
        warnings.warn(text, ProofWarning, stacklevel=2)
        regions = (*instr.outs, *instr.reads())
        for name in sorted({name for r in regions for name in r.type.symbols()}):
            int(symbol(name))  # a guard: it is this number
        lost = _lost(kernel, instr)
    if lost:
        text = f"{_place(kernel, instr, lost)}: it is not used"
        warnings.warn(text, ProofWarning, stacklevel=2)
    return not lost


class ProofWarning(UserWarning):
    """A kernel is not proved to stay within its operands, for all extents that it might serve."""


def _lost(kernel: Kernel, instr: Instr) -> list[Access]:
    """Return the addresses that would have to be proved, and are not."""
    excused = bool(excuses(instr))
    return [a for a in proved(kernel, instr) if not a.proved and (a.affine or not excused)]


def _place(kernel: Kernel, instr: Instr, lost: list[Access]) -> str:
    types = ", ".join(str(r.type) for r in (*instr.outs, *instr.reads()))
    names = " + ".join(op.name for op in operators(instr))
    more = f", and at {len(lost) - 1} more places" if lost[1:] else ""
    return f"kernel {kernel.name} of {names} on {types} may leave its operands at {lost[0]}{more}"


def excuses(instr: Instr) -> list[str]:
    """Return why addresses of an instruction need no proof, if some do not."""
    ops = {type(op): op.name for op in operators(instr) if type(op) in UNPROVED}
    return [f"{name}: {UNPROVED[cls]}" for cls, name in ops.items()]


def summary(kernel: Kernel, instr: Instr) -> str:
    """Return how many addresses of a kernel are proved, and why the others need not be."""
    verdicts = proved(kernel, instr)
    count = sum(a.proved for a in verdicts)
    if count == len(verdicts):
        return f"{count} proved"
    return f"{count} proved, {len(verdicts) - count} by the form ({'; '.join(excuses(instr))})"


def operators(instr: Instr) -> list[Op]:
    """Return the operators of an instruction."""
    return [instr.op] if instr.body is None else [n.op for n in instr.body.nodes]


def proved(kernel: Kernel, instr: Instr) -> list[Access]:
    """Return what `kernel` reads and writes, and whether it is proved to lie within operands.

    Extents that guards make numbers are these numbers; what cannot be proved so may yet be without:
    the product of a name and an extent says that both are positive, a multiple of it does not.
    """
    _settle_elements(kernel, (*instr.outs, *instr.reads()))
    numbers, guards = _numbers(), _guards()
    near = _about(kernel, instr, guards)
    verdicts = _proved(kernel, instr, near, numbers)
    others = [(guards, numbers)] if len(near) < len(guards) else []
    for more, known in (*others, *([(guards, {})] if numbers else [])):
        if all(a.proved for a in verdicts):
            break
        again = _proved(kernel, instr, more, known)
        if len(again) == len(verdicts):
            verdicts = [a if a.proved else b for a, b in zip(verdicts, again, strict=True)]
        elif all(a.proved for a in again):
            verdicts = again  # where names are numbers, other addresses are taken together
    return verdicts


def _proved(
    kernel: Kernel, instr: Instr, guards: Sequence[Guard], numbers: Mapping[str, int]
) -> list[Access]:
    facts = Premises()
    facts.symbols.update((name, number(value)) for name, value in numbers.items())
    regions = {f"y{i}": r for i, r in enumerate(instr.outs)}
    regions |= {f"x{i}": r for i, r in enumerate(instr.ins) if r is not None}
    plain = [g for g in guards if not _divisor(g[0])]
    others = [g for g in guards if _divisor(g[0])]
    counts = _counts(facts, regions.values())
    with facts.holding(_facts(facts, plain)):
        # Quotients by larger numbers are told by those by smaller ones.
        for extent in sorted({d: 0 for r in regions.values() for d in r.shape}, key=_divisor):
            facts.extent(extent)
        with facts.holding(_facts(facts, others)), facts.holding(counts):
            spans = {name: _span(r, facts) for name, r in regions.items()}
            spans[STOP.name] = spans[FAULT.name] = {}, {}  # their one element
            return accesses(kernel, facts, {b.name: spans[b.name] for b in kernel.buffers})


def _settle_elements(kernel: Kernel, regions: Iterable[Region]) -> None:
    """Leave a guard of what extents are computed from, that may be negative: whether it is."""
    if dims.assumed() is None:
        return
    extents: list[Dim] = [d for r in regions for d in (*r.shape, *r.strides)]
    extents += [e.dim for e in kernel.extents if e.dim is not None]
    for name in sorted({n for d in extents for n in dims.names(d)}):
        if dims.is_element(name):
            _ = symbol(name) >= 0


def _divisor(d: Dim) -> int:
    """Return the largest number by which an extent divides anything; 0 if by none."""
    largest = 0
    for monomial, _ in d.terms if isinstance(d, Sym) else ():
        for atom in monomial:
            if isinstance(atom, Ratio):
                by = [c for m, c in atom.right.terms if not m]
                largest = max(largest, 1, _divisor(atom.left), *by)
    return largest


def _span(r: Region, facts: Premises) -> tuple[Sum, Sum]:
    """Return the first and the last element of a region, counted from its offset."""
    first: Sum = {}
    last: Sum = {}
    if 0 in [d for d in r.shape if isinstance(d, int)]:
        return number(0), number(-1)
    for extent, stride in zip(r.shape, r.strides, strict=True):
        step = facts.extent(stride)
        reach = product(plus(facts.extent(extent), number(1), -1), step)
        if facts.nonnegative(scaled(step, -1)):
            first = plus(first, reach)
        else:
            last = plus(last, reach)
    return first, last


def _numbers() -> dict[str, int]:
    """Return the open extents that guards make numbers: by themselves, or one by another."""
    assumption = dims.assumed()
    guards = () if assumption is None else tuple(assumption.guards)
    equations = [x for x, relation in guards if relation == "=="]
    numbers: dict[str, int] = {}
    while assumption is not None:
        solutions = (dims.solution(dims.bind(x, numbers)) for x in equations)
        solved = dict(s for s in solutions if s is not None)
        if not solved:
            break
        numbers |= solved
    return numbers


def _guards() -> list[Guard]:
    """Return what is assumed of open extents; what says most comes first, for what is made of
    it."""
    assumption = dims.assumed()
    guards = () if assumption is None else strongest(tuple(assumption.guards))
    return sorted(guards, key=lambda guard: ("==", ">=", "!=").index(guard[1]))


def _about(kernel: Kernel, instr: Instr, guards: Sequence[Guard]) -> list[Guard]:
    """Return guards of nothing but what extents of a kernel are made of: those of a whole network
    are many, and a search among them is long."""
    met: set[Atom] = set()
    for r in (*instr.outs, *instr.reads()):
        met.update(*map(atoms, (*r.shape, *r.strides)))
    met.update(*(atoms(e.dim) for e in kernel.extents if e.dim is not None))
    return [g for g in guards if atoms(g[0]) <= met]


def _facts(facts: Premises, guards: Iterable[Guard]) -> Iterator[Sum]:
    """Yield what guards say."""
    for x, relation in guards:
        s = facts.extent(x)
        if constant(s) is not None:
            continue  # it holds of what is met
        match relation:
            case ">=":
                yield s
            case "==":
                yield s
                yield scaled(s, -1)
            case "!=":
                # Which sign it was asked with is gone.
                sides = (t for t in (s, scaled(s, -1)) if facts.nonnegative(t))
                yield from (plus(t, number(1), -1) for t in sides)


def _counts(facts: Premises, regions: Iterable[Region]) -> Iterator[Sum]:
    """Yield that there are elements along several axes in a row, which one loop may go through.

    Their number is a polynomial of which that cannot be seen.
    """
    for shape in dict.fromkeys(r.shape for r in regions):
        for first in range(len(shape)):
            count = number(1)
            for d in shape[first:]:
                extent = facts.extent(d)
                if not facts.nonnegative(plus(extent, number(1), -1)):
                    break
                alone, count = constant(count) is not None, product(count, extent)
                if not alone and len(extent) > 1:
                    yield plus(count, number(1), -1)
