"""Alpenglow compiles trained neural networks to machine code.

import alpenglow as ag
exe = ag.compile("model.onnx")
y = exe(x)
"""

from alpenglow import ops
from alpenglow.base import errors, extensions
from alpenglow.bundle import Bundle, bundle
from alpenglow.calibration import profile_ranges
from alpenglow.compiler import Options, Pass
from alpenglow.frontends import load
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.types import TensorType
from alpenglow.passes.choices import Record
from alpenglow.quant import Profile, QuantOptions, quantize
from alpenglow.runtime import Executable, compile, open

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

# Last, so that what is imported here finds a whole package.
extensions.brought("alpenglow.extensions")
