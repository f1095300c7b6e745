"""Which results of ATen operators share memory with an argument, and how a write goes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from alpenglow.frontends.movement import inverse
from alpenglow.frontends.torch.program import Argument, Call, Ref, refs
from alpenglow.ir.types import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """A tensor shares the memory of `source`, as the `call` that made it has it.

    Unless that is `known`, it may be a copy.
    """

    source: str
    call: Call
    known: bool


Back = Callable[[Call, TensorType, Argument, Ref], "Call | Ref | None"]
"""Returns a call that makes the source of a view from its old value and the view's new one."""


def _same(call: Call, t: TensorType, source: Argument, view: Ref) -> Ref:
    return view


def _reshaped(call: Call, t: TensorType, source: Argument, view: Ref) -> Call:
    return replace(call, target="aten.view.default", arguments={"self": view, "size": t.shape})


def _again(call: Call, t: TensorType, source: Argument, view: Ref) -> Call:
    """Two axes that change places twice are where they were."""
    return replace(call, arguments={**call.arguments, "self": view})


def _permuted(call: Call, t: TensorType, source: Argument, view: Ref) -> Call | None:
    dims = call.arguments["dims"]
    places = [d % t.rank for d in dims if isinstance(d, int)] if isinstance(dims, tuple) else []
    if sorted(places) != list(range(t.rank)):
        return None
    return replace(call, arguments={"self": view, "dims": inverse(places)})


def _moved_back(call: Call, t: TensorType, source: Argument, view: Ref) -> Call:
    there, back = call.arguments["source"], call.arguments["destination"]
    return replace(call, arguments={"self": view, "source": back, "destination": there})


def _narrowed(call: Call, t: TensorType, source: Argument, view: Ref) -> Call | None:
    start, length = call.arguments["start"], call.arguments["length"]
    if not isinstance(start, int) or not isinstance(length, int) or start < 0:
        return None
    arguments = {"self": source, "src": view, "dim": call.arguments["dim"], "start": start,
                 "end": start + length}  # fmt: skip
    return replace(call, target="aten.slice_scatter.default", arguments=arguments)


def _scattered(target: str) -> Back:
    """Return how a part is put back by an operator that takes the same arguments."""

    def back(call: Call, t: TensorType, source: Argument, view: Ref) -> Call:
        arguments = {**call.arguments, "self": source, "src": view}
        return replace(call, target=target, arguments=arguments)

    return back


def _lost(call: Call, t: TensorType, source: Argument, view: Ref) -> None:
    return None


VIEWS: Mapping[str, Back] = {
    "aten.alias.default": _same,
    "aten.detach.default": _same,
    "aten.lift_fresh.default": _same,
    "aten.positive.default": _same,
    "aten.resolve_conj.default": _same,
    "aten.resolve_neg.default": _same,
    "aten.view.default": _reshaped,
    "aten.unsqueeze.default": _reshaped,
    "aten.squeeze.default": _reshaped,
    "aten.squeeze.dim": _reshaped,
    "aten.squeeze.dims": _reshaped,
    "aten.unflatten.int": _reshaped,
    "aten.view_as.default": _reshaped,
    "aten.permute.default": _permuted,
    "aten.transpose.int": _again,
    "aten.swapaxes.default": _again,
    "aten.swapdims.default": _again,
    "aten.t.default": _again,
    "aten.numpy_T.default": _again,
    "aten.mT.default": _again,
    "aten.movedim.int": _moved_back,
    "aten.movedim.intlist": _moved_back,
    "aten.narrow.default": _narrowed,
    "aten.slice.Tensor": _scattered("aten.slice_scatter.default"),
    "aten.select.int": _scattered("aten.select_scatter.default"),
    "aten.diagonal.default": _scattered("aten.diagonal_scatter.default"),
    **dict.fromkeys((
        "aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default",
        "aten.mH.default",
        "aten.split.Tensor", "aten.split.sizes", "aten.split_with_sizes.default",
        "aten.chunk.default", "aten.unbind.int", "aten.tensor_split.sections",
        "aten.tensor_split.indices", "aten.unfold.default", "aten.as_strided.default",
        "aten.view.dtype", "aten.view_as_real.default", "aten.view_as_complex.default",
        "aten.real.default", "aten.imag.default", "aten._conj.default", "prims.conj.default",
        "prims.real.default", "prims.imag.default", "prims.view_of.default",
    ), _lost),
}  # fmt: skip
"""Operators whose results are views of `self`, and how what is written there goes back."""

IF_IN_ORDER: Mapping[str, Back] = {
    "aten.reshape.default": _reshaped,
    "aten.flatten.using_ints": _reshaped,
    "aten.reshape_as.default": _reshaped,
    "aten.ravel.default": _reshaped,
    "aten.contiguous.default": _same,
}
"""Those whose results are views of a tensor if its elements lie in order."""

IF_ALIKE = frozenset({
    "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.to.other",
    "aten.type_as.default",
})  # fmt: skip
"""Those that return a tensor itself if it has the type that is asked for."""

UNTIL_TRAINED = frozenset({
    "aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default",
    "aten.feature_alpha_dropout.default",
})  # fmt: skip
"""Those that return a tensor itself unless `train` is true."""

PERHAPS = frozenset({
    "aten.meshgrid.default", "aten.meshgrid.indexing", "aten.broadcast_tensors.default",
    "aten.einsum.default",
})  # fmt: skip
"""Those whose results may share memory with any of their arguments."""


def links(
    call: Call, types: Mapping[str, TensorType], in_order: Callable[[str], bool]
) -> Iterator[tuple[str, Link]]:
    """Yield the results of a call that share memory with an argument, or may."""
    target = call.target
    first = call.arguments.get("self", call.arguments.get("input"))
    results = [r for r in call.results if r]
    if not isinstance(first, Ref) or target in PERHAPS:
        if target in PERHAPS:
            yield from ((r, Link(s, call, False)) for r in results for s in refs(call.arguments))
        return
    if target in VIEWS:
        known = True
    elif target in IF_IN_ORDER:
        known = in_order(first.name)
    elif target in IF_ALIKE and not call.arguments.get("copy"):
        if not all(types.get(r) == types.get(first.name) for r in results):
            return
        known = True
    elif target in UNTIL_TRAINED and call.arguments.get("train") is False:
        known = True
    else:
        return
    yield from ((r, Link(first.name, call, known)) for r in results)


def written_back(
    call: Call, t: TensorType, source: Argument, view: Ref
) -> Call | Ref | None:  # fmt: skip
    """Return what the source of a view is after a write into the view; None where none is told.

    `t` is the source's type, `source` its old value, `view` the new value of the view.
    """
    return {**VIEWS, **IF_IN_ORDER}.get(call.target, _same)(call, t, source, view)
