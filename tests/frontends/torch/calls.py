"""Calls of PyTorch's operators as lines of text, and the graphs that the front end makes of them.

    aten.tril.default(self=f32[3,4], diagonal=-1) -> f32[3,4]
    aten.max.dim(self=i64[5], dim=0, keepdim=True) -> i64[1], unread(i64[1])

A tensor is its type, `f32` one without axes; `const(i64[2], 0, 1)` is known at import.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

import numpy as np

from alpenglow.frontends.torch.convert.random import DRAWS
from alpenglow.frontends.torch.program import Argument, Body, Call, Input, Output, Program, Ref
from alpenglow.frontends.torch.whole import graph_of
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import NAMES, Array, TensorType

STATE = np.zeros(628, np.uint32)
"""A state of a generator: which one is no part of a graph's structure."""


@dataclass(frozen=True)
class Recorded:
    """A call: types are tensors, arrays are constants; `results` has the type and if it is read."""

    target: str
    arguments: Mapping[str, Any]
    results: tuple[tuple[TensorType, bool] | None, ...]

    def __str__(self) -> str:
        results = ", ".join(map(_shown_result, self.results))
        return f"{self.target}({shown_arguments(self.arguments)}) -> {results}"


# ── written ──


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments as text; a name that is a word of Python has a line behind it."""
    named = ((f"{n}_" if iskeyword(n) else n, shown(v)) for n, v in arguments.items())
    return ", ".join(f"{name}={v}" for name, v in named)


def shown(value: Any) -> str:
    """Return an argument as text."""
    match value:
        case TensorType():
            return _shown_type(value)
        case np.ndarray():
            t = TensorType(NAMES[value.dtype], value.shape)
            return f"const({', '.join([_shown_type(t), *map(repr, value.reshape(-1).tolist())])})"
        case tuple():
            inner = ", ".join(map(shown, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _shown_type(t: TensorType) -> str:
    return f"{t.dtype}[{','.join(map(str, t.shape))}]" if t.rank else t.dtype


def _shown_result(result: tuple[TensorType, bool] | None) -> str:
    if result is None:
        return "None"
    t, is_read = result
    return _shown_type(t) if is_read else f"unread({_shown_type(t)})"


# ── read ──


def read_call(line: str) -> Recorded:
    """Return the call that a line is."""
    called, _, results = line.rpartition(" -> ")
    tree = ast.parse(called, mode="eval").body
    assert isinstance(tree, ast.Call), f"no call: {line}"
    named = ((str(k.arg), k.value) for k in tree.keywords)
    arguments = {_spelled(n): _value(v) for n, v in named}
    made = ast.parse(f"({results},)", mode="eval").body
    assert isinstance(made, ast.Tuple), f"no results: {line}"
    return Recorded(ast.unparse(tree.func), arguments, tuple(map(_result, made.elts)))


def _spelled(name: str) -> str:
    """Return the name of an argument as the schema has it."""
    return name[:-1] if name.endswith("_") and iskeyword(name[:-1]) else name


def _result(tree: ast.expr) -> tuple[TensorType, bool] | None:
    match tree:
        case ast.Constant(value=None):
            return None
        case ast.Call(args=[t]):
            return _type(t), False
    return _type(tree), True


def _value(tree: ast.expr) -> Any:
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=elements):
            return tuple(map(_value, elements))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            sign = 1 if isinstance(op, ast.Add) else -1
            return _value(left) + sign * _value(right)
        case ast.Name(id=("inf" | "nan") as word):
            return float(word)
        case ast.Call(args=[t, *elements]):
            of = _type(t)
            return np.array([_value(e) for e in elements], of.numpy).reshape(of.extents)
    return _type(tree)


def _type(tree: ast.expr) -> TensorType:
    match tree:
        case ast.Name(id=dtype):
            return TensorType(dtype, ())
        case ast.Subscript(value=ast.Name(id=dtype), slice=extents):
            shape = ast.literal_eval(extents)
            return TensorType(dtype, shape if isinstance(shape, tuple) else (shape,))
    raise AssertionError(f"no type: {ast.unparse(tree)}")


# ── imported ──


@dataclass
class _Inputs:
    """What the inputs and constants of a program are, by name."""

    types: dict[str, TensorType] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)

    def argument(self, name: str, value: Any) -> Argument:
        """Return an argument of a call, whose tensors are inputs."""
        match value:
            case TensorType():
                self.types[name] = value
                return Ref(name)
            case np.ndarray():
                self.constants[name] = value
                return Ref(name)
            case tuple():
                return tuple(self.argument(f"{name}_{i}", v) for i, v in enumerate(value))
        made: Argument = value
        return made


def program_of(call: Recorded, state: Array = STATE) -> Program:
    """Return the program that is one call."""
    inputs = _Inputs()
    arguments = {name: inputs.argument(name, v) for name, v in call.arguments.items()}
    stated = tuple(r and r[0] for r in call.results)
    names = tuple(f"y{i}" if r and r[1] else "" for i, r in enumerate(call.results))
    types = {n: t for n, t in zip(names, stated, strict=True) if n and t is not None}
    made = Call("call", call.target, arguments, names, stated=stated if len(names) > 1 else ())
    kept = [n for n in names if n]
    body = Body(tuple(inputs.types), (made,), tuple(map(Ref, kept)), inputs.types | types,
                {n: a.copy() for n, a in inputs.constants.items()})  # fmt: skip
    return Program("main", body, tuple(Input(n, "user") for n in inputs.types),
                   tuple(Output("user", name=n) for n in kept), {},
                   generator=state if call.target in DRAWS else None)  # fmt: skip


def graph_of_call(call: Recorded, state: Array = STATE) -> Graph:
    """Return the graph of one call."""
    return graph_of(program_of(call, state))
