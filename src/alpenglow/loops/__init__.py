"""Loop forms of all operators, for every backend that renders kernels."""

from alpenglow.base.modules import import_folders
from alpenglow.loops.form import has_form
from alpenglow.loops.instruction import build

__all__ = ["build", "has_form"]

import_folders(__name__)
