"""The pipeline from Graph to Artifact."""

from alpenglow.compiler.options import Options
from alpenglow.compiler.passes import Pass
from alpenglow.compiler.pipeline import (
    STAGES,
    compile_graph,
    compile_open,
    facts_after,
    require_closed,
)

__all__ = [
    "STAGES",
    "Options",
    "Pass",
    "compile_graph",
    "compile_open",
    "facts_after",
    "require_closed",
]
