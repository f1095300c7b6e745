"""Hosted forms of ONNX nodes, and values that may be sequences or hold strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from alpenglow.frontends.onnx.file.attributes import attribute_value
from alpenglow.frontends.onnx.hosted import HostSite, find_hosted
from alpenglow.ir.op import Host
from alpenglow.ops.host.demand import text

ML = "ai.onnx.ml"

LETTERS = text("abcdef", (2, 3))


def hosted_form(node: onnx.NodeProto, opset: int) -> Host:
    """Return the operator that stands for a node."""
    entry = find_hosted(node.domain, node.op_type, opset)
    assert entry is not None, node.op_type
    return entry(site(node, opset))


def site(node: onnx.NodeProto, opset: int) -> HostSite:
    given = {a.name: attribute_value(a, None) for a in node.attribute}
    return HostSite(node.op_type, opset, given, len(node.input), len(node.output))


def of(
    op_type: str, opset: int = 21, domain: str = "", outputs: int = 1, **attributes: Any
) -> Host:
    node = helper.make_node(op_type, ["x"], ["y"] * outputs, domain=domain, **attributes)
    return hosted_form(node, opset)


def results(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [made]


def assert_equal(expected: Any, actual: Any, rtol: float = 0) -> None:
    """Assert that two values are the same; fractions may differ by `rtol`."""
    if isinstance(expected, list):
        assert isinstance(actual, list) and len(actual) == len(expected)
        for e, a in zip(expected, actual, strict=True):
            assert_equal(e, a)
    elif isinstance(expected, np.ndarray):
        assert actual.shape == expected.shape
        if expected.dtype.kind in "OUS":
            assert actual.dtype == object
            assert actual.tolist() == expected.astype(object).tolist()
        else:
            assert actual.dtype == expected.dtype
            np.testing.assert_allclose(actual, expected, rtol)
    else:
        assert actual == expected
