"""Running what was compiled: executables, their archives, and the team of threads."""

from alpenglow.runtime.compile import compile
from alpenglow.runtime.executor import Executable, open

__all__ = ["Executable", "compile", "open"]
