"""The pipeline from Graph to Artifact."""

from alpenglow.compiler.options import Options
from alpenglow.compiler.pipeline import STAGES, Pass, compile_graph

__all__ = ["STAGES", "Options", "Pass", "compile_graph"]
