"""Converters take what the schemas of PyTorch's operators say, with the same defaults."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers operators

from alpenglow.frontends.torch import converters
from alpenglow.frontends.torch.table import IGNORED, REQUIRED

import_module("torchao.quantization")  # registers operators, too

DTYPES = {None: None, 4: "i64", 6: "f32"}
"""Element types that are defaults of schemas, by number."""


def schemas() -> Iterator[tuple[str, Any]]:
    """Yield all operators that have a converter and a schema."""
    for target in converters.supported():
        space, name, overload = (*target.split("."), "", "")[:3]
        packet = getattr(getattr(torch.ops, space, None), name, None)
        op = getattr(packet, overload, None)
        if isinstance(op, torch._ops.OpOverload):
            yield target, op._schema


def mistakes(target: str, schema: Any) -> Iterator[str]:
    entry = converters.find(target)
    assert entry is not None
    for a in schema.arguments:
        name = entry.parameter(a.name)
        if name not in entry.parameters:
            if not a.has_default_value() and a.name not in IGNORED:
                yield f"{target}: {a.name} is required, and not taken"
            continue
        ours = entry.parameters[name]
        if not a.has_default_value():
            continue  # ours may be there for another overload
        theirs = a.default_value
        theirs = DTYPES[theirs] if a.name.endswith("dtype") else theirs
        if ours is REQUIRED or plain(ours) != plain(theirs):
            yield f"{target}: {a.name} is {ours} by default, in the schema {theirs}"


def plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def test_defaults_are_those_of_the_schemas() -> None:
    checked = list(schemas())

    assert len(checked) > 300
    assert [m for target, schema in checked for m in mistakes(target, schema)] == []


def test_no_converter_takes_an_operator_that_changes_an_operand() -> None:
    """A file may hold such calls, as no object does: without a converter they are refused."""
    assert [target for target, schema in schemas() if schema.is_mutable] == []


def test_what_a_converter_requires_is_in_its_schema() -> None:
    unknown = []
    for target, schema in schemas():
        entry = converters.find(target)
        assert entry is not None
        names = {entry.parameter(a.name) for a in schema.arguments}
        unknown += [f"{target}: {name}" for name, default in entry.parameters.items()
                    if default is REQUIRED and name not in names]  # fmt: skip

    assert unknown == []
