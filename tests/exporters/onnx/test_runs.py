"""The table of what runtimes implement says nothing that ONNX Runtime does not have."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest
from onnxruntime.capi import onnxruntime_pybind11_state

from alpenglow.exporters.onnx.elements import BY_TYPE, allowed, carrier, schema_of
from alpenglow.exporters.onnx.runs import RUNS

OPSET = 21

FUNCTIONS = {"HardSwish", "Mish", "Celu"}
"""Operators that ONNX Runtime takes apart into others, by what ONNX says they are."""


@cache
def kernels() -> dict[tuple[str, str], set[str]]:
    """Return the element types of ONNX Runtime's kernels on CPUs, by operator and variable."""
    types = defaultdict(set)
    for k in onnxruntime_pybind11_state.get_all_opkernel_def():
        first, last = k.version_range
        if (k.provider, k.domain) != ("CPUExecutionProvider", "") or not first <= OPSET <= last:
            continue
        for variable, kinds in k.type_constraints.items():
            types[k.op_name, variable] |= {BY_TYPE[t] for t in kinds if t in BY_TYPE}
    return types


@pytest.mark.parametrize("key", sorted(RUNS), ids=".".join)
def test_a_kernel_is_there_for_every_type_of_the_table(key: tuple[str, str]) -> None:
    op_type, variable = key
    schema = schema_of(op_type, OPSET)
    assert schema is not None
    legal = allowed(schema, variable)

    assert legal >= RUNS[key]
    if op_type not in FUNCTIONS:
        assert kernels()[key] >= RUNS[key]


@pytest.mark.parametrize(
    ("op_type", "dtype", "expected"),
    [("Add", "f32", "f32"), ("Add", "bf16", "f32"), ("Add", "f16", "f16"), ("Add", "u8", "i32"),
     ("Add", "u64", "u64"), ("Acos", "f64", "f64"), ("Trilu", "u64", "i64"), ("Max", "bool", None),
     ("Slice", "f8e8m0", "f32")],
)  # fmt: skip
def test_elements_are_carried_by_a_type_that_holds_them(
    op_type: str, dtype: str, expected: str | None
) -> None:
    schema = schema_of(op_type, OPSET)
    assert schema is not None

    assert carrier(schema, schema.inputs[0].type_str, dtype) == expected
