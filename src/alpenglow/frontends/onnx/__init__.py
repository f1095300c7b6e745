"""The ONNX front end: `load` turns a model into a Graph.

Its modules are imported when it reads a model, and onnx with them: finding a compilation that is
kept needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alpenglow.frontends.onnx.converters import supported
    from alpenglow.frontends.onnx.model import load

__all__ = ["load", "supported"]

_LATER = {
    "load": "alpenglow.frontends.onnx.model",
    "supported": "alpenglow.frontends.onnx.converters",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'alpenglow.frontends.onnx' has no attribute '{name}'")
    return getattr(import_module(_LATER[name]), name)
