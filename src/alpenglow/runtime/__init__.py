"""Running what was compiled: executables and the team of threads."""

from alpenglow.runtime.compile import compile
from alpenglow.runtime.executor import Executable

__all__ = ["Executable", "compile"]
