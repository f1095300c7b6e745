"""The types that a model declares for its inputs and outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from alpenglow.base.errors import AlpenglowError, ModelError, OptionError
from alpenglow.frontends.onnx.file.attributes import check_size, kind_of, tensor_type
from alpenglow.frontends.onnx.file.extents import Labels, open_labels, read_labels, symbols_of
from alpenglow.ir.constant_inputs import check_names, constant
from alpenglow.ir.dims import Dim, Sym, bind, is_open, symbol
from alpenglow.ir.solve import misshapen
from alpenglow.ir.types import Array, TensorType


def typed_inputs(
    source: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]
) -> dict[str, TensorType | None]:
    """Return the types of the inputs of a model, None for what is known only when it runs.

    Extents that `shapes` binds in one input are bound in the others, too.  Open ones of one name
    are several symbols: they need not be equal (see `read_types`).
    """
    # Up to IR version 3 every initializer is also listed among the inputs.
    initial = {t.name for t in source.initializer}
    wanted = [i for i in source.input if i.name not in initial]
    for name, count in Counter(i.name for i in wanted).items():
        if count > 1:
            raise ModelError(f"{count} inputs are called '{name}', expected different names")
    names = [i.name for i in wanted]
    if not isinstance(shapes, Mapping):
        raise OptionError(
            f"shapes is {shapes!r}, expected a dict from names of inputs to shapes, as "
            f"{{'{names[0] if names else 'NAME'}': (…)}}"
        )
    for name in shapes:
        if name not in names:
            raise ModelError(f"shapes names '{name}', expected inputs: {', '.join(names)}")
    labels = labels_of(source)
    types: dict[str, TensorType | None] = {}
    extents: dict[str, Dim] = {}
    for info in wanted:
        if info.type.WhichOneof("value") is None:
            raise ModelError(f"input '{info.name}': type is missing")
        t = declared(info, labels)
        if t is not None and info.name in shapes:
            fixed = bound(info.name, t, shapes[info.name])
            for d, n in zip(t.shape, fixed.extents, strict=True):
                if is_open(d) and extents.setdefault(str(d), n) != n:
                    extents[str(d)] = d
            t = fixed
        if t is not None:
            check_size(f"input '{info.name}'", t)
        types[info.name] = t
    return apart({n: None if t is None else t.bind(extents) for n, t in types.items()})


def constant_inputs(
    source: onnx.GraphProto, types: Mapping[str, TensorType | None], values: Mapping[str, Any]
) -> dict[str, Array]:
    """Return the values of inputs as arrays; raise OptionError for what does not fit them."""
    check_names(values, types)
    infos = {i.name: i.type for i in source.input}
    arrays = {}
    for name, value in values.items():
        t = types[name]
        if t is not None:
            arrays[name] = constant(name, value, t.dtype, t.shape)
            continue
        kind = kind_of(infos[name], name)
        if kind is None or kind.what != "tensor":
            raise OptionError(f"constant '{name}' is a {kind}, expected a tensor")
        arrays[name] = constant(name, value, kind.dtype, kind.shape)
    return arrays


def apart(types: Mapping[str, TensorType | None]) -> dict[str, TensorType | None]:
    """Return types of which no two extents are one symbol: what comes later has another name."""
    taken = {s for t in types.values() if t is not None for s in t.symbols()}
    seen: set[str] = set()

    def own(d: Dim) -> Dim:
        name = str(d)
        if not is_open(d) or name not in seen:
            seen.add(name)
            return d
        number = 2
        while (word := f"{name}_{number}") in taken:
            number += 1
        taken.add(word)
        return symbol(word)

    return {
        n: None if t is None else t.with_shape([own(d) for d in t.shape]) for n, t in types.items()
    }


def read_types(
    source: onnx.GraphProto, inputs: Mapping[str, TensorType | None]
) -> dict[str, TensorType]:
    """Return the types of inputs as their labels say: one symbol for each, and what stands in
    labels like ``2*N``.

    A call of which that is not true is served by an import to which all are symbols of their own.
    """
    labels = labels_of(source)
    infos = {i.name: i for i in source.input}
    values: dict[str, Dim] = {}
    labelled: dict[str, str] = {}
    for name, t in inputs.items():
        free = None if t is None else declared(infos[name], labels)
        if t is not None and free is not None:
            for d, n in zip(free.shape, t.shape, strict=True):
                if is_open(n):
                    labelled[str(n)] = str(d)
                elif is_open(d) and values.setdefault(str(d), n) != n:
                    values[str(d)] = d
    said = read_labels({text: labels[text] for text in open_labels(source.input)})
    meant = {str(labels[text]): bind(x, values) for text, x in said.items()}
    names = {own: meant.get(label, symbol(label)) for own, label in labelled.items()}
    return {n: t.bind(names) for n, t in inputs.items() if t is not None}


def labels_of(source: onnx.GraphProto) -> Labels:
    """Return the symbols of the open extents of inputs and outputs."""
    return symbols_of((*source.input, *source.output))


def declared(info: onnx.ValueInfoProto, labels: Labels) -> TensorType | None:
    """Return the type that a model declares; None if it has no rank or is not a tensor."""
    tensor = info.type.tensor_type
    plain = info.type.WhichOneof("value") == "tensor_type" and tensor.HasField("shape")
    if not plain or tensor.elem_type == onnx.TensorProto.STRING:
        return None
    return tensor_type(info, labels)


def static(info: onnx.ValueInfoProto | None) -> TensorType | None:
    """Return the type that a model declares for a value; None unless each extent is a number."""
    try:
        t = None if info is None else declared(info, symbols_of([info]))
    except AlpenglowError:
        return None
    return None if t is None or t.symbols() else t


def bound(name: str, t: TensorType, shape: Sequence[int]) -> TensorType:
    """Return t with its open extents taken from `shape`; raise ModelError where they disagree."""
    integers = isinstance(shape, Sequence) and all(isinstance(d, int | np.integer) for d in shape)
    if not integers or isinstance(shape, bytes):
        raise ModelError(misshapen(name, shape, f"integers for {t}"))
    fits = len(shape) == t.rank and all(
        isinstance(want, Sym) or want == got for want, got in zip(t.shape, shape, strict=True)
    )
    if not fits or min(shape, default=0) < 0:
        raise ModelError(misshapen(name, tuple(shape), t))
    return t.with_shape(int(d) for d in shape)
