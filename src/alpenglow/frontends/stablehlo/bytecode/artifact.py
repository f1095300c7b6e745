"""Results of `jax.export`: objects, and the files that they are serialized to.

JAX is never imported: an object counts as exported if it has the attributes of one, and a file is a
flatbuffer.  Both hold bytecode, and say what the arguments are, among them those that the bytecode
does without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alpenglow.base.errors import AlpenglowError, ModelError
from alpenglow.frontends.flatbuffer import Field, Table, root
from alpenglow.frontends.stablehlo.module import DEEPEST
from alpenglow.ir import dims
from alpenglow.ir.dims import Dim
from alpenglow.ir.types import NAMES

PLATFORM = "cpu"
"""The platform that is chosen of a program exported for several."""

DTYPES = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "c64",
          "c128", "bf16", "i4", "u4", "f8E4M3B11FNUZ", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2",
          "f8e5m2fnuz", "f0", "f8E4M3", "f8E3M4", "f8e8m0", "f4e2m1")  # fmt: skip
"""Element types by number, as the files hold them."""

LEAF, NONE, TUPLE, LIST, DICT = 0, 1, 2, 3, 4
"""Kinds of the nodes of a tree; others are classes of the user."""

LAYOUTS: Mapping[str, Mapping[str, Field]] = {
    "Exported": {
        "in_tree": Field(2, "PyTreeDef", None),
        "in_avals": Field(3, "[AbstractValue]", None),
        "platforms": Field(9, "[str]", None),
        "mlir_module_serialized": Field(13, "[u8]", None),
        "module_kept_var_idx": Field(15, "[u16]", None),
        "unique_avals": Field(19, "[AbstractValue]", None),
        "in_avals_idxs": Field(22, "[u32]", None),
    },
    "PyTreeDef": {
        "kind": Field(0, "i8", 0),
        "children": Field(1, "[PyTreeDef]", None),
        "children_names": Field(2, "[str]", None),
    },
    "AbstractValue": {
        "kind": Field(0, "i8", 0),
        "shape": Field(1, "[str]", None),
        "dtype": Field(2, "i8", 0),
    },
}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: its name, if the bytecode takes it, its element type, and its extents.

    An extent that is more than we can say is None.
    """

    name: str
    kept: bool
    dtype: str
    shape: tuple[Dim | None, ...]


@dataclass(frozen=True, slots=True)
class Artifact:
    """Bytecode and its arguments, and for which platforms it is."""

    content: bytes
    arguments: tuple[Argument, ...]
    platforms: tuple[str, ...]


def of_file(content: bytes) -> Artifact:
    """Return the artifact in a serialized file; raise ModelError if the file is damaged."""
    table = root(content, "Exported", LAYOUTS)
    module = table.array("mlir_module_serialized").tobytes()
    avals = list(table.tables("in_avals"))
    if not avals:
        unique = list(table.tables("unique_avals"))
        numbers = table.array("in_avals_idxs").tolist()
        if max(numbers, default=-1) >= len(unique):
            found = f"in_avals_idxs has {max(numbers)}"
            raise ModelError(f"the file is damaged: {found}, expected less than {len(unique)}")
        avals = [unique[n] for n in numbers]
    kept = set(table.array("module_kept_var_idx").tolist())
    tree = table.table("in_tree")
    paths = None if tree is None else list(_paths_in(tree, "", 0))
    arguments = []
    for i, name in enumerate(_names(paths, len(avals))):
        number = avals[i].number("dtype")
        if not 0 <= number < len(DTYPES):
            last = len(DTYPES) - 1
            raise ModelError(f"the file is damaged: a dtype is {number}, expected 0 to {last}")
        shape = tuple(map(_extent, avals[i].texts("shape")))
        arguments.append(Argument(name, i in kept, DTYPES[number], shape))
    return Artifact(module, tuple(arguments), tuple(table.texts("platforms")))


def of_object(exported: Any) -> Artifact:
    """Return the artifact in an exported object."""
    avals = list(getattr(exported, "in_avals", ()))
    kept = set(getattr(exported, "module_kept_var_idx", range(len(avals))))
    arguments = []
    for i, name in enumerate(_names(_paths_of(exported, len(avals)), len(avals))):
        shape = tuple(map(_extent, avals[i].shape))
        dtype = NAMES.get(avals[i].dtype, str(avals[i].dtype))
        arguments.append(Argument(name, i in kept, dtype, shape))
    platforms = tuple(map(str, getattr(exported, "platforms", ())))
    return Artifact(bytes(exported.mlir_module_serialized), tuple(arguments), platforms)


def _names(paths: Sequence[str] | None, count: int) -> list[str]:
    """Return a name for each argument: its path, if all have one of their own."""
    if paths is None or len(paths) != count or len(set(paths)) < count or not all(paths):
        return [f"arg{i}" for i in range(count)]
    return list(paths)


def _extent(d: Any) -> Dim | None:
    if isinstance(d, int):
        return d
    try:
        return dims.parse(str(d).replace(" ", ""))
    except AlpenglowError:
        return None


# ── trees of arguments ──


def _paths_of(exported: Any, count: int) -> list[str] | None:
    """Return the way to each argument through tuples and dicts; None if there are others."""
    try:
        args, kwargs = exported.in_tree.unflatten(range(count))
    except (AttributeError, TypeError, ValueError):
        return None
    named = {leaf: path for path, leaf in [*_leaves(args, "", 0), *_leaves(kwargs, "", 0)]
             if isinstance(leaf, int)}  # fmt: skip
    if sorted(named) != list(range(count)):
        return None
    return [named[i] for i in range(count)]


def _leaves(tree: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested tuples, lists and dicts, each with its path."""
    if isinstance(tree, dict):
        parts: Sequence[tuple[Any, Any]] = list(tree.items())
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        parts = list(zip(tree._fields, tree, strict=True))
    elif isinstance(tree, tuple | list):
        parts = list(enumerate(tree))
    else:
        parts = []
        if tree is not None:
            yield path, tree
    if depth < DEEPEST:
        for key, inner in parts:
            yield from _leaves(inner, _joined(path, str(key)), depth + 1)


def _paths_in(tree: Table, path: str, depth: int) -> Iterator[str]:
    """Yield the paths of leaves; the tuple of all arguments, and the dict of those by name, add
    nothing."""
    if depth > DEEPEST:
        raise ModelError(
            f"the file is damaged: in_tree is nested too deeply, expected at most {DEEPEST} levels"
        )
    kind = tree.number("kind")
    if kind == LEAF:
        yield path
        return
    names = tree.texts("children_names")
    for i, child in enumerate(tree.tables("children")):
        key = names[i] if kind == DICT and i < len(names) else str(i)
        yield from _paths_in(child, path if not depth else _joined(path, key), depth + 1)


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
