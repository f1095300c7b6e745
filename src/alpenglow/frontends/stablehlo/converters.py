"""All converters: importing this brings the modules that hold them."""

from __future__ import annotations

from alpenglow.frontends.stablehlo.table import find, supported
from alpenglow.frontends.table import load_modules

__all__ = ["find", "supported"]

load_modules(__name__.rpartition(".")[0], "convert_")
