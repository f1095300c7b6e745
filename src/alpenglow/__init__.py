"""Alpenglow compiles trained neural networks to machine code.

import alpenglow as ag
exe = ag.compile("model.onnx")
y = exe(x)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from alpenglow import ops
from alpenglow.base import errors, extensions
from alpenglow.bundle import Bundle, bundle
from alpenglow.compiler import Options, Pass
from alpenglow.frontends import load
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.types import TensorType
from alpenglow.passes.choices import Record
from alpenglow.runtime import Executable, compile, open

if TYPE_CHECKING:
    from alpenglow.calibration import profile_ranges
    from alpenglow.quant import Profile, QuantOptions, quantize

__version__ = "0.1.0"

__all__ = [
    "Bundle",
    "Executable",
    "Graph",
    "Options",
    "Pass",
    "Profile",
    "QuantOptions",
    "Record",
    "Target",
    "TensorType",
    "__version__",
    "bundle",
    "compile",
    "errors",
    "load",
    "open",
    "ops",
    "profile_ranges",
    "quantize",
]

_LATER = {
    "Profile": "alpenglow.quant",
    "QuantOptions": "alpenglow.quant",
    "profile_ranges": "alpenglow.calibration",
    "quantize": "alpenglow.quant",
}
"""What models are compiled without, and where it is: imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'alpenglow' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


# Last, so that what is imported here finds a whole package.
extensions.brought("alpenglow.extensions")
