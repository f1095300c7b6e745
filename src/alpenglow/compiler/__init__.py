"""The pipeline from Graph to Artifact."""

from alpenglow.compiler.ahead import run_ahead
from alpenglow.compiler.options import Options
from alpenglow.compiler.pipeline import (
    compile_graph,
    compile_open,
    every_pass,
    properties_after,
    require_closed,
)
from alpenglow.passes.table import Pass

__all__ = [
    "Options",
    "Pass",
    "compile_graph",
    "compile_open",
    "every_pass",
    "properties_after",
    "require_closed",
    "run_ahead",
]
