"""Import the package from code that marks its functions, in a file that processes share.

Byte `n` of the file is 1 if function `n` was executed.  Processes that a test starts map the file
of the test's process, so the marks of a process that is killed remain.
"""

from __future__ import annotations

import marshal
import mmap
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

NAME = "alpenglow"
_mapped: list[mmap.mmap] = []


def hits() -> mmap.mmap:
    """Return the marks of this process and of those that it starts."""
    if not _mapped:
        with open(os.environ["REACHED_HITS"], "r+b") as file:
            _mapped.append(mmap.mmap(file.fileno(), 0))
    return _mapped[0]


class Marking(SourceFileLoader):
    """Load a module of the package from marked code, and everything else as usual."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = Path(os.environ["REACHED_FOLDER"], "code", fullname)
        if not path.exists():
            return super().get_code(fullname)
        code: CodeType = marshal.loads(path.read_bytes())
        return code

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__reached__"] = hits()
        super().exec_module(module)


class Finder(PathFinder):
    """Find the package's modules, to be loaded by `Marking`."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != NAME:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = Marking(fullname, spec.loader.path)
        return spec


def install() -> None:
    """Let later imports of the package mark its functions, if there is a file of marks."""
    if "REACHED_HITS" in os.environ:
        sys.meta_path.insert(0, Finder)
