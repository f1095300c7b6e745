"""All converters: importing this brings the modules that hold them."""

from __future__ import annotations

from alpenglow.base.modules import import_modules
from alpenglow.frontends.stablehlo.table import find, supported

__all__ = ["find", "supported"]

import_modules("alpenglow.frontends.stablehlo.convert")
