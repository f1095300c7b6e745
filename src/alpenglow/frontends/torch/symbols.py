"""PyTorch's expressions of extents, and what it knows of their symbols, as ours.

An object's expression (sympy's) is text of Python's, with a few functions whose names PyTorch made
up (torch.utils._sympy.functions).  In a file the same is written with functions alone (`srepr`):
``Add(Symbol('s0', integer=True), Integer(1))``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import reduce

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.base.expression import parse_expression
from alpenglow.base.words import shown
from alpenglow.ir.dims import Dim, Guards, Sym, symbol

UNBACKED = re.compile(r"u\d+")
"""Symbols whose values are data."""

Ranges = Mapping[str, tuple[int, int | None]]


def extent(text: str) -> Dim:
    """Read an expression of symbols; raise UnsupportedError if no extent of ours says it."""
    if text.isdecimal():
        return int(text)
    return _dim(parse_expression(text, "extent"), text)


def _dim(tree: ast.expr, text: str) -> Dim:
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return _dim(x, text) * -1
        case ast.BinOp(left=x, op=op, right=y):
            return _combined(op, _dim(x, text), _dim(y, text), text)
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))]):
            return _named(name)
        case ast.Call(func=ast.Name(id="Integer"), args=[x]):
            return _dim(x, text)
        case ast.Call(func=ast.Name(id="Add" | "Mul" | "Pow" as name), args=[x, *rest]):
            op = {"Add": ast.Add(), "Mul": ast.Mult(), "Pow": ast.Pow()}[name]
            return reduce(lambda a, y: _combined(op, a, _dim(y, text), text), rest, _dim(x, text))
        case ast.Call(func=ast.Name(id="FloorDiv" | "CleanDiv"), args=[x, y]):
            return _combined(ast.FloorDiv(), _dim(x, text), _dim(y, text), text)
        case ast.Call(func=ast.Name(id="Mod" | "PythonMod"), args=[x, y]):
            return _combined(ast.Mod(), _dim(x, text), _dim(y, text), text)
        case ast.Call(func=ast.Name(id="CeilDiv"), args=[x, y]):
            return -_combined(ast.FloorDiv(), -_dim(x, text), _dim(y, text), text)
        case ast.Call(func=ast.Name(id="ModularIndexing"), args=[x, y, z]):
            whole = _combined(ast.FloorDiv(), _dim(x, text), _dim(y, text), text)
            return _combined(ast.Mod(), whole, _dim(z, text), text)
    raise UnsupportedError(f"the extent '{shown(text)}' is no quotient of polynomials")


def _named(name: str) -> Sym:
    if not name.isidentifier():
        raise ModelError(f"'{shown(name)}' is no name of an extent")
    return symbol(name)


def _combined(op: ast.operator, a: Dim, b: Dim, text: str) -> Dim:
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Pow() if isinstance(b, int) and 0 <= b <= 8:
            power: Dim = 1
            for _ in range(b):
                power = power * a
            return power
        case ast.FloorDiv() | ast.Mod() if isinstance(b, int) and b == 0:
            raise ModelError(f"the extent '{shown(text)}' divides by zero")
        case ast.FloorDiv():
            return a // b
        case ast.Mod():
            return a % b
    raise UnsupportedError(f"the extent '{shown(text)}' is no quotient of polynomials")


def guards(ranges: Ranges, symbols: set[str]) -> Guards:
    """Return what the ranges of these symbols demand."""
    demands: list[tuple[Sym, str]] = []
    for name in sorted(symbols & ranges.keys()):
        low, high = ranges[name]
        for x, relation in ((symbol(name) - low, ">="), (symbol(name) - high - 1, "<")) if (
            high is not None) else ((symbol(name) - low, ">="),):  # fmt: skip
            if isinstance(x, Sym):
                demands.append((x, relation))
    return tuple(demands)
