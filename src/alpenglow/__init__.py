"""Alpenglow compiles trained neural networks to machine code.

import alpenglow as ag
exe = ag.compile("model.onnx")
y = exe(x)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from alpenglow.base import errors, extensions

if TYPE_CHECKING:
    from alpenglow import ops, train
    from alpenglow.autodiff import custom_gradient, gradients
    from alpenglow.bundles import Bundle, bundle
    from alpenglow.calibration import profile_ranges
    from alpenglow.compiler import Options, Pass
    from alpenglow.driver.compile import compile
    from alpenglow.driver.open import open
    from alpenglow.exporters.onnx import export_onnx
    from alpenglow.frontends import load
    from alpenglow.host.host import Host
    from alpenglow.host.worker import Link, Worker
    from alpenglow.ir.graph import Graph
    from alpenglow.ir.target import Target
    from alpenglow.ir.truncate import truncate
    from alpenglow.ir.types import TensorType
    from alpenglow.ops import functions
    from alpenglow.ops.expression import Expression
    from alpenglow.passes.choices import Record
    from alpenglow.placement import PlacedModel, Placement, place, placed
    from alpenglow.quant import Profile, QuantOptions, quantize
    from alpenglow.runtime.executables.executor import Executable
    from alpenglow.runtime.session.session import Session
    from alpenglow.train import trainable

__version__ = "0.1.0"

__all__ = [
    "Bundle",
    "Executable",
    "Expression",
    "Graph",
    "Host",
    "Link",
    "Options",
    "Pass",
    "PlacedModel",
    "Placement",
    "Profile",
    "QuantOptions",
    "Record",
    "Session",
    "Target",
    "TensorType",
    "Worker",
    "__version__",
    "bundle",
    "compile",
    "custom_gradient",
    "errors",
    "export_onnx",
    "functions",
    "gradients",
    "load",
    "open",
    "ops",
    "place",
    "placed",
    "profile_ranges",
    "quantize",
    "train",
    "trainable",
    "truncate",
]

_LATER = {
    "Bundle": "alpenglow.bundles",
    "Executable": "alpenglow.runtime.executables.executor",
    "Expression": "alpenglow.ops.expression",
    "Graph": "alpenglow.ir.graph",
    "Host": "alpenglow.host.host",
    "Link": "alpenglow.host.worker",
    "Options": "alpenglow.compiler",
    "Pass": "alpenglow.compiler",
    "PlacedModel": "alpenglow.placement",
    "Placement": "alpenglow.placement",
    "Profile": "alpenglow.quant",
    "QuantOptions": "alpenglow.quant",
    "Record": "alpenglow.passes.choices",
    "Session": "alpenglow.runtime.session.session",
    "Target": "alpenglow.ir.target",
    "TensorType": "alpenglow.ir.types",
    "Worker": "alpenglow.host.worker",
    "bundle": "alpenglow.bundles",
    "compile": "alpenglow.driver.compile",
    "custom_gradient": "alpenglow.autodiff",
    "export_onnx": "alpenglow.exporters.onnx",
    "gradients": "alpenglow.autodiff",
    "load": "alpenglow.frontends",
    "open": "alpenglow.driver.open",
    "place": "alpenglow.placement",
    "placed": "alpenglow.placement",
    "profile_ranges": "alpenglow.calibration",
    "quantize": "alpenglow.quant",
    "trainable": "alpenglow.train",
    "truncate": "alpenglow.ir.truncate",
}
"""Where each name is: imported when it is first asked for, since running needs less than making."""


def __getattr__(name: str) -> Any:
    if name in ("ops", "train"):
        return import_module(f"alpenglow.{name}")
    if name == "functions":
        return import_module("alpenglow.ops.functions")
    if name not in _LATER:
        raise AttributeError(f"module 'alpenglow' has no attribute '{name}'")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


# Last, so that what is imported here finds a whole package.
if extensions.entries("alpenglow.extensions"):
    extensions.bring_operators()
