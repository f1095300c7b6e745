"""What a file defines before its kernels: types, and the functions that they call."""

from __future__ import annotations

from abc import ABC, abstractmethod

from alpenglow.base.errors import UnsupportedError


class Library(ABC):
    """Collects definitions in the order in which they must stand, each once."""

    language: str
    inline: str
    """What stands before the type of a function."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self.functions: dict[str, str] = {}

    @abstractmethod
    def text(self) -> str:
        """Return everything that stands before the first kernel."""

    @abstractmethod
    def type(self, dtype: str, lanes: int = 1) -> str:
        """Return the type of a value, and note what it needs."""

    def define(self, kind: str, name: str, parameters: str, *lines: str) -> str:
        """Define a function, unless it is there; return its name.

        What it calls has been defined before.  Lines for the preprocessor begin with #.
        """
        if name not in self.functions:
            head = f"{self.inline} {kind} {name}({parameters}) {{"
            body = [line if line.startswith("#") else f"  {line}" for line in lines]
            self.functions[name] = "\n".join([head, *body, "}\n"])
        return name

    def lacks(self, what: str, kernel: str = "", *, hint: str = "") -> UnsupportedError:
        """Return the error for a feature that the language lacks, used by a kernel."""
        where = f" (kernel {kernel})" if kernel else ""
        return UnsupportedError(f"{self.language}: {what} is not supported{where}", hint=hint)
