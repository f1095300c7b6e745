"""Attributes: whether the fields of an operator hold what they are declared to hold.

An operator is hashed, printed and computed with long after it was made, and what it is made of
often stands in a file.  So its fields are looked at when it is made, against their annotations.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Hashable
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from alpenglow.ir import dims

Test = Callable[[Any], bool]

_WORDS = range(-(1 << 63), 1 << 64)
"""What fits a word, signed or not."""

_EXACTLY = (bool, str, NoneType)


@functools.cache
def tests_of(cls: type) -> tuple[tuple[str, str, Test], ...]:
    """Return the name of each field of a dataclass, its annotation, and what tests a value."""
    scopes = {
        name: (annotation, vars(sys.modules[c.__module__]))
        for c in reversed(cls.__mro__)
        for name, annotation in inspect.get_annotations(c).items()
    }
    return tuple((f.name, *_read(*scopes[f.name])) for f in fields(cls))


def _read(annotation: Any, scope: dict[str, Any]) -> tuple[str, Test]:
    """Return an annotation's text, and the test of it: of what cannot be read, any value passes."""
    if not isinstance(annotation, str):
        return getattr(annotation, "__name__", str(annotation)), _test(annotation)
    try:
        return annotation, _test(eval(annotation, scope))
    except NameError:  # imported for type checkers only
        return annotation, _hashable


def _test(kind: Any) -> Test:
    """Return what tells whether a value is of a type."""
    if kind in _EXACTLY:
        return lambda value: type(value) is kind
    if kind is int:
        return _whole
    if kind is float:
        return lambda value: type(value) is float or (type(value) is int and value in _WORDS)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        options = [_test(option) for option in inner]
        return lambda value: any(test(value) for test in options)
    if origin is tuple and inner[1:] == (...,):
        each = _test(inner[0])
        return lambda value: isinstance(value, tuple) and all(map(each, value))
    if origin is tuple:
        places = [_test(place) for place in inner]
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(places)
            and all(test(x) for test, x in zip(places, value, strict=True))
        )
    if isinstance(kind, type) and origin is None:
        return lambda value: isinstance(value, kind)
    return _hashable


def _whole(value: object) -> bool:
    """Whether a value is an integer of 64 bits or passes for one: no bool, and none of NumPy's,
    which print as no literals."""
    if type(value) is int:
        return value in _WORDS
    return isinstance(value, dims.Sym) and dims.known(value)


def _hashable(value: object) -> bool:
    return isinstance(value, Hashable)
