"""Operators as functions of expressions: `relu(x)`, `softmax(x, axis=-1)`, `concat(x, y, axis=0)`.

There is a function for each operator that a graph can hold, made of the operator's class when a
caller asks for it; `dir` lists them.  Operands are given in order, attributes by name.  An operator
with several results returns a tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from typing import Any

from alpenglow.base import extensions
from alpenglow.ir.op import Host, Op, find_operator
from alpenglow.ops.expression import applied, made


def __getattr__(name: str) -> Callable[..., Any]:
    cls = None if name.startswith("_") else find_operator(name)
    if cls is None or not _is_offered(cls):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _function_of(cls)


def __dir__() -> list[str]:
    extensions.bring_extras()
    return sorted(name for name, cls in Op.registry.items() if _is_offered(cls))


def _is_offered(cls: type[Op]) -> bool:
    """Return True if graphs by hand may hold an operator: not if only a machine makes it."""
    by_machine = cls.__module__.startswith("alpenglow.machines.")
    return not by_machine and not issubclass(cls, Host)


def _function_of(cls: type[Op]) -> Callable[..., Any]:
    """Return the function that appends an operator, with the docstring of the operator."""

    def function(*operands: Any, **attributes: Any) -> Any:
        results = applied(made(cls, attributes), operands)
        return results[0] if len(results) == 1 else results

    function.__name__ = function.__qualname__ = cls.name
    function.__module__, function.__doc__ = __name__, cls.__doc__
    function.__signature__ = _signature(cls)  # type: ignore[attr-defined]
    return function


def _signature(cls: type[Op]) -> Signature:
    """Return the operands in order and the attributes by name, with their defaults."""
    operands = [
        Parameter(
            name,
            Parameter.POSITIONAL_ONLY,
            default=None if name in cls.optional else Parameter.empty,
        )
        for name in cls.operands
    ]
    if cls.variadic:
        operands[-1] = Parameter(cls.operands[-1], Parameter.VAR_POSITIONAL)
    attributes = [
        Parameter(
            f.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if f.default is MISSING else f.default,
        )
        for f in fields(cls)  # type: ignore[arg-type]  # subclasses are dataclasses
    ]
    return Signature([*operands, *attributes])
