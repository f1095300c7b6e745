"""Spreading the parallel loop of a kernel over what runs it: parts, or the threads of a grid.

Statements before the loop run in every part, as they do wherever a caller runs a part of it.
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.ir import dims
from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Index, Register
from alpenglow.kernel.rewrite import rewrite
from alpenglow.kernel.stmt import For, If, Kernel, Set, Stmt


def in_parts(kernel: Kernel, parts: int) -> Kernel:
    """Return a kernel whose parallel loop has so many iterations at most, each a part of what there
    was; itself if they are as few already."""
    loop = kernel.parallel
    if loop is None or _at_most(loop.extent, parts):
        return kernel
    part, begin, count = Index("part"), Register("begin", "i64"), Register("count", "i64")
    extent = loop.extent
    ends = Binary("div", Binary("mul", part + 1, extent), Const(parts))
    turn = Index("turn")
    body: tuple[Stmt, ...] = (
        Set(begin, Binary("div", Binary("mul", part, extent), Const(parts))),
        Set(count, Binary("sub", ends, begin)),
        For(turn, count, _with(kernel, loop, begin + turn)),
    )
    whole = For(part, Const(parts), body, "parallel")
    return replace(kernel, body=(*kernel.body[:-1], whole))


def over_threads(kernel: Kernel, threads: int) -> Kernel:
    """Return a kernel whose parallel loop is a grid: groups of so many threads, one an iteration.

    What has a grid already, or runs in one piece, stays as it is.
    """
    loop = kernel.parallel
    if loop is None:
        return kernel
    group, thread, number = Index("group"), Index("thread"), Register("number", "i64")
    extent = loop.extent
    before = kernel.body[:-1]
    at_work: tuple[Stmt, ...] = (*before, *_with(kernel, loop, number))
    if not _divides(threads, extent):
        at_work = (If(Compare("lt", number, extent), at_work),)
    start = Set(number, group * threads + thread)
    inner = For(thread, Const(threads), (start, *at_work), "thread")
    groups = _groups(extent, threads)
    known = (*kernel.extents, *([groups] if isinstance(groups, Index) else []))
    return replace(kernel, extents=known, body=(For(group, groups, (inner,), "group"),))


def _groups(extent: Expr, threads: int) -> Expr:
    """Return how many groups there are; where extents are open, a number that the caller knows."""
    match extent:
        case Const(value):
            return Const(-(-int(value) // threads))
        case Index(_, dim) if dim is not None:
            groups = dims.ceil_div(dim, threads)
            return Index("groups", groups) if isinstance(groups, dims.Sym) else Const(groups)
    raise AssertionError("the caller knows the extent of a parallel loop")


def _with(kernel: Kernel, loop: For, by: Expr) -> tuple[Stmt, ...]:
    """Return the body of the loop of a kernel, where another expression stands for its index."""

    def law(m: Arithmetic, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        return by if isinstance(e, Index) and e.name == loop.index.name else None

    return rewrite(replace(kernel, body=loop.body), law).body


def _at_most(extent: Expr, number: int) -> bool:
    return isinstance(extent, Const) and int(extent.value) <= number


def _divides(number: int, extent: Expr) -> bool:
    return isinstance(extent, Const) and int(extent.value) % number == 0
