"""From model files to graphs.  Each format has a folder with its own tables."""

from alpenglow.frontends.onnx import load

__all__ = ["load"]
