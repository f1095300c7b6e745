"""That the kernel of an instruction stays within the memory of its operands.

What cannot be proved is a mistake, but for operators whose form says why it need not be
(`loops.form.UNPROVED`): then it is the form that keeps within bounds.
"""

from __future__ import annotations

from alpenglow.backends.loops.form import UNPROVED
from alpenglow.base import knobs
from alpenglow.ir import dims
from alpenglow.ir.op import Op
from alpenglow.kernel.bounds import Access, accesses
from alpenglow.kernel.inequality import Facts
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.stoppable import STOP
from alpenglow.kernel.sums import Sum, number, plus, product, scaled
from alpenglow.program.instr import Instr, Region


def require(kernel: Kernel, instr: Instr) -> None:
    """Assert that a kernel is proved to stay within its operands, under ALPENGLOW_CHECK.

    Kernels for open extents are left out: of some it is not proved yet.
    """
    if not knobs.check() or dims.assumed() is not None:
        return
    excused = any(type(op) in UNPROVED for op in operators(instr))
    lost = [a for a in proved(kernel, instr) if not a.proved and (a.affine or not excused)]
    types = ", ".join(str(r.type) for r in (*instr.outs, *instr.reads()))
    assert not lost, f"{kernel.name} of {types} may leave its operands at {lost[0]}"


def operators(instr: Instr) -> list[Op]:
    """Return the operators of an instruction."""
    return [instr.op] if instr.body is None else [n.op for n in instr.body.nodes]


def proved(kernel: Kernel, instr: Instr) -> list[Access]:
    """Return what `kernel` reads and writes, and whether it is proved to lie within operands."""
    facts = Facts()
    regions = {f"y{i}": r for i, r in enumerate(instr.outs)}
    regions |= {f"x{i}": r for i, r in enumerate(instr.ins) if r is not None}
    with facts.holding(_guards(facts)):
        spans = {name: _span(r, facts) for name, r in regions.items()}
        spans[STOP.name] = {}, {}  # its one element
        return accesses(kernel, facts, {b.name: spans[b.name] for b in kernel.buffers})


def _span(r: Region, facts: Facts) -> tuple[Sum, Sum]:
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


def _guards(facts: Facts) -> list[Sum]:
    """Return what is assumed of open extents."""
    assumption = dims.assumed()
    found: list[Sum] = []
    for x, relation in () if assumption is None else assumption.guards:
        s = facts.extent(x)
        match relation:
            case ">=":
                found.append(s)
            case "<":
                found.append(plus(scaled(s, -1), number(1), -1))
            case "==":
                found += [s, scaled(s, -1)]
            case "!=" if facts.hull(s)[0] >= 0:
                found.append(plus(s, number(1), -1))
    return found
