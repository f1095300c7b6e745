"""All converters: importing this brings the modules that hold them."""

from __future__ import annotations

from alpenglow.base.modules import import_modules
from alpenglow.frontends.tflite.table import find, find_quantised, moves, supported

__all__ = ["find", "find_quantised", "moves", "supported"]

import_modules("alpenglow.frontends.tflite.convert")
