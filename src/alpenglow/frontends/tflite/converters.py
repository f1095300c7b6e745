"""All converters: importing this brings the modules that hold them."""

from __future__ import annotations

from alpenglow.frontends.table import load_modules
from alpenglow.frontends.tflite.table import find, find_quantised, moves, supported

__all__ = ["find", "find_quantised", "moves", "supported"]

load_modules(__name__.rpartition(".")[0], "convert_")
