"""Inputs of a program that are constants: they become state of it, as if a module had held them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from alpenglow.frontends.torch.program import Program
from alpenglow.ir.constant_inputs import check_names, constant
from alpenglow.ir.structure import without


def fixed(program: Program, values: Mapping[str, Any]) -> tuple[Program, dict[str, Any]]:
    """Return a program in which some inputs are constants, and the values that are left.

    Left are those of inputs with open extents, which they would bind: that is for graphs.  Raises
    OptionError for what is no input, and for a value that does not fit one.
    """
    types = {i.name: program.body.types[i.name] for i in program.inputs
             if i.kind == "user" and i.name in program.body.types}  # fmt: skip
    check_names(values, types)
    arrays = {n: constant(n, x, types[n].dtype, types[n].shape)
              for n, x in values.items() if not types[n].symbols()}  # fmt: skip
    targets = {name: f"{name} (constant)" for name in arrays}  # which no module calls anything
    inputs = tuple(
        replace(i, kind="constant", target=targets[i.name]) if i.name in arrays else i
        for i in program.inputs
    )
    state = {**program.state, **{targets[name]: array for name, array in arrays.items()}}
    structure = program.structure and without(program.structure, arrays)
    left = {name: x for name, x in values.items() if name not in arrays}
    return replace(program, inputs=inputs, state=state, structure=structure), left
