"""All converters: importing this brings the modules that hold them."""

from __future__ import annotations

from alpenglow.frontends.table import load_modules
from alpenglow.frontends.torch.table import find, supported

__all__ = ["find", "supported"]

load_modules(__name__.rpartition(".")[0], "convert_")
