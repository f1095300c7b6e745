"""Tell which files of the package, the tests and the tools import which, without importing any.

An import inside a function counts, as does a string that is the name of a module, which
`import_module` may import.
"""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDERS = ("src", "tests", "tools")
COMMAND = "alpenglow.__main__"

Entry = list[Any]
"""The time of writing and the size of a file, and names of modules, as JSON has them."""


class Graph:
    """The imports among the Python files of a clone, which are named by paths below its root.

    `cache` is a file for the module names that each file imports, which take 8 s to read from all
    files; an entry counts while the size and the time of writing of its file are the same.
    """

    def __init__(self, root: Path, cache: Path | None = None) -> None:
        self.root = root
        self.files = [
            path.relative_to(root).as_posix()
            for folder in FOLDERS
            for path in sorted((root / folder).rglob("*.py"))
        ]
        self._named = self._names()
        known = json.loads(cache.read_text()) if cache is not None and cache.exists() else {}
        entries = {f: self._entry(f, known.get(f)) for f in self.files}
        if cache is not None and entries != known:
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.write_text(json.dumps(entries))
        self.imports: Mapping[str, frozenset[str]] = {
            file: frozenset(f for name in entry[1] for f in self._found(name)) - {file}
            for file, entry in entries.items()
        }
        users: dict[str, set[str]] = defaultdict(set)
        for file, imported in self.imports.items():
            for other in imported:
                users[other].add(file)
        self.users: Mapping[str, set[str]] = users

    def reaching(self, files: Iterable[str]) -> set[str]:
        """Return `files` and all files that import one of them, by any number of steps."""
        reached, waiting = set(files), list(files)
        while waiting:
            new = self.users.get(waiting.pop(), set()) - reached
            reached |= new
            waiting += new
        return reached

    def _names(self) -> Mapping[str, list[str]]:
        """Return the files of each module name.  Folders of tests are on the path, so `a/b/c.py`
        below `tests` may be `c`, `b.c` or `a.b.c`."""
        named: dict[str, list[str]] = defaultdict(list)
        for file in self.files:
            parts = Path(file).with_suffix("").parts[1:]
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            begins = range(1) if file.startswith("src/") else range(len(parts))
            for begin in begins:
                named[".".join(parts[begin:])].append(file)
        return named

    def _entry(self, file: str, known: Entry | None) -> Entry:
        """Return the stamp of a file, and the names of modules that it may import."""
        stat = (self.root / file).stat()
        stamp = [stat.st_mtime_ns, stat.st_size]
        if known is not None and known[0] == stamp:
            return known
        text = (self.root / file).read_bytes()
        names = set(_imported(ast.parse(text, file), list(Path(file).parent.parts[1:])))
        if file.startswith("tests/") and b"alpenglow" in text:
            names.add(COMMAND)  # it may start the command
        return [stamp, sorted(names)]

    def _found(self, name: str) -> Iterator[str]:
        """Yield the files of a module and of the packages around it."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            yield from self._named.get(".".join(parts[:end]), ())


def _imported(tree: ast.Module, package: list[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                around = package[: len(package) - level + 1] if level else []
                base = ".".join([*around, *filter(None, [module])])
                yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Constant(value=str(value)) if value.startswith("alpenglow."):
                yield value
