"""All converters: importing this brings the modules that hold them."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from alpenglow.frontends.stablehlo.table import find, supported

__all__ = ["find", "supported"]

_PACKAGE = __name__.rpartition(".")[0]

for _module in pkgutil.iter_modules(import_module(_PACKAGE).__path__):
    if _module.name.startswith("convert_"):
        import_module(f"{_PACKAGE}.{_module.name}")
