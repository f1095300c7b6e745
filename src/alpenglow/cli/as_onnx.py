"""MODEL of a command as an ONNX model, whatever its format."""

from __future__ import annotations

from typing import Any

from alpenglow.base.errors import UnsupportedError
from alpenglow.cli.options import Request
from alpenglow.cli.source import kind_of, read, refuse_staged
from alpenglow.exporters.onnx import export_onnx
from alpenglow.frontends.registry import frontends
from alpenglow.ir.graph import Graph


def is_onnx(request: Request) -> bool:
    """Return True if MODEL is a file that the front end of ONNX reads."""
    if kind_of(request) != "model":
        return False
    return next((f.name for f in frontends() if f.accepts(str(request.model))), "") == "onnx"


def onnx_of(request: Request) -> Any:
    """Return MODEL, no ONNX file, as `convert` would write it.

    Raises UnsupportedError if it cannot be written.
    """
    source = read(request)
    refuse_staged(request, source, "written as ONNX, which this command works on")
    if not isinstance(source.ir, Graph):
        raise UnsupportedError(
            "this is a program, which cannot be written as ONNX", file=str(request.model),
            hint="the model itself, or the text of a graph",
        )  # fmt: skip
    return export_onnx(source.ir)
